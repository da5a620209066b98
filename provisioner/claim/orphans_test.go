// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestOrphans(t *testing.T) {
	now := time.Now()
	old, young := now.Add(-time.Minute), now.Add(-time.Second)
	waiting := func(name, group string) karpv1.NodeClaim {
		b := builder.NodeClaim(name).UID(name)
		if group != "" {
			b.Annotation(capacity.LaunchGroupAnnotation, group)
		}
		return *b.Obj()
	}
	has := func(name, group, id string) karpv1.NodeClaim {
		c := waiting(name, group)
		c.Status.ProviderID = ec2.ProviderID("us-east-1a", id)
		return c
	}
	ending := instance("i-1", "gone", old)
	ending.State = "shutting-down"
	tests := []struct {
		name      string
		instances []ec2.Instance
		claims    []karpv1.NodeClaim
		want      []string
	}{
		{"claim is gone", []ec2.Instance{instance("i-1", "gone", old)}, nil, []string{"i-1"}},
		{"too young to tell", []ec2.Instance{instance("i-1", "gone", young)}, nil, nil},
		{"ending already", []ec2.Instance{ending}, nil, nil},
		{"claim has it", []ec2.Instance{instance("i-1", "x", old)}, []karpv1.NodeClaim{has("x", "", "i-1")}, nil},
		{"claim waits for it", []ec2.Instance{instance("i-1", "x", old)}, []karpv1.NodeClaim{waiting("x", "")}, nil},
		{"second instance of a claim", []ec2.Instance{instance("i-1", "x", old), instance("i-2", "x", old)}, []karpv1.NodeClaim{has("x", "", "i-1")}, []string{"i-2"}},
		{
			"group has lost a claim",
			[]ec2.Instance{instance("i-3", "g", old), instance("i-2", "g", old), instance("i-1", "g", old)},
			[]karpv1.NodeClaim{has("a", "g", "i-1"), waiting("b", "g")},
			[]string{"i-3"},
		},
		{
			"a young instance of a group takes a place",
			[]ec2.Instance{instance("i-1", "g", young), instance("i-2", "g", old)},
			[]karpv1.NodeClaim{waiting("a", "g"), waiting("b", "g")},
			nil,
		},
		{
			"claims of another group do not count",
			[]ec2.Instance{instance("i-1", "g", old)},
			[]karpv1.NodeClaim{waiting("a", "h")},
			[]string{"i-1"},
		},
		{"launched by Karpenter, claim is gone", []ec2.Instance{karpenters("i-1", old)}, nil, []string{"i-1"}},
		{"launched by Karpenter, claim has it", []ec2.Instance{karpenters("i-1", old)}, []karpv1.NodeClaim{has("x", "", "i-1")}, nil},
		{"launched by Karpenter, too young to tell", []ec2.Instance{karpenters("i-1", young)}, nil, nil},
		{"launched by Karpenter, a claim waits, which is launched anew", []ec2.Instance{karpenters("i-1", old)}, []karpv1.NodeClaim{waiting("x", "")}, []string{"i-1"}},
		{"not of a class", []ec2.Instance{{ID: "i-1", State: "running", LaunchTime: old, Tags: map[string]string{ec2.TagNodePool: "p", ec2.TagClusterName: "demo"}}}, nil, nil},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			var got []string
			for _, i := range orphans(tc.instances, tc.claims, now.Add(-30*time.Second)) {
				got = append(got, i.ID)
			}
			if d := cmp.Diff(tc.want, got); d != "" {
				t.Errorf("orphans (-want +got):\n%s", d)
			}
		})
	}
}

