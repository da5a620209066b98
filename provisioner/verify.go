// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"maps"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Judge runs the scheduler's own PreFilter and Filter plugins over nodes that do not exist yet.
type Judge interface {
	// Verify adds the hypothetical nodes to the cluster as the scheduler sees it and places the trials in order, each on
	// its node. It returns the trials that were refused, which are then not there for the ones after them.
	Verify(ctx context.Context, nodes []Hypothesis, trials []Trial) ([]Refusal, error)
}

// Hypothesis is a node that does not exist yet, with the pods that count as being on it already.
type Hypothesis struct {
	Node    *corev1.Node
	Present []*corev1.Pod
}

// Trial is one pod to be placed on the node of that name.
type Trial struct {
	Pod  *corev1.Pod
	Node string
}

// Refusal is a trial that a plugin refused, in the plugin's own words.
type Refusal struct {
	Trial  Trial
	Plugin string
	Reason string
}

// solveAgain bounds how often a batch is planned again because the judge refused a class on a pool altogether.
const solveAgain = 3

// solve plans and has the plan judged. What the judge refuses is planned again without the refused pairs, a bounded
// number of times; pods that are refused even then are unplaced with the plugin's words as the reason.
func (p *Provisioner) solve(ctx context.Context, in plan.Input, pods map[types.UID]*corev1.Pod) plan.Result {
	for n := 0; ; n++ {
		result := plan.Solve(in)
		if p.Judge == nil || len(result.Launches)+len(result.Placements) == 0 {
			return result
		}
		nodes, trials := p.hypotheses(in.View, &result, pods)
		refusals, err := p.Judge.Verify(ctx, nodes, trials)
		if err != nil {
			// The judge protects against buying nodes in vain. A judge that is broken must not stop pods from getting nodes.
			log.FromContext(ctx).Error(err, "judging a plan; it is carried out unjudged", "batch", len(in.Pods))
			return result
		}
		if len(refusals) == 0 {
			return result
		}
		for _, r := range refusals {
			p.Metrics.Rejected.WithLabelValues(r.Plugin).Inc()
			log.FromContext(ctx).Info("the scheduler's filters refuse a planned placement", "pod", r.Trial.Pod.Namespace+"/"+r.Trial.Pod.Name, "reason", r.Plugin+": "+r.Reason)
		}
		bars := bars(&result, refusals)
		if len(bars) == 0 || n == solveAgain {
			return without(result, refusals)
		}
		in.Barred = append(in.Barred, bars...)
	}
}

// hypotheses describes the nodes that are on their way and those the plan would buy, and every placement in plan order.
func (p *Provisioner) hypotheses(v *capacity.View, r *plan.Result, pods map[types.UID]*corev1.Pod) ([]Hypothesis, []Trial) {
	reserved := p.ledger.reserved()
	var nodes []Hypothesis
	for _, n := range v.Nodes {
		if n.Claim != "" && (n.Phase == capacity.Planned || n.Phase == capacity.Launched) {
			nodes = append(nodes, Hypothesis{Node: inFlight(n), Present: reserved[n.Claim]})
		}
	}
	var trials []Trial
	for _, pl := range r.Placements {
		trials = append(trials, Trial{Pod: pods[pl.Pod.UID], Node: pl.Node.Claim})
	}
	type stepped struct {
		step int
		t    Trial
	}
	var ordered []stepped
	for i := range r.Launches {
		l := &r.Launches[i]
		n := template(l, i)
		nodes = append(nodes, Hypothesis{Node: n})
		for k, q := range l.Pods {
			ordered = append(ordered, stepped{step: l.Steps[k], t: Trial{Pod: pods[q.UID], Node: n.Name}})
		}
	}
	slices.SortStableFunc(ordered, func(a, b stepped) int { return a.step - b.step })
	for _, o := range ordered {
		trials = append(trials, o.t)
	}
	return nodes, trials
}

