// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus/testutil"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// TestMovedByReason checks that pods made to leave are counted by why their node goes.
func TestMovedByReason(t *testing.T) {
	m := NewMetrics()
	by := builder.NodeClaim("c").Obj()
	by.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Underutilized", "")
	m.moved(reasonOf(by), "evicted")
	m.moved(reasonOf(by), "succeeded")
	m.moved(reasonOf(builder.NodeClaim("by-hand").Obj()), "deadline")
	for reason, want := range map[string]float64{"underutilized": 2, "deleted": 1} {
		if got := testutil.ToFloat64(m.Moved.WithLabelValues(reason)); got != want {
			t.Errorf("%s: %v pods, want %v", reason, got, want)
		}
	}
	if got := testutil.ToFloat64(m.Drained.WithLabelValues("evicted")); got != 1 {
		t.Errorf("%v pods evicted, want 1", got)
	}
}
