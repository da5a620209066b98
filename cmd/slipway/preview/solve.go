// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/fidelity/judge"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// Outcome is a plan for an input.
type Outcome struct {
	Plan plan.Result
	// StoodIn are the node classes that no manifest has and that were taken for plain AL2023 ones.
	StoodIn []string
	// Ignored are the kinds of the input that say nothing about nodes.
	Ignored map[string]int
}

// Solve plans the input, on an empty cluster or on the nodes it has, with the market's offerings and has the plan judged by the scheduler's own
// filters, as the scheduler process does.
func Solve(ctx context.Context, in *Input, m *Market) (*Outcome, error) {
	out := &Outcome{Ignored: in.Ignored}
	// 1. The cluster of the manifests.
	objects := make([]runtime.Object, 0, len(in.Objects)+len(in.Pools)+len(in.Classes))
	var core []runtime.Object // Kubernetes' own kinds, which the judge sees
	for _, o := range in.Objects {
		objects = append(objects, o)
		if _, claim := o.(*karpv1.NodeClaim); !claim {
			core = append(core, o)
		}
	}
	for _, p := range in.Pools {
		objects = append(objects, p)
	}
	catalogs := map[string]*capacity.Catalog{}
	for _, c := range slices.Concat(in.Classes, out.standIns(in)) {
		m.resolve(c)
		catalogs[c.Name] = m.Catalogs.For(c)
		objects = append(objects, c)
	}
	cluster := source.New(objects...)
	for class, catalog := range catalogs {
		cluster.Sell(class, catalog)
	}
	// 2. The view.
	builder := view.New(cluster.Source())
	v, err := builder.Build(ctx, view.Pending{})
	if err != nil {
		return nil, fmt.Errorf("reading the cluster of the manifests: %w", err)
	}
	// 3. The plan, and what the judge says of it.
	j, err := judge.New(ctx, append(podObjects(in.Pods), core...)...)
	if err != nil {
		return nil, err
	}
	defer j.Close()
	input := plan.Input{View: v}
	pods := provisioner.Pods{Wanting: map[types.UID]*corev1.Pod{}, Class: func(p *corev1.Pod) *capacity.Class { return builder.Pod(p).Class }}
	for _, p := range in.Pods {
		pods.Wanting[p.UID] = p
		input.Pods = append(input.Pods, builder.Pod(p))
	}
	out.Plan = provisioner.Planner{Judge: j, Metrics: provisioner.NewMetrics()}.Solve(ctx, input, pods)
	return out, nil
}

// standIns are classes for pools whose own are not in the input.
func (o *Outcome) standIns(in *Input) []*v1.EC2NodeClass {
	var made []*v1.EC2NodeClass
	for _, p := range in.Pools {
		ref := p.Spec.Template.Spec.NodeClassRef
		if ref == nil || slices.Contains(o.StoodIn, ref.Name) ||
			slices.ContainsFunc(in.Classes, func(c *v1.EC2NodeClass) bool { return c.Name == ref.Name }) {
			continue
		}
		o.StoodIn = append(o.StoodIn, ref.Name)
		made = append(made, standIn(ref.Name))
	}
	return made
}

func podObjects(pods []*corev1.Pod) []runtime.Object {
	out := make([]runtime.Object, len(pods))
	for i, p := range pods {
		out[i] = p
	}
	return out
}
