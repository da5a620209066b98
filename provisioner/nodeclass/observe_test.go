// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// joined is a claim whose node has joined, and the node.
func joined(name, instanceType, memory string, change func(*karpv1.NodeClaim)) (*karpv1.NodeClaim, *corev1.Node) {
	c := claim(name, "p", func(c *karpv1.NodeClaim) {
		c.Labels[corev1.LabelInstanceTypeStable] = instanceType
		c.Annotations = map[string]string{v1.AnnotationEC2NodeClassHash: "h"}
		c.Status.NodeName, c.Status.ImageID = name, "ami-1"
		c.Status.Conditions = []status.Condition{{Type: karpv1.ConditionTypeInitialized, Status: metav1.ConditionTrue}}
	})
	if change != nil {
		change(c)
	}
	total := resource.MustParse(memory)
	rest := total.DeepCopy()
	rest.Sub(resource.MustParse("600Mi"))
	list := func(m resource.Quantity) corev1.ResourceList {
		return corev1.ResourceList{
			corev1.ResourceMemory: m, corev1.ResourceEphemeralStorage: resource.MustParse("20Gi"), corev1.ResourcePods: resource.MustParse("29"),
		}
	}
	return c, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{Capacity: list(total), Allocatable: list(rest)}}
}

func TestObserve(t *testing.T) {
	subject := class(func(c *v1.EC2NodeClass) {
		c.Annotations = map[string]string{v1.AnnotationEC2NodeClassHash: "h"}
		c.Status.AMIs = []v1.AMI{{ID: "ami-1"}}
	})
	objects := []client.Object{subject}
	for _, n := range []struct {
		name, instanceType, memory string
		change                     func(*karpv1.NodeClaim)
	}{
		{"a", "m5.large", "7700Mi", nil},
		{"b", "m5.large", "7690Mi", nil}, // the smaller of two counts
		{"c", "c5.large", "3700Mi", nil},
		{"d", "r5.large", "1Gi", func(c *karpv1.NodeClaim) { c.Status.ImageID = "ami-old" }},
		{"e", "r5.large", "1Gi", func(c *karpv1.NodeClaim) { c.Annotations[v1.AnnotationEC2NodeClassHash] = "old" }},
		{"f", "r5.large", "1Gi", func(c *karpv1.NodeClaim) { c.Status.Conditions = nil }},
		{"g", "r5.large", "1Gi", func(c *karpv1.NodeClaim) { c.Status.NodeName = "gone" }},
	} {
		c, node := joined(n.name, n.instanceType, n.memory, n.change)
		objects = append(objects, c, node)
	}
	var w writes
	r := &ObserveReconciler{Kube: kube(t, &w, objects...)}
	got := &v1.EC2NodeClass{}
	for range 2 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "default"}}); err != nil {
			t.Fatal(err)
		}
		if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, got); err != nil {
			t.Fatal(err)
		}
	}
	want := map[string]ec2.Observed{
		"m5.large": {Memory: [2]int64{7690, 7090}, Ephemeral: [2]int64{20480, 20480}, Pods: 29},
		"c5.large": {Memory: [2]int64{3700, 3100}, Ephemeral: [2]int64{20480, 20480}, Pods: 29},
	}
	if diff := cmp.Diff(want, ec2.ObservedOf(got).Types); diff != "" {
		t.Errorf("observed (-want +got):\n%s", diff)
	}
	if w.metadata != 1 {
		t.Errorf("%d writes, want one: nothing had changed the second time", w.metadata)
	}
	// Another image: what older nodes had says nothing of it.
	got.Status.AMIs[0].ID = "ami-2"
	if n := len(ec2.ObservedOf(got).Types); n != 0 {
		t.Errorf("%d types observed of another image, want none", n)
	}
}

// Claims ask for one look at their class, once they are initialized.
func TestObservedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		h := observeLater()
		ready, _ := joined("a", "m5.large", "8Gi", nil)
		booting := claim("b", "p", nil)
		h.Create(t.Context(), event.CreateEvent{Object: booting}, q)
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: ready, ObjectNew: ready}, q)
		time.Sleep(observeAfter)
		synctest.Wait()
		if n := q.Len(); n != 0 {
			t.Errorf("%d requests for claims that have not changed, want none", n)
		}
		h.Create(t.Context(), event.CreateEvent{Object: ready}, q)
		h.Update(t.Context(), event.UpdateEvent{ObjectOld: booting, ObjectNew: ready}, q)
		time.Sleep(observeAfter)
		synctest.Wait()
		if n := q.Len(); n != 1 {
			t.Errorf("%d requests, want one for the class", n)
		}
	})
}
