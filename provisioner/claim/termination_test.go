// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"fmt"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// running is a claim whose node is in use, and the node.
func running() (*builder.NodeClaimBuilder, *builder.NodeBuilder) {
	return launched().Registered("node").Initialized(),
		builder.Node("node").UID("node-uid").ProviderID(providerID).Finalizer(karpv1.TerminationFinalizer).Label("karpenter.k8s.aws/ec2nodeclass", "default")
}

// TestRefusedTermination checks that an instance EC2 does not end is said once, and ended when EC2 agrees.
func TestRefusedTermination(t *testing.T) {
	c, n := running()
	r := newRig(t, c.Obj(), n.Obj())
	r.drainer.drains = []Drainage{{}}
	r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
	r.delete(r.claim("claim"))
	r.reconcile("claim")
	r.clock.Step(6 * time.Second)
	for id := range 2 {
		r.cloud.refuses = &capacity.Error{Kind: capacity.Unauthorized, Code: "UnauthorizedOperation", Err: fmt.Errorf("request %d: not authorized", id)}
		if _, err := r.Reconcile(r.ctx(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "claim"}}); err == nil {
			t.Error("the refusal is no error: it would not be tried again")
		}
	}
	cond := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeInstanceTerminating)
	if want := "Instance i-1 is not terminated and goes on costing: EC2 answers UnauthorizedOperation (Unauthorized)"; cond.Reason != "TerminationFailed" || cond.Message != want {
		t.Errorf("InstanceTerminating is %s, %q, want %q", cond.Reason, cond.Message, want)
	}
	if d := cmp.Diff([]string{"TerminationFailed"}, r.events.reasons); d != "" {
		t.Errorf("events (-want +got):\n%s", d)
	}
	r.cloud.refuses = nil
	r.reconcile("claim")
	if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" {
		t.Errorf("terminated (-want +got):\n%s", d)
	}
}

func TestTermination(t *testing.T) {
	c, n := running()
	r := newRig(t, c.Obj(), n.Obj())
	r.drainer.drains = []Drainage{{Left: 1, Again: time.Second, Message: "pod x takes long"}, {}}
	r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
	r.delete(r.claim("claim"))

	r.reconcile("claim")
	node := r.node("node")
	if !hasTaint(node.Spec.Taints, karpv1.DisruptedNoScheduleTaint) || node.Labels[corev1.LabelNodeExcludeBalancers] != "karpenter" || node.DeletionTimestamp == nil {
		t.Errorf("the node is not out of service: taints %v, labels %v, deleted %v", node.Spec.Taints, node.Labels, node.DeletionTimestamp)
	}
	if cond := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeDrained); !cond.IsUnknown() || cond.Reason != "Draining" || cond.Message != "pod x takes long" {
		t.Errorf("Drained is %v", cond)
	}
	if got := r.reconcile("claim").RequeueAfter; got <= 0 || got > 5*time.Second || len(r.cloud.terminated) != 0 {
		t.Errorf("terminated %v before the minimum drain time; comes back after %s", r.cloud.terminated, got)
	}

	r.clock.Step(6 * time.Second)
	if got := r.reconcile("claim").RequeueAfter; got != 2*time.Second {
		t.Errorf("asks EC2 again after %s, want 2s", got)
	}
	if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" {
		t.Errorf("terminated (-want +got):\n%s", d)
	}
	claim := r.claim("claim")
	if !claim.StatusConditions().Get(karpv1.ConditionTypeDrained).IsTrue() || !claim.StatusConditions().Get(karpv1.ConditionTypeInstanceTerminating).IsTrue() {
		t.Error("Drained and InstanceTerminating are not both true")
	}
	r.reconcile("claim")
	if r.node("node") == nil || len(r.cloud.terminated) != 1 {
		t.Error("let go of the node, or terminated again, while the instance was shutting down")
	}

	r.cloud.gone("i-1")
	r.reconcile("claim")
	if r.node("node") != nil || r.claim("claim") != nil {
		t.Error("node or claim is still there although the instance is gone")
	}
}