// template is the node a launch would bring, at its least: the labels of its cheapest offering, the smallest
// allocatable of all its offerings, less what daemonset pods take.
func template(l *plan.Launch, i int) *corev1.Node {
	off := l.Offerings[0]
	labels := map[string]string{}
	for _, key := range l.Requirements.Keys() {
		if r := l.Requirements[key]; r.Finite() && len(r.Values()) == 1 {
			labels[key] = r.Values()[0]
		}
	}
	maps.Copy(labels, off.Type.Labels)
	labels[corev1.LabelTopologyZone], labels[karpv1.CapacityTypeLabelKey] = off.Zone, off.CapacityType
	alloc := off.Type.Allocatable
	for _, o := range l.Offerings[1:] {
		alloc = alloc.Min(o.Type.Allocatable)
	}
	daemons := l.Requests
	for _, q := range l.Pods {
		daemons = daemons.Sub(q.Class.Requests)
	}
	return node(launchName(i), labels, l.Pool.Taints, alloc.Sub(daemons))
}

func launchName(i int) string { return fmt.Sprintf("slipway-planned-%d", i) }

// inFlight is a node on its way as it will be when it is usable. It goes by its claim's name: under its own it may have
// joined already, with the taints of a node that boots.
func inFlight(n *capacity.Node) *corev1.Node {
	alloc := n.Allocatable.Sub(n.Used)
	for c, k := range n.Pods {
		alloc = alloc.AddTimes(c.Requests, int64(k)) // Used less the pods on it is what daemonset pods will take
	}
	return node(n.Claim, n.Labels, n.Taints, alloc)
}

func node(name string, labels map[string]string, taints []corev1.Taint, alloc capacity.Resources) *corev1.Node {
	labels = maps.Clone(labels)
	labels[corev1.LabelHostname] = name
	list := alloc.List()
	return &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(name), Labels: labels},
		Spec:       corev1.NodeSpec{Taints: taints},
		Status:     corev1.NodeStatus{Allocatable: list, Capacity: list, Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}},
	}
}

// bars turns refusals into exclusions: a class that was refused on every node of a pool is barred from the pool, one that
// was refused on a node on its way is barred from that node. Refusals of single pods beside accepted ones bar nothing:
// those pods are tried again later.
func bars(r *plan.Result, refusals []Refusal) []plan.Bar {
	refused := map[types.UID]Refusal{}
	for _, f := range refusals {
		refused[f.Trial.Pod.UID] = f
	}
	var out []plan.Bar
	for _, pl := range r.Placements {
		if f, ok := refused[pl.Pod.UID]; ok {
			out = append(out, plan.Bar{Class: pl.Pod.Class, Node: pl.Node.ID(), Reason: f.Plugin + ": " + f.Reason})
		}
	}
	type pair struct {
		class *capacity.Class
		pool  string
	}
	accepted, first := map[pair]bool{}, map[pair]Refusal{}
	var order []pair
	for _, l := range r.Launches {
		for _, q := range l.Pods {
			k := pair{q.Class, l.Pool.Name}
			f, no := refused[q.UID]
			if !no {
				accepted[k] = true
			} else if _, seen := first[k]; !seen {
				first[k] = f
				order = append(order, k)
			}
		}
	}
	for _, k := range order {
		if !accepted[k] {
			out = append(out, plan.Bar{Class: k.class, Pool: k.pool, Reason: first[k].Plugin + ": " + first[k].Reason})
		}
	}
	return out
}

// without takes the refused pods out of a plan; a launch that loses all its pods is not bought.
func without(r plan.Result, refusals []Refusal) plan.Result {
	refused := map[types.UID]Refusal{}
	for _, f := range refusals {
		refused[f.Trial.Pod.UID] = f
	}
	out := plan.Result{Unplaced: r.Unplaced}
	drop := func(q *capacity.Pod, pool string) bool {
		f, no := refused[q.UID]
		if no {
			out.Unplaced = append(out.Unplaced, plan.Unplaced{Pod: q, Pool: pool, Reason: plan.Refused, Detail: f.Plugin + ": " + f.Reason})
		}
		return no
	}
	for _, pl := range r.Placements {
		if !drop(pl.Pod, pl.Node.Pool) {
			out.Placements = append(out.Placements, pl)
		}
	}
	for _, l := range r.Launches {
		var pods []*capacity.Pod
		var steps []int
		for k, q := range l.Pods {
			if !drop(q, l.Pool.Name) {
				pods, steps = append(pods, q), append(steps, l.Steps[k])
			} else {
				l.Requests = l.Requests.Sub(q.Class.Requests)
			}
		}
		if len(pods) > 0 {
			l.Pods, l.Steps = pods, steps
			out.Launches = append(out.Launches, l)
		}
	}
	return out
}
