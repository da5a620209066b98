// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command latency measures how long Slipway takes from a pod to the EC2 request and from a node to its pods, on a real
// control plane with the EC2 emulator. For single pods machines boot at once; in bursts they take what EC2 takes.
//
// Figures (milliseconds unless said otherwise):
//
//	latency-single-p50, -p99   pod created (the API server has answered) → its CreateFleet request arrives, one pod at a time
//	latency-decision-p50       pod's filter failure → its CreateFleet request arrives, the same pods; decision-p50 and -p99 too
//	latency-loaded-p99         latency-single-p99 while other pods, which do fit, come and go at -load a second
//	latency-idle-p99           the slowest of the pods that come after a minute in which nothing happened (-idles of them)
//	added-p99                  what Slipway adds between pending and running, boot and EC2's answer taken out: created →
//	                           CreateFleet request, and kubelet Ready → bound; the pods of latency-single
//	latency-burst100-p99       pod seen on a watch → its CreateFleet request arrives, a Deployment of 100
//	latency-burst1000-last     first of 1,000 pods seen on a watch → the last CreateFleet request arrives
//	burst-1000-cluster         1,000 pods that are in the API server when the scheduler sees the first → the last CreateFleet
//	                           request arrives, seconds; bench-scheduler has the same without a control plane to wait for
//	lookahead-1000-last        first of 1,000 replicas fails → the last CreateFleet request arrives, with Kubernetes' own limit
//	                           of 20 requests a second for controllers; lookahead-off-1000-last: the same without look-ahead
//	bind-after-ready-p99       node usable (Ready, registered, no taints) → the last of its 50 pods is bound, nodes arriving one at a time
//	bind-1000                  the last node of the burst of 1,000 usable → all pods bound, seconds
//	off-plan                   pods that landed on a node other pods were still waiting for
//	second-launches            pods for which more than one node was bought
//	forgotten                  waiting pods that nothing would have happened to any more
//	postfilter-p50, -p99       microseconds a scheduling cycle spends in Slipway's PostFilter, over all parts
//
// Beside them, measured in the same run: what one write of an empty NodeClaim and of a ConfigMap costs on this control plane
// at rest, which is the part of a decision that no planner can save.
//
// Each part has a control plane of its own and can be run by itself (-parts); idle, a minute a pod, runs only if it is named.
package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

//go:embed pools.yaml
var pools []byte

func main() { os.Exit(command()) }

func command() int {
	log.SetLogger(logr.Discard())
	var n sizes
	binaries := flag.String("binaries", "bin", "folder of Slipway's binaries")
	wanted := flag.String("parts", "", "the parts to run, comma-separated: "+partNames+"; empty for all but idle")
	flag.IntVar(&n.singles, "singles", 200, "single pods to measure")
	flag.IntVar(&n.loaded, "loaded", 100, "single pods to measure under load")
	flag.IntVar(&n.load, "load", 200, "pods a second of that load")
	flag.IntVar(&n.idles, "idles", 2, "single pods to measure after a minute of idleness each")
	flag.IntVar(&n.small, "small", 100, "pods of the small burst")
	flag.IntVar(&n.large, "large", 1000, "pods of the large burst")
	flag.IntVar(&n.ready, "ready", 1000, "pods of the burst that is in the API server already")
	flag.IntVar(&n.ahead, "ahead", 1000, "replicas to look ahead for")
	flag.IntVar(&n.nodes, "nodes", 12, "nodes of 50 pods to measure binding on, one after the other")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, *binaries, n, *wanted); err != nil {
		fmt.Fprintf(os.Stderr, "bench-latency: %v\n", err)
		return 1
	}
	return 0
}

// containerStart is what a container with its image present takes to start.
const containerStart = 700 * time.Millisecond

// sizes are how much of each is measured.
type sizes struct{ singles, loaded, load, idles, nodes, small, large, ready, ahead int }

// quickBoot is a tenth of EC2's boot times: longer than a Deployment of 50 takes to create its pods.
const quickBoot = 0.1

// defaultQPS is what kube-controller-manager may ask of the API server in a second unless it is told otherwise.
const defaultQPS = 20

// part is a measurement on a control plane of its own.
type part struct {
	name  string
	opts  bed.Options
	do    func(context.Context) error
	print func()
}

