// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestPoolRuns(t *testing.T) {
	type cls = *builder.ClassBuilder
	for name, tc := range map[string]struct {
		daemon cls
		pool   func(*builder.CapacityPoolBuilder)
		typ    string
		labels map[string]string
		want   bool
	}{
		"everywhere":                     {daemon: builder.Class("d"), want: true},
		"taint not tolerated":            {daemon: builder.Class("d"), pool: func(p *builder.CapacityPoolBuilder) { p.Taint("gpu", "", corev1.TaintEffectNoSchedule) }},
		"taint tolerated":                {daemon: builder.Class("d").Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists}), pool: func(p *builder.CapacityPoolBuilder) { p.Taint("gpu", "", corev1.TaintEffectNoSchedule) }, want: true},
		"startup taints do not matter":   {daemon: builder.Class("d"), pool: func(p *builder.CapacityPoolBuilder) { p.StartupTaint("cni", "", corev1.TaintEffectNoSchedule) }, want: true},
		"preferred taints do not":        {daemon: builder.Class("d"), pool: func(p *builder.CapacityPoolBuilder) { p.Taint("x", "", corev1.TaintEffectPreferNoSchedule) }, want: true},
		"the type's architecture":        {daemon: builder.Class("d").Term(capacity.In("beta.kubernetes.io/arch", "amd64")), want: true},
		"another architecture":           {daemon: builder.Class("d").Term(capacity.In(corev1.LabelArchStable, "arm64"))},
		"one of two terms":               {daemon: builder.Class("d").Term(capacity.In(corev1.LabelArchStable, "arm64")).Term(capacity.In(corev1.LabelOSStable, "linux")), want: true},
		"a zone it could get":            {daemon: builder.Class("d").Term(capacity.In(corev1.LabelTopologyZone, "b")), want: true},
		"a zone known to be another":     {daemon: builder.Class("d").Term(capacity.In(corev1.LabelTopologyZone, "b")), labels: map[string]string{corev1.LabelTopologyZone: "a"}},
		"a zone the pool never uses":     {daemon: builder.Class("d").Term(capacity.In(corev1.LabelTopologyZone, "b")), pool: func(p *builder.CapacityPoolBuilder) { p.Require(capacity.In(corev1.LabelTopologyZone, "a")) }},
		"a capacity type nobody sells":   {daemon: builder.Class("d").Term(capacity.In(capacity.ZoneIDLabel, "x"))},
		"a label of the pool":            {daemon: builder.Class("d").Term(capacity.In("team", "x")), pool: func(p *builder.CapacityPoolBuilder) { p.NodeLabel("team", "x") }, want: true},
		"a label nobody sets":            {daemon: builder.Class("d").Term(capacity.In("team", "x"))},
		"the absence of a label":         {daemon: builder.Class("d").Term(capacity.DoesNotExist("team")), want: true},
		"a GPU on a type without":        {daemon: builder.Class("d").Term(capacity.In(gpuLabel, "t4"))},
		"a GPU on a type with":           {daemon: builder.Class("d").Term(capacity.In(gpuLabel, "t4")), typ: "g4dn.xlarge", want: true},
		"no GPU, though the pool may":    {daemon: builder.Class("d").Term(capacity.In(gpuLabel, "t4")), pool: func(p *builder.CapacityPoolBuilder) { p.Require(not(t, gpuLabel, "a100")) }},
		"a node by name":                 {daemon: builder.Class("d").Term(capacity.In(capacity.NodeNameField, "node-1"))},
		"all nodes but one":              {daemon: builder.Class("d").Term(not(t, capacity.NodeNameField, "node-1")), want: true},
		"no term can be understood":      {daemon: builder.Class("d").Term(capacity.In("k", "a"), capacity.In("k", "b"))},
		"the nodepool it is made for":    {daemon: builder.Class("d").Term(capacity.In(karpv1.NodePoolLabelKey, "p")), want: true},
		"the nodepool it is not":         {daemon: builder.Class("d").Term(capacity.In(karpv1.NodePoolLabelKey, "q"))},
		"a value the pool leaves open":   {daemon: builder.Class("d").Term(capacity.In("team", "x")), pool: func(p *builder.CapacityPoolBuilder) { p.Require(capacity.Exists("team")) }, want: true},
		"a value the node has not":       {daemon: builder.Class("d").Term(capacity.In("team", "x")), pool: func(p *builder.CapacityPoolBuilder) { p.Require(capacity.Exists("team")) }, labels: map[string]string{"team": "y"}},
		"an integer bound of the type":   {daemon: builder.Class("d").Term(req(t, builder.Requirement("karpenter.k8s.aws/instance-generation", opGt, "4"))), want: true},
		"an integer bound not reached":   {daemon: builder.Class("d").Term(req(t, builder.Requirement("karpenter.k8s.aws/instance-generation", opGt, "5")))},
		"a hostname: no new node has it": {daemon: builder.Class("d").Term(capacity.In(corev1.LabelHostname, "node-1"))},
	} {
		t.Run(name, func(t *testing.T) {
			c := shelf()
			b := builder.CapacityPool("p", c)
			if tc.pool != nil {
				tc.pool(b)
			}
			typ := c.Type("m5.large")
			if tc.typ != "" {
				typ = c.Type(tc.typ)
			}
			if got := b.Obj().Runs(tc.daemon.Obj(), typ, tc.labels); got != tc.want {
				t.Errorf("Runs = %v, want %v", got, tc.want)
			}
		})
	}
}

