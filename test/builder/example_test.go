// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package builder_test

import (
	"fmt"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func ExamplePod() {
	web := builder.Pod("web").Namespace("shop").Label("app", "web").CPU("500m").Memory("1Gi").
		NodeAffinity(builder.In("node-type", "general")).
		ZoneSpread(1, map[string]string{"app": "web"})

	for _, p := range web.Objs(2) {
		requests := p.Spec.Containers[0].Resources.Requests
		fmt.Println(p.Namespace, p.Name, requests.Cpu(), requests.Memory(), p.Spec.TopologySpreadConstraints[0].TopologyKey)
	}
	// Output:
	// shop web-0 500m 1Gi topology.kubernetes.io/zone
	// shop web-1 500m 1Gi topology.kubernetes.io/zone
}

func ExampleDeployment() {
	d := builder.Deployment("web").Replicas(6).Template(builder.Pod("").CPU("2").Memory("4Gi")).Obj()

	fmt.Println(*d.Spec.Replicas, d.Spec.Selector.MatchLabels, d.Spec.Template.Labels, d.Spec.Template.Spec.SchedulerName)
	// Output: 6 map[app:web] map[app:web] slipway
}

func ExampleNodePool() {
	p := builder.NodePool("spot").Weight(10).Limit(corev1.ResourceCPU, "1000").
		Require(builder.In("karpenter.sh/capacity-type", "spot")).
		RequireMin(5, builder.Requirement("karpenter.k8s.aws/instance-family", corev1.NodeSelectorOpExists)).
		Taint("team", "ml", corev1.TaintEffectNoSchedule).
		Ready().Obj()

	fmt.Println(p.Name, *p.Spec.Weight, p.Spec.Template.Spec.Requirements[0].Values, p.StatusConditions().Root().IsTrue())
	// Output: spot 10 [spot] true
}

func ExampleCatalog() {
	catalog := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.096, "us-east-1a", "us-east-1b").Spot(0.035, "us-east-1b"),
		builder.InstanceType("m7g.large").CPU("2").Memory("8Gi").Arch("arm64").OnDemand(0.0816, "us-east-1a"),
	)
	pool := builder.CapacityPool("default", catalog).Require(capacity.In(corev1.LabelArchStable, "amd64")).Obj()

	for i := range pool.Catalog.Match(pool.Requirements).And(pool.Available).All {
		o := pool.Catalog.Offerings[i]
		fmt.Println(o.Type.Name, o.Zone, o.CapacityType, o.Price)
	}
	// Output:
	// m5.large us-east-1b spot 0.035
	// m5.large us-east-1a on-demand 0.096
	// m5.large us-east-1b on-demand 0.096
}

func ExampleCapacityNode() {
	web := builder.Class("web").CPU("500m").Memory("1Gi").Obj()
	node := builder.CapacityNode("n1").CPU("2").Memory("8Gi").Pods(web, 3).Obj()

	fmt.Println(node.Free())
	// Output: cpu=500m memory=5Gi pods=107
}
