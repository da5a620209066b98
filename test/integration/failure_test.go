// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestImpossiblePod checks that a pod no pool can ever hold stays pending, with one event that names the nearest pool and
// the blocking reason, and buys nothing.
func TestImpossiblePod(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 10})
	r.applySample("general/ec2nodeclass.yaml")
	r.apply(poolManifest("tainted", "default", 0) + "      taints: [{key: special, value: \"true\", effect: NoSchedule}]\n")
	r.pool("normal", 0)
	pod := r.pod("giant", "4000")
	var notes []string
	r.within(30*time.Second, "an event on the pod", func(ctx context.Context) (bool, error) {
		notes = r.notes(ctx, pod, "FailedScheduling", "Provisioning")
		return len(notes) > 0, nil
	})
	time.Sleep(3 * time.Second) // more events would come with the scheduler's retries, if they came
	if notes = r.notes(t.Context(), pod, "FailedScheduling", "Provisioning"); len(notes) != 1 {
		t.Errorf("%d events, want 1: %q", len(notes), notes)
	}
	for _, part := range []string{`"normal"`, "4k cpu", "daemonset"} {
		if !strings.Contains(notes[0], part) {
			t.Errorf("event %q does not say %s", notes[0], part)
		}
	}
	if n, c := len(r.Emulator.Instances()), len(r.claims()); n != 0 || c != 0 {
		t.Errorf("%d instances and %d claims were made for a pod that fits nowhere", n, c)
	}
	// It does not hold up others.
	r.pod("ordinary", "1")
	r.running("ordinary", 1)
}

// notes are the texts of events on an object, by reason and action.
func (r *rig) notes(ctx context.Context, obj client.Object, reason, action string) []string {
	r.t.Helper()
	var list eventsv1.EventList
	if err := r.kube.List(ctx, &list, client.InNamespace(obj.GetNamespace())); err != nil {
		r.t.Fatal(err)
	}
	var out []string
	for _, e := range list.Items {
		if e.Regarding.UID == obj.GetUID() && e.Reason == reason && e.Action == action {
			out = append(out, e.Note)
		}
	}
	return out
}

// TestBrokenPool checks that a pool without a class says so and delays nobody.
func TestBrokenPool(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 11})
	r.applySample("general/ec2nodeclass.yaml")
	r.apply(poolManifest("broken", "nowhere", 100))
	r.pool("works", 0)
	r.pod("easy", "1")
	r.running("easy", 1)
	r.within(20*time.Second, "the pool's condition", func(ctx context.Context) (bool, error) {
		var np karpv1.NodePool
		if err := r.kube.Get(ctx, types.NamespacedName{Name: "broken"}, &np); err != nil {
			return false, err
		}
		c := np.StatusConditions().Get(karpv1.ConditionTypeNodeClassReady)
		return c != nil && c.IsFalse() && strings.Contains(c.Message, "nowhere"), nil
	})
	if got := r.claims()[0].Labels[karpv1.NodePoolLabelKey]; got != "works" {
		t.Errorf("the node is of pool %q", got)
	}
}

// TestEC2Errors checks that each kind of error is survived: no pod is lost and none gets two nodes.
func TestEC2Errors(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 12})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	for _, tc := range []struct {
		name  string
		fault ec2emu.Fault
	}{
		{"throttled", ec2emu.Fault{Action: "CreateFleet", Code: "RequestLimitExceeded", Status: 503, Count: 3}},
		{"server-error", ec2emu.Fault{Action: "CreateFleet", Code: "InternalError", Status: 500, Count: 2}},
		{"describe-fails", ec2emu.Fault{Action: "DescribeInstances", Code: "InternalError", Status: 500, Count: 2}},
	} {
		r.Emulator.Inject(tc.fault)
		r.pod(tc.name, "1500m")
		r.running(tc.name, 1)
		r.Emulator.ClearFaults()
	}
	if claims, instances := len(r.claims()), len(r.alive()); claims != instances {
		t.Errorf("%d claims and %d instances", claims, instances)
	}
	if _, second := r.watch.Claims(); second != 0 {
		t.Errorf("a second node was bought for %d pods", second)
	}
}

// TestUnauthorized checks that a missing permission is reported on claim and pod, and that nothing is lost once it is given.
func TestUnauthorized(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 13})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	r.Emulator.Inject(ec2emu.Fault{Action: "CreateFleet", Code: "UnauthorizedOperation", Status: 403, Count: 1000})
	pod := r.pod("waits", "1500m")
	r.within(30*time.Second, "the pod to be told", func(ctx context.Context) (bool, error) {
		for _, n := range r.notes(ctx, pod, "LaunchDelayed", "Provisioning") {
			if strings.Contains(n, "UnauthorizedOperation") {
				return true, nil
			}
		}
		return false, nil
	})
	var c karpv1.NodeClaim
	if err := r.kube.Get(t.Context(), types.NamespacedName{Name: r.claims()[0].Name}, &c); err != nil {
		t.Fatal(err)
	}
	if l := c.StatusConditions().Get(karpv1.ConditionTypeLaunched); l == nil || l.IsTrue() || l.Reason == "" || !strings.Contains(l.Message, "UnauthorizedOperation") {
		t.Errorf("condition Launched does not say why: %+v", l)
	}
	r.Emulator.ClearFaults()
	// The launcher asks rarely while it may not; a change of the pool makes it ask at once, as an operator would expect.
	r.apply(poolManifest("one", "default", 0, "- {key: kubernetes.io/os, operator: In, values: [linux]}"))
	r.running("waits", 1)
}

// TestNoCapacity checks that a shortage is answered with the next offerings, then with the next pool, by weight.
func TestNoCapacity(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 14})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("spot", 10, "- {key: karpenter.sh/capacity-type, operator: In, values: [spot]}", "- {key: node.kubernetes.io/instance-type, operator: In, values: [m5.large, c5.large]}")
	r.pool("fallback", 0, "- {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}")
	r.Emulator.SetStock(ec2emu.Pool{InstanceType: "c5.large", CapacityType: "spot"}, 0)
	r.pod("next-type", "1500m")
	r.running("next-type", 1)
	if i := r.alive()[0]; i.InstanceType != "m5.large" || i.CapacityType != "spot" {
		t.Errorf("got %s %s, want spot m5.large: c5.large is out", i.CapacityType, i.InstanceType)
	}
	r.Emulator.SetStock(ec2emu.Pool{CapacityType: "spot"}, 0)
	pod := r.pod("next-pool", "1500m")
	r.running("next-pool", 1)
	var bound corev1.Pod
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(pod), &bound); err != nil {
		t.Fatal(err)
	}
	var n corev1.Node
	if err := r.kube.Get(t.Context(), types.NamespacedName{Name: bound.Spec.NodeName}, &n); err != nil {
		t.Fatal(err)
	}
	if got := n.Labels[karpv1.NodePoolLabelKey]; got != "fallback" {
		t.Errorf("pod runs on a node of pool %q, want fallback", got)
	}
}
