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
	// 1. The cluster of the manifests, and its view.
	st, err := setOut(ctx, in, m)
	if err != nil {
		return nil, err
	}
	defer st.judge.Close()
	out := &Outcome{Ignored: in.Ignored, StoodIn: st.stoodIn}
	// 2. The plan, and what the judge says of it.
	builder := st.builder
	input := plan.Input{View: st.view}
	pods := provisioner.Pods{Wanting: map[types.UID]*corev1.Pod{}, Class: func(p *corev1.Pod) *capacity.Class { return builder.Pod(p).Class }}
	for _, p := range in.Pods {
		pods.Wanting[p.UID] = p
		input.Pods = append(input.Pods, builder.Pod(p))
	}
	out.Plan = provisioner.Planner{Judge: st.judge, Metrics: provisioner.NewMetrics()}.Solve(ctx, input, pods)
	return out, nil
}

// stage is a cluster as the planner and the judge see it.
type stage struct {
	builder *view.Builder
	view    *capacity.View
	judge   *judge.Judge // the caller closes it
	stoodIn []string
}

// setOut builds them of the input's objects and the market's offerings.
func setOut(ctx context.Context, in *Input, m *Market) (*stage, error) {
	st := &stage{}
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
	in.Classes = append(in.Classes, st.standIns(in)...)
	for _, c := range in.Classes {
		m.resolve(c)
		catalogs[c.Name] = m.Catalogs.For(c)
		objects = append(objects, c)
	}
	cluster := source.New(objects...)
	for class, catalog := range catalogs {
		cluster.Sell(class, catalog)
	}
	st.builder = view.New(cluster.Source())
	var err error
	if st.view, err = st.builder.Build(ctx, view.Pending{}); err != nil {
		return nil, fmt.Errorf("reading the cluster of the manifests: %w", err)
	}
	st.judge, err = judge.New(ctx, append(podObjects(in.Pods), core...)...)
	return st, err
}

// standIns are classes for pools whose own are not in the input.
func (st *stage) standIns(in *Input) []*v1.EC2NodeClass {
	var made []*v1.EC2NodeClass
	for _, p := range in.Pools {
		ref := p.Spec.Template.Spec.NodeClassRef
		if ref == nil || slices.Contains(st.stoodIn, ref.Name) ||
			slices.ContainsFunc(in.Classes, func(c *v1.EC2NodeClass) bool { return c.Name == ref.Name }) {
			continue
		}
		st.stoodIn = append(st.stoodIn, ref.Name)
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
