// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// TestDevicesAreRefusedWithoutALoop has a pod that asks for devices fail again and again, as its scheduler retries it, for an
// hour: it is told once why no node is bought, is never parked for long, and is planned ever more rarely.
func TestDevicesAreRefusedWithoutALoop(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.run()
		p := pod("train", "1")
		p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu", ResourceClaimTemplateName: new("gpu")}}
		b.cluster.Put(p)
		var told, planned []string
		for start := b.Clock.Now(); b.Clock.Since(start) < time.Hour; {
			parked, _ := b.Offer(p, nil)
			b.Drained()
			b.pass(5 * time.Second)
			for _, note := range b.take() {
				switch {
				case strings.HasPrefix(note, "event train Warning FailedScheduling"):
					told = append(told, note)
				case strings.HasPrefix(note, "release train"):
					planned = append(planned, note)
				default:
					t.Errorf("unexpected: %s", note)
				}
			}
			if e, ok := b.ledger.get("train"); parked && (!ok || e.state != unplaced) {
				t.Fatalf("the pod is parked in state %v", e.state)
			}
		}
		if len(b.written()) > 0 {
			t.Errorf("%d claims, want none", len(b.written()))
		}
		want := `the pod asks for devices through resource claims (spec.resourceClaims, "gpu" first), for which no node is bought`
		if len(told) != 1 || !strings.Contains(told[0], want) {
			t.Errorf("told %q, want once %q", told, want)
		}
		if n := len(planned); n < 1 || n > 17 { // after 10 s, 20 s, …, 5 minutes
			t.Errorf("planned %d times in an hour", n)
		}
	})
}