func TestTerminationCases(t *testing.T) {
	t.Run("an instance that ended by itself is not drained", func(t *testing.T) {
		c, n := running()
		r := newRig(t, c.Obj(), n.NotReady().Obj())
		r.delete(r.claim("claim"))
		r.reconcile("claim")
		if r.drainer.asked != 0 || r.node("node") != nil || r.claim("claim") != nil {
			t.Error("waited for pods on a machine that does not exist")
		}
	})
	t.Run("a node that never registered is deleted with its instance", func(t *testing.T) {
		r := newRig(t, launched().Obj(), booted().Obj())
		r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
		r.delete(r.claim("claim"))
		r.reconcile("claim")
		if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" {
			t.Errorf("terminated (-want +got):\n%s", d)
		}
		r.cloud.gone("i-1")
		r.reconcile("claim")
		if r.node("node") != nil || r.claim("claim") != nil {
			t.Error("node or claim is still there")
		}
	})
	t.Run("an interrupted launch leaves nothing behind", func(t *testing.T) {
		r := newRig(t, builder.NodeClaim("claim").UID("uid").Obj())
		r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
		r.cloud.instances["i-2"] = instance("i-2", "other", time.Now())
		r.delete(r.claim("claim"))
		r.reconcile("claim")
		if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" || r.claim("claim") == nil {
			t.Errorf("terminated (-want +got):\n%s", d)
		}
		r.cloud.gone("i-1")
		r.reconcile("claim")
		if r.claim("claim") != nil {
			t.Error("the claim is still there")
		}
	})
	t.Run("a claim of a group leaves shared instances to the collector", func(t *testing.T) {
		r := newRig(t, builder.NodeClaim("claim").UID("uid").Annotation(capacity.LaunchGroupAnnotation, "group").Obj())
		r.cloud.instances["i-1"] = instance("i-1", "group", time.Now())
		r.delete(r.claim("claim"))
		r.reconcile("claim")
		if len(r.cloud.terminated) != 0 || r.claim("claim") != nil {
			t.Errorf("terminated %v, which may be another claim's", r.cloud.terminated)
		}
	})
	t.Run("a termination time that cannot be read is none", func(t *testing.T) {
		c, n := running()
		r := newRig(t, c.Annotation(karpv1.NodeClaimTerminationTimestampAnnotationKey, "tomorrow").Obj(), n.Obj())
		r.drainer.drains = []Drainage{{}}
		r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
		r.delete(r.claim("claim"))
		r.reconcile("claim")
		r.clock.Step(time.Minute)
		r.reconcile("claim")
		if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" || r.drainer.deadlines[0] != nil {
			t.Errorf("terminated, with deadline %v (-want +got):\n%s", r.drainer.deadlines[0], d)
		}
	})
	t.Run("what blocks a drain is on the claim, and the deadline is told to the drain", func(t *testing.T) {
		c, n := running()
		claim := c.Obj()
		claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
		r := newRig(t, claim, n.Obj())
		r.drainer.drains = []Drainage{{Left: 2, Blocker: "DoNotDisrupt", Message: "pod x", Again: 5 * time.Second}}
		r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
		r.delete(r.claim("claim"))
		for range 3 {
			if got := r.reconcile("claim").RequeueAfter; got != 5*time.Second {
				t.Errorf("looks again after %s, want 5s", got)
			}
			r.clock.Step(10 * time.Minute)
		}
		cond := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeDrained)
		if !cond.IsFalse() || cond.Reason != "DoNotDisrupt" || cond.Message != "pod x" || len(r.cloud.terminated) != 0 {
			t.Errorf("Drained is %+v, terminated %v", cond, r.cloud.terminated)
		}
		deadline := r.claim("claim").Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey]
		for _, d := range r.drainer.deadlines {
			if d == nil || d.Format(time.RFC3339) != deadline {
				t.Errorf("the drain was told the deadline %v, the annotation says %q", d, deadline)
			}
		}
		r.drainer.drains = []Drainage{{}}
		r.reconcile("claim")
		if d := cmp.Diff([]string{"i-1"}, r.cloud.terminated); d != "" {
			t.Errorf("terminated (-want +got):\n%s", d)
		}
	})
}

