// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption/drain"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/test/builder"
)

const (
	movesNodes     = 5
	movesWorkloads = 50
	// movesMost is the longest a run may take, of the cluster's time.
	movesMost = 30 * time.Minute
)

// moves drains nodes with fifty Deployments of one replica, all at once.
func (r *report) moves(ctx context.Context) error {
	m, err := newMover(ctx, rand.New(rand.NewPCG(r.seed, 11)))
	if err != nil {
		return err
	}
	began := m.clock.Now()
	unready, moved, took := time.Duration(0), 0, time.Duration(0)
	for ; took < movesMost; took = m.clock.Since(began) {
		left, err := m.second(ctx)
		if err != nil {
			return err
		}
		without, away, err := m.count(ctx)
		if err != nil {
			return err
		}
		unready += time.Duration(without) * time.Second
		if moved = away; left == 0 && moved == movesWorkloads {
			break
		}
	}
	if moved < movesWorkloads {
		return fmt.Errorf("%d of %d workloads have moved in %s", moved, movesWorkloads, took)
	}
	fmt.Printf("moves: %d workloads of one replica left %d nodes in %s of the cluster's time\n", moved, movesNodes, took)
	r.figure("moves-50-unready", unready.Seconds(), "s")
	return nil
}

// mover is a cluster with nodes to drain, in which the controllers of Deployments are played.
type mover struct {
	*drain.Drainer
	kube  client.Client
	clock *clocktesting.FakeClock
	r     *rand.Rand
	nodes []*corev1.Node
	claim []*karpv1.NodeClaim
	// due is when each pod will be ready.
	due  map[types.UID]time.Time
	made int
}

// indexer adds indexes to a fake API server.
type indexer struct{ b *fake.ClientBuilder }

func (i indexer) IndexField(_ context.Context, o client.Object, field string, f client.IndexerFunc) error {
	i.b.WithIndex(o, field, f)
	return nil
}

// silence takes events.
type silence struct{}

// Eventf implements drain.Events.
//
//nolint:revive // client-go's signature
func (silence) Eventf(_, _ runtime.Object, _, _, _, _ string, _ ...any) {}

func newMover(ctx context.Context, r *rand.Rand) (*mover, error) {
	m := &mover{clock: clocktesting.NewFakeClock(builder.Epoch()), r: r, due: map[types.UID]time.Time{}}
	b := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithStatusSubresource(&karpv1.NodeClaim{}).
		WithInterceptorFuncs(interceptor.Funcs{SubResourcePatch: patchPodByStatus})
	if err := claim.AddIndexes(ctx, indexer{b}); err != nil {
		return nil, err
	}
	if err := drain.AddIndexes(ctx, indexer{b}); err != nil {
		return nil, err
	}
	m.kube = b.Build()
	m.Drainer = drain.New(drain.Options{Kube: m.kube, Events: silence{}, Clock: m.clock})
	for i := range movesNodes {
		c := builder.NodeClaim(fmt.Sprintf("claim-%d", i)).UID(fmt.Sprintf("claim-%d", i)).Obj()
		c.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, "Underutilized", "Underutilized")
		m.claim = append(m.claim, c)
		m.nodes = append(m.nodes, builder.Node(fmt.Sprintf("node-%d", i)).UID(fmt.Sprintf("node-%d", i)).Obj())
	}
	for i := range movesWorkloads {
		if err := m.workload(ctx, i); err != nil {
			return nil, err
		}
	}
	return m, nil
}

