// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

const providerID = "aws:///us-east-1a/i-1"

// launched is a claim with instance i-1.
func launched() *builder.NodeClaimBuilder {
	return builder.NodeClaim("claim").UID("uid").Pool("default").Label("team", "a").Annotation("note", "x").Created(time.Now()).
		Request("cpu", "1").Launched(providerID, "m5.large", "us-east-1a", "spot")
}

// booted is its Node as the kubelet registers it.
func booted() *builder.NodeBuilder {
	return builder.Node("node").UID("node-uid").ProviderID(providerID).CPU("2").Memory("8Gi").Taint("karpenter.sh/unregistered", "", corev1.TaintEffectNoExecute)
}

func TestRegisterAndInitialize(t *testing.T) {
	r := newRig(t, launched().Taint("dedicated", "a", corev1.TaintEffectNoSchedule).Obj(), booted().Obj())
	r.reconcile("claim")

	n := r.node("node")
	if !slices.Contains(n.Finalizers, karpv1.TerminationFinalizer) {
		t.Error("the Node has no finalizer")
	}
	if len(n.OwnerReferences) != 1 || n.OwnerReferences[0].UID != "uid" || n.OwnerReferences[0].Kind != "NodeClaim" || !*n.OwnerReferences[0].BlockOwnerDeletion {
		t.Errorf("owner references are %+v", n.OwnerReferences)
	}
	wantTaints := []corev1.Taint{{Key: "dedicated", Value: "a", Effect: corev1.TaintEffectNoSchedule}}
	if d := cmp.Diff(wantTaints, n.Spec.Taints); d != "" {
		t.Errorf("taints (-want +got):\n%s", d)
	}
	for k, want := range map[string]string{
		"karpenter.sh/registered": "true", "karpenter.sh/initialized": "true", "team": "a", "karpenter.sh/capacity-type": "spot", "karpenter.sh/nodepool": "default",
	} {
		if n.Labels[k] != want {
			t.Errorf("label %s is %q, want %q", k, n.Labels[k], want)
		}
	}
	if n.Annotations["note"] != "x" {
		t.Error("the claim's annotations are not on the Node")
	}
	c := r.claim("claim")
	if c.Status.NodeName != "node" {
		t.Errorf("status.nodeName is %q", c.Status.NodeName)
	}
	for _, kind := range []string{"Registered", "Initialized", "Ready"} {
		if cond := c.StatusConditions().Get(kind); !cond.IsTrue() || cond.Reason != kind {
			t.Errorf("%s is %s %s", kind, cond.Status, cond.Reason)
		}
	}
	if d := cmp.Diff([]string{"*v1.Node", "*v1.Node", "*v1.NodeClaim status"}, r.writes); d != "" {
		t.Errorf("writes (-want +got):\n%s", d)
	}

	r.writes = nil
	r.reconcile("claim")
	if len(r.writes) != 0 {
		t.Errorf("a second reconcile wrote %v", r.writes)
	}
	if len(r.events.reasons) != 0 {
		t.Errorf("events %v", r.events.reasons)
	}
}

// TestReadyNodeOpensInTwoSteps checks that a taint which evicts is never taken off by the write that lets pods on: who evicts
// sees pods and nodes in no certain order.
func TestReadyNodeOpensInTwoSteps(t *testing.T) {
	half := builder.Node("node").ProviderID(providerID).Label(karpv1.NodeRegisteredLabelKey, "true").Taint(karpv1.UnregisteredTaintKey, "", corev1.TaintEffectNoSchedule)
	for _, tc := range []struct {
		name string
		node *builder.NodeBuilder
		want []string
	}{
		{"ready already", booted(), []string{"karpenter.sh/unregistered:NoSchedule", ""}},
		{"not ready: nothing is bound by the write", booted().NotReady(), []string{"node.kubernetes.io/not-ready:NoSchedule"}},
		{"the process ended between the two", half, []string{"karpenter.sh/unregistered:NoSchedule", ""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, launched().Obj(), tc.node.Obj())
			r.reconcile("claim")
			if d := cmp.Diff(tc.want, r.taints); d != "" {
				t.Errorf("taints after each write (-want +got):\n%s", d)
			}
			if c := r.claim("claim"); !c.StatusConditions().Get(karpv1.ConditionTypeRegistered).IsTrue() {
				t.Error("the claim is not registered")
			}
		})
	}
}

