// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestChoose(t *testing.T) {
	catalog := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Spot(0.04, "a", "b").OnDemand(0.096, "a", "b"),
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").Spot(0.08, "a").Spot(0.2, "b").OnDemand(0.192, "a", "b"),
		builder.InstanceType("m5.metal").CPU("96").Memory("384Gi").OnDemand(4.6, "a"),
		builder.InstanceType("g5.xlarge").CPU("4").Memory("16Gi").Resource(v1.ResourceNVIDIAGPU, "1").OnDemand(1.0, "a"),
	)
	capacityType := func(values ...string) corev1.NodeSelectorRequirement {
		return builder.In(karpv1.CapacityTypeLabelKey, values...)
	}
	tests := []struct {
		name    string
		claim   *builder.NodeClaimBuilder
		out     []capacity.OfferingKey
		min     map[string]int // minValues by key
		want    []string
		wantErr string
	}{
		{
			name: "spot before on-demand, cheapest first, without spot dearer than the cheapest on-demand", claim: builder.NodeClaim("c").Request("cpu", "1"),
			want: []string{"m5.large/a/spot", "m5.large/b/spot", "m5.xlarge/a/spot"},
		},
		{
			name: "on-demand when that is asked for", claim: builder.NodeClaim("c").Request("cpu", "1").Require(capacityType("on-demand")),
			want: []string{"m5.large/a/on-demand", "m5.large/b/on-demand", "m5.xlarge/a/on-demand", "m5.xlarge/b/on-demand"},
		},
		{
			name: "spot only keeps dear spot", claim: builder.NodeClaim("c").Request("cpu", "3").Require(capacityType("spot")),
			want: []string{"m5.xlarge/a/spot", "m5.xlarge/b/spot"},
		},
		{
			name: "requests decide which types hold the claim", claim: builder.NodeClaim("c").Request("cpu", "3"),
			want: []string{"m5.xlarge/a/spot"},
		},
		{
			name: "what EC2 is out of is left out", claim: builder.NodeClaim("c").Request("cpu", "3"),
			out:  []capacity.OfferingKey{{InstanceType: "m5.xlarge", Zone: "a", CapacityType: "spot"}},
			want: []string{"m5.xlarge/a/on-demand", "m5.xlarge/b/on-demand"},
		},
		{
			name: "metal and accelerators only when nothing else is left", claim: builder.NodeClaim("c").Request("cpu", "50"),
			want: []string{"m5.metal/a/on-demand"},
		},
		{
			name: "accelerators when asked for", claim: builder.NodeClaim("c").Request("nvidia.com/gpu", "1"),
			want: []string{"g5.xlarge/a/on-demand"},
		},
		{
			name: "minValues that can be met", claim: builder.NodeClaim("c").Request("cpu", "1").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge")),
			min:  map[string]int{corev1.LabelInstanceTypeStable: 2},
			want: []string{"m5.large/a/spot", "m5.large/b/spot", "m5.xlarge/a/spot", "m5.xlarge/b/spot"},
		},
		{
			name: "minValues that cannot be met", claim: builder.NodeClaim("c").Request("cpu", "3").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge")),
			min: map[string]int{corev1.LabelInstanceTypeStable: 2}, wantErr: `the offerings to be had have fewer values of "node.kubernetes.io/instance-type" than minValues asks`,
		},
		{
			name: "nothing matches", claim: builder.NodeClaim("c").Require(builder.In(corev1.LabelTopologyZone, "z")),
			wantErr: "no instance type satisfies the requirements topology.kubernetes.io/zone In [z]",
		},
		{
			name: "nothing is large enough", claim: builder.NodeClaim("c").Request("cpu", "200"),
			wantErr: "none of 10 matching offerings holds cpu=200",
		},
		{
			name: "all out", claim: builder.NodeClaim("c").Request("cpu", "50"), out: []capacity.OfferingKey{{InstanceType: "m5.metal", Zone: "a", CapacityType: "on-demand"}},
			wantErr: "EC2 is out of all 1 offerings that satisfy the claim",
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			claim := tc.claim.Obj()
			for i := range claim.Spec.Requirements {
				if n, ok := tc.min[claim.Spec.Requirements[i].Key]; ok {
					claim.Spec.Requirements[i].MinValues = new(n)
				}
			}
			w, err := wantedBy(claim)
			if err != nil {
				t.Fatal(err)
			}
			got, err := choose(catalog, w, maxTypes, func(k capacity.OfferingKey) bool {
				return slices.Contains(tc.out, k)
			})
			if tc.wantErr != "" {
				if err == nil || err.Error() != tc.wantErr || capacity.KindOf(err) != capacity.NoCapacity {
					t.Fatalf("error is %v (kind %q), want %q of kind NoCapacity", err, capacity.KindOf(err), tc.wantErr)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			var names []string
			for _, o := range got {
				names = append(names, fmt.Sprintf("%s/%s/%s", o.Type.Name, o.Zone, o.CapacityType))
			}
			if d := cmp.Diff(tc.want, names); d != "" {
				t.Errorf("offerings (-want +got):\n%s", d)
			}
		})
	}
}

