// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"slices"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Judge runs the scheduler's own PreFilter and Filter plugins over nodes that do not exist yet.
type Judge interface {
	// Verify adds the hypothetical nodes to the cluster as the scheduler sees it and places the trials in order, each on
	// its node: one of the hypothetical ones or one of the cluster. It returns the trials that were refused, which are then
	// not there for the ones after them.
	Verify(ctx context.Context, nodes []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error)
}

// Planner plans and has its plans judged. Judge may be nil: plans are then carried out unjudged.
type Planner struct {
	Judge   Judge
	Metrics *Metrics
}

// Pods are the API objects a plan is about.
type Pods struct {
	// Wanting are the pods of plan.Input.Pods.
	Wanting map[types.UID]*corev1.Pod
	// Reserved are pods planned earlier for nodes that are on their way, by NodeClaim name.
	Reserved map[string][]*corev1.Pod
	// Class converts a reserved pod as the view did.
	Class func(*corev1.Pod) *capacity.Class
}

// Hypotheses describes the nodes of a plan that do not exist yet, and its placements in plan order, for the judge.
func (p Planner) Hypotheses(v *capacity.View, r *plan.Result, pods Pods) ([]hypothesis.Node, []hypothesis.Trial) {
	return hypotheses(v, r, pods)
}

// solveAgain bounds how often a batch is planned again because the judge refused a class on a pool altogether.
const solveAgain = 3

// Solve plans and has the plan judged. What the judge refuses is planned again without the refused pairs, a bounded
// number of times; pods that are refused even then are unplaced with the plugin's words as the reason.
func (p Planner) Solve(ctx context.Context, in plan.Input, pods Pods) plan.Result {
	for n := 0; ; n++ {
		result := plan.Solve(in)
		if p.Judge == nil || len(result.Launches)+len(result.Placements) == 0 {
			return result
		}
		nodes, trials := hypotheses(in.View, &result, pods)
		took := prometheus.NewTimer(p.Metrics.Step.WithLabelValues("verify"))
		refusals, err := p.Judge.Verify(ctx, nodes, trials)
		took.ObserveDuration()
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
			log.FromContext(ctx).Info("the scheduler's filters refuse a planned placement", "pod", r.Pod.Namespace+"/"+r.Pod.Name, "reason", r.Plugin+": "+r.Reason)
		}
		bars := bars(&result, refusals, in.Barred)
		if len(bars) == 0 || n == solveAgain {
			return without(result, refusals)
		}
		in.Barred = append(in.Barred, bars...)
	}
}

// bars turns refusals into exclusions: a class that was refused on every node of an instance type is barred from that type
// in the pool, and from the whole pool if that has happened before; one that was refused on a node on its way is barred from
// that node. Refusals of single pods beside accepted ones bar nothing: those pods are tried again later.
func bars(r *plan.Result, refusals []hypothesis.Refusal, already []plan.Bar) []plan.Bar {
	refused := map[types.UID]hypothesis.Refusal{}
	for _, f := range refusals {
		refused[f.Pod.UID] = f
	}
	var out []plan.Bar
	for _, pl := range r.Placements {
		if f, ok := refused[pl.Pod.UID]; ok {
			out = append(out, plan.Bar{Class: pl.Pod.Class, Node: pl.Node.ID(), Reason: f.Plugin + ": " + f.Reason})
		}
	}
	type place struct {
		class              *capacity.Class
		pool, instanceType string
	}
	accepted, first := map[place]bool{}, map[place]hypothesis.Refusal{}
	var order []place
	for _, l := range r.Launches {
		for _, q := range l.Pods {
			k := place{q.Class, l.Pool.Name, l.Offerings[0].Type.Name}
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
		if accepted[k] {
			continue
		}
		bar := plan.Bar{Class: k.class, Pool: k.pool, InstanceType: k.instanceType, Reason: first[k].Plugin + ": " + first[k].Reason}
		if slices.ContainsFunc(already, func(b plan.Bar) bool { return b.Class == k.class && b.Pool == k.pool }) {
			bar.InstanceType = ""
		}
		out = append(out, bar)
	}
	return out
}

// without takes the refused pods out of a plan; a launch that loses all its pods is not bought.
func without(r plan.Result, refusals []hypothesis.Refusal) plan.Result {
	refused := map[types.UID]hypothesis.Refusal{}
	for _, f := range refusals {
		refused[f.Pod.UID] = f
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
