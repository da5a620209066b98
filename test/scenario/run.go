// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/judge"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// world is the input of a variant, decoded and completed.
type world struct {
	catalog     *capacity.Catalog
	slots       map[string]int // how many more instances each reservation takes
	unavailable func(capacity.OfferingKey) bool
	core        []client.Object // of Kubernetes' own kinds
	karpenter   []client.Object
	pending     []*corev1.Pod
	// reserved are pods planned for claims that have no node yet, by claim.
	reserved map[string][]*corev1.Pod
}

// load reads a variant. Its catalog section, if it has none, is standard.
func (v *variant) load(standard string) (*world, error) {
	w := &world{reserved: map[string][]*corev1.Pod{}}
	text := v.sections["catalog"]
	if text == "" {
		text = standard
	}
	var err error
	if w.catalog, w.slots, err = parseCatalog(text); err != nil {
		return nil, err
	}
	if w.unavailable, err = parseUnavailable(v.sections["unavailable"]); err != nil {
		return nil, err
	}
	base, err := decode(v.base)
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	objects, err := decode(v.sections["cluster"])
	if err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	wanting, err := decode(v.sections["pods"])
	if err != nil {
		return nil, fmt.Errorf("pods: %w", err)
	}
	if err := w.add(over(base, objects)); err != nil {
		return nil, fmt.Errorf("cluster: %w", err)
	}
	for _, o := range wanting {
		list := pods(o)
		if len(list) == 0 {
			return nil, fmt.Errorf("pods: %T %q stands for no pod", o, o.GetName())
		}
		w.pending = append(w.pending, list...)
	}
	for _, p := range w.pending {
		completePod(p)
	}
	w.core = append(w.core, namespaces(append(objectsOf(w.pending), w.core...))...)
	return w, nil
}

func objectsOf(list []*corev1.Pod) []client.Object {
	out := make([]client.Object, len(list))
	for i, p := range list {
		out[i] = p
	}
	return out
}

// add completes objects of the cluster section.
func (w *world) add(objects []client.Object) error {
	classes, onTheWay, pools := map[string]bool{}, map[string]bool{}, map[string]*karpv1.NodePool{}
	for _, o := range objects {
		switch o := o.(type) {
		case *karpv1.NodeClaim:
			onTheWay[o.Name] = true
		case *karpv1.NodePool:
			pools[o.Name] = o
		}
	}
	for _, o := range objects {
		deletedAt(o)
		switch o := o.(type) {
		case *v1.EC2NodeClass:
			classes[o.Name] = true
			w.karpenter = append(w.karpenter, o)
		case *karpv1.NodePool:
			if o.Spec.Template.Spec.NodeClassRef == nil {
				o.Spec.Template.Spec.NodeClassRef = builder.NodePool("").Obj().Spec.Template.Spec.NodeClassRef
			}
			w.karpenter = append(w.karpenter, o)
		case *karpv1.NodeClaim:
			if o.Spec.NodeClassRef == nil {
				o.Spec.NodeClassRef = builder.NodeClaim("").Obj().Spec.NodeClassRef
			}
			w.karpenter = append(w.karpenter, o)
		case *corev1.Node:
			if err := completeNode(o, w.catalog); err != nil {
				return err
			}
			w.core = append(w.core, o)
			if o.Labels[karpv1.NodePoolLabelKey] != "" {
				w.karpenter = append(w.karpenter, claimOf(o, pools[o.Labels[karpv1.NodePoolLabelKey]], w.catalog))
			}
		default:
			if err := w.addPods(o, onTheWay); err != nil {
				return err
			}
		}
	}
	if !classes[builder.DefaultClass] {
		w.karpenter = append(w.karpenter, builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	}
	return nil
}

// addPods adds the bound pods that o stands for, or o itself if it stands for none.
func (w *world) addPods(o client.Object, onTheWay map[string]bool) error {
	list := pods(o)
	for _, p := range list {
		if p.Spec.NodeName == "" {
			return fmt.Errorf("pod %q has no spec.nodeName: pods that want a place belong into section pods", p.Name)
		}
		if claim := p.Spec.NodeName; onTheWay[claim] {
			p.Spec.NodeName = ""
			w.reserved[claim] = append(w.reserved[claim], p)
		}
		completePod(p)
		w.core = append(w.core, p)
	}
	if len(list) == 0 {
		w.core = append(w.core, o)
	}
	return nil
}

// outcome is what comes out of a variant.
type outcome struct {
	plan     plan.Result
	refusals []hypothesis.Refusal // of the first plan
	trials   int
	err      error
}

// solve plans the variant and shows the plan to the judge.
func (w *world) solve(ctx context.Context) (*outcome, error) {
	cluster := source.New(runtimeObjects(slices.Concat(w.core, w.karpenter))...)
	for _, o := range w.karpenter {
		if c, ok := o.(*v1.EC2NodeClass); ok {
			cluster.Sell(c.Name, w.catalog)
		}
	}
	src := cluster.Source()
	src.Available = func(c *capacity.Catalog) capacity.Set { return c.Without(w.unavailable) }
	src.Reserved = func(id string) int { return w.slots[id] }
	b := view.New(src)
	v, err := b.Build(ctx, view.Pending{Reserved: w.reserved})
	if err != nil {
		return nil, err
	}
	in := plan.Input{View: v}
	wanting := provisioner.Pods{Wanting: map[types.UID]*corev1.Pod{}, Reserved: w.reserved, Class: func(p *corev1.Pod) *capacity.Class { return b.Pod(p).Class }}
	for _, p := range w.pending {
		wanting.Wanting[p.UID] = p
		in.Pods = append(in.Pods, b.Pod(p))
	}
	j, err := judge.New(ctx, runtimeObjects(append(objectsOf(w.pending), w.core...))...)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	out := &outcome{}
	out.plan = provisioner.Planner{Judge: &listener{judge: j, out: out}, Metrics: provisioner.NewMetrics()}.Solve(ctx, in, wanting)
	return out, out.err
}

// listener notes the judge's verdict of the first plan.
type listener struct {
	judge provisioner.Judge
	out   *outcome
	asked bool
}

// Verify implements provisioner.Judge.
func (l *listener) Verify(ctx context.Context, nodes []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	refusals, err := l.judge.Verify(ctx, nodes, trials)
	if !l.asked {
		l.asked, l.out.refusals, l.out.trials, l.out.err = true, refusals, len(trials), err
	}
	return refusals, err
}
