// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// A fault in a pass, wherever it happens, ends that pass and not the scheduler; the next one goes on.
func TestPassSurvivesAPanic(t *testing.T) {
	for name, atNode := range map[string]bool{"at a Node": true, "at a NodeClaim": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
			r.node("old", "m5.large")
			r.pod("app", "old", "1500m")
			once := false
			r.BeforeWrite = func(_ string, o client.Object) error {
				if _, node := o.(*corev1.Node); !once && node == atNode {
					once = true
					panic("a fault")
				}
				return nil
			}
			if err := r.Pass(t.Context()); err == nil || !strings.Contains(err.Error(), "a fault") {
				t.Fatalf("error %v, want the panic's", err)
			}
			r.run(10 * time.Minute)
			if list, err := r.Claims(t.Context()); err != nil || len(list) != 1 || list[0].Name == "old" {
				t.Errorf("claims %v with error %v, want the replacement alone", names(list), err)
			}
		})
	}
}

// What is bought may be planned on a pool that did not exist when the command was decided.
func TestPoolAppearsBetweenTheLooks(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.BeforeWrite = func(_ string, o client.Object) error {
		if _, node := o.(*corev1.Node); !node {
			return nil
		}
		r.BeforeWrite = nil
		return r.Kube.Create(t.Context(), builder.NodePool("q").UID("uid-q").Weight(10).Require(builder.In(karpv1.CapacityTypeLabelKey, "on-demand")).Obj())
	}
	r.pass()
	if next := r.replacement("old"); next == nil || next.Labels[karpv1.NodePoolLabelKey] != "q" {
		t.Errorf("replacement %v, want one of the preferred pool", next)
	}
}
