// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/plan"
)

// lookAgain checks marked commands against the cluster as it is now and returns those that still hold, with what they buy
// planned anew; the others are taken back. Their nodes are closed: what is found stays so.
func (c *Controller) lookAgain(ctx context.Context, commands []*Command) []*Command {
	if len(commands) == 0 {
		return nil
	}
	l := &look{c: c, refused: map[*Command]failure{}, of: map[types.UID]*Command{}}
	defer func() {
		each(commands, func(cmd *Command) {
			if f, no := l.refused[cmd]; no {
				c.rejected(ctx, cmd, f)
			}
		})
	}()
	err := c.settle(ctx, commands)
	var s *Snapshot
	if err == nil {
		s, err = c.observe(ctx)
	}
	if err != nil {
		for _, cmd := range commands {
			if !cmd.Forced {
				l.refused[cmd] = failure{failedAPI, err.Error()}
			}
		}
		return l.left(commands)
	}
	for _, cmd := range commands {
		cmd.pools = s.Pools // what is bought is planned on this snapshot
	}
	// 1. Pods as the API server has them.
	l.pods(ctx, s, commands)
	// 2. Blockers and budgets.
	for _, cmd := range l.left(commands) {
		l.blockers(s, cmd)
	}
	l.budgets(s, l.left(commands))
	// 3. Places.
	l.places(ctx, s, l.left(commands))
	return l.left(commands)
}

// look is one look at a pass's commands.
type look struct {
	c  *Controller
	mu sync.Mutex
	// refused are the commands that do not hold any more.
	refused map[*Command]failure
	of      map[types.UID]*Command
}

func (l *look) left(commands []*Command) []*Command {
	return slices.DeleteFunc(slices.Clone(commands), func(c *Command) bool { _, no := l.refused[c]; return no })
}

func (l *look) refuse(cmd *Command, kind, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, known := l.refused[cmd]; !known {
		l.refused[cmd] = failure{kind, why}
	}
}

// pods replaces what a command knows of its nodes by what is true now.
func (l *look) pods(ctx context.Context, s *Snapshot, commands []*Command) {
	now := make(map[string]*Node, len(s.Nodes))
	for _, n := range s.Nodes {
		now[n.Claim.Name] = n
	}
	each(commands, func(cmd *Command) {
		if cmd.Forced {
			return
		}
		for i, old := range cmd.Going {
			n := now[old.Claim.Name]
			if n == nil || n.Claim.UID != old.Claim.UID || n.Leaving() || n.Node == nil {
				l.refuse(cmd, failedChurn, fmt.Sprintf("NodeClaim %q is leaving already", old.Claim.Name))
				return
			}
			var list corev1.PodList
			if err := l.c.Live.List(ctx, &list, client.MatchingFields{"spec.nodeName": n.Node.Name}); err != nil {
				l.refuse(cmd, failedAPI, fmt.Sprintf("listing the pods of node %q: %s", n.Node.Name, err))
				return
			}
			on := make([]*corev1.Pod, len(list.Items))
			for k := range list.Items {
				on[k] = &list.Items[k]
			}
			fresh := *n
			fresh.Load = l.c.load(on)
			cmd.Going[i] = &fresh
		}
	})
}

// blockers checks that nothing has come that must not be disrupted.
func (l *look) blockers(s *Snapshot, cmd *Command) {
	for _, n := range cmd.Going {
		why := ""
		switch class := cmd.class(n); {
		case cmd.Forced:
			continue
		case n.Pool == nil || n.Pool.DeletionTimestamp != nil:
			why = fmt.Sprintf("NodePool not found (NodePool=%s)", n.PoolName())
		case n.doNotDisrupt() && class != repair:
			why = fmt.Sprintf("Disruption is blocked through the %q annotation", karpv1.DoNotDisruptAnnotationKey)
		case n.Awaited && class != repair:
			why = "Node is nominated for a pending pod"
		case n.KeptFree && optional(cmd.Reason):
			why = blockedByBuffer
		case s.Paused != "" && class != repair && len(n.Moving) > 0:
			why = s.Paused
		case class == graceful:
			why = s.podBlocker(n.Load)
		}
		if why == "" && cmd.consolidates() {
			if pod := s.wanted(n); pod != "" {
				why = wantedBy(pod)
			}
		}
		if why != "" {
			l.refuse(cmd, failedBlocked, why)
			return
		}
		if cmd.Reason == karpv1.DisruptionReasonEmpty && !n.Empty() {
			l.refuse(cmd, failedChurn, fmt.Sprintf("Node is not empty any more (%d pods)", len(n.Moving)))
			return
		}
	}
}

// consolidates reports whether the command is for the price alone.
func (cmd *Command) consolidates() bool {
	return cmd.Reason == karpv1.DisruptionReasonEmpty || cmd.Reason == karpv1.DisruptionReasonUnderutilized
}

// class is what a command's node puts up with.
func (cmd *Command) class(n *Node) class {
	switch {
	case cmd.Reason == ReasonUnhealthy:
		return repair
	case cmd.Reason == karpv1.DisruptionReasonDrifted && n.Claim.Spec.TerminationGracePeriod != nil:
		return eventual
	}
	return graceful
}

