// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// world is a control plane, an account, this command's manager and, where it has to be, a launcher.
type world struct {
	*bed.Bed
	t    *testing.T
	kube client.Client // reads from the API server
	// seen is the cache of the command's manager.
	seen client.Reader

	began time.Time
}

func newWorld(t *testing.T) *world {
	t.Helper()
	began := time.Now()
	b, err := bed.New(t.Context(), bed.Options{Emulator: ec2emu.Options{Seed: 1, InstantBoot: true}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := b.Stop(); err != nil {
			t.Error(err)
		}
	})
	for _, e := range b.Env() {
		k, v, _ := strings.Cut(e, "=")
		t.Setenv(k, v)
	}
	kube, err := client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return &world{Bed: b, t: t, kube: kube, began: began}
}

// controller runs the command's manager until the test ends.
func (w *world) controller() {
	w.t.Helper()
	ctrl.SetLogger(logr.Discard())
	o, err := parse([]string{
		"--kubeconfig=" + w.Cluster.Kubeconfig(), "--cluster-name=demo", "--leader-election-namespace=" + bed.Namespace,
		"--bind-address=127.0.0.1", "--metrics-port=0", "--health-probe-port=0", "--interruption-queue=" + w.Emulator.QueueName(),
	}, func(string) string { return "" }, w.t.Output())
	if err != nil {
		w.t.Fatal(err)
	}
	metrics.Registry = prometheus.NewRegistry() // the process's own holds what the manager of another test registered
	m, err := newManager(w.t.Context(), o, claim.Options{
		OrphanAge: 2 * time.Second, CollectEvery: 500 * time.Millisecond, MinDrain: 200 * time.Millisecond, Poll: 200 * time.Millisecond,
	})
	if err != nil {
		w.t.Fatal(err)
	}
	w.seen = m.GetCache()
	w.run("manager", m.Start)
}