func TestRegistrationCases(t *testing.T) {
	tests := []struct {
		name       string
		claim      *builder.NodeClaimBuilder
		nodes      []*builder.NodeBuilder
		wantStatus string
		wantReason string
		wantTaints []string
		wantEvents []string
	}{
		{name: "no node yet", claim: launched(), wantStatus: "Unknown", wantReason: "NodeNotFound"},
		{
			name: "two nodes with one provider id", claim: launched(), nodes: []*builder.NodeBuilder{booted(), builder.Node("twin").ProviderID(providerID)},
			wantStatus: "False", wantReason: "MultipleNodesFound", wantTaints: []string{"karpenter.sh/unregistered"},
		},
		{
			name:  "the kubelet has set the taints itself: an agent's removal is kept",
			claim: launched().Taint("dedicated", "", corev1.TaintEffectNoSchedule).StartupTaint("cni", "", corev1.TaintEffectNoSchedule),
			nodes: []*builder.NodeBuilder{booted().Label("karpenter.sh/do-not-sync-taints", "true").Taint("dedicated", "", corev1.TaintEffectNoSchedule)}, wantStatus: "True", wantReason: "Registered", wantTaints: []string{"dedicated"},
		},
		{
			name: "startup taints are synced otherwise", claim: launched().StartupTaint("cni", "", corev1.TaintEffectNoSchedule), nodes: []*builder.NodeBuilder{booted()},
			wantStatus: "True", wantReason: "Registered", wantTaints: []string{"cni"},
		},
		{
			name: "unregistered taint missing: proceeds with a warning", claim: launched(), nodes: []*builder.NodeBuilder{builder.Node("node").ProviderID(providerID)},
			wantStatus: "True", wantReason: "Registered", wantEvents: []string{"UnregisteredTaintMissing"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, tc.claim.Obj())
			for _, n := range tc.nodes {
				if err := r.kube.Create(r.ctx(), n.Obj()); err != nil {
					t.Fatal(err)
				}
			}
			r.reconcile("claim")
			cond := r.claim("claim").StatusConditions().Get(karpv1.ConditionTypeRegistered)
			if string(cond.Status) != tc.wantStatus || cond.Reason != tc.wantReason {
				t.Errorf("Registered is %s %s, want %s %s", cond.Status, cond.Reason, tc.wantStatus, tc.wantReason)
			}
			if n := r.node("node"); n != nil {
				var got []string
				for _, taint := range n.Spec.Taints {
					got = append(got, taint.Key)
				}
				if d := cmp.Diff(tc.wantTaints, got); d != "" {
					t.Errorf("taints (-want +got):\n%s", d)
				}
			}
			if d := cmp.Diff(tc.wantEvents, r.events.reasons); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}

func TestUninitialized(t *testing.T) {
	node := func() *builder.NodeBuilder { return builder.Node("node").CPU("2") }
	tests := []struct {
		name        string
		claim       *builder.NodeClaimBuilder
		node        *builder.NodeBuilder
		wantReason  string
		wantMessage string
	}{
		{"usable", launched(), node(), "", ""},
		{"not ready", launched(), node().NotReady(), "NodeNotReady", "Node status is NotReady"},
		{
			"startup taint", launched().StartupTaint("cni", "x", corev1.TaintEffectNoSchedule), node().Taint("cni", "x", corev1.TaintEffectNoSchedule),
			"StartupTaintsExist", `StartupTaint "cni=x:NoSchedule" still exists`,
		},
		{
			"booting", launched(), node().Taint("node.kubernetes.io/not-ready", "", corev1.TaintEffectNoSchedule),
			"KnownEphemeralTaintsExist", `KnownEphemeralTaint "node.kubernetes.io/not-ready:NoSchedule" still exists`,
		},
		{
			"readiness controller", launched(), node().Taint("readiness.k8s.io/network", "", corev1.TaintEffectNoSchedule),
			"KnownEphemeralTaintsExist", `KnownEphemeralTaint "readiness.k8s.io/network:NoSchedule" still exists`,
		},
		{
			"device plugin late", launched().Request("nvidia.com/gpu", "1"), node(),
			"ResourceNotRegistered", `Resource "nvidia.com/gpu" was requested but not registered`,
		},
		{"taints that stay are fine", launched().Taint("dedicated", "a", corev1.TaintEffectNoSchedule), node().Taint("dedicated", "a", corev1.TaintEffectNoSchedule), "", ""},
		{
			"a taint nobody declared", launched(), node().Taint("agent", "starting", corev1.TaintEffectNoSchedule),
			"UndeclaredTaintsExist", `Taint "agent=starting:NoSchedule" is on the node and neither in taints nor in startupTaints of its claim`,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			reason, message := uninitialized(tc.claim.Obj(), tc.node.Obj())
			if reason != tc.wantReason || message != tc.wantMessage {
				t.Errorf("got %q %q, want %q %q", reason, message, tc.wantReason, tc.wantMessage)
			}
		})
	}
}

func TestLiveness(t *testing.T) {
	tests := []struct {
		name       string
		claim      *builder.NodeClaimBuilder
		after      time.Duration
		wantGone   bool
		wantWait   time.Duration
		wantEvents []string
	}{
		{name: "waits for its launch", claim: builder.NodeClaim("claim").UID("uid"), after: time.Minute, wantWait: 4 * time.Minute},
		{name: "never launched", claim: builder.NodeClaim("claim").UID("uid"), after: 5 * time.Minute, wantGone: true, wantEvents: []string{"LaunchTimeout"}},
		{name: "waits for its node", claim: launched(), after: 6 * time.Minute, wantWait: 9 * time.Minute},
		{name: "never registered", claim: launched(), after: 15 * time.Minute, wantGone: true, wantEvents: []string{"RegistrationTimeout"}},
		{name: "initialized claims have no time limit", claim: launched().Registered("node").Initialized(), after: 24 * time.Hour},
		{name: "waits for its node to be usable", claim: launched().Registered("node"), after: 5 * time.Minute, wantWait: 10 * time.Minute},
		{name: "never usable", claim: launched().Registered("node"), after: 15 * time.Minute, wantGone: true, wantEvents: []string{"InitializationTimeout"}},
		{name: "its pool gives it longer", claim: launched().Registered("node").Annotation(InitializationTimeoutAnnotation, "1h"), after: 50 * time.Minute, wantWait: 10 * time.Minute},
		{name: "its pool gives it for ever", claim: launched().Registered("node").Annotation(InitializationTimeoutAnnotation, "Never"), after: 24 * time.Hour},
		{
			name: "what its pool says cannot be read", claim: launched().Registered("node").Annotation(InitializationTimeoutAnnotation, "soon"), after: 5 * time.Minute,
			wantWait: 10 * time.Minute, wantEvents: []string{"InvalidAnnotation"},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t)
			made := tc.claim.Created(r.clock.Now()).Obj()
			for i := range made.Status.Conditions {
				made.Status.Conditions[i].LastTransitionTime = made.CreationTimestamp
			}
			if err := r.kube.Create(r.ctx(), made); err != nil {
				t.Fatal(err)
			}
			r.clock.Step(tc.after)
			result := r.reconcile("claim")
			if c := r.claim("claim"); (c == nil || c.DeletionTimestamp != nil) != tc.wantGone {
				t.Errorf("deleted is %v, want %v", !tc.wantGone, tc.wantGone)
			}
			if !tc.wantGone && result.RequeueAfter != tc.wantWait {
				t.Errorf("comes back after %s, want %s", result.RequeueAfter, tc.wantWait)
			}
			if d := cmp.Diff(tc.wantEvents, r.events.reasons); d != "" {
				t.Errorf("events (-want +got):\n%s", d)
			}
		})
	}
}

func TestForeignClaimsAreLeftAlone(t *testing.T) {
	c := launched().Obj()
	c.Spec.NodeClassRef.Group = "karpenter.azure.com"
	r := newRig(t, c, booted().Obj())
	r.clock.Step(time.Hour)
	r.reconcile("claim")
	if len(r.writes) != 0 || r.claim("claim").DeletionTimestamp != nil {
		t.Errorf("a claim of another provider was touched: %v", r.writes)
	}
}
