// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"strconv"
	"strings"
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
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func pool(change func(*karpv1.NodePool)) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p", UID: "pool-uid", Generation: 1}}
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}
	if change != nil {
		change(p)
	}
	return p
}

func runPool(t *testing.T, w *writes, kube client.Client) *karpv1.NodePool {
	t.Helper()
	r := &PoolReconciler{Kube: kube, Events: &cloud{}, Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	var got *karpv1.NodePool
	for i := range 2 {
		if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
			t.Fatal(err)
		}
		if i == 0 && w.status > 1 {
			t.Errorf("%d status writes in one reconcile, want one at most", w.status)
		}
		got = &karpv1.NodePool{}
		if err := kube.Get(t.Context(), client.ObjectKey{Name: "p"}, got); err != nil {
			t.Fatal(err)
		}
	}
	if w.status > 1 || w.metadata > 1 {
		t.Errorf("nothing changed, yet there are %d metadata and %d status writes; want one each", w.metadata, w.status)
	}
	return got
}

// judged is a class with these conditions.
func judged(set func(status.ConditionSet)) *v1.EC2NodeClass {
	return class(func(c *v1.EC2NodeClass) { set(c.StatusConditions()) })
}

func allTrue(s status.ConditionSet) {
	for _, c := range []string{
		v1.ConditionTypeAMIsReady, v1.ConditionTypeSubnetsReady, v1.ConditionTypeSecurityGroupsReady, v1.ConditionTypeInstanceProfileReady,
		v1.ConditionTypeValidationSucceeded, v1.ConditionTypePlacementGroupReady, v1.ConditionTypeCapacityReservationsReady,
	} {
		s.SetTrue(c)
	}
}

func TestPoolConditions(t *testing.T) {
	now := metav1.Now()
	bad := func(p *karpv1.NodePool) {
		p.Spec.Template.Labels = map[string]string{"karpenter.sh/nodepool": "other"}
	}
	tests := []struct {
		name    string
		pool    func(*karpv1.NodePool)
		class   *v1.EC2NodeClass
		status  metav1.ConditionStatus
		reason  string
		message string // contained in
		valid   metav1.ConditionStatus
		ready   metav1.ConditionStatus
	}{
		{"class ready", nil, judged(allTrue), metav1.ConditionTrue, "NodeClassReady", "", metav1.ConditionTrue, metav1.ConditionTrue},
		{"class missing", nil, nil, metav1.ConditionFalse, "NodeClassNotFound", `EC2NodeClass "default" does not exist`, metav1.ConditionTrue, metav1.ConditionFalse},
		{
			"class being deleted", nil, class(func(c *v1.EC2NodeClass) { c.DeletionTimestamp, c.Finalizers = &now, []string{"x"} }),
			metav1.ConditionFalse, "NodeClassTerminating", `"default" is being deleted`, metav1.ConditionTrue, metav1.ConditionFalse,
		},
		{"class never looked at", nil, class(nil), metav1.ConditionFalse, "NodeClassReadinessUnknown", "has not been looked at", metav1.ConditionTrue, metav1.ConditionFalse},
		{"class not ready", nil, judged(func(s status.ConditionSet) {
			allTrue(s)
			s.SetFalse(v1.ConditionTypeSubnetsReady, "SubnetsNotFound", "no subnets")
		}), metav1.ConditionFalse, "UnhealthyDependents", `"default" is not ready: SubnetsReady=False (no subnets)`, metav1.ConditionTrue, metav1.ConditionFalse},
		{
			"class waiting", nil, judged(func(s status.ConditionSet) { allTrue(s); s.SetUnknown(v1.ConditionTypeAMIsReady) }),
			metav1.ConditionFalse, "NodeClassReadinessUnknown", "AMIsReady=Unknown", metav1.ConditionTrue, metav1.ConditionFalse,
		},
		{"pool invalid", bad, judged(allTrue), metav1.ConditionTrue, "NodeClassReady", "", metav1.ConditionFalse, metav1.ConditionFalse},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			objects := []client.Object{pool(tt.pool)}
			if tt.class != nil {
				objects = append(objects, tt.class)
			}
			var w writes
			got := runPool(t, &w, kube(t, &w, objects...))
			c := condition(got.Status.Conditions, karpv1.ConditionTypeNodeClassReady)
			if c.Status != tt.status || c.Reason != tt.reason || !strings.Contains(c.Message, tt.message) {
				t.Errorf("NodeClassReady = %s, %s, %q; want %s, %s and a message with %q", c.Status, c.Reason, c.Message, tt.status, tt.reason, tt.message)
			}
			if v := condition(got.Status.Conditions, karpv1.ConditionTypeValidationSucceeded); v.Status != tt.valid {
				t.Errorf("ValidationSucceeded = %s, %q; want %s", v.Status, v.Message, tt.valid)
			}
			if r := condition(got.Status.Conditions, status.ConditionReady); r.Status != tt.ready {
				t.Errorf("Ready = %s, want %s", r.Status, tt.ready)
			}
			if got.Annotations[karpv1.NodePoolHashAnnotationKey] != got.Hash() || got.Annotations[karpv1.NodePoolHashVersionAnnotationKey] != karpv1.NodePoolHashVersion {
				t.Errorf("annotations = %v, want the hash and its version", got.Annotations)
			}
		})
	}
}

