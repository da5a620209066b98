// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// deployment is Deployment web with its ReplicaSet web-1.
func deployment(replicas int32, changes ...func(*appsv1.Deployment)) []client.Object {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default", UID: "deployment"},
		Spec:       appsv1.DeploymentSpec{Replicas: &replicas},
		Status:     appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: replicas},
	}
	for _, f := range changes {
		f(d)
	}
	set := &appsv1.ReplicaSet{
		ObjectMeta: metav1.ObjectMeta{Name: "web-1", Namespace: "default", UID: "set", OwnerReferences: []metav1.OwnerReference{
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "deployment", Controller: new(true)},
		}},
	}
	return []client.Object{d, set}
}

// member is a pod of the ReplicaSet.
func member(name, node string, changes ...func(*corev1.Pod)) *corev1.Pod {
	p := pod(name, append([]func(*corev1.Pod){func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: "web-1", UID: "set", Controller: new(true)}}
		p.Spec.NodeName = node
	}}, changes...)...)
	return p
}

// surgeRig has a Deployment whose controllers run when they are told to.
type surgeRig struct {
	*rig
	made int
	// stalled says that new pods don't become ready.
	stalled bool
}

func newSurgeRig(t *testing.T, objects ...client.Object) *surgeRig {
	return &surgeRig{rig: newRig(t, objects...)}
}

func (r *surgeRig) members() []*corev1.Pod {
	r.t.Helper()
	var pods corev1.PodList
	if err := r.kube.List(r.ctx(), &pods); err != nil {
		r.t.Fatal(err)
	}
	var out []*corev1.Pod
	for i := range pods.Items {
		if o := metav1.GetControllerOf(&pods.Items[i]); o != nil && o.UID == "set" {
			out = append(out, &pods.Items[i])
		}
	}
	return out
}

func (r *surgeRig) readyMembers() int {
	n := 0
	for _, p := range r.members() {
		if ready(p) {
			n++
		}
	}
	return n
}

func (r *surgeRig) deployment() *appsv1.Deployment {
	r.t.Helper()
	d := &appsv1.Deployment{}
	if err := r.kube.Get(r.ctx(), types.NamespacedName{Namespace: "default", Name: "web"}, d); err != nil {
		r.t.Fatal(err)
	}
	return d
}

// controllers makes pods ready that are there, and adds or removes some as the ReplicaSet's controller does.
func (r *surgeRig) controllers() {
	r.t.Helper()
	check := func(err error) {
		if err != nil {
			r.t.Fatal(err)
		}
	}
	pods := r.members()
	for _, p := range pods {
		if !ready(p) && !r.stalled {
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			check(r.kube.Status().Update(r.ctx(), p))
		}
	}
	for want := int(*r.deployment().Spec.Replicas); len(pods) < want; want-- {
		r.made++
		check(r.kube.Create(r.ctx(), member(fmt.Sprintf("new-%d", r.made), "other", unready)))
	}
	cost := func(p *corev1.Pod) int {
		n, _ := strconv.Atoi(p.Annotations[corev1.PodDeletionCost])
		return n
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		if ready(a) != ready(b) {
			if ready(b) {
				return -1
			}
			return 1
		}
		return cmp.Compare(cost(a), cost(b))
	})
	for len(pods) > int(*r.deployment().Spec.Replicas) {
		check(r.kube.Delete(r.ctx(), pods[0]))
		pods = pods[1:]
	}
}

// run drains until nothing is left, with the controllers running in between, and returns the fewest ready pods there were.
func (r *surgeRig) run(atMost time.Duration) (fewest int) {
	r.t.Helper()
	fewest = r.readyMembers()
	for began := r.clock.Now(); r.clock.Since(began) < atMost; r.clock.Step(time.Second) {
		left := r.drain(nil).Left
		fewest = min(fewest, r.readyMembers())
		if left == 0 {
			return fewest
		}
		r.controllers()
		fewest = min(fewest, r.readyMembers())
	}
	r.t.Errorf("pods are left after %s: %+v", atMost, r.drain(nil))
	return fewest
}

// settled checks that the workload is as it was.
func (r *surgeRig) settled(replicas int32) {
	r.t.Helper()
	d := r.deployment()
	if *d.Spec.Replicas != replicas || d.Labels[SurgeLabel] != "" {
		r.t.Errorf("the Deployment has %d replicas and labels %v, want %d and no record of a surge", *d.Spec.Replicas, d.Labels, replicas)
	}
	if n := len(r.members()); n != int(replicas) {
		r.t.Errorf("there are %d pods, want %d", n, replicas)
	}
}

