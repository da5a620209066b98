// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/retry"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// deploymentYAML is a Deployment with a Service, whose pods take two seconds to stop.
func deploymentYAML(name string, replicas int) string {
	return fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s, namespace: default}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      schedulerName: slipway
      terminationGracePeriodSeconds: 2
      containers:
      - {name: c, image: "registry.example/c:1", ports: [{containerPort: 80}], resources: {requests: {cpu: 200m, memory: 256Mi}}}
---
apiVersion: v1
kind: Service
metadata: {name: %[1]s, namespace: default}
spec:
  selector: {app: %[1]s}
  ports: [{port: 80}]
`, name, replicas)
}

// endpoints follows which services have a ready endpoint, change by change: what it finds does not depend on how fast anybody looks.
type endpoints struct {
	mu sync.Mutex
	// ready are services that have one now, gaps how often each has lost its last one.
	ready map[string]bool
	gaps  map[string]int
}

func watchEndpoints(r *rig) *endpoints {
	e := &endpoints{ready: map[string]bool{}, gaps: map[string]int{}}
	ctx, cancel := context.WithCancel(r.t.Context())
	factory := informers.NewSharedInformerFactoryWithOptions(r.Client, 0, informers.WithNamespace("default"))
	informer := factory.Discovery().V1().EndpointSlices().Informer()
	_, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: e.note, UpdateFunc: func(_, o any) { e.note(o) }})
	if err != nil {
		r.t.Fatal(err)
	}
	factory.Start(ctx.Done())
	r.t.Cleanup(func() { cancel(); factory.Shutdown() })
	return e
}

// note takes a state of a service's only slice.
func (e *endpoints) note(o any) {
	s, ok := o.(*discoveryv1.EndpointSlice)
	if !ok {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	name := s.Labels[discoveryv1.LabelServiceName]
	is := slices.ContainsFunc(s.Endpoints, func(p discoveryv1.Endpoint) bool { return p.Conditions.Ready != nil && *p.Conditions.Ready })
	if e.ready[name] && !is {
		e.gaps[name]++
	}
	e.ready[name] = is
}

// serving is how many services have a ready endpoint.
func (e *endpoints) serving() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := 0
	for _, is := range e.ready {
		if is {
			n++
		}
	}
	return n
}

// gone says which services were without a ready endpoint, and how often.
func (e *endpoints) gone() map[string]int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return maps.Clone(e.gaps)
}

// disrupt deletes the claim as a command of package disruption does when its replacement is ready.
func (r *rig) disrupt(c *karpv1.NodeClaim) {
	r.t.Helper()
	err := retry.RetryOnConflict(retry.DefaultBackoff, func() error { // the controller writes to it as well
		if err := r.kube.Get(r.t.Context(), client.ObjectKeyFromObject(c), c); err != nil {
			return err
		}
		c.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Underutilized", "Underutilized")
		return r.kube.Status().Update(r.t.Context(), c)
	})
	if err != nil {
		r.t.Fatal(err)
	}
	if err := r.kube.Delete(r.t.Context(), c); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) isGone(c *karpv1.NodeClaim) func(context.Context) (bool, error) {
	return func(ctx context.Context) (bool, error) {
		err := r.kube.Get(ctx, client.ObjectKeyFromObject(c), &karpv1.NodeClaim{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}
}

// TestSingleReplicasMoveWithoutGap moves the only pods of Deployments to another node.
func TestSingleReplicasMoveWithoutGap(t *testing.T) {
	const n = 50
	r := start(t, ec2emu.Options{Seed: 31})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	for i := range n {
		r.apply(deploymentYAML(fmt.Sprintf("solo-%d", i), 1))
	}
	r.running("solo-", n)
	watch := watchEndpoints(r)
	r.within(time.Minute, "the endpoints", func(context.Context) (bool, error) { return watch.serving() >= n, nil })
	claims := r.claims()
	for i := range claims {
		r.within(30*time.Second, "the claims to be initialized", func(ctx context.Context) (bool, error) {
			err := r.kube.Get(ctx, client.ObjectKeyFromObject(&claims[i]), &claims[i])
			return err == nil && claims[i].StatusConditions().Root().IsTrue(), err
		})
		r.disrupt(&claims[i])
	}
	for i := range claims {
		r.within(90*time.Second, "the claim to go", r.isGone(&claims[i]))
	}
	r.running("solo-", n)
	if gone := watch.gone(); len(gone) > 0 {
		t.Errorf("services without a ready endpoint, and how often: %v", gone)
	}
	for i := range n {
		name := fmt.Sprintf("solo-%d", i)
		r.within(time.Minute, "the surplus replica of "+name+" to be taken back", func(ctx context.Context) (bool, error) {
			var d appsv1.Deployment
			err := r.kube.Get(ctx, types.NamespacedName{Namespace: "default", Name: name}, &d)
			return err == nil && *d.Spec.Replicas == 1 && d.Labels["slipway.sh/surge"] == "", err
		})
	}
}

func budget(name string) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}}
}

// TestDrainWithTightBudgets drains a node with a pod that two budgets cover and one that a budget never lets go.
func TestDrainWithTightBudgets(t *testing.T) {
	r := start(t, ec2emu.Options{Seed: 32})
	r.applySample("general/ec2nodeclass.yaml")
	r.pool("one", 0)
	label := func(app string) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Labels = map[string]string{"app": app} }
	}
	r.apply(`apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: first, namespace: default}
