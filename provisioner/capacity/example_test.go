// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// A pool allows values, a pod wants some of them; both sides are Requirements, and their conjunction is what a node for the
// pod has to be.
func ExampleRequirements() {
	pool, err := capacity.FromSelectors([]corev1.NodeSelectorRequirement{
		{Key: "karpenter.k8s.aws/instance-generation", Operator: corev1.NodeSelectorOpGt, Values: []string{"4"}},
		{Key: corev1.LabelTopologyZone, Operator: corev1.NodeSelectorOpIn, Values: []string{"a", "b"}},
	})
	if err != nil {
		panic(err)
	}
	// The deprecated key is read as the stable one.
	pod := capacity.NewRequirements(capacity.In(corev1.LabelFailureDomainBetaZone, "b", "c"))
	fmt.Println(pool.And(pod))

	other := capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "c"))
	fmt.Println(pool.Compatible(other, nil).Error())

	// A label nobody defines is refused, unless the pod accepts its absence.
	fmt.Println(pool.Compatible(capacity.NewRequirements(capacity.Exists("team")), nil).Error())
	fmt.Println(pool.Compatible(capacity.NewRequirements(capacity.DoesNotExist("team")), nil) == nil)
	// Output:
	// karpenter.k8s.aws/instance-generation Exists >=5, topology.kubernetes.io/zone In [b]
	// wanted topology.kubernetes.io/zone In [c], offered topology.kubernetes.io/zone In [a b]
	// label "team" is not defined (wanted team Exists)
	// true
}

// Quantities are integer vectors: millicores, bytes and counts.
func ExampleResources() {
	node := capacity.FromList(corev1.ResourceList{"cpu": resource.MustParse("2"), "memory": resource.MustParse("8Gi"), "pods": resource.MustParse("29")})
	pod := capacity.FromList(corev1.ResourceList{"cpu": resource.MustParse("300m"), "memory": resource.MustParse("2Gi"), "pods": resource.MustParse("1")})
	fmt.Println(pod.Count(node), "pods fit")
	left := node.AddTimes(pod, -4)
	fmt.Println("four leave", left)
	name, asked, have, short := pod.Shortage(left)
	fmt.Println(short, name, capacity.FormatQuantity(name, asked), "asked,", capacity.FormatQuantity(name, have), "left")

	// Volumes are counted against limits of their own; a driver without one takes any number.
	disks := capacity.Resources{}.WithVolumes("ebs.csi.aws.com", 2)
	fmt.Println(disks.Count(node.WithVolumes("ebs.csi.aws.com", 5)), disks.Fits(node))
	// Output:
	// 4 pods fit
	// four leave cpu=800m pods=25
	// true memory 2Gi asked, 0 left
	// 2 true
}

// shelfOfTwo sells two types in two zones.
func shelfOfTwo() *capacity.Catalog {
	sold := func(name, cpu string, price float64) *capacity.InstanceType {
		r := capacity.FromList(corev1.ResourceList{"cpu": resource.MustParse(cpu), "pods": resource.MustParse("29")})
		return &capacity.InstanceType{
			Name: name, Capacity: r, Allocatable: r,
			Labels: map[string]string{corev1.LabelInstanceTypeStable: name, corev1.LabelArchStable: "amd64"},
			Absent: []string{"karpenter.k8s.aws/instance-gpu-name"},
			Offerings: []capacity.Offering{
				{Zone: "a", CapacityType: karpv1.CapacityTypeOnDemand, Price: price},
				{Zone: "a", CapacityType: karpv1.CapacityTypeSpot, Price: price / 3},
				{Zone: "b", CapacityType: karpv1.CapacityTypeSpot, Price: price / 2},
			},
		}
	}
	return capacity.NewCatalog([]*capacity.InstanceType{sold("m5.large", "2", 0.096), sold("m5.xlarge", "4", 0.192)})
}

// A catalogue answers which offerings satisfy requirements with a few bit operations; the first of a set is the cheapest.
func ExampleCatalog() {
	c := shelfOfTwo()
	show := func(in capacity.Set) {
		for i := range in.All {
			o := c.Offerings[i]
			fmt.Printf("%s %s %s %.3f\n", o.Type.Name, o.Zone, o.CapacityType, o.Price)
		}
	}
	spotInB := c.Match(capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "b"), capacity.In(karpv1.CapacityTypeLabelKey, "spot")))
	show(spotInB)

	// Shortages are sets beside the catalogue.
	short := c.Without(func(k capacity.OfferingKey) bool { return k.InstanceType == "m5.large" })
	fmt.Println("cheapest left:")
	show(capacity.Set{1 << short.First()})

	// The absence of a label is a property, too: no type here has a GPU.
	fmt.Println(c.Match(capacity.NewRequirements(capacity.Exists("karpenter.k8s.aws/instance-gpu-name"))).Empty())
	// Output:
	// m5.large b spot 0.048
	// m5.xlarge b spot 0.096
	// cheapest left:
	// m5.xlarge a spot 0.064
	// true
}

// A view is the cluster at one instant. Pods are grouped into classes, so that a question about a selector is asked once a
// class and not once a pod.
func ExampleView() {
	web := &capacity.Class{ID: "web", Labels: map[string]string{"app": "web"}, Terms: []capacity.Requirements{{}}}
	v := &capacity.View{
		Pools: []*capacity.Pool{{Name: "default", Catalog: shelfOfTwo()}},
		Nodes: []*capacity.Node{
			{Name: "n1", Phase: capacity.Usable, Labels: map[string]string{corev1.LabelTopologyZone: "a"}, Pods: map[*capacity.Class]int{web: 3}},
			{Claim: "c1", Phase: capacity.Planned, Requirements: capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "a", "b"))},
		},
	}
	for _, n := range v.Nodes {
		fmt.Println(n.ID(), "has", n.Pods[web])
	}
	// Whether the planned node will be in zone a is not decided: nothing may count on it.
	inA := []capacity.Requirements{capacity.NewRequirements(capacity.In(corev1.LabelTopologyZone, "a"))}
	for _, n := range v.Nodes {
		fmt.Println(n.ID(), n.Phase, n.Satisfies(inA))
	}
	// Output:
	// n1 has 3
	// c1 has 0
	// n1 Usable true
	// c1 Planned false
}

// A daemonset pod costs room on the nodes it runs on only: overhead is exact for each instance type.
func ExamplePool_Overhead() {
	plugin := &capacity.Class{
		ID: "gpu-plugin", Requests: capacity.FromList(corev1.ResourceList{"cpu": resource.MustParse("100m")}),
		Terms: []capacity.Requirements{capacity.NewRequirements(capacity.Exists("karpenter.k8s.aws/instance-gpu-name"))},
	}
	agent := &capacity.Class{ID: "agent", Requests: capacity.FromList(corev1.ResourceList{"cpu": resource.MustParse("50m")}), Terms: []capacity.Requirements{{}}}
	pool := &capacity.Pool{Name: "default", Catalog: shelfOfTwo(), Daemons: []*capacity.Class{plugin, agent}}
	fmt.Println(pool.Overhead(pool.Catalog.Type("m5.large"), nil))
	// Output:
	// cpu=50m
}
