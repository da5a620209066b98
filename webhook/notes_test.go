// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// An informer holds notes in the place of pods, and the index learns from them all it does from pods.
func TestNotesInPlaceOfPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web-1", Namespace: "team", UID: "p1", CreationTimestamp: metav1.NewTime(now()), Labels: map[string]string{"pod-template-hash": "5d4f", "app": "web"},
				Annotations:     map[string]string{"karpenter.sh/do-not-disrupt": "true", v1alpha1.DefaultedAnnotation: "api/memory=256Mi:fallback"},
				OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d4f", UID: "rs1", Controller: new(true)}},
			},
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "api", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse("700m"), corev1.ResourceMemory: resource.MustParse("256Mi"),
			}}}}},
		}
		kube := fake.NewClientset(p)
		factory := informers.NewSharedInformerFactoryWithOptions(kube, 0, informers.WithTransform(webhook.Strip))
		index := webhook.NewIndex()
		informer := factory.Core().V1().Pods().Informer()
		if _, err := informer.AddEventHandler(index.Pods(now)); err != nil {
			t.Fatal(err)
		}
		factory.Start(ctx.Done())
		synctest.Wait()
		for _, o := range informer.GetStore().List() {
			if _, whole := o.(*corev1.Pod); whole {
				t.Error("the cache holds a whole pod")
			}
		}
		owner := rules.Owner{Namespace: "team", UID: "rs1", Workload: "web"}
		if protected, all := index.Protected("team"); protected != 1 || all != 1 {
			t.Errorf("%d of %d pods are protected, want 1 of 1", protected, all)
		}
		if k, ok := index.History(owner, "api", corev1.ResourceCPU); !ok || k.Value != "700m" {
			t.Errorf("history says %v (%t), want 700m", k, ok)
		}
		if k, ok := index.Sticky(owner, "api", corev1.ResourceMemory, time.Hour, now()); !ok || k.Value != "256Mi" {
			t.Errorf("what was given is %v (%t), want 256Mi", k, ok)
		}
		p = p.DeepCopy()
		p.Status.Phase = corev1.PodSucceeded
		if _, err := kube.CoreV1().Pods("team").UpdateStatus(ctx, p, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, all := index.Protected("team"); all != 0 {
			t.Errorf("%d pods, want none after the one has ended", all)
		}
		if err := kube.CoreV1().Pods("team").Delete(ctx, "web-1", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if _, ran := index.Controller("rs1", now()); !ran || len(informer.GetStore().List()) != 0 {
			t.Errorf("the owner ran: %t, in the cache are %d pods", ran, len(informer.GetStore().List()))
		}
		cancel()
		factory.Shutdown()
		synctest.Wait()
	})
}
