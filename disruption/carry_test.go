// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/test/builder"
)

// begun is a cluster whose controller consolidates nothing by itself, with nodes a and b in one command: marked, and waiting for
// what was bought.
func begun(t *testing.T, replacements ...string) *rig {
	t.Helper()
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never) })
	record := disruption.Record{
		ID: "1", Reason: karpv1.DisruptionReasonUnderutilized, Nodes: []string{"a", "b"}, Replacements: replacements, Since: r.Clock.Now(),
	}
	for _, name := range record.Nodes {
		r.node(name, "m5.large")
		r.pod("app-"+name, name, "100m")
		c := r.claim(name)
		c.Annotations = map[string]string{disruption.RecordAnnotation: record.String()}
		c.Finalizers = []string{karpv1.TerminationFinalizer}
		if err := r.Kube.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		n := &corev1.Node{}
		if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-" + name}, n); err != nil {
			t.Fatal(err)
		}
		n.Spec.Taints = append(n.Spec.Taints, karpv1.DisruptedNoScheduleTaint)
		if err := r.Kube.Update(t.Context(), n); err != nil {
			t.Fatal(err)
		}
	}
	r.Broken = func(*karpv1.NodeClaim) bool { return true } // not yet
	for _, name := range replacements {
		if err := r.Kube.Create(t.Context(), builder.NodeClaim(name).UID("uid-"+name).Pool("p").Obj()); err != nil {
			t.Fatal(err)
		}
	}
	return r
}

func (r *rig) remove(name string) {
	r.t.Helper()
	if err := r.Kube.Delete(r.t.Context(), r.claim(name)); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) leaving(name string) bool {
	r.t.Helper()
	c := r.claim(name)
	return c == nil || c.DeletionTimestamp != nil
}

// That one node of many is deleted by somebody else says nothing about the others: they wait for their replacement.
func TestOneNodeOfACommandIsDeleted(t *testing.T) {
	r := begun(t, "next")
	r.remove("b")
	r.pass()
	if r.leaving("a") || !r.tainted("a") {
		t.Fatalf("a is leaving: %v, tainted: %v; want it to wait for the replacement", r.leaving("a"), r.tainted("a"))
	}
	r.Broken = nil
	r.run(2 * time.Minute)
	if !r.leaving("a") {
		t.Error("a stays although its replacement is there")
	}
}

// What was to be deleted without a replacement is decided anew; the node that drains is left as it is.
func TestOneNodeOfADeleteIsDeleted(t *testing.T) {
	r := begun(t)
	r.remove("b")
	r.pass()
	r.untouched("a")
	if !r.tainted("b") {
		t.Error("b, which is being drained, has been opened for pods again")
	}
}

// A node whose time is over waits no longer for what its command has bought, and nothing is bought a second time.
func TestCommandsNodeExpires(t *testing.T) {
	r := begun(t, "next")
	r.Clock.Step(5 * time.Minute) // replacements are waited for longer
	c := r.claim("a")
	c.Spec.ExpireAfter = karpv1.MustParseNillableDuration("5m")
	if err := r.Kube.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	record := r.claim("b").Annotations[disruption.RecordAnnotation]
	r.pass()
	if !r.leaving("a") {
		t.Error("a stays beyond its time")
	}
	list, err := r.Claims(t.Context())
	if err != nil || len(list) > 3 {
		t.Errorf("claims %v with error %v, want a, b and next at most", names(list), err)
	}
	if got := r.claim("a").Annotations[disruption.RecordAnnotation]; got != record {
		t.Errorf("record of a is %q, want its command's %q", got, record)
	}
}

// What this process has deleted is not deleted or decided about again while the cache does not show it.
func TestDeletedBeforeTheCacheShowsIt(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.large")
	deleted := 0
	r.Kube = interceptor.NewClient(r.Kube, interceptor.Funcs{
		Delete: func(context.Context, client.WithWatch, client.Object, ...client.DeleteOption) error {
			deleted++
			return nil
		},
	})
	r.Restart()
	r.pass()
	r.pass()
	if deleted != 1 {
		t.Errorf("claim a was deleted %d times, want once", deleted)
	}
}

// That moves cannot be judged holds up what is voluntary only.
func TestExpiryIsNotJudged(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.large")
	r.pod("app", "a", "1500m")
	c := r.claim("a")
	c.Spec.ExpireAfter = karpv1.MustParseNillableDuration("1h")
	if err := r.Kube.Update(t.Context(), c); err != nil {
		t.Fatal(err)
	}
	r.Clock.Step(time.Hour)
	r.JudgeErr = errors.New("no judge")
	r.pass()
	if !r.leaving("a") {
		t.Error("a stays beyond its time")
	}
}

// Two commands of a pass share what a limit leaves at the second look too, and what was bought is announced.
func TestCommandsShareLimitsWhenTheyAreStarted(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	for _, name := range []string{"a", "b", "c"} {
		r.node(name, "m5.large")
		r.pod("app-"+name, name, "1500m")
	}
	limit := sync.OnceValue(func() error { // when the commands are decided
		np := &karpv1.NodePool{}
		if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "p"}, np); err != nil {
			return err
		}
		np.Spec.Limits = karpv1.Limits{"cpu": resource.MustParse("8")} // 6 are in use
		return r.Kube.Update(t.Context(), np)
	})
	r.BeforeWrite = func(_ string, o client.Object) error {
		if _, node := o.(*corev1.Node); node {
			return limit()
		}
		return nil
	}
	r.pass()
	bought := 0
	for _, name := range []string{"a", "b", "c"} {
		if r.replacement(name) != nil {
			bought++
		}
	}
	if bought != 1 || len(r.Announced) != 1 {
		t.Errorf("%d replacements were bought and %v announced, want one", bought, r.Announced)
	}
}