spec: {minAvailable: 0, selector: {matchLabels: {app: twice}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: second, namespace: default}
spec: {minAvailable: 0, selector: {matchLabels: {app: twice}}}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: never, namespace: default}
spec: {maxUnavailable: 0, selector: {matchLabels: {app: kept}}}
`)
	r.pod("twice", "500m", label("twice"))
	r.pod("kept", "500m", label("kept"))
	r.pod("free", "500m")
	for _, name := range []string{"twice", "kept", "free"} {
		r.running(name, 1)
	}
	claims := r.claims()
	for i := range claims {
		r.disrupt(&claims[i])
	}
	held := func(app string) func(context.Context) (bool, error) {
		return func(ctx context.Context) (bool, error) {
			err := r.kube.Get(ctx, types.NamespacedName{Namespace: "default", Name: app}, &corev1.Pod{})
			return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
		}
	}
	r.within(30*time.Second, "the free pod to leave", held("free"))
	r.within(30*time.Second, "the conditions to say what blocks", func(context.Context) (bool, error) {
		said := ""
		for _, c := range r.claims() {
			if cond := c.StatusConditions().Get(karpv1.ConditionTypeDrained); cond.IsFalse() {
				said += cond.Reason + ": " + cond.Message + "\n"
			}
		}
		for _, want := range []string{`"first"`, `"second"`, `"never"`, "default/twice", "default/kept", "since 20"} {
			if !strings.Contains(said, want) {
				return false, nil
			}
		}
		return true, nil
	})
	if err := r.kube.Get(t.Context(), types.NamespacedName{Namespace: "default", Name: "kept"}, &corev1.Pod{}); err != nil {
		t.Errorf("the pod with a budget that never allows is gone: %v", err)
	}
	for _, name := range []string{"second", "never"} { // the owner mends it
		if err := r.kube.Delete(t.Context(), budget(name)); err != nil {
			t.Fatal(err)
		}
	}
	// Of several budgets of a pod kube-controller-manager keeps up one, whichever comes first (getPdbForPod): the status of the
	// budget that is left may be from before the pod was healthy, until something happens to the budget itself.
	if err := r.kube.Patch(t.Context(), budget("first"), client.RawPatch(types.MergePatchType, []byte(`{"metadata":{"labels":{"seen":"again"}}}`))); err != nil {
		t.Fatal(err)
	}
	for i := range claims {
		r.within(60*time.Second, "the claim to go", r.isGone(&claims[i]))
	}
}