func TestSoleReplicaHasItsSuccessorFirst(t *testing.T) {
	r := newSurgeRig(t, append(deployment(1), member("old", "node"))...)
	if fewest := r.run(time.Minute); fewest != 1 {
		t.Errorf("there was a time with %d ready pods", fewest)
	}
	r.settled(1)
	r.expect() // its own controller removed it
	if r.events.has("web SurgeStarted") != 1 || r.events.has("web SurgeFinished") != 1 {
		t.Errorf("events %v", r.events.events)
	}
}

func TestBareReplicaSetIsSurged(t *testing.T) {
	set, ok := deployment(1)[1].(*appsv1.ReplicaSet)
	if !ok {
		t.Fatal("not a ReplicaSet")
	}
	set.OwnerReferences, set.Spec.Replicas = nil, new(int32(1))
	r := newRig(t, set, member("old", "node"))
	if got := r.drain(nil); got.Blocker != string(Successor) {
		t.Errorf("drainage is %+v", got)
	}
	if err := r.kube.Get(r.ctx(), client.ObjectKeyFromObject(set), set); err != nil || ptr.Deref(set.Spec.Replicas, 0) != 2 {
		t.Errorf("replicas are %d (error %v), want 2", ptr.Deref(set.Spec.Replicas, 0), err)
	}
}

func TestBudgetThatWantsOneMoreIsSurged(t *testing.T) {
	budget := pdb("web", "web", 0, 3, 3)
	relabel := app("web")
	r := newSurgeRig(t, append(deployment(3), member("a", "node", relabel), member("b", "x", relabel), member("c", "y", relabel), budget)...)
	r.refuse["a"] = tooMany
	for range 3 {
		r.drain(nil)
		r.controllers()
		r.clock.Step(time.Second)
	}
	if d := r.deployment(); *d.Spec.Replicas != 4 || len(r.trials) == 0 {
		t.Errorf("%d replicas and %d dry runs while the budget does not count the successor", *d.Spec.Replicas, len(r.trials))
	}
	delete(r.refuse, "a") // the budget has counted
	if fewest := r.run(time.Minute); fewest != 3 {
		t.Errorf("there was a time with %d ready pods, the budget wants 3", fewest)
	}
	r.settled(3)
}

// A workload that must not be scaled holds up its own pod for as long as a successor may take, and nobody else's.
func TestScalingIsDenied(t *testing.T) {
	r := newSurgeRig(t, append(deployment(1), member("old", "node"), pod("other"))...)
	asked := 0
	kube, ok := r.kube.(client.WithWatch)
	if !ok {
		t.Fatal("not a client with watch")
	}
	denied := interceptor.NewClient(kube, interceptor.Funcs{
		SubResourceUpdate: func(_ context.Context, _ client.Client, sub string, _ client.Object, _ ...client.SubResourceUpdateOption) error {
			asked++
			return apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "deployments/" + sub}, "web", errors.New("policy"))
		},
	})
	r.Drainer = New(Options{Kube: denied, Events: r.events, Clock: r.clock})
	got := r.drain(nil)
	r.expect("other")
	if got.Blocker != string(Successor) || !strings.Contains(got.Message, "policy") {
		t.Errorf("drainage is %+v, want what stands against a successor", got)
	}
	for began := r.clock.Now(); r.clock.Since(began) < 10*time.Minute; r.clock.Step(time.Second) {
		r.drain(nil)
	}
	r.expect()
	r.clock.Step(2 * time.Second)
	r.drain(nil)
	r.expect("old")
	if r.events.has("old SurgeSkipped") != 1 || asked > 130 {
		t.Errorf("events %v, want one that says why the pod is let go; asked %d times", r.events.events, asked)
	}
}

// Namespaces are large: a drain looks pods up by their node and their controller.
func TestPodsAreLookedUpByIndex(t *testing.T) {
	r := newSurgeRig(t, append(deployment(2), member("a", "node"), member("b", "x"))...)
	kube, ok := r.kube.(client.WithWatch)
	if !ok {
		t.Fatal("not a client with watch")
	}
	indexed := interceptor.NewClient(kube, interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			var o client.ListOptions
			o.ApplyOptions(opts)
			if _, pods := list.(*corev1.PodList); pods && (o.FieldSelector == nil || o.FieldSelector.Empty()) {
				t.Errorf("all pods of namespace %q are listed", o.Namespace)
			}
			return c.List(ctx, list, opts...)
		},
	})
	r.Drainer = New(Options{Kube: indexed, Events: r.events, Clock: r.clock})
	r.drain(nil)
	r.expect("a")
}

