// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// fixture is a node that has drifted in nothing.
type fixture struct {
	s     *Snapshot
	n     *Node
	np    *karpv1.NodePool
	class *v1.EC2NodeClass
	i     ec2.Instance
}

func newFixture() *fixture {
	cat := builder.Catalog(builder.InstanceType("m5.large").CPU("2").Label("team/size", "small").OnDemand(0.1, "us-east-1a"))
	f := &fixture{
		np: builder.NodePool("p").Annotation(karpv1.NodePoolHashAnnotationKey, "1").Annotation(karpv1.NodePoolHashVersionAnnotationKey, "v3").
			Require(builder.In(karpv1.CapacityTypeLabelKey, "on-demand", "reserved")).Obj(),
		class: builder.EC2NodeClass("default").Annotation(v1.AnnotationEC2NodeClassHash, "1").Annotation(v1.AnnotationEC2NodeClassHashVersion, "v6").Ready().Obj(),
		i:     ec2.Instance{SubnetID: "subnet-a", SecurityGroups: []string{"sg-nodes"}},
	}
	claim := builder.NodeClaim("c").Pool("p").Created(builder.Epoch()).Launched("aws:///us-east-1a/i-1", "m5.large", "us-east-1a", "on-demand").
		Annotation(karpv1.NodePoolHashAnnotationKey, "1").Annotation(karpv1.NodePoolHashVersionAnnotationKey, "v3").
		Annotation(v1.AnnotationEC2NodeClassHash, "1").Annotation(v1.AnnotationEC2NodeClassHashVersion, "v6").Obj()
	claim.Status.ImageID = "ami-amd64"
	claim.Labels["kubernetes.io/arch"] = "amd64"
	f.n = &Node{Claim: claim, Pool: &Pool{NodePool: f.np, Class: f.class}}
	f.s = &Snapshot{Now: builder.Epoch().Add(2 * time.Hour), View: &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", cat).Obj()}}}
	return f
}

func (f *fixture) drift() string {
	f.s.instances = map[string]ec2.Instance{"aws:///us-east-1a/i-1": f.i}
	return f.s.Drift(f.n)
}

func TestDriftReasons(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*fixture)
		want   string
	}{
		"nothing": {func(*fixture) {}, ""},
		"pool":    {func(f *fixture) { f.np.Annotations[karpv1.NodePoolHashAnnotationKey] = "2" }, driftPool},
		"pool of another version": {func(f *fixture) {
			f.np.Annotations[karpv1.NodePoolHashAnnotationKey], f.np.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "2", "v4"
		}, ""},
		"claim without a hash":    {func(f *fixture) { delete(f.n.Claim.Annotations, karpv1.NodePoolHashAnnotationKey) }, ""},
		"requirements":            {func(f *fixture) { f.np.Spec.Template.Spec.Requirements[0].Values = []string{"spot"} }, driftRequirements},
		"label younger than node": {func(f *fixture) { f.np.Spec.Template.Spec.Requirements[0] = requirement("team/size", "In", "small") }, ""},
		"label the node has not":  {func(f *fixture) { f.np.Spec.Template.Spec.Requirements[0] = requirement("team", "In", "a") }, driftRequirements},
		"label it must not have":  {func(f *fixture) { f.np.Spec.Template.Spec.Requirements[0] = requirement("team", "NotIn", "a") }, ""},
		"type gone":               {func(f *fixture) { f.n.Claim.Labels["node.kubernetes.io/instance-type"] = "m1.small" }, driftType},
		"type gone from a new node": {func(f *fixture) {
			f.n.Claim.Labels["node.kubernetes.io/instance-type"] = "m1.small"
			f.s.Now = builder.Epoch()
		}, ""},
		"zone gone":             {func(f *fixture) { f.n.Claim.Labels["topology.kubernetes.io/zone"] = "us-east-1z" }, driftType},
		"reserved turning":      {func(f *fixture) { f.n.Claim.Labels[karpv1.CapacityTypeLabelKey] = "reserved" }, ""},
		"class":                 {func(f *fixture) { f.class.Annotations[v1.AnnotationEC2NodeClassHash] = "2" }, driftClass},
		"image":                 {func(f *fixture) { f.class.Status.AMIs[0].ID = "ami-new" }, driftImage},
		"image of another arch": {func(f *fixture) { f.class.Status.AMIs[1].ID = "ami-new" }, ""},
		"group missing":         {func(f *fixture) { f.i.SecurityGroups = nil }, driftGroups},
		"group extra":           {func(f *fixture) { f.i.SecurityGroups = []string{"sg-nodes", "sg-fm"} }, driftGroups},
		"group extra again": {func(f *fixture) {
			f.i.SecurityGroups = []string{"sg-nodes", "sg-fm"}
			f.n.Claim.Annotations[ReplacedForAnnotation] = driftGroups
		}, ""},
		"subnet":          {func(f *fixture) { f.i.SubnetID = "subnet-old" }, driftSubnet},
		"reservation":     {func(f *fixture) { f.i.Reservation = &ec2.ReservationRef{ID: "cr-1"} }, driftReservation},
		"placement group": {func(f *fixture) { f.n.Claim.Labels[v1.LabelPlacementGroupID] = "pg-1" }, driftPlacement},
		"placement group by id": {func(f *fixture) {
			f.n.Claim.Labels[v1.LabelPlacementGroupID], f.class.Spec.PlacementGroupSelector = "pg-1", &v1.PlacementGroupSelector{ID: new("pg-1")}
		}, ""},
		"another placement group": {func(f *fixture) {
			f.n.Claim.Labels[v1.LabelPlacementGroupID], f.class.Spec.PlacementGroupSelector = "pg-1", &v1.PlacementGroupSelector{ID: new("pg-2")}
		}, driftPlacement},
		"placement group by name": {func(f *fixture) {
			f.n.Claim.Labels[v1.LabelPlacementGroupID], f.class.Spec.PlacementGroupSelector = "pg-1", &v1.PlacementGroupSelector{Name: new("hpc")}
		}, ""},
		"no placement group yet": {func(f *fixture) { f.class.Spec.PlacementGroupSelector = &v1.PlacementGroupSelector{ID: new("pg-1")} }, ""},
		"not launched": {func(f *fixture) {
			f.np.Annotations[karpv1.NodePoolHashAnnotationKey] = "2"
			f.n.Claim.Status.Conditions = nil
		}, ""},
		"class gone": {func(f *fixture) { f.n.Pool.Class = nil }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFixture()
			tc.change(f)
			if got := f.drift(); got != tc.want {
				t.Errorf("Drift() = %q, want %q", got, tc.want)
			}
		})
	}
}

func requirement(key string, op corev1.NodeSelectorOperator, value string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: []string{value}}
}
