// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func window(nodes, schedule string, d time.Duration, reasons ...karpv1.DisruptionReason) karpv1.Budget {
	return karpv1.Budget{Nodes: nodes, Schedule: &schedule, Duration: &metav1.Duration{Duration: d}, Reasons: reasons}
}

func at(t *testing.T, s string) time.Time {
	t.Helper()
	out, err := time.Parse(time.RFC3339, s)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// What users of Karpenter were surprised by: outside its window a budget does not exist, it restricts and never permits.
func TestAllowedInAndOutOfWindows(t *testing.T) {
	const (
		empty, under, drifted = karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonUnderutilized, karpv1.DisruptionReasonDrifted
		all                   = math.MaxInt32
	)
	a := []karpv1.Budget{window("35%", "0 1 * * mon", 4*time.Hour), {Nodes: "35%", Reasons: []karpv1.DisruptionReason{empty}}}
	b := []karpv1.Budget{window("10%", "0 8 * * mon-fri", 8*time.Hour, empty, under), {Nodes: "0", Reasons: []karpv1.DisruptionReason{drifted}}}
	for _, tc := range []struct {
		name    string
		budgets []karpv1.Budget
		zone    string
		now     string
		want    map[karpv1.DisruptionReason]int
	}{
		{"a outside", a, "", "2026-01-01T15:00:00Z", map[karpv1.DisruptionReason]int{empty: 7, under: all, drifted: all}},
		{"a inside", a, "", "2026-01-05T02:00:00Z", map[karpv1.DisruptionReason]int{empty: 7, under: 7, drifted: 7}},
		{"a in its first second", a, "", "2026-01-05T01:00:00Z", map[karpv1.DisruptionReason]int{empty: 7, under: 7, drifted: 7}},
		{"a before its first second", a, "", "2026-01-05T00:59:59Z", map[karpv1.DisruptionReason]int{empty: 7, under: all, drifted: all}},
		{"b inside", b, "", "2026-01-06T10:00:00Z", map[karpv1.DisruptionReason]int{empty: 2, under: 2, drifted: 0}},
		{"b outside", b, "", "2026-01-06T20:00:00Z", map[karpv1.DisruptionReason]int{empty: all, under: all, drifted: 0}},
		{"b in Tokyo is over at 10 UTC", b, "Asia/Tokyo", "2026-01-06T10:00:00Z", map[karpv1.DisruptionReason]int{empty: all, under: all, drifted: 0}},
		{"b in Tokyo holds at 2 UTC", b, "Asia/Tokyo", "2026-01-06T02:00:00Z", map[karpv1.DisruptionReason]int{empty: 2, under: 2, drifted: 0}},
		{"b in summer Berlin begins at 6 UTC", b, "Europe/Berlin", "2026-07-07T06:00:00Z", map[karpv1.DisruptionReason]int{empty: 2, under: 2, drifted: 0}},
		{"b in winter Berlin begins at 7 UTC", b, "Europe/Berlin", "2026-01-06T06:59:59Z", map[karpv1.DisruptionReason]int{empty: all, under: all, drifted: 0}},
		{"none", nil, "", "2026-01-06T10:00:00Z", map[karpv1.DisruptionReason]int{empty: all, under: all, drifted: all}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			np := builder.NodePool("p").Obj()
			np.Spec.Disruption.Budgets = tc.budgets
			if tc.zone != "" {
				np.Annotations = map[string]string{capacity.BudgetTimeZoneAnnotation: tc.zone}
			}
			got := map[karpv1.DisruptionReason]int{}
			for r := range tc.want {
				n, err := disruption.Allowed(np, capacity.ParsePoolAnnotations(np.Annotations), 20, r, at(t, tc.now))
				if err != nil {
					t.Fatal(err)
				}
				got[r] = n
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("allowed disruptions of 20 nodes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestBudgetsThatCannotBeReadAllowNothing(t *testing.T) {
	for _, tc := range []struct {
		name, zone, schedule, want string
	}{
		{"schedule", "", "0 0 * * sat-sun", "spec.disruption.budgets"},
		{"schedule out of range", "", "30 10 * * 1-7", "spec.disruption.budgets"},
		{"zone", "Berlin", "0 8 * * *", capacity.BudgetTimeZoneAnnotation},
	} {
		t.Run(tc.name, func(t *testing.T) {
			np := builder.NodePool("p").Annotation("a", "b").Budget("100%").Obj()
			np.Spec.Disruption.Budgets = append(np.Spec.Disruption.Budgets, window("5", tc.schedule, time.Hour, karpv1.DisruptionReasonEmpty))
			if tc.zone != "" {
				np.Annotations[capacity.BudgetTimeZoneAnnotation] = tc.zone
			}
			n, err := disruption.Allowed(np, capacity.ParsePoolAnnotations(np.Annotations), 20, karpv1.DisruptionReasonDrifted, at(t, "2026-01-06T10:00:00Z"))
			if n != 0 || err == nil || !strings.Contains(err.Error(), tc.want) || !strings.Contains(err.Error(), `NodePool "p"`) {
				t.Errorf("Allowed() = %d, %v, want 0 and an error naming the pool and %s", n, err, tc.want)
			}
		})
	}
	// A zone matters to schedules only.
	np := builder.NodePool("p").Annotation(capacity.BudgetTimeZoneAnnotation, "Berlin").Budget("3").Obj()
	if n, err := disruption.Allowed(np, capacity.ParsePoolAnnotations(np.Annotations), 20, karpv1.DisruptionReasonEmpty, builder.Epoch()); n != 3 || err != nil {
		t.Errorf("Allowed() = %d, %v, want 3", n, err)
	}
}

// Without a zone every answer is Karpenter's own, whatever the clock shows and in whatever zone it shows it.
func TestAllowedAsKarpenter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	schedules := []string{"0 8 * * mon-fri", "@daily", "@hourly", "*/15 * * * *", "0 0 1 * *", "30 10 * * 0,6", "bad"}
	reasons := []karpv1.DisruptionReason{karpv1.DisruptionReasonEmpty, karpv1.DisruptionReasonDrifted, karpv1.DisruptionReasonUnderutilized}
	zones := []*time.Location{time.UTC, time.FixedZone("east", 9*3600), time.FixedZone("west", -7*3600)}
	for range 3000 {
		np := builder.NodePool("p").Obj()
		for range r.IntN(4) {
			nodes := fmt.Sprint(r.IntN(12))
			if r.IntN(2) == 0 {
				nodes = fmt.Sprintf("%d%%", r.IntN(101))
			}
			b := karpv1.Budget{Nodes: nodes}
			if r.IntN(2) == 0 {
				b = window(nodes, schedules[r.IntN(len(schedules))], time.Duration(r.IntN(20*60))*time.Minute)
			}
			if r.IntN(2) == 0 {
				b.Reasons = reasons[:1+r.IntN(3)]
			}
			np.Spec.Disruption.Budgets = append(np.Spec.Disruption.Budgets, b)
		}
		now := builder.Epoch().Add(time.Duration(r.Int64N(int64(400 * 24 * time.Hour)))).In(zones[r.IntN(3)])
		nodes, reason := r.IntN(200), reasons[r.IntN(3)]
		want := np.MustGetAllowedDisruptions(clocktesting.NewFakeClock(now), nodes, reason)
		if got, _ := disruption.Allowed(np, capacity.PoolSettings{}, nodes, reason, now); got != want {
			t.Fatalf("Allowed(%v, %d nodes, %s, %s) = %d, Karpenter says %d", np.Spec.Disruption.Budgets, nodes, reason, now, got, want)
		}
	}
}