// A value that cannot be read is said once, in the condition and in an event, and does not stop the pool.
func TestPoolAnnotations(t *testing.T) {
	var w writes
	events := &cloud{}
	objects := kube(t, &w, pool(nil), judged(allTrue))
	r := &PoolReconciler{Kube: objects, Events: events, Clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	steps := []struct {
		name        string
		annotations map[string]string
		named       []string // in condition and event
		events      int      // so far
	}{
		{"one bad", map[string]string{capacity.LookAheadAnnotation: "many"}, []string{"slipway.sh/look-ahead", `"many"`, "set a whole number"}, 1},
		{
			"another, too",
			map[string]string{capacity.LookAheadAnnotation: "many", capacity.EvennessAnnotation: "much"},
			[]string{"slipway.sh/look-ahead", "slipway.sh/evenness", `"much"`, "set a number from 0 to 100"},
			2,
		},
		{"mended", map[string]string{capacity.LookAheadAnnotation: "5", capacity.EvennessAnnotation: "2%"}, nil, 2},
		{"bad again", map[string]string{capacity.EvennessAnnotation: "-1"}, []string{"slipway.sh/evenness", `"-1"`}, 3},
	}
	for _, s := range steps {
		p := &karpv1.NodePool{}
		if err := objects.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
			t.Fatal(err)
		}
		p.Annotations = s.annotations
		if err := objects.Update(t.Context(), p); err != nil {
			t.Fatal(err)
		}
		for range 2 { // the second finds nothing new
			if _, err := r.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "p"}}); err != nil {
				t.Fatal(err)
			}
		}
		if err := objects.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
			t.Fatal(err)
		}
		c := p.StatusConditions(status.WithObservedOnly()).Get(conditionAnnotations)
		if (c != nil) != (s.named != nil) || len(events.events) != s.events {
			t.Fatalf("%s: condition %v, events %q; want %d events", s.name, c, events.events, s.events)
		}
		for _, text := range s.named {
			if last := events.events[s.events-1]; !c.IsFalse() || !strings.Contains(c.Message, text) || !strings.Contains(last, text) {
				t.Errorf("%s: condition %s, %q, event %q; want False, both naming %s", s.name, c.Status, c.Message, last, text)
			}
		}
		if ready := condition(p.Status.Conditions, status.ConditionReady); ready.Status != metav1.ConditionTrue {
			t.Errorf("%s: Ready = %s, %s", s.name, ready.Status, ready.Message)
		}
	}
}

