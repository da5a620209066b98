// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"
	"time"

	"github.com/robfig/cron/v3"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// horizon is how far schedules are simulated: more than a week, so that every weekday is in it twice.
const horizon = 8 * 24 * time.Hour

// frozen is a clock that stands still, for functions of Karpenter's API that want one.
type frozen struct {
	clock.RealClock

	at time.Time
}

// Now is the instant the clock stands at.
func (c frozen) Now() time.Time { return c.at }

// Since is the time from t to where the clock stands.
func (c frozen) Since(t time.Time) time.Duration { return c.at.Sub(t) }

// parseSchedule reads a budget's schedule as Karpenter does: standard cron or a macro such as @daily, in UTC.
func parseSchedule(s string) (schedule cron.Schedule, err error) {
	defer func() {
		if recover() != nil { // the library panics on some time zone prefixes
			schedule, err = nil, fmt.Errorf("%q is no cron schedule", s)
		}
	}()
	return cron.ParseStandard("TZ=UTC " + s)
}

// badSchedules reads and simulates the schedules of the pool's budgets.
func badSchedules(s *Subject, f *Facts) []Finding {
	var out []Finding
	budgets := s.Pool.Spec.Disruption.Budgets
	for i := range budgets {
		b := &budgets[i]
		field := fmt.Sprintf("spec.disruption.budgets[%d].schedule", i)
		if b.Schedule == nil {
			continue
		}
		schedule, err := parseSchedule(*b.Schedule)
		if err != nil {
			out = append(out, Finding{
				Field: field, Problem: fmt.Sprintf("%q cannot be read: %s; the budget would allow no disruption at all", *b.Schedule, oneLine(err)),
				Fix: scheduleFix(*b.Schedule),
			})
			continue
		}
		if schedule.Next(f.Now.UTC()).IsZero() {
			// The library gives up after five years with the zero time, which Karpenter takes for a start long ago.
			out = append(out, Finding{Field: field, Problem: fmt.Sprintf("%q never comes; Karpenter counts it as always active", *b.Schedule), Fix: "Use a date that exists.", Mild: true})
			continue
		}
		if b.Duration != nil && alwaysOn(schedule, b.Duration.Duration, f.Now.UTC()) {
			out = append(out, Finding{
				Field:   field,
				Problem: fmt.Sprintf("%q starts again before its %s are over, so it never lifts", *b.Schedule, short(b.Duration.Duration)),
				Fix:     "Shorten duration, or drop schedule and duration.", Mild: true,
			})
		}
	}
	return append(out, blockedReasons(budgets, f)...)
}

func oneLine(err error) string { return strings.Join(strings.Fields(err.Error()), " ") }

func scheduleFix(s string) string {
	fields := strings.Fields(s)
	if len(fields) == 5 && strings.ContainsRune(fields[4], '7') {
		return "Use 0 for Sunday."
	}
	return ""
}

// alwaysOn reports whether a window of the given length is open at every moment of the horizon.
func alwaysOn(schedule cron.Schedule, length time.Duration, now time.Time) bool {
	at := schedule.Next(now)
	for end := now.Add(horizon); at.Before(end); {
		next := schedule.Next(at)
		if next.IsZero() || next.Sub(at) > length {
			return false
		}
		if next.Sub(at) < length/1000 { // a window of days that opens every minute needs no look at every minute
			return true
		}
		at = next
	}
	return !schedule.Next(now).After(now.Add(horizon))
}

// blockedReasons names the reasons of disruption that a budget of no nodes forbids at all times.
func blockedReasons(budgets []karpv1.Budget, f *Facts) []Finding {
	all := []karpv1.DisruptionReason{karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonUnderutilized}
	forbidden := sets.New[karpv1.DisruptionReason]()
	first := -1
	for i := range budgets {
		b := &budgets[i]
		if (b.Nodes != "0" && b.Nodes != "0%") || !forAlways(b, f) {
			continue
		}
		if first < 0 {
			first = i
		}
		if b.Reasons == nil {
			forbidden.Insert(all...)
		}
		forbidden.Insert(b.Reasons...)
	}
	if first < 0 {
		return nil
	}
	var names []string
	for _, r := range all {
		if forbidden.Has(r) {
			names = append(names, string(r))
		}
	}
	return []Finding{{
		Field: fmt.Sprintf("spec.disruption.budgets[%d]", first), Problem: fmt.Sprintf("no node is ever disrupted for %s", strings.Join(names, ", ")),
		Fix: "Give the budget a schedule, or allow a node.", Mild: true,
	}}
}

func forAlways(b *karpv1.Budget, f *Facts) bool {
	if b.Schedule == nil {
		return true
	}
	schedule, err := parseSchedule(*b.Schedule)
	if err != nil {
		return false // reported as unreadable
	}
	if schedule.Next(f.Now.UTC()).IsZero() {
		return true
	}
	return b.Duration != nil && alwaysOn(schedule, b.Duration.Duration, f.Now.UTC())
}
