// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/test/builder"
)

// waiting adds a pod without a node that is about to be planned.
func (r *rig) waiting(name, cpu string, change ...func(*corev1.Pod)) {
	r.t.Helper()
	p := builder.Pod(name).UID("uid-" + name).CPU(cpu).Obj()
	for _, f := range change {
		f(p)
	}
	if err := r.Kube.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
	r.Waiting = map[types.UID]bool{p.UID: true}
}

// A pod whose node was usable for a while without the pod getting there is planned again. Until that is done the node, which
// looks empty, is its node: to take it away would have another bought.
func TestNodeOfAWaitingPodStays(t *testing.T) {
	elsewhere := func(p *corev1.Pod) { p.Spec.NodeSelector = map[string]string{corev1.LabelTopologyZone: "elsewhere"} }
	for name, tc := range map[string]struct {
		wait  func(*rig)
		stays bool
	}{
		"nobody waits":             {func(*rig) {}, false},
		"the pod fits":             {func(r *rig) { r.waiting("app", "1500m") }, true},
		"it is too large":          {func(r *rig) { r.waiting("app", "7") }, false},
		"it belongs elsewhere":     {func(r *rig) { r.waiting("app", "1500m", elsewhere) }, false},
		"it was planned elsewhere": {func(r *rig) { r.waiting("app", "1500m"); r.Waiting = nil }, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.node("a", "m5.large")
			tc.wait(r)
			r.pass()
			if going := r.claim("a").DeletionTimestamp != nil; going == tc.stays {
				t.Fatalf("node a is going: %v, want %v", going, !tc.stays)
			}
			if tc.stays && !r.heard("a", "DisruptionBlocked", "Node has room for a pending pod (Pod=default/app)") {
				t.Errorf("events %v, want what keeps the node", r.Said)
			}
		})
	}
}

// The same, when the pod begins to wait between the decision and the taint.
func TestPodBeginsToWaitBetweenTheLooks(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.large")
	r.waiting("app", "1500m")
	r.Waiting = nil
	r.BeforeWrite = func(_ string, o client.Object) error {
		if _, node := o.(*corev1.Node); node && r.Waiting == nil {
			r.Waiting = map[types.UID]bool{"uid-app": true}
		}
		return nil
	}
	r.pass()
	r.untouched("a")
}

// late is what other processes see a while after it was written.
type late struct {
	*rig
	nodes, pods cache.Indexer
	// known are pods that have failed to be scheduled.
	known map[types.UID]bool
}

func (l *late) Waits(pod types.UID) (waits, known bool) { return false, l.known[pod] }

// show brings the caches up to date.
func (l *late) show() {
	l.t.Helper()
	for list, store := range map[client.ObjectList]cache.Indexer{&corev1.NodeList{}: l.nodes, &corev1.PodList{}: l.pods} {
		if err := l.Kube.List(l.t.Context(), list); err != nil {
			l.t.Fatal(err)
		}
		var all []any
		switch x := list.(type) {
		case *corev1.NodeList:
			for i := range x.Items {
				all = append(all, &x.Items[i])
			}
		case *corev1.PodList:
			for i := range x.Items {
				all = append(all, &x.Items[i])
			}
		}
		if err := store.Replace(all, ""); err != nil {
			l.t.Fatal(err)
		}
	}
}

// The scheduler gives a node a pod in the instant before it sees the taint; the API server hears of that while the command looks
// again. The look waits for it, and only for such pods.
func TestLookWaitsForPodsThatAreBeingBound(t *testing.T) {
	for name, tc := range map[string]struct {
		// pod has this name, or there is none; bound says that it gets to node a.
		pod   string
		known bool
		bound bool
		// shown is when caches show the taint, never if 0.
		shown time.Duration
		stays bool
		took  time.Duration
	}{
		"no pod":                         {shown: time.Millisecond, took: 50 * time.Millisecond},
		"a pod is being bound":           {pod: "app", bound: true, shown: time.Millisecond, stays: true, took: 300 * time.Millisecond},
		"the caches are late":            {pod: "app", bound: true, shown: 200 * time.Millisecond, stays: true, took: 300 * time.Millisecond},
		"a pod that has failed":          {pod: "app", known: true, shown: time.Millisecond, took: 50 * time.Millisecond},
		"a pod nobody schedules":         {pod: "app", shown: time.Millisecond, took: 2 * time.Second},
		"the cache never has the taint":  {stays: true, took: 2 * time.Second},
		"the pod is taken by what boots": {pod: "app", bound: true, known: true, shown: time.Millisecond, took: 50 * time.Millisecond},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				time.Sleep(time.Until(builder.Epoch().Add(time.Hour))) // the bubble's clock is the controller's
				r := newRig(t, nil)
				r.node("a", "m5.large")
				if tc.pod != "" {
					p := builder.Pod(tc.pod).UID("uid-" + tc.pod).CPU("1").Obj()
					if err := r.Kube.Create(t.Context(), p); err != nil {
						t.Fatal(err)
					}
				}
				l := &late{rig: r, known: map[types.UID]bool{}}
				l.nodes = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
				l.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, disruption.Indexers())
				if tc.known {
					l.known["uid-app"] = true
				}
				l.show()
				if err := r.Sync(t.Context()); err != nil {
					t.Fatal(err)
				}
				c := disruption.New(disruption.Options{
					Kube: r.Kube, Live: r.Kube, Pods: l.pods, Nodes: corelisters.NewNodeLister(l.nodes), Views: r, Seats: l, Judge: r, Events: r,
					PDBs:  policylisters.NewPodDisruptionBudgetLister(cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})),
					Clock: clock.RealClock{}, Settle: 2 * time.Second,
				})
				if tc.shown > 0 {
					time.AfterFunc(tc.shown, l.show)
				}
				if tc.bound && !tc.known {
					time.AfterFunc(290*time.Millisecond, func() {
						p := &corev1.Pod{}
						if err := r.Kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: tc.pod}, p); err != nil {
							t.Error(err)
							return
						}
						p.Spec.NodeName = "node-a"
						if err := r.Kube.Update(t.Context(), p); err != nil {
							t.Error(err)
						}
						l.show()
					})
				}
				began := time.Now()
				if err := c.Pass(t.Context()); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took != tc.took {
					t.Errorf("the pass took %s, want %s", took, tc.took)
				}
				if tc.stays {
					r.untouched("a")
				} else if r.claim("a").DeletionTimestamp == nil {
					t.Error("the empty node stays")
				}
			})
		})
	}
}