// budgets takes the newest commands back where more nodes are disrupted by now than a budget allows.
func (l *look) budgets(s *Snapshot, commands []*Command) {
	quotas := Quotas(s)
	for _, cmd := range slices.Backward(commands) {
		if cmd.Forced {
			continue
		}
		for _, n := range cmd.Going {
			q := quotas[n.PoolName()]
			used := 0
			if q != nil {
				if used = q.Used; cmd.Reason != ReasonUnhealthy {
					used += q.Unready
				}
			}
			if q == nil || used > q.Allowed[cmd.Reason] {
				l.refuse(cmd, failedBudget, stayBudget(cmd.Reason))
				break
			}
		}
		if _, no := l.refused[cmd]; no {
			for _, n := range cmd.Going {
				if q := quotas[n.PoolName()]; q != nil {
					q.Used--
				}
			}
		}
	}
}

// places plans all pods that will move anew, on the cluster without these nodes, and has the plan judged.
func (l *look) places(ctx context.Context, s *Snapshot, commands []*Command) {
	mine := map[string]bool{}
	var going []*Node
	for _, cmd := range commands {
		for _, n := range cmd.Going {
			mine[n.Claim.Name] = true
			going = append(going, n)
			for _, p := range n.Plan {
				l.of[p.UID] = cmd
			}
		}
	}
	if len(pods(going)) == 0 {
		return
	}
	// The commands' own nodes are not among those that leave anyway: their pods are what is planned here.
	others := *s
	others.Nodes = slices.DeleteFunc(slices.Clone(s.Nodes), func(n *Node) bool { return mine[n.Claim.Name] })
	w := newWorld(&others)
	whole := plan.Result{}
	w.apply(going, plan.Result{})
	for _, cmd := range commands {
		r := l.place(w, cmd)
		if _, no := l.refused[cmd]; no {
			continue
		}
		w.fill(r.Placements)
		w.charge(r.Launches)
		whole = join(whole, r)
	}
	if l.c.Judge == nil {
		return
	}
	var names []string
	for _, n := range going {
		if n.Node != nil {
			names = append(names, n.Node.Name)
		}
	}
	refused, err := l.c.Judge.Refused(ctx, s.View, names, &whole, objects(going))
	if err != nil {
		log.FromContext(ctx).Error(err, "judging moves; nothing is disrupted that would have to move pods")
		for _, cmd := range l.of {
			if !cmd.Forced {
				l.refuse(cmd, failedAPI, err.Error())
			}
		}
		return
	}
	for uid, why := range refused {
		if cmd := l.of[uid]; cmd != nil && !cmd.Forced {
			l.refuse(cmd, failedScheduling, "Not all pods would schedule, "+why)
		}
	}
}

// place plans the pods of one command: those that need nothing bought as before, the others as what they have to be worth.
func (l *look) place(w *world, cmd *Command) plan.Result {
	if cmd.Forced && len(cmd.Launches) == 0 {
		return plan.Result{} // nothing has to be bought, or it was before
	}
	in := plan.Input{View: w.without(nil, nil), Pods: pods(cmd.Going)}
	// What was to be deleted buys nothing: an empty node may have pods by now, or some that count for nothing.
	deletes := len(cmd.Launches) == 0 && (cmd.Reason == karpv1.DisruptionReasonUnderutilized || cmd.Reason == karpv1.DisruptionReasonEmpty)
	if deletes {
		in.View.Pools = nil
	}
	r := plan.Solve(in)
	if cmd.Forced {
		cmd.Launches = r.Launches
		return r
	}
	if len(r.Unplaced) > 0 {
		u := r.Unplaced[0]
		l.refuse(cmd, failedScheduling, fmt.Sprintf("Not all pods would schedule, %s => %s", u.Pod.NamespacedName, u.Detail))
		return r
	}
	cmd.Launches, cmd.Placements = r.Launches, r.Placements
	if cmd.Reason == karpv1.DisruptionReasonUnderutilized && !deletes {
		if why := worthwhile(cmd); why != "" {
			l.refuse(cmd, failedScheduling, why)
		}
		r.Launches = cmd.Launches
	}
	return r
}

// join puts two plans one after the other.
func join(a, b plan.Result) plan.Result {
	last := 0
	for _, p := range a.Placements {
		last = max(last, p.Step+1)
	}
	for _, x := range a.Launches {
		for _, step := range x.Steps {
			last = max(last, step+1)
		}
	}
	for _, p := range b.Placements {
		p.Step += last
		a.Placements = append(a.Placements, p)
	}
	for _, x := range b.Launches {
		x.Steps = slices.Clone(x.Steps)
		for i := range x.Steps {
			x.Steps[i] += last
		}
		a.Launches = append(a.Launches, x)
	}
	return a
}

// objects are the pods that move as the API has them, without their node, by the UID the planner knows them by.
func objects(going []*Node) map[types.UID]*corev1.Pod {
	out := map[types.UID]*corev1.Pod{}
	for _, n := range going {
		for i, p := range n.Plan {
			pod := *n.Moving[i] // what is below the surface is shared and read-only
			pod.Spec.NodeName = ""
			pod.Status.NominatedNodeName = ""
			out[p.UID] = &pod
		}
	}
	return out
}

// rejected takes a command back that did not hold and says so where Karpenter does.
func (c *Controller) rejected(ctx context.Context, cmd *Command, f failure) {
	c.takeBack(ctx, &cmd.Record, cmd.Going, f)
	if cmd.Kind == "" {
		return
	}
	c.Metrics.Rejected.WithLabelValues(cmd.Kind).Inc()
	for _, n := range cmd.Going {
		c.teller.node(n, eventRejected, "Consolidate", fmt.Sprintf("Consolidation rejected: %s, reason: %s (savings: $%.2f)", cmd.Decision(), f.kind, cmd.Saving))
	}
}