func TestLastReadyPodWaitsForOthersThatAreComing(t *testing.T) {
	// Both replicas are on the node: one goes, the other waits for what comes instead.
	r := newSurgeRig(t, append(deployment(2), member("a", "node"), member("b", "node"))...)
	if fewest := r.run(time.Minute); fewest != 1 {
		t.Errorf("there was a time with %d ready pods", fewest)
	}
	r.settled(2)
	if r.events.has("web SurgeStarted") != 0 {
		t.Error("surged although the workload makes pods anyway")
	}
}

func TestNotSurged(t *testing.T) {
	hpa := &autoscalingv2.HorizontalPodAutoscaler{
		ObjectMeta: metav1.ObjectMeta{Name: "auto", Namespace: "default"},
		Spec:       autoscalingv2.HorizontalPodAutoscalerSpec{ScaleTargetRef: autoscalingv2.CrossVersionObjectReference{Kind: "Deployment", Name: "web"}},
	}
	keda := hpa.DeepCopy()
	keda.OwnerReferences = []metav1.OwnerReference{{APIVersion: "keda.sh/v1alpha1", Kind: "ScaledObject", Name: "scaled"}}
	other := hpa.DeepCopy()
	other.Spec.ScaleTargetRef.Name = "somebody-else"
	volume := func(mode corev1.PersistentVolumeAccessMode) client.Object {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "data", Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{AccessModes: []corev1.PersistentVolumeAccessMode{mode}}}
	}
	mounting := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}}}
	}
	none := func(p *corev1.Pod) { p.OwnerReferences = nil }
	stateful := func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "StatefulSet" }
	for _, tc := range []struct {
		name    string
		objects []client.Object
		pod     func(*corev1.Pod)
		claim   func(*karpv1.NodeClaim)
		surged  bool
		event   string
	}{
		{name: "an autoscaler writes the replicas", objects: append(deployment(1), hpa), event: `HorizontalPodAutoscaler "auto"`},
		{name: "KEDA writes the replicas", objects: append(deployment(1), keda), event: `KEDA's ScaledObject "scaled"`},
		{name: "an autoscaler of another workload", objects: append(deployment(1), other), surged: true},
		{name: "strategy Recreate", objects: deployment(1, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }), event: "Recreate"},
		{name: "no surge allowed", objects: deployment(1, func(d *appsv1.Deployment) {
			d.Spec.Strategy.RollingUpdate = &appsv1.RollingUpdateDeployment{MaxSurge: new(intstr.FromInt32(0))}
		}), event: "maxSurge"},
		{name: "a volume one node can mount", objects: append(deployment(1), volume(corev1.ReadWriteOnce)), pod: mounting, event: `"data"`},
		{name: "a volume many nodes can mount", objects: append(deployment(1), volume(corev1.ReadWriteMany)), pod: mounting, surged: true},
		{name: "opted out on the pod", objects: deployment(1), pod: annotated(SurgeAnnotation, "false")},
		{name: "opted out on the Deployment", objects: deployment(1, func(d *appsv1.Deployment) { d.Annotations = map[string]string{SurgeAnnotation: "false"} })},
		{name: "not ready anyway", objects: deployment(1), pod: unready},
		{name: "a bare pod", pod: none},
		{name: "of a StatefulSet", pod: stateful},
		{name: "interrupted", objects: deployment(1), claim: func(c *karpv1.NodeClaim) {
			c.Annotations = map[string]string{capacity.InterruptedAnnotation: "spot_interrupted"}
		}},
		{name: "repaired", objects: deployment(1), claim: func(c *karpv1.NodeClaim) {
			c.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Unhealthy", "")
		}},
		{name: "disrupted for its price", objects: deployment(1), surged: true, claim: func(c *karpv1.NodeClaim) {
			c.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Underutilized", "")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := member("old", "node")
			if tc.pod != nil {
				tc.pod(p)
			}
			r := newRig(t, append(tc.objects, p)...)
			if tc.claim != nil {
				tc.claim(r.claim)
			}
			got := r.drain(nil)
			if surged := got.Blocker == string(Successor); surged != tc.surged {
				t.Errorf("drainage is %+v, surged %v, want %v", got, surged, tc.surged)
			}
			if !tc.surged {
				r.expect("old")
			}
			if said := r.events.has("old SurgeSkipped"); (said == 1) != (tc.event != "") {
				t.Errorf("events %v", r.events.events)
			}
			if tc.event != "" && !strings.Contains(strings.Join(r.events.events, "\n"), tc.event) {
				t.Errorf("events %v lack %q", r.events.events, tc.event)
			}
		})
	}
}

