// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"maps"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// When a capacity reservation ends its instances go on, on demand, and claim and Node say so.
func TestDemote(t *testing.T) {
	reservation := map[string]string{
		karpv1.CapacityTypeLabelKey: "reserved", capacity.ReservationIDLabel: "cr-1", capacity.ReservationTypeLabel: "default",
		capacity.ReservationInterruptibleLabel: "false", "team": "a",
	}
	onDemand := map[string]string{karpv1.CapacityTypeLabelKey: "on-demand", "team": "a"}
	tests := map[string]struct {
		instance   string // its capacity type
		age        time.Duration
		claim      map[string]string
		node       map[string]string // nil for none
		registered bool
		wantClaim  map[string]string
		wantNode   map[string]string
	}{
		"the reservation has ended":         {"on-demand", time.Hour, reservation, reservation, true, onDemand, onDemand},
		"the reservation goes on":           {"reserved", time.Hour, reservation, reservation, true, reservation, reservation},
		"launched a moment ago":             {"on-demand", time.Second, reservation, reservation, true, reservation, reservation},
		"the node has not registered":       {"on-demand", time.Hour, reservation, reservation, false, onDemand, reservation},
		"there is no node":                  {"on-demand", time.Hour, reservation, nil, false, onDemand, nil},
		"the node was not written before":   {"on-demand", time.Hour, onDemand, reservation, true, onDemand, onDemand},
		"spot is not a matter of this":      {"on-demand", time.Hour, map[string]string{karpv1.CapacityTypeLabelKey: "spot"}, nil, false, map[string]string{karpv1.CapacityTypeLabelKey: "spot"}, nil},
		"the instance is not listed (gone)": {"", time.Hour, reservation, reservation, true, reservation, reservation},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			id := ec2.ProviderID("us-east-1a", "i-1")
			c := builder.NodeClaim("c").UID("c").Launched(id, "m5.large", "us-east-1a", "reserved").Registered("n").Obj()
			c.Labels = maps.Clone(tc.claim)
			n := builder.Node("n").ProviderID(id).Obj()
			n.Labels = maps.Clone(tc.node)
			if tc.registered {
				n.Labels[karpv1.NodeRegisteredLabelKey] = "true"
			}
			r := newRig(t, c)
			if tc.node != nil {
				if err := r.kube.Create(r.ctx(), n); err != nil {
					t.Fatal(err)
				}
			}
			r.clock.SetTime(c.StatusConditions().Get(karpv1.ConditionTypeLaunched).LastTransitionTime.Add(tc.age))
			listed := inventory(func() []ec2.Instance {
				if tc.instance == "" {
					return nil
				}
				i := instance("i-1", "c", r.clock.Now().Add(-tc.age))
				i.CapacityType = tc.instance
				return []ec2.Instance{i}
			})
			if tc.instance == "" {
				r.cloud.instances["i-1"] = instance("i-1", "c", r.clock.Now()) // untagged: not listed, and there
			}
			collector := NewCollector(r.options(), listed, nil)
			for range 2 { // the second time there is nothing left to do
				r.writes = nil
				if err := collector.Collect(r.ctx()); err != nil {
					t.Fatal(err)
				}
			}
			if len(r.writes) != 0 {
				t.Errorf("written again: %v", r.writes)
			}
			if d := cmp.Diff(tc.wantClaim, r.claim("c").Labels); d != "" {
				t.Errorf("labels of the claim (-want +got):\n%s", d)
			}
			if tc.wantNode == nil {
				return
			}
			got := r.node("n").Labels
			delete(got, karpv1.NodeRegisteredLabelKey)
			delete(got, corev1.LabelHostname)
			if d := cmp.Diff(tc.wantNode, got); d != "" {
				t.Errorf("labels of the node (-want +got):\n%s", d)
			}
		})
	}
}
