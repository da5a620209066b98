// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command planner has Karpenter's own scheduler plan pods that a file describes, in process and without a cluster, as
// Karpenter's scheduling benchmark does. test/sidebyside/plans writes the file and reads what this prints:
//
//	{"milliseconds": …, "nodes": …, "price": …, "unplaced": …, "rssKilobytes": …}
//
// Milliseconds are the median of Scheduler.Solve alone; the scheduler and its topology are made anew for each run, outside of
// the measured time. Price is what the claims cost if EC2 gives each the cheapest of the offerings that Karpenter would ask for.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/controllers/state"
	"sigs.k8s.io/karpenter/pkg/events"

	"github.com/slipway-sh/slipway/test/compare/input"
)

func main() {
	log.SetLogger(logr.Discard())
	path := flag.String("input", "", "file that describes the pods and what can be bought")
	runs := flag.Int("runs", 1, "how often to plan; the median time counts")
	flag.Parse()
	if err := run(*path, *runs); err != nil {
		fmt.Fprintln(os.Stderr, "planner:", err)
		os.Exit(1)
	}
}

// answer is what is printed.
type answer struct {
	Milliseconds float64 `json:"milliseconds"`
	Nodes        int     `json:"nodes"`
	Price        float64 `json:"price"`
	Unplaced     int     `json:"unplaced"`
	RSSKilobytes int     `json:"rssKilobytes"`
}

func run(path string, runs int) error {
	in, err := read(path)
	if err != nil {
		return err
	}
	ctx, err := input.Settings()
	if err != nil {
		return err
	}
	var times []time.Duration
	var results scheduling.Results
	for range runs {
		s, err := in.scheduler(ctx)
		if err != nil {
			return err
		}
		start := time.Now()
		if results, err = s.Solve(ctx, in.pods); err != nil {
			return fmt.Errorf("planning: %w", err)
		}
		times = append(times, time.Since(start))
	}
	slices.Sort(times)
	results = results.TruncateInstanceTypes(ctx, scheduling.MaxInstanceTypes)
	a := answer{
		Milliseconds: float64(times[len(times)/2]) / float64(time.Millisecond),
		Nodes:        len(results.NewNodeClaims), Unplaced: len(results.PodErrors),
	}
	for _, c := range results.NewNodeClaims {
		_, offering := input.Cheapest(c)
		if offering == nil {
			return fmt.Errorf("a claim of pool %q has no offering", c.NodePoolName)
		}
		a.Price += offering.Price
	}
	for pod, err := range results.PodErrors {
		fmt.Fprintf(os.Stderr, "pod %s: %v\n", pod.Name, err)
		break
	}
	if a.RSSKilobytes, err = peakMemory(); err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(a)
}

// workers is how many goroutines Karpenter's benchmark plans with.
const workers = 5

// scheduler makes a scheduler for an empty cluster.
func (in *problem) scheduler(ctx context.Context) (*scheduling.Scheduler, error) {
	kube, now := fake.NewClientBuilder().Build(), &clock.RealClock{}
	cluster := state.NewCluster(now, kube, nil) // no node comes, so nobody asks the provider
	types := map[string][]*cloudprovider.InstanceType{}
	for _, p := range in.pools {
		types[p.Name] = in.types
	}
	o := scheduling.NumConcurrentReconciles(workers)
	topology, err := scheduling.NewTopology(ctx, kube, cluster, nil, in.pools, types, in.pods, o)
	if err != nil {
		return nil, fmt.Errorf("making the topology: %w", err)
	}
	return scheduling.NewScheduler(ctx, kube, in.pools, cluster, nil, topology, types, in.daemons,
		events.NewRecorder(&record.FakeRecorder{}), now, nil, nil, o), nil
}

// problem is the file's content as Karpenter wants it.
type problem struct {
	pools   []*karpv1.NodePool
	daemons []*corev1.Pod
	pods    []*corev1.Pod
	types   []*cloudprovider.InstanceType
}

func read(path string) (*problem, error) {
	var f input.File
	if err := input.Read(path, &f); err != nil {
		return nil, err
	}
	return &problem{pools: f.Pools, daemons: f.Daemons, pods: f.AllPods(), types: f.InstanceTypes()}, nil
}

// peakMemory is what the process has had resident at most, in KiB.
func peakMemory() (int, error) {
	status, err := os.ReadFile("/proc/self/status")
	if err != nil {
		return 0, fmt.Errorf("reading the peak memory: %w", err)
	}
	for line := range strings.Lines(string(status)) {
		if kb, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(kb), " kB")))
		}
	}
	return 0, fmt.Errorf("reading the peak memory: the kernel does not report VmHWM")
}
