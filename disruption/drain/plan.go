// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Blocker is what keeps a pod on a node that is being drained, as reason of the condition Drained and label of metrics.
type Blocker string

// Blockers. Terminating and LaterTier are no trouble: such pods are on their way, or will have their turn.
const (
	Budget          Blocker = "PodDisruptionBudget"
	MultipleBudgets Blocker = "MultiplePodDisruptionBudgets"
	Protected       Blocker = "DoNotDisrupt"
	Refused         Blocker = "EvictionRefused"
	Replacement     Blocker = "AwaitingReplacement"
	Successor       Blocker = "AwaitingSuccessor"
	Terminating     Blocker = "Terminating"
	LaterTier       Blocker = "LaterTier"
)

// Verb is what is done about a pod.
type Verb string

// Verbs.
const (
	Evict  Verb = "evict"
	Delete Verb = "delete"
	Wait   Verb = "wait"
)

// holdMargin is how long before its last chance to stop in peace a pod is evicted although its replacement is not there:
// time for the API server to say no a few times.
const holdMargin = 10 * time.Second

// Input is what a plan is made of.
type Input struct {
	Now time.Time
	// Reason is why the node goes, for metrics.
	Reason string
	// Deadline is when the node goes whatever is on it; zero if it waits for its pods.
	Deadline time.Time
	// Pods are those on the node, Budgets those of their namespaces.
	Pods    []*corev1.Pod
	Budgets []*policyv1.PodDisruptionBudget
	// Hold says what the pods wait for as long as the deadline allows, empty if for nothing.
	Hold string
	// Refusals are evictions the API server has refused, by pod.
	Refusals map[types.UID]Refusal
}

// Refusal is an eviction that is not to be repeated for a while.
type Refusal struct {
	Why   string
	Until time.Time
	// Times is how often it was refused in a row, Version the state of the budgets that was refused.
	Times   int
	Version string
}

// Step is what is next for one pod.
type Step struct {
	Pod  *corev1.Pod
	Verb Verb
	// Grace of a Delete in seconds.
	Grace int64
	// Blocker and Why say what a Wait is for; Until is when it ends by itself, zero if that is not known.
	Blocker Blocker
	Why     string
	Until   time.Time
	// Tight says that a successor would end the wait.
	Tight bool
	// Version is the state of the budgets the step goes by.
	Version string
}

// Blocked reports whether the pod's way is barred, rather than under way or still to come.
func (s Step) Blocked() bool {
	return s.Verb == Wait && s.Blocker != Terminating && s.Blocker != LaterTier
}

// Plan says what is next for every pod that has to leave the node, in the order of their turn. Nothing is left to do when it
// is empty. Pods go in four strict tiers (see tier). By the deadline they are deleted, each early enough that its own grace
// period ends with the node (Karpenter's rule), whatever its tier, its budgets and its annotations say.
func Plan(in Input) []Step {
	leaving := slices.DeleteFunc(slices.Clone(in.Pods), func(p *corev1.Pod) bool { return !hasToLeave(p, in.Now) })
	slices.SortFunc(leaving, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(tier(a), tier(b)), cmp.Compare(a.Namespace, b.Namespace), cmp.Compare(a.Name, b.Name))
	})
	budgets := newBudgets(in.Budgets)
	steps := make([]Step, 0, len(leaving))
	for _, p := range leaving {
		s, forced := in.last(p)
		switch {
		case forced:
		case p.DeletionTimestamp != nil:
			s.Blocker, s.Why, s.Until = Terminating, "it is terminating", p.DeletionTimestamp.Add(stuckTerminating)
		case tier(p) > tier(leaving[0]):
			s.Blocker, s.Why = LaterTier, "its turn is after the other pods'"
		default:
			s = in.evict(p, budgets)
		}
		steps = append(steps, s)
	}
	return steps
}

// last is the step of a pod whose time is up, by the deadline of its node.
func (in Input) last(p *corev1.Pod) (s Step, forced bool) {
	s = Step{Pod: p, Verb: Wait}
	if in.Deadline.IsZero() || in.Now.Before(in.Deadline.Add(-grace(p))) {
		return s, false
	}
	if p.DeletionTimestamp != nil && !p.DeletionTimestamp.After(in.Deadline) {
		return s, false
	}
	s.Verb = Delete
	// At least a second: 0 would take the pod out of the API before the kubelet has stopped it.
	s.Grace = max(int64(in.Deadline.Sub(in.Now).Seconds()), 1)
	return s, true
}

// evict is the step of a pod whose turn it is.
func (in Input) evict(p *corev1.Pod, budgets budgets) Step {
	s := Step{Pod: p, Verb: Wait}
	if !in.Deadline.IsZero() {
		s.Until = in.Deadline.Add(-grace(p))
	}
	if holds, until, _ := protection(p, in.Now); holds {
		s.Blocker, s.Why = Protected, "it has the annotation karpenter.sh/do-not-disrupt"
		if !until.IsZero() {
			s.Why += fmt.Sprintf(" until %s", until.UTC().Format(time.RFC3339))
			s.Until = until
		}
		return s
	}
	if in.Hold != "" && (in.Deadline.IsZero() || in.Now.Before(s.Until.Add(-holdMargin))) {
		s.Blocker, s.Why = Replacement, in.Hold
		if !s.Until.IsZero() {
			s.Until = s.Until.Add(-holdMargin)
		}
		return s
	}
	s.Version = budgets.version(p)
	if r, ok := in.Refusals[p.UID]; ok && in.Now.Before(r.Until) && r.Version == s.Version {
		s.Blocker, s.Why, s.Until = Refused, r.Why, r.Until
		return s
	}
	if v := budgets.ask(p); v.blocker != "" {
		s.Blocker, s.Why, s.Tight = v.blocker, v.why, v.tight
		return s
	}
	s.Verb = Evict
	return s
}
