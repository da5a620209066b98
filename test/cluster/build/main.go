// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command build builds the binaries of the local control plane and prints their folder.
//
// On a fresh machine it compiles Kubernetes, which takes 10 to 20 minutes on two cores; it says what it is at.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/slipway-sh/slipway/test/cluster"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run() error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	// With kwok, everything that any cluster needs.
	dir, err := cluster.Build(ctx, cluster.Options{Kubelet: cluster.Kwok})
	if err != nil {
		return err
	}
	_, err = fmt.Println(dir)
	return err
}
