// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// A node whose kubelet is gone is replaced first, and its pods, which nobody there ends, have ten minutes or less.
func TestRepairReplacesFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		grace *time.Duration
		want  time.Duration
	}{
		"no terminationGracePeriod": {nil, 10 * time.Minute},
		"a long one":                {new(time.Hour), 10 * time.Minute},
		"a short one":               {new(time.Minute), time.Minute},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(p *builder.NodePoolBuilder) { p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never) })
			r.Repair = true
			r.Restart()
			r.node("dead", "m5.large")
			r.pod("app", "dead", "1500m", func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"} })
			if tc.grace != nil {
				c := r.claim("dead")
				c.Spec.TerminationGracePeriod = &metav1.Duration{Duration: *tc.grace}
				if err := r.Kube.Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			n := &corev1.Node{}
			if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-dead"}, n); err != nil {
				t.Fatal(err)
			}
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionUnknown, LastTransitionTime: metav1.NewTime(r.Clock.Now())}}
			if err := r.Kube.Status().Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			r.runEvery(29*time.Minute, time.Minute)
			if r.replacement("dead") != nil {
				t.Fatal("it was replaced before it had been silent for half an hour")
			}
			r.run(time.Minute)
			r.pass()
			if next := r.replacement("dead"); next == nil || r.claim("dead").DeletionTimestamp != nil {
				t.Fatalf("replacement %v, want one before the node goes; events %v", next, r.Said)
			}
			for r.claim("dead").DeletionTimestamp == nil {
				if err := r.Step(t.Context(), 10*time.Second); err != nil {
					t.Fatal(err)
				}
				r.pass()
				if r.Clock.Since(builder.Epoch()) > time.Hour {
					t.Fatal("the node stays although its replacement is ready")
				}
			}
			at, err := time.Parse(time.RFC3339, r.claim("dead").Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey])
			if left := at.Sub(r.Clock.Now()); err != nil || left != tc.want {
				t.Errorf("the pods have %s, error %v, want %s", left, err, tc.want)
			}
			if got := testutil.ToFloat64(r.Controller.Metrics.UnhealthyDisrupted.WithLabelValues("ready", "p", "on-demand", "")); got != 1 {
				t.Errorf("%v unhealthy claims counted, want 1", got)
			}
		})
	}
}