func TestPoolsOfOthersAreLeftAlone(t *testing.T) {
	for name, ref := range map[string]*karpv1.NodeClassReference{
		"group": {Group: "karpenter.azure.com", Kind: "EC2NodeClass", Name: "default"},
		"kind":  {Group: "karpenter.k8s.aws", Kind: "Other", Name: "default"},
	} {
		t.Run(name, func(t *testing.T) {
			var w writes
			got := runPool(t, &w, kube(t, &w, pool(func(p *karpv1.NodePool) { p.Spec.Template.Spec.NodeClassRef = ref })))
			if w != (writes{}) || len(got.Status.Conditions) != 0 {
				t.Errorf("writes %+v, conditions %v; want none", w, got.Status.Conditions)
			}
		})
	}
}

func TestPoolCount(t *testing.T) {
	size := func(cpu, memory string) corev1.ResourceList {
		return corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory)}
	}
	now := metav1.Now()
	bought := claim("bought", "p", func(c *karpv1.NodeClaim) { c.Status.Capacity = size("2", "7577Mi") })
	joined := claim("joined", "p", func(c *karpv1.NodeClaim) {
		c.Status.NodeName, c.Status.Capacity = "n", size("2", "7577Mi")
		c.Status.Capacity["nvidia.com/gpu"] = resource.MustParse("1")
	})
	planned := claim("planned", "p", nil)
	elsewhere := claim("elsewhere", "q", func(c *karpv1.NodeClaim) { c.Status.Capacity = size("2", "7577Mi") })
	leaving := claim("leaving", "p", func(c *karpv1.NodeClaim) {
		c.DeletionTimestamp, c.Finalizers, c.Status.Capacity = &now, []string{"x"}, size("2", "7577Mi")
	})
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n"}, Status: corev1.NodeStatus{Capacity: size("2", "7700Mi")}}
	node.Status.Capacity["nvidia.com/gpu"] = resource.MustParse("0") // its device plugin has not reported yet
	var w writes
	got := runPool(t, &w, kube(t, &w, pool(nil), judged(allTrue), bought, joined, planned, elsewhere, leaving, node))
	want := map[corev1.ResourceName]string{
		"cpu": "4", "memory": "15277Mi", "nvidia.com/gpu": "1", "pods": "0", "ephemeral-storage": "0", "nodes": "2",
	}
	have := map[corev1.ResourceName]string{}
	for k, q := range got.Status.Resources {
		have[k] = q.String()
	}
	if diff := cmp.Diff(want, have); diff != "" {
		t.Errorf("status.resources (-want +got):\n%s", diff)
	}
	if got.Status.Nodes == nil || *got.Status.Nodes != 2 {
		t.Errorf("status.nodes = %v, want 2", got.Status.Nodes)
	}
}

func TestPoolsOfClass(t *testing.T) {
	var w writes
	other := pool(func(p *karpv1.NodePool) { p.Name, p.Spec.Template.Spec.NodeClassRef.Name = "q", "other" })
	r := &PoolReconciler{Kube: kube(t, &w, pool(nil), other)}
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "p"}}}
	if diff := cmp.Diff(want, r.poolsOfClass(t.Context(), class(nil))); diff != "" {
		t.Errorf("pools (-want +got):\n%s", diff)
	}
}

// A burst of claims of one pool is one count, a moment later.
func TestClaimsAreCountedLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[reconcile.Request]())
		defer q.ShutDown()
		h := countLater()
		for i := range 100 {
			c := claim("c"+strconv.Itoa(i), "p", nil)
			h.Create(t.Context(), event.CreateEvent{Object: c}, q)
			h.Update(t.Context(), event.UpdateEvent{ObjectOld: c, ObjectNew: c}, q)
			h.Delete(t.Context(), event.DeleteEvent{Object: c}, q)
		}
		h.Create(t.Context(), event.CreateEvent{Object: claim("none", "", nil)}, q)
		synctest.Wait()
		if n := q.Len(); n != 0 {
			t.Errorf("%d requests at once, want none yet", n)
		}
		time.Sleep(countAfter)
		synctest.Wait()
		if n := q.Len(); n != 1 {
			t.Fatalf("%d requests after %s, want one for the pool", n, countAfter)
		}
		if got, _ := q.Get(); got.Name != "p" {
			t.Errorf("request for %q, want p", got.Name)
		}
	})
}