// run runs a loop until the test ends and reports its error.
func (w *world) run(what string, loop func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(logr.NewContext(context.WithoutCancel(w.t.Context()), logr.Discard()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		if err := loop(ctx); err != nil && ctx.Err() == nil {
			w.t.Errorf("%s ended: %v", what, err)
		}
	}()
	stop = func() {
		cancel()
		<-done
	}
	w.t.Cleanup(stop)
	return stop
}

type reports chan launch.Outcome

func (reports) Found(_, _, _ string) {}

func (r reports) Report(o launch.Outcome) { r <- o }

// launcher runs a launcher as the scheduler's process does.
func (w *world) launcher() (l *launch.Launcher, out reports, stop func()) {
	w.t.Helper()
	objects, err := cache.New(w.Cluster.Config(), cache.Options{Scheme: scheme.Scheme})
	if err != nil {
		w.t.Fatal(err)
	}
	kube, err := client.New(w.Cluster.Config(), client.Options{Scheme: scheme.Scheme, Cache: &client.CacheOptions{Reader: objects}})
	if err != nil {
		w.t.Fatal(err)
	}
	cloud, err := newCloud(w.t.Context(), options{ClusterName: "demo"})
	if err != nil {
		w.t.Fatal(err)
	}
	catalogs, err := ec2.NewCatalogs(cloud)
	if err != nil {
		w.t.Fatal(err)
	}
	if err := catalogs.Refresh(w.t.Context()); err != nil {
		w.t.Fatal(err)
	}
	out = make(reports, 100)
	templates := launch.NewTemplates(kube, cloud, cloud, clock.RealClock{})
	l = launch.New(launch.Options{
		Kube: kube, Cloud: cloud, Catalogs: catalogs, Shortages: ec2.NewShortages(clock.RealClock{}), Templates: templates,
		Subnets: launch.NewSubnets(cloud, kube, clock.RealClock{}), Reporter: out, ClusterName: "demo", Region: "us-east-1",
		AdoptAfter: 100 * time.Millisecond,
	})
	stopCache := w.run("cache", objects.Start)
	stopTemplates := w.run("templates", func(ctx context.Context) error { templates.Run(ctx); return nil })
	stopLauncher := w.run("launcher", func(ctx context.Context) error { return l.Run(ctx, objects) })
	if _, err := objects.GetInformer(w.t.Context(), &karpv1.NodeClaim{}); err != nil {
		w.t.Fatal(err)
	}
	return l, out, func() { stopLauncher(); stopTemplates(); stopCache() }
}

// apply applies a sample and waits until the pool and its class are ready.
func (w *world) apply() {
	w.t.Helper()
	for _, f := range []string{"general/ec2nodeclass.yaml", "general/nodepools.yaml"} {
		raw, err := samples.Files.ReadFile(f)
		if err != nil {
			w.t.Fatal(err)
		}
		if err := w.Cluster.Apply(w.t.Context(), raw); err != nil {
			w.t.Fatal(err)
		}
	}
	w.eventually("node class and pool to be ready", func() bool {
		var class v1.EC2NodeClass
		var pool karpv1.NodePool
		return w.get("default", &class) && w.get("default", &pool) && class.StatusConditions().Root().IsTrue() && pool.StatusConditions().Root().IsTrue()
	})
}

func (w *world) get(name string, o client.Object) bool {
	w.t.Helper()
	err := w.kube.Get(w.t.Context(), client.ObjectKey{Name: name}, o)
	if err != nil && !apierrors.IsNotFound(err) {
		w.t.Fatal(err)
	}
	return err == nil
}

func (w *world) eventually(what string, ok func() bool) {
	w.t.Helper()
	ctx, cancel := context.WithTimeout(w.t.Context(), time.Minute)
	defer cancel()
	if err := bed.Eventually(ctx, what, func(context.Context) (bool, error) { return ok(), nil }); err != nil {
		w.t.Fatalf("%v\n%s", err, w.describe())
	}
}

// describe prints claims and instances, for failures.
func (w *world) describe() string {
	var b strings.Builder
	var claims karpv1.NodeClaimList
	if err := w.kube.List(context.WithoutCancel(w.t.Context()), &claims); err != nil {
		return err.Error()
	}
	for _, c := range claims.Items {
		fmt.Fprintf(&b, "claim %s deleted=%v provider=%q conditions:", c.Name, c.DeletionTimestamp, c.Status.ProviderID)
		for _, cond := range c.Status.Conditions {
			fmt.Fprintf(&b, " %s=%s(%s)", cond.Type, cond.Status, cond.Reason)
		}
		b.WriteString("\n")
	}
	for _, i := range w.Emulator.Instances() {
		fmt.Fprintf(&b, "instance %s %s %s joined=%v\n", i.ID, i.InstanceType, i.State, i.Joined)
	}
	return b.String()
}

// create writes claims of the sample pool; those of a group as the scheduler does, which hands them to its launcher.
func (w *world) create(group string, names ...string) []*karpv1.NodeClaim {
	w.t.Helper()
	var pool karpv1.NodePool
	w.get("default", &pool)
	var out []*karpv1.NodeClaim
	for _, name := range names {
		c := &karpv1.NodeClaim{
			ObjectMeta: metav1.ObjectMeta{
				Name: name, Finalizers: []string{karpv1.TerminationFinalizer}, Annotations: map[string]string{},
				Labels: map[string]string{karpv1.NodePoolLabelKey: "default", "karpenter.k8s.aws/ec2nodeclass": "default"},
			},
			Spec: karpv1.NodeClaimSpec{
				Requirements: pool.Spec.Template.Spec.Requirements, NodeClassRef: pool.Spec.Template.Spec.NodeClassRef,
				ExpireAfter: karpv1.MustParseNillableDuration(karpv1.Never),
			},
		}
		if group != "" {
			c.Annotations[launch.LaunchGroupAnnotation] = group
			c.Annotations[capacity.PlannedAnnotation] = time.Now().UTC().Format(time.RFC3339Nano)
		}
		if err := w.kube.Create(w.t.Context(), c); err != nil {
			w.t.Fatal(err)
		}
		out = append(out, c)
	}
	return out
}

func (w *world) initialized(name string) bool {
	c := &karpv1.NodeClaim{}
	return w.get(name, c) && c.StatusConditions().Root().IsTrue()
}

// alive are the instances that are not ending.
func (w *world) alive() []ec2emu.Instance {
	return slices.DeleteFunc(w.Emulator.Instances(), func(i ec2emu.Instance) bool { return i.State == "shutting-down" || i.State == "terminated" })
}

func (w *world) fleetCalls() int {
	n := 0
	for _, r := range w.Emulator.Requests() {
		if r.Action == "CreateFleet" && r.Form.Get("DryRun") != "true" {
			n++
		}
	}
	return n
}

// TestLifeOfClaims follows claims from their creation to their end through this command, the launcher, a real API server
// and an emulated EC2.
func TestLifeOfClaims(t *testing.T) {
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	w := newWorld(t)
	w.step("control plane and EC2 are up")
	w.controller()
	w.apply()
	w.step("class and pool are ready")
	l, out, stop := w.launcher()
	w.step("launcher is up")

	// Three equal claims: one call, three nodes, each complete.
	made := w.create("group-1", "a", "b", "c")
	l.Launch(logr.NewContext(t.Context(), logr.Discard()), made)
	for range made {
		o := <-out
		if o.Err != nil || o.NodeName == "" || o.Price <= 0 {
			t.Errorf("outcome of %s: node %q, price %g, error %v", o.Claim.Name, o.NodeName, o.Price, o.Err)
		}
	}
	for _, c := range made {
		w.eventually("claim "+c.Name+" to be ready", func() bool { return w.initialized(c.Name) })
		w.checkNode(c.Name)
	}
	w.step("three claims are ready")
	if n := w.fleetCalls(); n != 1 || len(w.alive()) != 3 {
		t.Errorf("%d CreateFleet calls and %d instances, want 1 and 3", n, len(w.alive()))
	}

	// A claim ends: its pod is evicted, then instance, Node and claim go.
	w.endClaim("a")
	w.step("claim a has ended")
	// A Node is deleted by hand: its claim follows.
	w.deleteNodeOf("b")
	w.step("claim b has followed its node")
	// A claim is torn out without its finalizer: the instance is collected.
	w.tearOut("c")
	w.step("the instance of claim c is collected")

	// The launcher dies after EC2 has acted; the next one finds the instance.
	w.Emulator.SetHook(func(r ec2emu.Request) ec2emu.HookAction {
		if r.Action == "CreateFleet" && r.Form.Get("DryRun") != "true" {
			return ec2emu.Cut
		}
		return ec2emu.Answer
	})
	w.create("", "d")
	w.eventually("EC2 to act", func() bool { return len(w.alive()) == 1 })
	stop()
	w.Emulator.SetHook(nil)
	_, _, stop = w.launcher()
	defer stop()
	w.eventually("claim d to be ready", func() bool { return w.initialized("d") })
	w.step("claim d is ready")
	if n := len(w.alive()); n != 1 {
		t.Errorf("%d instances for claim d", n)
	}
	// EC2 takes an instance away: the claim follows.
	w.Emulator.Terminate(w.alive()[0].ID)
	w.eventually("claim d to go", func() bool { return !w.get("d", &karpv1.NodeClaim{}) })
	w.step("claim d has followed its instance")
}

// checkNode compares a claim's Node with Karpenter's contract.
func (w *world) checkNode(claim string) {
	w.t.Helper()
	c, n := &karpv1.NodeClaim{}, &corev1.Node{}
	if !w.get(claim, c) || !w.get(c.Status.NodeName, n) {
		w.t.Fatalf("claim %s has no node", claim)
	}
	if c.Annotations[launch.NodeNameAnnotation] != n.Name || n.Spec.ProviderID != c.Status.ProviderID {
		w.t.Errorf("node %q %q is not the one announced: %q %q", n.Name, n.Spec.ProviderID, c.Annotations[launch.NodeNameAnnotation], c.Status.ProviderID)
	}
	for _, k := range []string{
		karpv1.NodeRegisteredLabelKey, karpv1.NodeInitializedLabelKey, karpv1.NodePoolLabelKey, karpv1.CapacityTypeLabelKey, v1.LabelInstanceCategory,
		corev1.LabelTopologyZone, v1.LabelTopologyZoneID,
	} {
		if n.Labels[k] == "" {
			w.t.Errorf("node %s lacks label %s", n.Name, k)
		}
	}
	for _, taint := range n.Spec.Taints {
		if taint.Key == karpv1.UnregisteredTaintKey {
			w.t.Errorf("node %s is still unregistered", n.Name)
		}
	}
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourcePods} {
		want, got := c.Status.Allocatable[name], n.Status.Allocatable[name]
		if want.Cmp(got) > 0 { // memory is estimated from below; more than promised is fine
			w.t.Errorf("node %s (%s) has %s of %s, less than the %s its claim promised", n.Name, n.Labels[corev1.LabelInstanceTypeStable], got.String(), name, want.String())
		}
	}
}

