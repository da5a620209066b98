// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/sidebyside/input"
)

type options struct {
	peer, scheduler, docs string
	seed                  uint64
	hours, cores          int
	step, every, boot     int
	scoring, peerScoring  string
	minNodeAge            string
}

func main() {
	log.SetLogger(logr.Discard())
	o := options{}
	flag.StringVar(&o.peer, "karpenter", "bin/compare/days", "the program built from test/compare/days")
	flag.StringVar(&o.scheduler, "controller", "bin/compare/karpenter", "the stock Karpenter controller, for its version")
	flag.StringVar(&o.docs, "docs", "", "file whose section is replaced by what was measured")
	flag.Uint64Var(&o.seed, "seed", 1, "of all draws")
	flag.IntVar(&o.hours, "hours", 24, "how long the day is")
	flag.IntVar(&o.cores, "cores", 100, "cores that pods ask for on average")
	flag.IntVar(&o.step, "step", 10, "seconds between two looks at which pods come and go")
	flag.IntVar(&o.every, "every", 120, "seconds between two passes of consolidation, a multiple of -step")
	flag.IntVar(&o.boot, "boot", 40, "seconds that a node takes to boot")
	flag.StringVar(&o.scoring, "scoring", mostAllocated, "which nodes slipway-scheduler prefers: "+mostAllocated+", as it is installed, or "+leastAllocated)
	flag.StringVar(&o.peerScoring, "peer-scoring", leastAllocated, "which nodes kube-scheduler prefers beside Karpenter: "+leastAllocated+", as it does by itself and EKS has it, or "+mostAllocated)
	flag.StringVar(&o.minNodeAge, "min-node-age", "", "Slipway's annotation slipway.sh/min-node-age on the pool; its default if empty")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "compare-cost:", err)
		os.Exit(1)
	}
}

// The scoring strategies of kube-scheduler's NodeResourcesFit.
const (
	leastAllocated = "LeastAllocated"
	mostAllocated  = "MostAllocated"
)

// settle sets what the options say of Slipway's pool.
func (o *options) settle(b *builder.NodePoolBuilder) {
	b.Budget(budget)
	if o.minNodeAge != "" {
		b.Annotation(capacity.MinNodeAgeAnnotation, o.minNodeAge)
	}
}

// answer is what either side has to say about the day: see test/compare/days.
type answer struct {
	Dollars   float64 `json:"dollars"`
	Nodes     float64 `json:"nodes"`
	Evictions int     `json:"evictions"`
	Bought    int     `json:"bought"`
	Removed   int     `json:"removed"`
	Late      int     `json:"late"`
	Seconds   float64 `json:"seconds"`
}

// file is the day as Karpenter's side reads it.
type file struct {
	*input.File

	Kinds    []*corev1.Pod `json:"kinds"`
	Arrivals []arrival     `json:"arrivals"`
	Seconds  int           `json:"seconds"`
	Step     int           `json:"step"`
	Every    int           `json:"every"`
	Boot     int           `json:"boot"`
	Full     bool          `json:"full"`
}

func run(o options) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if o.step < 1 || o.every < o.step || o.every%o.step != 0 {
		return fmt.Errorf("-every %d is not a multiple of -step %d", o.every, o.step)
	}
	for name, value := range map[string]string{"scoring": o.scoring, "peer-scoring": o.peerScoring} {
		if value != leastAllocated && value != mostAllocated {
			return fmt.Errorf("-%s %q: want %s or %s", name, value, leastAllocated, mostAllocated)
		}
	}
	pool, err := pool(ctx)
	if err != nil {
		return err
	}
	d := draw(o.seed, o.hours*3600, o.cores)
	fmt.Printf("a day of %d hours, %d pods of %d kinds, over %d types\n", o.hours, len(d.arrivals), len(d.kinds), len(pool.Catalog.Types))
	ours, err := live(d, pool, o)
	if err != nil {
		return fmt.Errorf("living through the day with Slipway: %w", err)
	}
	tell("Slipway", ours)
	theirs, err := ask(ctx, d, pool, o)
	if err != nil {
		return fmt.Errorf("living through the day with Karpenter: %w", err)
	}
	tell("Karpenter", theirs)
	return report(o, d, ours, theirs)
}

// pool sells c, m and r types of x86 from the seventh generation on without local disks, on demand. Its catalogue has these and nothing
// else, in one zone: prices on demand are the same in all, and Karpenter looks through everything each time.
func pool(ctx context.Context) (*capacity.Pool, error) {
	all, err := mix.EC2(ctx)
	if err != nil {
		return nil, err
	}
	few := capacity.Requirements{}
	for _, q := range []struct {
		key    string
		op     corev1.NodeSelectorOperator
		values []string
	}{
		{v1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, []string{"6"}},
		{v1.LabelInstanceCPU, corev1.NodeSelectorOpLt, []string{"17"}},
		{v1.LabelInstanceCPU, corev1.NodeSelectorOpGt, []string{"1"}},
		{v1.LabelInstanceCategory, corev1.NodeSelectorOpIn, []string{"c", "m", "r"}},
		{corev1.LabelArchStable, corev1.NodeSelectorOpIn, []string{"amd64"}},
		{v1.LabelInstanceLocalNVME, corev1.NodeSelectorOpDoesNotExist, nil},
	} {
		r, err := capacity.NewRequirement(q.key, q.op, q.values...)
		if err != nil {
			return nil, err
		}
		few = few.With(r)
	}
	var types []*capacity.InstanceType
	for _, t := range all.Types {
		if !few.MatchesLabels(t.Labels) {
			continue
		}
		one := *t
		one.Offerings = nil
		for _, o := range t.Offerings {
			if o.CapacityType == karpv1.CapacityTypeOnDemand && len(one.Offerings) == 0 {
				one.Offerings = append(one.Offerings, o)
			}
		}
		types = append(types, &one)
	}
	return builder.CapacityPool("default", capacity.NewCatalog(types)).Require(capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand)).Obj(), nil
}

// ask has Karpenter's side live through the day.
func ask(ctx context.Context, d *day, pool *capacity.Pool, o options) (answer, error) {
	in, err := input.Of(plan.Input{View: &capacity.View{Pools: []*capacity.Pool{pool}}})
	if err != nil {
		return answer{}, err
	}
	for _, p := range in.Pools {
		p.Spec.Disruption.ConsolidationPolicy = karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized
		p.Spec.Disruption.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
		p.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: budget}}
	}
	f := file{File: in, Arrivals: d.arrivals, Seconds: d.seconds, Step: o.step, Every: o.every, Boot: o.boot, Full: o.peerScoring == mostAllocated}
	for _, k := range d.kinds {
		p, err := input.Pod(k.class)
		if err != nil {
			return answer{}, err
		}
		f.Kinds = append(f.Kinds, p)
	}
	folder, err := os.MkdirTemp("", "slipway-days-")
	if err != nil {
		return answer{}, fmt.Errorf("making a folder for the day: %w", err)
	}
	defer os.RemoveAll(folder)
	path := filepath.Join(folder, "day.json")
	if err := input.Save(path, f); err != nil {
		return answer{}, err
	}
	cmd := exec.CommandContext(ctx, o.peer, "-input", path)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return answer{}, err
	}
	var a answer
	return a, json.Unmarshal(out, &a)
}