func TestPoolOverhead(t *testing.T) {
	c := shelf()
	p := builder.CapacityPool("p", c).Daemons(
		builder.Class("cni").CPU("50m").Memory("64Mi").Obj(),
		builder.Class("gpu-plugin").CPU("100m").Term(capacity.Exists(gpuLabel)).Obj(),
		builder.Class("windows").CPU("1").Term(capacity.In(corev1.LabelOSStable, "windows")).Obj(),
	).Obj()
	for typ, want := range map[string]capacity.Resources{
		"m5.large":    res("cpu", "50m", "memory", "64Mi", "pods", "1"),
		"g4dn.xlarge": res("cpu", "150m", "memory", "64Mi", "pods", "2"),
	} {
		if got := p.Overhead(c.Type(typ), nil); !got.Equal(want) {
			t.Errorf("Overhead on %s = %s, want %s", typ, got, want)
		}
	}
}

func TestPoolRunsOn(t *testing.T) {
	c := shelf()
	p := builder.CapacityPool("p", c).Taint("team", "x", corev1.TaintEffectNoSchedule).Require(capacity.Exists("rack")).Obj()
	all := capacity.FullSet(len(c.Offerings))
	tolerant := func(id string) *builder.ClassBuilder {
		return builder.Class(id).Tolerate(corev1.Toleration{Operator: corev1.TolerationOpExists})
	}
	for name, tc := range map[string]struct {
		daemon *builder.ClassBuilder
		want   capacity.Set
	}{
		"every node":               {tolerant("d"), all},
		"a taint it does not take": {builder.Class("d"), capacity.NewSet(len(c.Offerings))},
		"a label of the type":      {tolerant("d").Term(capacity.Exists(gpuLabel)), c.Match(capacity.NewRequirements(capacity.Exists(gpuLabel)))},
		"a zone":                   {tolerant("d").Term(capacity.In(corev1.LabelTopologyZone, "a")), c.WithValue(corev1.LabelTopologyZone, "a")},
		"a label that may be so":   {tolerant("d").Term(capacity.In("rack", "1")), all},
		"a label no node has":      {tolerant("d").Term(capacity.In("shelf", "1")), capacity.NewSet(len(c.Offerings))},
		"one of two":               {tolerant("d").Term(capacity.In("shelf", "1")).Term(capacity.In(corev1.LabelTopologyZone, "a")), c.WithValue(corev1.LabelTopologyZone, "a")},
		"a node by its name":       {tolerant("d").Term(capacity.In(capacity.NodeNameField, "n1")), capacity.NewSet(len(c.Offerings))},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, p.RunsOn(tc.daemon.Obj())); diff != "" {
				t.Errorf("offerings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestFlexibility(t *testing.T) {
	c := shelf()
	all := capacity.FullSet(len(c.Offerings))
	least := func(q capacity.Requirement, n int) capacity.Requirement {
		q.MinValues = n
		return q
	}
	types, zones := len(c.Values(corev1.LabelInstanceTypeStable, all)), len(c.Values(corev1.LabelTopologyZone, all))
	if _, _, _, ok := c.Flexibility(capacity.NewRequirements(least(capacity.Exists(corev1.LabelInstanceTypeStable), types)), all); !ok {
		t.Errorf("%d of %d types are not flexible enough", types, types)
	}
	reqs := capacity.NewRequirements(least(capacity.Exists(corev1.LabelInstanceTypeStable), types+1), least(capacity.In(corev1.LabelTopologyZone, "a"), 2))
	key, have, want, ok := c.Flexibility(reqs, all)
	if ok || key != corev1.LabelInstanceTypeStable || have != types || want != types+1 {
		t.Errorf("Flexibility = %q %d of %d, %v: want the first label that falls short", key, have, want, ok)
	}
	// Only values the requirement allows count, however many are sold.
	key, have, want, ok = c.Flexibility(capacity.NewRequirements(least(capacity.In(corev1.LabelTopologyZone, "a"), 2)), all)
	if ok || zones < 2 || key != corev1.LabelTopologyZone || have != 1 || want != 2 {
		t.Errorf("Flexibility = %q %d of %d, %v, with %d zones sold", key, have, want, ok, zones)
	}
}