func TestCollect(t *testing.T) {
	gone := func(name, id string) *builder.NodeClaimBuilder {
		return builder.NodeClaim(name).UID(name).Created(time.Now().Add(-time.Hour)).Launched(ec2.ProviderID("us-east-1a", id), "m5.large", "us-east-1a", "spot")
	}
	alive := gone("alive", "i-2")
	r := newRig(t,
		alive.Obj(), gone("gone", "i-3").Obj(), gone("still-ready", "i-4").Obj(), gone("untagged", "i-5").Obj(), gone("ended", "i-6").Obj(),
		gone("ending", "i-7").Obj(),
		builder.Node("ended-node").ProviderID("aws:///us-east-1a/i-6").Obj(),
		builder.Node("orphan-node").ProviderID("aws:///us-east-1a/i-1").Obj(),
		builder.Node("ready-node").ProviderID("aws:///us-east-1a/i-4").Obj(),
		builder.Node("dead-node").ProviderID("aws:///us-east-1a/i-3").NotReady().Obj())
	r.clock.SetTime(time.Now().Add(time.Hour))
	old := r.clock.Now().Add(-time.Minute)
	r.cloud.instances["i-1"] = instance("i-1", "nobody", old)
	r.cloud.instances["i-2"] = instance("i-2", "alive", old)
	r.cloud.instances["i-5"] = instance("i-5", "untagged", old)
	for id, state := range map[string]string{"i-6": "terminated", "i-7": "shutting-down"} {
		r.cloud.instances[id] = instance(id, "x", old)
		r.cloud.setState(id, state)
	}
	listed := inventory(func() []ec2.Instance {
		return []ec2.Instance{r.cloud.instances["i-1"], r.cloud.instances["i-2"], r.cloud.instances["i-7"]}
	})
	if err := NewCollector(r.options(), listed, nil).Collect(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" {
		t.Errorf("terminated (-want +got):\n%s", d)
	}
	if r.node("orphan-node") != nil {
		t.Error("the orphan's node is still there")
	}
	var deleted []string
	var claims karpv1.NodeClaimList
	if err := r.kube.List(r.ctx(), &claims); err != nil {
		t.Fatal(err)
	}
	for _, c := range claims.Items {
		if c.DeletionTimestamp != nil {
			deleted = append(deleted, c.Name)
		}
	}
	if d := cmp.Diff([]string{"ended", "ending", "gone"}, deleted); d != "" {
		t.Errorf("deleted claims (-want +got):\n%s", d)
	}
	if !slices.Contains(r.events.reasons, "InstanceGone") {
		t.Errorf("events are %v", r.events.reasons)
	}
}

// karpenters is an instance that Karpenter launched.
func karpenters(id string, launched time.Time) ec2.Instance {
	return ec2.Instance{ID: id, Zone: "us-east-1a", State: "running", LaunchTime: launched, Tags: map[string]string{
		ec2.TagClusterPrefix + "demo": "owned", ec2.TagClusterName: "demo", ec2.TagNodePool: "p", ec2.TagNodeClass: "default",
	}}
}

// rival answers as it is told.
type rival struct {
	holder string
	err    error
}

func (r rival) Holder(context.Context) (string, error) { return r.holder, r.err }

// What Karpenter launched and lost is ended as Karpenter would, once it is known not to run.
func TestKarpentersOrphans(t *testing.T) {
	for name, tc := range map[string]struct {
		rival Rival
		want  []string
	}{
		"it is gone":         {rival{}, []string{"i-1", "i-2"}},
		"it runs":            {rival{holder: "lease karpenter/karpenter-leader-election is held by karpenter-1_x"}, []string{"i-2"}},
		"nobody knows":       {rival{err: errors.New("forbidden")}, []string{"i-2"}},
		"it cannot be asked": {nil, []string{"i-2"}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			old := r.clock.Now().Add(-time.Minute)
			r.cloud.instances["i-1"], r.cloud.instances["i-2"] = karpenters("i-1", old), instance("i-2", "nobody", old)
			if err := NewCollector(r.options(), r.cloud, tc.rival).Collect(r.ctx()); err != nil {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, r.cloud.terminated); d != "" {
				t.Errorf("terminated (-want +got):\n%s", d)
			}
		})
	}
}

// TestStaleCacheEndsNothing shows that the API server has the last word.
func TestStaleCacheEndsNothing(t *testing.T) {
	r := newRig(t, builder.NodeClaim("fresh").UID("fresh").Obj())
	r.cloud.instances["i-1"] = instance("i-1", "fresh", r.clock.Now().Add(-time.Minute))
	o := r.options()
	o.Kube, o.Live = newRig(t).kube, client.Reader(r.kube) // the cache has not seen the claim
	if err := NewCollector(o, r.cloud, nil).Collect(r.ctx()); err != nil {
		t.Fatal(err)
	}
	if len(r.cloud.terminated) != 0 {
		t.Errorf("terminated %v, whose claim exists", r.cloud.terminated)
	}
}
