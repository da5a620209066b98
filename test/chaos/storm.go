// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Storm is one run.
type Storm struct {
	// Seed decides everything but the machine's own timing.
	Seed uint64
	// Binaries is the folder with Slipway's processes.
	Binaries string
	// Steps is how many things happen; 0 means 16.
	Steps int
	// Keep, if set, is a folder that gets the processes' logs of a storm with violations.
	Keep string
	// Log is told what happens; nil for nobody.
	Log func(format string, args ...any)
}

// rest is how long everything may take to come to rest after the last step: what EC2 was out of is left alone for three
// minutes.
const rest = 5 * time.Minute

// Run makes the storm and returns what was violated, empty if nothing. The error says why there was no verdict.
func (s Storm) Run(ctx context.Context) (violations []string, err error) {
	if s.Steps == 0 {
		s.Steps = 16
	}
	if s.Log == nil {
		s.Log = func(string, ...any) {}
	}
	w := &world{Storm: s, rand: rand.New(rand.NewPCG(s.Seed, 0)), deployments: map[string]int32{}}
	w.Bed, err = bed.New(ctx, bed.Options{
		Binaries: s.Binaries, NoLeases: true,
		// Machines boot in seconds, and two minutes of warning pass in four.
		Emulator: ec2emu.Options{Seed: s.Seed, BootScale: 0.05, Speed: 30},
	})
	if err != nil {
		return nil, fmt.Errorf("starting the bed of storm %d: %w", s.Seed, err)
	}
	defer func() { err = errors.Join(err, w.Stop()) }()
	if w.kube, err = client.New(w.Cluster.Config(), client.Options{Scheme: scheme.Scheme}); err != nil {
		return nil, fmt.Errorf("creating a client: %w", err)
	}
	if err := w.prepare(ctx); err != nil {
		return nil, err
	}
	watch := newWatcher(w)
	watching, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { defer close(done); watch.run(watching) }()
	err = w.blow(ctx)
	if err == nil {
		violations = w.settle(ctx)
	}
	stop()
	<-done
	violations = slices.Concat(watch.violations, violations, w.afterwards(ctx))
	if len(violations) > 0 && s.Keep != "" {
		err = errors.Join(err, w.keep(ctx))
	}
	return violations, err
}

// keep copies the processes' logs and the objects of the cluster.
func (w *world) keep(ctx context.Context) error {
	dir := filepath.Join(w.Keep, fmt.Sprint(w.Seed))
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return fmt.Errorf("keeping the logs of storm %d: %w", w.Seed, err)
	}
	var errs []error
	for _, name := range []string{bed.Scheduler, bed.Controller, "kube-controller-manager"} {
		log, err := os.ReadFile(filepath.Join(w.Cluster.Dir(), name+".log"))
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name+".log"), log, 0o600))
	}
	for name, list := range map[string]client.ObjectList{
		"pods": &corev1.PodList{}, "nodes": &corev1.NodeList{}, "nodeclaims": &karpv1.NodeClaimList{}, "nodepools": &karpv1.NodePoolList{},
	} {
		errs = append(errs, w.kube.List(ctx, list))
		text, err := yaml.Marshal(list)
		errs = append(errs, err, os.WriteFile(filepath.Join(dir, name+".yaml"), text, 0o600))
	}
	return errors.Join(errs...)
}

// world is the cluster the storm goes over.
type world struct {
	Storm
	*bed.Bed
	kube client.Client
	rand *rand.Rand
	// deployments are those that exist, with the replicas they should have.
	deployments map[string]int32
	singles     int

	mu sync.Mutex
	// dead are processes that were killed and have to be started again.
	dead map[string]bool
	// killed is how often each process was.
	killed map[string]int
}

// blow makes the steps.
func (w *world) blow(ctx context.Context) error {
	steps := w.steps()
	for n := range w.Steps {
		step := steps[w.rand.IntN(len(steps))]
		if n == 0 {
			step = action{"scale up", (*world).scaleUp}
		}
		w.Log("%2d %s", n, step.name)
		if err := step.do(w, ctx); err != nil {
			return fmt.Errorf("storm %d, step %d (%s): %w", w.Seed, n, step.name, err)
		}
		if err := pause(ctx, time.Duration(w.rand.IntN(2000))*time.Millisecond); err != nil {
			return err
		}
		if err := w.revive(); err != nil {
			return fmt.Errorf("storm %d, step %d: %w", w.Seed, n, err)
		}
	}
	w.Emulator.ClearFaults()
	w.Emulator.SetHook(nil)
	w.Emulator.SetPartialFleets(0)
	w.Emulator.SetStock(ec2emu.Pool{Zone: "*", CapacityType: "spot"}, -1)
	for _, zone := range w.zones() {
		w.Emulator.SetStock(ec2emu.Pool{Zone: zone}, -1)
	}
	return w.revive()
}

// kill ends a process as kill -9 does; revive starts it again.
func (w *world) kill(name string) error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.dead[name] {
		return nil
	}
	if w.dead == nil {
		w.dead, w.killed = map[string]bool{}, map[string]int{}
	}
	w.dead[name] = true
	w.killed[name]++
	return w.Process(name).Kill()
}

// revive starts what was killed.
func (w *world) revive() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	var errs []error
	for name := range w.dead {
		delete(w.dead, name)
		w.Log("   starting %s again", name)
		if name == bed.Scheduler {
			errs = append(errs, w.StartScheduler())
		} else {
			errs = append(errs, w.StartController())
		}
	}
	return errors.Join(errs...)
}

// pause lets real processes do their work.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.C:
		return nil
	}
}
