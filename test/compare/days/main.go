// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command days has Karpenter's own scheduler and its own consolidation live through a day that a file describes, in process, with a
// clock of its own. test/sidebyside/days writes the file, lives through the same day with Slipway's, and reads what this prints:
//
//	{"dollars": …, "evictions": …, "bought": …, "removed": …, "late": …, "nodes": …, "seconds": …}
//
// What is Karpenter's: state.Cluster, Provisioner.NewScheduler and Solve, and the methods Emptiness, MultiNodeConsolidation and
// SingleNodeConsolidation with their candidates, budgets and prices. What is played: the API server, kube-scheduler, EC2 (see
// package comment of test/sidebyside/days for what that leaves out). Two things are easier for Karpenter here than in a cluster: a
// command finds the cluster as it was when it was computed, 15 seconds before, and evicted pods land where it planned them.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/compare/input"
)

// day is what test/sidebyside/days writes.
type day struct {
	input.File

	// Kinds are what pods look like.
	Kinds []*corev1.Pod `json:"kinds"`
	// Arrivals are in the order of At.
	Arrivals []arrival `json:"arrivals"`
	// Seconds is how long the day is. Step is how often pods come and go, Every how often nodes are looked at; Boot is how long a
	// node takes, all in seconds.
	Seconds int `json:"seconds"`
	Step    int `json:"step"`
	Every   int `json:"every"`
	Boot    int `json:"boot"`
	// Full has kube-scheduler prefer the fullest node (MostAllocated) and not the emptiest.
	Full bool `json:"full"`
}

// arrival is a pod: when it comes, and for how long, in seconds.
type arrival struct {
	At   int `json:"at"`
	Life int `json:"life"`
	Kind int `json:"kind"`
}

// answer is what is printed.
type answer struct {
	// Dollars is what all nodes have cost. Nodes is how many there were on average.
	Dollars float64 `json:"dollars"`
	Nodes   float64 `json:"nodes"`
	// Evictions counts pods moved by consolidation, Bought and Removed nodes, Late pods that waited for a node's boot.
	Evictions int     `json:"evictions"`
	Bought    int     `json:"bought"`
	Removed   int     `json:"removed"`
	Late      int     `json:"late"`
	Seconds   float64 `json:"seconds"` // of this machine
}

func main() {
	log.SetLogger(logr.Discard())
	path := flag.String("input", "", "file that describes the day")
	flag.Parse()
	if err := run(*path); err != nil {
		fmt.Fprintln(os.Stderr, "days:", err)
		os.Exit(1)
	}
}

func run(path string) error {
	var d day
	if err := input.Read(path, &d); err != nil {
		return err
	}
	ctx, err := input.Settings()
	if err != nil {
		return err
	}
	w, err := newWorld(&d)
	if err != nil {
		return err
	}
	began := time.Now()
	a, err := w.live(ctx, &d)
	if err != nil {
		return err
	}
	a.Seconds = time.Since(began).Seconds()
	return json.NewEncoder(os.Stdout).Encode(a)
}
