// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// TestSpotNoticeIsReplacedFirst announces that EC2 takes a node back: the replacement is bought at once, the pod stays where it is until
// that is ready, and no third node is bought for it.
func TestSpotNoticeIsReplacedFirst(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 33, BootScale: 0.2})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("spot", 0, "- {key: karpenter.sh/capacity-type, operator: In, values: [spot]}")
	r.apply(deploymentYAML("web", 1))
	r.running("web-", 1)
	old := r.claims()[0]
	r.within(30*time.Second, "the claim to be initialized", func(ctx context.Context) (bool, error) {
		err := r.kube.Get(ctx, client.ObjectKeyFromObject(&old), &old)
		return err == nil && old.StatusConditions().Root().IsTrue(), err
	})
	pod := r.podsOf("web")[0]
	noticed := time.Now()
	if err := r.Emulator.InterruptSpot(r.alive()[0].ID); err != nil {
		t.Fatal(err)
	}

	next := &karpv1.NodeClaim{}
	r.within(10*time.Second, "a replacement", func(context.Context) (bool, error) {
		for _, c := range r.claims() {
			if c.Annotations[capacity.ReplacesAnnotation] == old.Name {
				next = &c
				return len(r.fleets()) == 2, nil
			}
		}
		return false, nil
	})
	t.Logf("the replacement was asked for %s after the notice", r.fleets()[1].At.Sub(noticed).Round(time.Millisecond))
	r.within(90*time.Second, "the pod to leave", func(ctx context.Context) (bool, error) {
		err := r.kube.Get(ctx, client.ObjectKeyFromObject(&pod), &pod)
		return apierrors.IsNotFound(err) || pod.DeletionTimestamp != nil, client.IgnoreNotFound(err)
	})
	if err := r.kube.Get(t.Context(), client.ObjectKeyFromObject(next), next); err != nil {
		t.Fatal(err)
	}
	if !next.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
		t.Errorf("the pod was made to leave before its replacement was ready: %+v", next.Status.Conditions)
	}
	r.within(60*time.Second, "the interrupted claim to go", r.isGone(&old))
	r.running("web-", 1)
	if p := r.podsOf("web"); len(p) != 1 || p[0].Spec.NodeName != next.Status.NodeName {
		t.Errorf("pods are %d, want one on the replacement %q", len(p), next.Status.NodeName)
	}
	if n := len(r.alive()); n != 1 {
		t.Errorf("%d instances are alive for one pod", n)
	}
}

// podsOf are the pods with label app.
func (r *rig) podsOf(app string) []corev1.Pod {
	r.t.Helper()
	var list corev1.PodList
	if err := r.kube.List(r.t.Context(), &list, client.InNamespace("default"), client.MatchingLabels{"app": app}); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}
