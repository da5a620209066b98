// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"fmt"
	"strconv"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// daemons are the daemonset pods of every node: 150m, 250Mi and four pods in sum.
func daemons() []*capacity.Class {
	return []*capacity.Class{
		builder.Class("aws-node").CPU("50m").Memory("64Mi").Obj(), builder.Class("kube-proxy").CPU("50m").Memory("64Mi").Obj(),
		builder.Class("log-agent").CPU("25m").Memory("90Mi").Obj(), builder.Class("node-exporter").CPU("25m").Memory("32Mi").Obj(),
	}
}

// numeric is a requirement with one number. The operators and numbers of this file are right, so it cannot fail.
func numeric(key string, op corev1.NodeSelectorOperator, n int) capacity.Requirement {
	q, err := capacity.NewRequirement(key, op, strconv.Itoa(n))
	if err != nil {
		panic(fmt.Sprintf("mix: requirement on %s: %v", key, err))
	}
	return q
}

// capped adds the cap on vCPU a node, if there is one.
func capped(b *builder.CapacityPoolBuilder, cores int) *builder.CapacityPoolBuilder {
	b.Daemons(daemons()...)
	if cores > 0 {
		b.Require(numeric(v1.LabelInstanceCPU, corev1.NodeSelectorOpLt, cores+1))
	}
	return b
}

// onePool sells c, m and r types of x86 from the third generation on, on demand.
func onePool(cat *capacity.Catalog, cores int) []*capacity.Pool {
	return []*capacity.Pool{capped(builder.CapacityPool("default", cat), cores).Require(
		capacity.In(v1.LabelInstanceCategory, "c", "m", "r"), capacity.In(corev1.LabelArchStable, "amd64"),
		capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand), numeric(v1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, 2),
	).Obj()}
}

// Taints of the pools that not everybody may use.
const (
	batchTaint = "example.com/batch"
	gpuTaint   = "nvidia.com/gpu"
)

func tolerate(key string) corev1.Toleration {
	return corev1.Toleration{Key: key, Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule}
}

// fivePools is a cluster as a platform team sets one up: general x86, arm64, memory-rich, interruptible batch and GPUs, all
// of one weight. Zones and, but for batch, capacity types are open.
func fivePools(cat *capacity.Catalog, cores int) []*capacity.Pool {
	newer := numeric(v1.LabelInstanceGeneration, corev1.NodeSelectorOpGt, 4)
	category := func(c ...string) capacity.Requirement { return capacity.In(v1.LabelInstanceCategory, c...) }
	arch := func(a string) capacity.Requirement { return capacity.In(corev1.LabelArchStable, a) }
	return []*capacity.Pool{
		capped(builder.CapacityPool("arm", cat), cores).Require(category("c", "m", "r"), arch("arm64"), newer).Obj(),
		capped(builder.CapacityPool("batch", cat), cores).Require(category("c", "m", "r"), newer,
			capacity.In(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeSpot)).Taint(batchTaint, "true", corev1.TaintEffectNoSchedule).Obj(),
		capped(builder.CapacityPool("general", cat), cores).Require(category("c", "m", "r"), arch("amd64"), newer).Obj(),
		capped(builder.CapacityPool("gpu", cat), cores).Require(category("g", "p"), arch("amd64")).Taint(gpuTaint, "true", corev1.TaintEffectNoSchedule).Obj(),
		capped(builder.CapacityPool("memory", cat), cores).Require(category("r", "x"), arch("amd64"), newer).Obj(),
	}
}
