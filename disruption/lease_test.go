// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/test/builder"
)

// rival answers as it is told.
type rival struct {
	holder string
	err    error
}

func (r *rival) Holder(context.Context) (string, error) { return r.holder, r.err }

func (r *rig) owns(group string) {
	r.t.Helper()
	np := &karpv1.NodePool{}
	if err := r.Kube.Get(r.t.Context(), client.ObjectKey{Name: "p"}, np); err != nil {
		r.t.Fatal(err)
	}
	np.Spec.Template.Spec.NodeClassRef.Group = group
	if err := r.Kube.Update(r.t.Context(), np); err != nil {
		r.t.Fatal(err)
	}
	list, err := r.Claims(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range list {
		list[i].Spec.NodeClassRef.Group = group
		if err := r.Kube.Update(r.t.Context(), &list[i]); err != nil {
			r.t.Fatal(err)
		}
	}
}

// While Karpenter runs its nodes are left alone, with all that was begun on them, and the pool says so.
func TestKarpenterRunsBeside(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	other := &rival{}
	r.Rival = other
	r.Restart()
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	next := r.replacement("old")
	if next == nil {
		t.Fatal("nothing was bought for old, while Slipway owns it")
	}
	other.holder = "lease kube-system/karpenter-leader-election is held by karpenter-1_x"
	r.run(5 * time.Minute)
	if c := r.claim("old"); c == nil || c.DeletionTimestamp != nil || c.Annotations[disruption.RecordAnnotation] == "" {
		t.Errorf("claim old is %v, want it as it was when Karpenter came", c)
	}
	if !r.heard("p", "DisruptionBlocked", "held by karpenter-1_x") {
		t.Errorf("events %v, want why the pool is left alone", r.Said)
	}
	other.holder, other.err = "", errors.New("the API server is away")
	r.run(time.Minute)
	if r.claim("old").DeletionTimestamp != nil {
		t.Error("old was taken away without knowing whose it is")
	}
	other.err = nil
	r.run(5 * time.Minute)
	if r.claim("old") != nil || r.claim(next.Name) == nil {
		t.Error("what was begun was not finished when Karpenter had gone")
	}
}

// A static pool of Karpenter's gets no nodes from Slipway, and one of Slipway's own class is Slipway's whoever runs.
func TestOwnClassesAreOwn(t *testing.T) {
	for group, want := range map[string]int{"karpenter.k8s.aws": 0, "slipway.sh": 2} {
		t.Run(group, func(t *testing.T) {
			r := newRig(t, func(p *builder.NodePoolBuilder) { p.Replicas(2) })
			r.Rival = &rival{holder: "lease kube-system/karpenter-leader-election is held by karpenter-1_x"}
			r.Restart()
			r.owns(group)
			r.pass()
			if list, err := r.Claims(t.Context()); err != nil || len(list) != want {
				t.Errorf("%d claims with error %v, want %d", len(list), err, want)
			}
		})
	}
}

// Before it is known who owns them no node is touched.
func TestOwnerIsNotKnown(t *testing.T) {
	r := newRig(t, nil)
	other := &rival{err: errors.New("forbidden")}
	r.Rival = other
	r.Restart()
	r.node("a", "m5.large")
	r.run(time.Minute)
	r.untouched("a")
	if !r.heard("p", "DisruptionBlocked", "forbidden") {
		t.Errorf("events %v, want what stands against disruption", r.Said)
	}
	other.err = nil
	r.run(time.Minute)
	if list, err := r.Claims(t.Context()); err != nil || len(list) != 0 {
		t.Errorf("claims %v with error %v, want the empty node gone", names(list), err)
	}
	if strings.Contains(r.Said[len(r.Said)-1].Note, "forbidden") {
		t.Error("the pool is still said to be somebody else's")
	}
}
