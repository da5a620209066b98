// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

const gpuLabel = "karpenter.k8s.aws/instance-gpu-name"

// shelf sells three types, one with a GPU and one reserved, in two zones.
func shelf() *capacity.Catalog {
	return builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Absent(gpuLabel).OnDemand(0.10, "a", "b").Spot(0.04, "a"),
		builder.InstanceType("g4dn.xlarge").CPU("4").Memory("16Gi").Label(gpuLabel, "t4").OnDemand(0.50, "b"),
		builder.InstanceType("m6g.large").CPU("2").Memory("8Gi").Arch("arm64").Absent(gpuLabel).OnDemand(0.08, "a").
			Offering(capacity.Offering{Zone: "b", ZoneID: "use1-az2", CapacityType: karpv1.CapacityTypeReserved, ReservationID: "cr-1", Price: 0.01}),
		builder.InstanceType("x1.large").CPU("64"), // not sold
	)
}

func offerings(c *capacity.Catalog, s capacity.Set) []string {
	var out []string
	for i := range s.All {
		o := c.Offerings[i]
		out = append(out, fmt.Sprintf("%s %s %s", o.Type.Name, o.Zone, o.CapacityType))
	}
	return out
}

func TestCatalog(t *testing.T) {
	c := shelf()
	for name, tc := range map[string]struct {
		reqs []capacity.Requirement
		want []string
	}{
		"everything, cheapest first": {nil, []string{
			"m6g.large b reserved", "m5.large a spot", "m6g.large a on-demand", "m5.large a on-demand", "m5.large b on-demand", "g4dn.xlarge b on-demand",
		}},
		"zone and capacity type":          {[]capacity.Requirement{capacity.In(corev1.LabelTopologyZone, "a"), capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")}, []string{"m6g.large a on-demand", "m5.large a on-demand"}},
		"an old key":                      {[]capacity.Requirement{capacity.In("beta.kubernetes.io/arch", "arm64"), capacity.In(corev1.LabelTopologyZone, "a")}, []string{"m6g.large a on-demand"}},
		"a label some types have":         {[]capacity.Requirement{capacity.Exists(gpuLabel)}, []string{"g4dn.xlarge b on-demand"}},
		"a label some types lack":         {[]capacity.Requirement{capacity.DoesNotExist(gpuLabel), capacity.In(karpv1.CapacityTypeLabelKey, "spot")}, []string{"m5.large a spot"}},
		"another value or none":           {[]capacity.Requirement{not(t, gpuLabel, "t4"), capacity.In(corev1.LabelTopologyZone, "b")}, []string{"m6g.large b reserved", "m5.large b on-demand"}},
		"there, and another value":        {[]capacity.Requirement{not(t, gpuLabel, "t4"), capacity.Exists(gpuLabel)}, nil},
		"a reservation":                   {[]capacity.Requirement{capacity.In(capacity.ReservationIDLabel, "cr-1")}, []string{"m6g.large b reserved"}},
		"no reservation":                  {[]capacity.Requirement{capacity.DoesNotExist(capacity.ReservationIDLabel), capacity.In(corev1.LabelArchStable, "arm64")}, []string{"m6g.large a on-demand"}},
		"keys it does not define are not": {[]capacity.Requirement{capacity.In("team", "x"), capacity.In(karpv1.CapacityTypeLabelKey, "spot")}, []string{"m5.large a spot"}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, offerings(c, c.Match(capacity.NewRequirements(tc.reqs...)))); diff != "" {
				t.Errorf("offerings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCatalogLookUps(t *testing.T) {
	c := shelf()
	out := c.Without(func(k capacity.OfferingKey) bool {
		return k == capacity.OfferingKey{InstanceType: "m5.large", Zone: "a", CapacityType: "spot"} || k.InstanceType == "m6g.large"
	})
	if diff := cmp.Diff([]string{"m5.large a on-demand", "m5.large b on-demand", "g4dn.xlarge b on-demand"}, offerings(c, out)); diff != "" {
		t.Errorf("Without (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{"on-demand"}, c.Values(karpv1.CapacityTypeLabelKey, out)); diff != "" {
		t.Errorf("Values (-want +got):\n%s", diff)
	}
	if got := c.Values("team", out); got != nil {
		t.Errorf("Values of an unknown key = %v", got)
	}
	if diff := cmp.Diff([]string{"g4dn.xlarge b on-demand"}, offerings(c, c.WithValue(corev1.LabelInstanceType, "g4dn.xlarge"))); diff != "" {
		t.Errorf("WithValue (-want +got):\n%s", diff)
	}
	if !c.WithValue("team", "x").Empty() || !c.WithValue(corev1.LabelTopologyZone, "z").Empty() {
		t.Error("WithValue finds what is not sold")
	}
	if c.Type("x1.large") != nil || c.Type("m5.large") == nil || c.Types[c.TypeOf(0)].Name != "m6g.large" {
		t.Errorf("Type(x1.large) = %v, Type(m5.large) = %v, first offering's type %q", c.Type("x1.large"), c.Type("m5.large"), c.Types[c.TypeOf(0)].Name)
	}
	for key, want := range map[string]bool{gpuLabel: true, "failure-domain.beta.kubernetes.io/zone": true, capacity.ReservationIDLabel: true, "team": false} {
		if c.Defines(key) != want {
			t.Errorf("Defines(%q) = %v", key, !want)
		}
	}
}

// TestMatchAgreesWithLabels compares Match with a look at the labels of every offering's node, on random requirements.
func TestMatchAgreesWithLabels(t *testing.T) {
	c := shelf()
	r := rand.New(rand.NewPCG(11, 1))
	keys := map[string][]string{
		corev1.LabelTopologyZone: {"a", "b", "z"}, karpv1.CapacityTypeLabelKey: {"spot", "on-demand", "reserved"}, gpuLabel: {"t4", "a100"},
		corev1.LabelArchStable: {"amd64", "arm64"}, corev1.LabelInstanceTypeStable: {"m5.large", "m6g.large", "x1.large"},
		"karpenter.k8s.aws/instance-generation": {"4", "5", "6"}, capacity.ReservationIDLabel: {"cr-1"}, capacity.ZoneIDLabel: {"use1-az2"},
	}
	names := slices.Sorted(maps.Keys(keys))
	for n := range 3000 {
		reqs := capacity.Requirements{}
		for range 1 + r.IntN(3) {
			s := randomSelector(r)
			s.Key = names[r.IntN(len(names))]
			if values := keys[s.Key]; s.Operator == opIn || s.Operator == opNotIn {
				s.Values = []string{values[r.IntN(len(values))], values[r.IntN(len(values))]}
			}
			one, err := capacity.FromSelectors([]corev1.NodeSelectorRequirement{s})
			if err != nil {
				t.Fatal(err)
			}
			reqs = reqs.And(one)
		}
		var want []string
		for _, o := range c.Offerings {
			labels := maps.Clone(o.Type.Labels)
			labels[corev1.LabelTopologyZone], labels[karpv1.CapacityTypeLabelKey] = o.Zone, o.CapacityType
			if o.ReservationID != "" {
				labels[capacity.ReservationIDLabel], labels[capacity.ZoneIDLabel] = o.ReservationID, o.ZoneID
			}
			if reqs.MatchesLabels(labels) {
				want = append(want, fmt.Sprintf("%s %s %s", o.Type.Name, o.Zone, o.CapacityType))
			}
		}
		if diff := cmp.Diff(want, offerings(c, c.Match(reqs))); diff != "" {
			t.Fatalf("case %d: %s (-want +got):\n%s", n, reqs, diff)
		}
	}
}