// step logs how long a part of the test took.
func (w *world) step(what string) {
	w.t.Helper()
	w.t.Logf("%6.1fs %s", time.Since(w.began).Seconds(), what)
}

func (w *world) endClaim(name string) {
	w.t.Helper()
	c := &karpv1.NodeClaim{}
	w.get(name, c)
	node := c.Status.NodeName
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "web", Namespace: "default"}, Spec: corev1.PodSpec{
		NodeName: node, Containers: []corev1.Container{{Name: "web", Image: "web"}},
	}}
	if err := w.kube.Create(w.t.Context(), pod); err != nil {
		w.t.Fatal(err)
	}
	if err := w.kube.Delete(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("claim "+name+" to go", func() bool { return !w.get(name, &karpv1.NodeClaim{}) })
	if w.get(node, &corev1.Node{}) {
		w.t.Errorf("node %s outlived its claim", node)
	}
	err := w.kube.Get(w.t.Context(), types.NamespacedName{Namespace: "default", Name: "web"}, pod)
	if !apierrors.IsNotFound(err) {
		w.t.Errorf("the pod is still there (error %v)", err)
	}
	if n := len(w.alive()); n != 2 {
		w.t.Errorf("%d instances are left, want 2", n)
	}
}

func (w *world) deleteNodeOf(name string) {
	w.t.Helper()
	c := &karpv1.NodeClaim{}
	w.get(name, c)
	if err := w.kube.Delete(w.t.Context(), &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: c.Status.NodeName}}); err != nil {
		w.t.Fatal(err)
	}
	w.eventually("claim "+name+" to go", func() bool { return !w.get(name, &karpv1.NodeClaim{}) })
	if n := len(w.alive()); n != 1 {
		w.t.Errorf("%d instances are left, want 1", n)
	}
}

func (w *world) tearOut(name string) {
	w.t.Helper()
	c := &karpv1.NodeClaim{}
	w.get(name, c)
	node := c.Status.NodeName
	c.Finalizers = nil
	if err := w.kube.Update(w.t.Context(), c); err != nil {
		w.t.Fatal(err)
	}
	if err := w.kube.Delete(w.t.Context(), c); client.IgnoreNotFound(err) != nil {
		w.t.Fatal(err)
	}
	w.eventually("its instance to be collected", func() bool { return len(w.alive()) == 0 })
	w.eventually("its node to go", func() bool { return !w.get(node, &corev1.Node{}) })
}
