// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Reasons beyond those of Karpenter's API (Underutilized, Empty, Drifted). A budget that names reasons cannot name Expired;
// one that names none covers it.
const (
	ReasonExpired   karpv1.DisruptionReason = "Expired"
	ReasonUnhealthy karpv1.DisruptionReason = "Unhealthy"
)

// reasons are all there are, for metrics and budgets.
func reasons() []karpv1.DisruptionReason {
	return []karpv1.DisruptionReason{
		karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonUnderutilized, ReasonExpired, ReasonUnhealthy,
	}
}

// wallClock is a clock that shows one instant, as a zone's wall time written in UTC, which is where Karpenter's budgets read
// schedules. On the days a zone changes its clocks a window is as long as the wall clock says.
type wallClock struct {
	clock.RealClock
	now time.Time
}

// Now implements clock.PassiveClock.
func (w wallClock) Now() time.Time { return w.now }

func wall(now time.Time, zone *time.Location) clock.Clock {
	if zone != nil {
		t := now.In(zone)
		now = time.Date(t.Year(), t.Month(), t.Day(), t.Hour(), t.Minute(), t.Second(), t.Nanosecond(), time.UTC)
	}
	return wallClock{now: now}
}

// Allowed is how many of the pool's nodes may be disrupted at once for the reason, before those that already are: the
// strictest active budget, percentages rounded up, and a large number if none is active (Karpenter's
// GetAllowedDisruptionsByReason). A budget that cannot be read allows nothing for any reason; the error says which.
func Allowed(np *karpv1.NodePool, s capacity.PoolSettings, nodes int, reason karpv1.DisruptionReason, now time.Time) (int, error) {
	if s.NoBudgetZone {
		for i := range np.Spec.Disruption.Budgets {
			if b := &np.Spec.Disruption.Budgets[i]; b.Schedule != nil {
				return 0, fmt.Errorf("NodePool %q: spec.disruption.budgets[%d]: its schedule cannot be read, because annotation %s %q names no time zone",
					np.Name, i, capacity.BudgetTimeZoneAnnotation, np.Annotations[capacity.BudgetTimeZoneAnnotation])
			}
		}
	}
	n, err := np.GetAllowedDisruptionsByReason(wall(now, s.BudgetZone), nodes, reason)
	if err != nil {
		return 0, fmt.Errorf("NodePool %q: spec.disruption.budgets: %w; nothing is disrupted until it is corrected", np.Name, err)
	}
	return n, nil
}

// neverComing says which of the pool's budgets have a schedule that never comes, such as the 30th of February. Karpenter takes them for
// active at any time: asked at an instant that is no whole second, for a window of no length, any other schedule is not.
func neverComing(np *karpv1.NodePool, now time.Time) []string {
	var out []string
	at := wall(now.Truncate(time.Second).Add(time.Second/2), nil)
	for i := range np.Spec.Disruption.Budgets {
		b := np.Spec.Disruption.Budgets[i]
		if b.Schedule == nil {
			continue
		}
		b.Duration = &metav1.Duration{}
		if active, err := b.IsActive(at); err == nil && active {
			out = append(out, fmt.Sprintf("NodePool %q: spec.disruption.budgets[%d]: its schedule %q never comes, so the budget counts at any time, as in Karpenter; correct the schedule or take it out",
				np.Name, i, *b.Schedule))
		}
	}
	return out
}

// Quota is what the budgets of one pool leave, for each reason.
type Quota struct {
	// Nodes are the pool's initialized nodes whose instance is not ending, Used those of them that are being deleted or belong
	// to a command, Unready the others that are not ready.
	Nodes, Used, Unready int
	// Allowed is what the budgets say, before Used is taken off.
	Allowed map[karpv1.DisruptionReason]int
	// Err says which budget cannot be read; then nothing is allowed.
	Err error
}

// Left is how many more nodes may be disrupted for the reason. A node that is not ready uses a budget up as well, but not
// against repair (Karpenter counts so for reason Unhealthy).
func (q *Quota) Left(reason karpv1.DisruptionReason) int {
	used := q.Used
	if reason != ReasonUnhealthy {
		used += q.Unready
	}
	return max(q.Allowed[reason]-used, 0)
}

// Quotas counts every pool's nodes as Karpenter does (BuildDisruptionBudgetMapping) and asks its budgets.
func Quotas(s *Snapshot) map[string]*Quota {
	out := map[string]*Quota{}
	for name := range s.Pools {
		out[name] = &Quota{Allowed: map[karpv1.DisruptionReason]int{}}
	}
	for _, n := range s.Nodes {
		q := out[n.PoolName()]
		if _, ending := n.condition(karpv1.ConditionTypeInstanceTerminating); q == nil || !n.Initialized() || ending {
			continue
		}
		q.Nodes++
		switch {
		case n.Disrupted():
			q.Used++
		case !n.Ready():
			q.Unready++
		}
	}
	for name, q := range out {
		p := s.Pools[name]
		for _, r := range reasons() {
			n, err := Allowed(p.NodePool, p.Settings, q.Nodes, r, s.Now)
			if err != nil {
				q.Err = err
			}
			q.Allowed[r] = n
		}
	}
	return out
}

// take uses up budget for the nodes of a command, if there is enough in every pool it touches.
func take(quotas map[string]*Quota, reason karpv1.DisruptionReason, nodes []*Node) bool {
	need := map[string]int{}
	for _, n := range nodes {
		need[n.PoolName()]++
	}
	for pool, k := range need {
		if q := quotas[pool]; q == nil || q.Left(reason) < k {
			return false
		}
	}
	for pool, k := range need {
		quotas[pool].Used += k
	}
	return true
}