// patchPodByStatus does what the fake API server does not: the real one takes a pod's annotations by its status, too.
//
//nolint:revive // controller-runtime's signature
func patchPodByStatus(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, pod := o.(*corev1.Pod); pod && sub == "status" {
		return c.Patch(ctx, o, p)
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

// workload adds a Deployment with one pod that is ready.
func (m *mover) workload(ctx context.Context, i int) error {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("solo-%02d", i), Namespace: metav1.NamespaceDefault, UID: types.UID(fmt.Sprintf("deployment-%d", i))},
		Spec:       appsv1.DeploymentSpec{Replicas: new(int32(1))}, Status: appsv1.DeploymentStatus{Replicas: 1, UpdatedReplicas: 1},
	}
	set := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: d.Name + "-1", Namespace: d.Namespace, UID: types.UID(fmt.Sprintf("set-%d", i)),
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "Deployment", Name: d.Name, UID: d.UID, Controller: new(true)}},
	}}
	for _, o := range []client.Object{d, set, m.pod(d.Name, fmt.Sprintf("set-%d", i), m.nodes[i%movesNodes].Name, true)} {
		if err := m.kube.Create(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

func (m *mover) pod(app, set, node string, ready bool) *corev1.Pod {
	m.made++
	name := fmt.Sprintf("%s-1-%d", app, m.made)
	p := builder.Pod(name).UID("uid-"+name).CPU("100m").Label("app", app).Phase(corev1.PodRunning).Obj()
	p.Spec.NodeName = node
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: app + "-1", UID: types.UID(set), Controller: new(true)}}
	if ready {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	return p
}

// second drains every node once and lets the controllers work; left is how many pods have still to leave.
func (m *mover) second(ctx context.Context) (left int, err error) {
	for i, n := range m.nodes {
		d, err := m.Drain(ctx, m.claim[i], n, nil)
		if err != nil {
			return 0, err
		}
		left += d.Left
	}
	m.clock.Step(time.Second)
	var list appsv1.DeploymentList
	if err := m.kube.List(ctx, &list); err != nil {
		return 0, err
	}
	for i := range list.Items {
		if err := m.replicate(ctx, &list.Items[i]); err != nil {
			return 0, err
		}
	}
	return left, nil
}

// replicate does what a ReplicaSet's controller and the kubelets do: pods that lack are made and get ready after 3 to 33 seconds,
// of too many the cheapest to delete among those that are not ready or, if there is none, of all goes.
func (m *mover) replicate(ctx context.Context, d *appsv1.Deployment) error {
	pods, err := m.podsOf(ctx, d.Name)
	if err != nil {
		return err
	}
	for _, p := range pods {
		if at, waits := m.due[p.UID]; waits && !m.clock.Now().Before(at) {
			delete(m.due, p.UID)
			p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
			if err := m.kube.Status().Update(ctx, p); err != nil {
				return err
			}
		}
	}
	for n := len(pods); n < int(*d.Spec.Replicas); n++ {
		p := m.pod(d.Name, "set-"+string(d.UID[len("deployment-"):]), "other", false)
		m.due[p.UID] = m.clock.Now().Add(time.Duration(3+m.r.IntN(31)) * time.Second)
		if err := m.kube.Create(ctx, p); err != nil {
			return err
		}
	}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int {
		return cmp.Or(cmp.Compare(rank(a), rank(b)), cmp.Compare(deletionCost(a), deletionCost(b)))
	})
	for ; len(pods) > int(*d.Spec.Replicas); pods = pods[1:] {
		if err := m.kube.Delete(ctx, pods[0]); err != nil {
			return err
		}
	}
	return nil
}

func rank(p *corev1.Pod) int {
	if podReady(p) {
		return 1
	}
	return 0
}

func deletionCost(p *corev1.Pod) int {
	n, err := strconv.Atoi(p.Annotations[corev1.PodDeletionCost])
	if err != nil {
		return 0
	}
	return n
}

func podReady(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool { return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue })
}

func (m *mover) podsOf(ctx context.Context, app string) ([]*corev1.Pod, error) {
	var list corev1.PodList
	if err := m.kube.List(ctx, &list, client.MatchingLabels{"app": app}); err != nil {
		return nil, err
	}
	out := make([]*corev1.Pod, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out, nil
}

// count is how many workloads have no ready pod, and how many have one replica, ready, elsewhere.
func (m *mover) count(ctx context.Context) (without, moved int, err error) {
	for i := range movesWorkloads {
		pods, err := m.podsOf(ctx, fmt.Sprintf("solo-%02d", i))
		if err != nil {
			return 0, 0, err
		}
		if !slices.ContainsFunc(pods, podReady) {
			without++
		}
		if len(pods) == 1 && pods[0].Spec.NodeName == "other" && podReady(pods[0]) {
			moved++
		}
	}
	return without, moved, nil
}