// partNames are those of parts, in their order.
const partNames = "singles,loaded,idle,nodes,bursts,ready,ahead,ahead-off"

func (m *measurer) parts(n sizes) []part {
	instant, quick, timed := ec2emu.Options{Seed: 1, InstantBoot: true}, ec2emu.Options{Seed: 1, BootScale: quickBoot}, ec2emu.Options{Seed: 1, BootScale: 1}
	slow := cluster.Options{ControllerQPS: defaultQPS}
	return []part{
		{"singles", bed.Options{Emulator: instant}, func(ctx context.Context) error { return m.singles(ctx, n.singles) }, m.printSingles},
		{"loaded", bed.Options{Emulator: instant}, func(ctx context.Context) error { return m.loaded(ctx, n.loaded, n.load) }, m.printLoaded},
		{"idle", bed.Options{Emulator: instant}, func(ctx context.Context) error { return m.afterIdleness(ctx, n.idles) }, m.printIdle},
		{"nodes", bed.Options{Emulator: quick}, func(ctx context.Context) error { return m.nodes(ctx, n.nodes) }, m.printNodes},
		{"bursts", bed.Options{Emulator: timed}, func(ctx context.Context) error { return m.bursts(ctx, n.small, n.large) }, m.printBursts},
		{"ready", bed.Options{Emulator: timed}, func(ctx context.Context) error { return m.atOnce(ctx, n.ready) }, m.printReady},
		{"ahead", bed.Options{Emulator: timed, Cluster: slow}, func(ctx context.Context) error { return m.ahead(ctx, n.ahead, &m.aheadLast) }, func() {
			figure("lookahead-1000-last", ms(m.aheadLast), "ms")
		}},
		{"ahead-off", bed.Options{Emulator: timed, Cluster: slow, PluginArgs: map[string]any{"lookAhead": 0}}, func(ctx context.Context) error {
			return m.ahead(ctx, n.ahead, &m.aheadOffLast)
		}, func() { figure("lookahead-off-1000-last", ms(m.aheadOffLast), "ms") }},
	}
}

// run measures the wanted parts, printing the figures of each when it ends, and those of all together last.
func run(ctx context.Context, binaries string, n sizes, wanted string) error {
	m := &measurer{}
	all := strings.Split(partNames, ",")
	want := slices.DeleteFunc(slices.Clone(all), func(name string) bool { return name == "idle" })
	if wanted != "" {
		want = strings.Split(wanted, ",")
	}
	for _, name := range want {
		if !slices.Contains(all, name) {
			return fmt.Errorf("-parts: there is no part %q; the parts are %s", name, partNames)
		}
	}
	for _, p := range m.parts(n) {
		if !slices.Contains(want, p.name) {
			continue
		}
		began := time.Now()
		p.opts.Binaries, p.opts.Kubelet = binaries, cluster.KubeletOptions{PodStart: containerStart}
		if err := m.on(ctx, p.opts, p.do); err != nil {
			return fmt.Errorf("part %q: %w", p.name, err)
		}
		fmt.Printf("part %s took %.0f s\n", p.name, time.Since(began).Seconds())
		p.print()
	}
	m.print()
	return nil
}

// on brings up a bed with Slipway and the pools on it, and measures there.
func (m *measurer) on(ctx context.Context, opts bed.Options, do func(context.Context) error) (err error) {
	b, err := bed.New(ctx, opts)
	if err != nil {
		return err
	}
	defer func() {
		if e := b.Stop(); err == nil {
			err = e
		}
	}()
	if m.watch, err = bed.NewObserver(ctx, b); err != nil {
		return err
	}
	defer m.watch.Stop()
	m.bed = b
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.StartSlipway(); err != nil {
		return err
	}
	go func() { cancel(b.Wait(ctx)) }()
	err = m.prepare(ctx)
	if err == nil {
		err = do(ctx)
	}
	if err == nil {
		err = m.collect(ctx)
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx) // a process has died: that is the reason
	}
	return err
}

// prepare applies class and pools and waits until they are ready.
func (m *measurer) prepare(ctx context.Context) error {
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	for _, manifest := range [][]byte{class, pools} {
		if err := m.bed.Cluster.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	ctx, done := context.WithTimeout(ctx, time.Minute)
	defer done()
	return bed.AwaitReadyPools(ctx, m.bed, "single", "dense")
}
