// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"math/rand/v2"
	"testing"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	corev1helpers "k8s.io/component-helpers/scheduling/corev1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestHostPortConflicts(t *testing.T) {
	port := func(ip string, proto corev1.Protocol, n int32) capacity.HostPort {
		return capacity.HostPort{IP: ip, Protocol: proto, Port: n}
	}
	for name, tc := range map[string]struct {
		a, b capacity.HostPort
		want bool
	}{
		"equal":                  {port("", "TCP", 80), port("", "TCP", 80), true},
		"another port":           {port("", "TCP", 80), port("", "TCP", 81), false},
		"another protocol":       {port("", "TCP", 80), port("", "UDP", 80), false},
		"an address and all":     {port("10.0.0.1", "TCP", 80), port("", "TCP", 80), true},
		"two addresses":          {port("10.0.0.1", "TCP", 80), port("10.0.0.2", "TCP", 80), false},
		"the same address":       {port("10.0.0.1", "TCP", 80), port("10.0.0.1", "TCP", 80), true},
		"all on another port":    {port("", "TCP", 81), port("10.0.0.1", "TCP", 80), false},
		"SCTP and TCP are apart": {port("", "SCTP", 80), port("", "TCP", 80), false},
	} {
		t.Run(name, func(t *testing.T) {
			if got := [2]bool{tc.a.Conflicts(tc.b), tc.b.Conflicts(tc.a)}; got != [2]bool{tc.want, tc.want} {
				t.Errorf("Conflicts, both ways = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestTolerates compares tolerations with the scheduler's own helper, comparison operators enabled, on random taints and
// tolerations with values that look like integers and are not.
func TestTolerates(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 1))
	pick := func(s ...string) string { return s[r.IntN(len(s))] }
	effect := func(s ...corev1.TaintEffect) corev1.TaintEffect { return s[r.IntN(len(s))] }
	hard := func(t *corev1.Taint) bool { return t.Effect != corev1.TaintEffectPreferNoSchedule }
	tolerated := 0
	for n := range 20000 {
		b := builder.Class("c")
		for range r.IntN(3) {
			b.Tolerate(corev1.Toleration{
				Key: pick("", "a", "b"), Operator: corev1.TolerationOperator(pick("", "Equal", "Exists", "Lt", "Gt", "Near")),
				Value:  pick("", "x", "5", "6", "+6", "007", "-1", "-0", "9223372036854775808"),
				Effect: effect("", corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
			})
		}
		c := b.Obj()
		var taints []corev1.Taint
		for range r.IntN(3) {
			taints = append(taints, corev1.Taint{
				Key: pick("a", "b"), Value: pick("", "x", "5", "6", "06", "-1"),
				Effect: effect(corev1.TaintEffectNoSchedule, corev1.TaintEffectNoExecute, corev1.TaintEffectPreferNoSchedule),
			})
		}
		want, untolerated := corev1helpers.FindMatchingUntoleratedTaint(logr.Discard(), taints, c.Tolerations, hard, true)
		got, ok := c.Tolerates(taints)
		if ok == untolerated {
			t.Fatalf("case %d: %v tolerates %v: got %v, want %v", n, c.Tolerations, taints, ok, !untolerated)
		}
		if diff := cmp.Diff(want, got); untolerated && diff != "" {
			t.Fatalf("case %d: first untolerated taint (-want +got):\n%s", n, diff)
		}
		if ok && len(taints) > 0 {
			tolerated++
		}
	}
	if tolerated < 1000 {
		t.Errorf("only %d cases tolerate something: the test has lost its subject", tolerated)
	}
}

func TestTermsMatch(t *testing.T) {
	own := builder.Class("own").Namespace("shop").Label("app", "web").
		Apart(corev1.LabelHostname, map[string]string{"app": "web"}).ZoneSpread(1, map[string]string{"app": "web"}).Obj()
	for name, tc := range map[string]struct {
		class *capacity.Class
		want  bool
	}{
		"same labels and namespace": {own, true},
		"another namespace":         {builder.Class("x").Namespace("other").Label("app", "web").Obj(), false},
		"other labels":              {builder.Class("x").Namespace("shop").Label("app", "db").Obj(), false},
	} {
		t.Run(name, func(t *testing.T) {
			got := [2]bool{own.AntiAffinity[0].Matches(tc.class), own.Spread[0].Matches("shop", tc.class)}
			if got != [2]bool{tc.want, tc.want} {
				t.Errorf("term and spread match = %v, want %v", got, tc.want)
			}
		})
	}
}
