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

	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

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

// rest is how long everything may take to come to rest after the last step: retries of claims that could not be launched
// wait for up to a minute.
const rest = 3 * time.Minute

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
		err = errors.Join(err, os.CopyFS(filepath.Join(s.Keep, fmt.Sprint(s.Seed)), os.DirFS(w.Cluster.Dir())))
	}
	return violations, err
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