// A request carries the sixty cheapest types, each in every zone, and no more offerings than EC2 takes.
func TestChooseTakesSixtyTypes(t *testing.T) {
	sold := func(n int, zones ...string) *capacity.Catalog {
		var types []*builder.InstanceTypeBuilder
		for i := range n {
			b := builder.InstanceType(fmt.Sprintf("m5.size%02d", i)).CPU("2").Memory("8Gi").OnDemand(10+float64(i)/100, zones...)
			for z, zone := range zones {
				b.Spot(0.1+float64(i)/100+float64(z), zone) // the second zone of the cheapest is dearer than the first of all others
			}
			types = append(types, b)
		}
		return builder.Catalog(types...)
	}
	for name, tc := range map[string]struct {
		catalog      *capacity.Catalog
		capacityType string
		most         int
		offerings    int
		types        int
	}{
		"spot in two zones":      {sold(80, "a", "b"), karpv1.CapacityTypeSpot, maxTypes, 120, 60},
		"on demand in two zones": {sold(80, "a", "b"), karpv1.CapacityTypeOnDemand, maxTypes, 120, 60},
		"fewer types":            {sold(10, "a", "b", "c"), karpv1.CapacityTypeSpot, maxTypes, 30, 10},
		"six zones: EC2's limit": {sold(80, "a", "b", "c", "d", "e", "f"), karpv1.CapacityTypeSpot, maxTypes, maxOverrides, 60},
		"after a refusal":        {sold(80, "a", "b"), karpv1.CapacityTypeSpot, moreTypes, 160, 80},
	} {
		t.Run(name, func(t *testing.T) {
			w, err := wantedBy(builder.NodeClaim("c").Request("cpu", "1").Require(builder.In(karpv1.CapacityTypeLabelKey, tc.capacityType)).Obj())
			if err != nil {
				t.Fatal(err)
			}
			got, err := choose(tc.catalog, w, tc.most, func(capacity.OfferingKey) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			types := map[string]bool{}
			for _, o := range got {
				types[o.Type.Name] = true
			}
			if len(got) != tc.offerings || len(types) != tc.types || !types["m5.size00"] {
				t.Errorf("%d offerings of %d types, want %d of the cheapest %d", len(got), len(types), tc.offerings, tc.types)
			}
			for i := range got[1:] {
				if got[i].Price > got[i+1].Price {
					t.Errorf("offering %d is dearer than the next", i)
				}
			}
		})
	}
}

// A reservation is a single offering: it comes first and alone, but not where the claim asks for variety it cannot have.
func TestReservationsComeFirstAndAlone(t *testing.T) {
	reserved := capacity.Offering{Zone: "a", CapacityType: "reserved", ReservationID: "cr-1", Price: 1e-9}
	catalog := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.096, "a").Offering(reserved),
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").OnDemand(0.192, "a"),
	)
	for name, tc := range map[string]struct {
		min  int
		want []string
	}{
		"no minValues": {0, []string{"reserved"}},
		"minValues":    {2, []string{"on-demand", "on-demand"}},
	} {
		t.Run(name, func(t *testing.T) {
			claim := builder.NodeClaim("c").Require(builder.In(corev1.LabelInstanceTypeStable, "m5.large", "m5.xlarge")).Obj()
			if tc.min > 0 {
				claim.Spec.Requirements[len(claim.Spec.Requirements)-1].MinValues = new(tc.min)
			}
			w, err := wantedBy(claim)
			if err != nil {
				t.Fatal(err)
			}
			got, err := choose(catalog, w, maxTypes, func(capacity.OfferingKey) bool { return false })
			if err != nil {
				t.Fatal(err)
			}
			var kinds []string
			for _, o := range got {
				kinds = append(kinds, o.CapacityType)
			}
			if d := cmp.Diff(tc.want, kinds); d != "" {
				t.Errorf("capacity types (-want +got):\n%s", d)
			}
		})
	}
}

func TestUnreadableRequirementIsInvalid(t *testing.T) {
	_, err := wantedBy(builder.NodeClaim("c").Require(builder.Requirement("cpu", "Near", "4")).Obj())
	if capacity.KindOf(err) != capacity.Invalid {
		t.Errorf("kind is %q, want Invalid: %v", capacity.KindOf(err), err)
	}
}