func TestSuccessorThatDoesNotCome(t *testing.T) {
	r := newSurgeRig(t, append(deployment(1), member("old", "node"))...)
	r.stalled = true
	for range 9 {
		r.drain(nil)
		r.controllers()
		r.clock.Step(time.Minute)
	}
	if got := r.drain(nil); got.Blocker != string(Successor) || r.readyMembers() != 1 {
		t.Errorf("after 9 minutes: %+v, %d ready pods", got, r.readyMembers())
	}
	r.clock.Step(2 * time.Minute)
	r.drain(nil)
	if d := r.deployment(); *d.Spec.Replicas != 1 || d.Labels[SurgeLabel] != "" || r.events.has("old SurgeSkipped") != 1 {
		t.Errorf("the surplus is not taken back: %d replicas, labels %v, events %v", *d.Spec.Replicas, d.Labels, r.events.events)
	}
	r.expect("old")
}

func TestSurgeIsGivenUpWhenSomebodyScales(t *testing.T) {
	for _, replicas := range []int32{1, 5} {
		r := newSurgeRig(t, append(deployment(1), member("old", "node"))...)
		r.drain(nil)
		d := r.deployment()
		d.Spec.Replicas = &replicas
		if err := r.kube.Update(r.ctx(), d); err != nil {
			t.Fatal(err)
		}
		r.drain(nil)
		if d := r.deployment(); *d.Spec.Replicas != replicas || d.Labels[SurgeLabel] != "" {
			t.Errorf("somebody's %d replicas became %d, labels %v", replicas, *d.Spec.Replicas, d.Labels)
		}
		r.drain(nil)
		r.expect("old")
	}
}

// TestSurgeSurvivesRestart ends the process after every single write of a surge and goes on with a new one.
func TestSurgeSurvivesRestart(t *testing.T) {
	for stop := 1; ; stop++ {
		r := newSurgeRig(t, append(deployment(1), member("old", "node"))...)
		writes, dead := 0, false
		r.Drainer = New(Options{Kube: &counting{Client: r.kube, writes: &writes, stop: stop, dead: &dead}, Live: r.kube, Events: r.events, Clock: r.clock})
		for range 10 {
			_, err := r.Drain(r.ctx(), r.claim, r.node, nil)
			if dead {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			r.controllers()
			r.clock.Step(time.Second)
		}
		if !dead {
			if stop < 5 {
				t.Errorf("a surge is only %d writes", writes)
			}
			return
		}
		r.controllers()
		r.Drainer = New(Options{Kube: r.kube, Events: r.events, Clock: r.clock})
		if err := r.surger.sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
		if fewest := r.run(time.Minute); fewest != 1 {
			t.Errorf("stopped after write %d: there was a time with %d ready pods", stop, fewest)
		}
		if err := r.surger.sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
		r.controllers()
		r.settled(1)
	}
}

func TestSweepEndsSurgesWhosePodIsGone(t *testing.T) {
	labelled := func(value string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) { d.Labels = map[string]string{SurgeLabel: value} }
	}
	for _, tc := range []struct {
		label          string
		replicas, want int32
		kept           bool
	}{
		{"1.2.up.gone", 2, 1, false},
		{"1.2.back.gone", 2, 1, false},
		{"1.2.up.gone", 1, 1, false},
		{"1.2.up.gone", 7, 7, false}, // somebody has scaled since
		{"1.2.up.old", 2, 2, true},
		{"rubbish", 2, 2, false},
		{"2.1.up.gone", 2, 2, false},
	} {
		r := newSurgeRig(t, append(deployment(tc.replicas, labelled(tc.label)), member("old", "node"))...)
		if err := r.surger.sweep(r.ctx()); err != nil {
			t.Fatal(err)
		}
		d := r.deployment()
		if *d.Spec.Replicas != tc.want || (d.Labels[SurgeLabel] != "") != tc.kept {
			t.Errorf("%s of %d: %d replicas, labels %v", tc.label, tc.replicas, *d.Spec.Replicas, d.Labels)
		}
	}
}