func TestVolumesAreDetachedFirst(t *testing.T) {
	for _, tc := range []struct {
		name string
		// grace is the claim's termination grace period; after is when the attachment goes, 0 for never.
		grace, after time.Duration
		// want is when the instance is terminated, with this state of the condition.
		want   time.Duration
		status metav1.ConditionStatus
		reason string
	}{
		{name: "none attached", after: time.Nanosecond, want: 0, status: metav1.ConditionTrue, reason: "VolumesDetached"},
		{name: "detached in time", after: 20 * time.Second, want: 20 * time.Second, status: metav1.ConditionTrue, reason: "VolumesDetached"},
		{name: "never detached", want: detachTimeout, status: metav1.ConditionFalse, reason: "DetachTimeout"},
		{name: "never detached, deadline", grace: time.Minute, want: time.Minute, status: metav1.ConditionFalse, reason: "TerminationGracePeriodElapsed"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, n := running()
			claim := c.Obj()
			if tc.grace > 0 {
				claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: tc.grace}
			}
			r := newRig(t, claim, n.Obj())
			r.MinDrain = time.Nanosecond
			r.cloud.instances["i-1"] = instance("i-1", "uid", time.Now())
			r.delete(r.claim("claim"))
			began := r.claim("claim").DeletionTimestamp.Time
			r.clock.SetTime(began)
			r.drainer.drains = []Drainage{{Left: 1, Again: time.Second}, {}}
			r.reconcile("claim")
			for len(r.cloud.terminated) == 0 && r.clock.Since(began) < time.Hour {
				r.drainer.attached = []string{"csi-1"}
				if tc.after > 0 && r.clock.Since(began) >= tc.after-time.Nanosecond {
					r.drainer.attached = nil
				}
				r.reconcile("claim")
				if len(r.cloud.terminated) == 0 {
					cond := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeVolumesDetached)
					if tc.want > 0 && cond != nil && cond.IsUnknown() && cond.Reason == "AwaitingVolumeDetachment" && cond.Message != "VolumeAttachments csi-1 are still there" {
						t.Errorf("VolumesDetached says %q", cond.Message)
					}
					r.clock.Step(time.Second)
				}
			}
			if got := r.clock.Since(began); got < tc.want || got > tc.want+2*time.Second {
				t.Errorf("terminated after %s, want %s", got, tc.want)
			}
			if got := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeVolumesDetached); got.Status != tc.status || got.Reason != tc.reason {
				t.Errorf("VolumesDetached is %s (%s), want %s (%s)", got.Status, got.Reason, tc.status, tc.reason)
			}
			if waited := slices.Contains(r.events.reasons, "AwaitingVolumeDetachment"); waited != (tc.want > 0) {
				t.Errorf("events %v", r.events.reasons)
			}
		})
	}
}

func TestNodeDeletedByHand(t *testing.T) {
	c, n := running()
	other := builder.Node("other").ProviderID("azure:///x").Finalizer(karpv1.TerminationFinalizer).Obj()
	left := builder.Node("left").ProviderID("aws:///us-east-1a/i-9").Finalizer(karpv1.TerminationFinalizer).Label("karpenter.k8s.aws/ec2nodeclass", "default").Obj()
	r := newRig(t, c.Obj(), n.Obj(), other, left)
	nodes := NewNode(r.options())
	for _, name := range []string{"node", "other", "left"} {
		r.delete(r.node(name))
		if _, err := nodes.Reconcile(r.ctx(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}}); err != nil {
			t.Fatal(err)
		}
	}
	if r.claim("claim").DeletionTimestamp == nil {
		t.Error("the claim of a deleted node is not deleted")
	}
	if r.node("node") == nil {
		t.Error("the node was let go before its claim had ended the instance")
	}
	if r.node("left") != nil {
		t.Error("a node without a claim keeps its finalizer for ever")
	}
	if r.node("other") == nil {
		t.Error("a node of another provider was let go")
	}
}

func TestBatchJoinsCalls(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &cloud{instances: map[string]ec2.Instance{"i-1": instance("i-1", "one", time.Now()), "i-2": instance("i-2", "two", time.Now())}}
		b := Batch(c, clock.RealClock{})
		results := make(chan string, 8)
		for _, id := range []string{"i-2", "i-1", "i-3", "i-1"} {
			go func() {
				found, err := b.Describe(t.Context(), []string{id})
				if err != nil || len(found) > 1 || (len(found) == 1 && found[0].ID != id) {
					t.Errorf("describing %s: %v, %v", id, found, err)
				}
				if len(found) == 1 {
					results <- id
				}
			}()
		}
		for _, tag := range []string{"one", "two", "three"} {
			go func() {
				found, err := b.DescribeByTag(t.Context(), ec2.TagLaunch, []string{tag})
				if err != nil || (tag == "three") != (len(found) == 0) {
					t.Errorf("describing launch %s: %v, %v", tag, found, err)
				}
			}()
		}
		for _, id := range []string{"i-1", "i-2"} {
			go func() {
				if err := b.Terminate(t.Context(), []string{id}); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Second)
		synctest.Wait()
		close(results)
		var known []string
		for id := range results {
			known = append(known, id)
		}
		slices.Sort(known)
		if d := cmp.Diff([]string{"i-1", "i-1", "i-2"}, known); d != "" {
			t.Errorf("known (-want +got):\n%s", d)
		}
		slices.Sort(c.calls)
		want := []string{"Describe [i-1 i-2 i-3]", "DescribeByTag [one three two]", "Terminate [i-1 i-2]"}
		if d := cmp.Diff(want, c.calls); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
	})
}
