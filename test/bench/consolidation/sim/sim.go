// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
)

// Cluster is a cluster.
type Cluster struct {
	Kube       client.WithWatch
	Clock      *clocktesting.FakeClock
	Catalog    *capacity.Catalog
	Controller *disruption.Controller
	// Boot is how long a machine takes to be ready; Broken claims never get there.
	Boot   time.Duration
	Broken func(*karpv1.NodeClaim) bool
	// BeforeWrite is called before the named kind of object is written, with what is done to it; an error fails the write.
	BeforeWrite func(verb string, o client.Object) error
	// Waiting are pods that are about to be planned.
	Waiting map[types.UID]bool
	// Rival owns the classes of karpenter.k8s.aws if it says so; nil for nobody. Set it before Restart.
	Rival disruption.Rival
	// Repair has broken nodes replaced. Set it before Restart.
	Repair bool
	// Judged are what the judge refuses, by pod name.
	Judged map[string]string
	// JudgeErr is what the judge fails with.
	JudgeErr error
	// Sick is why admission is unhealthy, empty if it is not.
	Sick string
	// Announced are the claims the controller has said to have bought.
	Announced []string
	// Said are the events that were written.
	Said []Event
	// Evictions counts pods that were evicted.
	Evictions int

	mu     sync.Mutex
	held   map[string][]*corev1.Pod
	stores struct{ pods, nodes, pdbs, empty cache.Indexer }
	views  *view.Builder
	serial int
}

// Event is an event that was written.
type Event struct{ Object, Reason, Note string }

// New returns a cluster with class default and the objects; everything in the catalogue can be bought.
func New(cat *capacity.Catalog, objects ...client.Object) *Cluster {
	c := &Cluster{Clock: clocktesting.NewFakeClock(builder.Epoch()), Catalog: cat, Boot: 40 * time.Second}
	node := func(o client.Object) []string {
		if p, ok := o.(*corev1.Pod); ok {
			return []string{p.Spec.NodeName}
		}
		return nil
	}
	objects = append(objects, builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	// Nothing applies server-side here, and the default tracker spends most of a run on whose field is whose.
	tracker := clienttesting.NewObjectTracker(scheme.Scheme, serializer.NewCodecFactory(scheme.Scheme).UniversalDecoder())
	c.Kube = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjectTracker(tracker).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{}, &policyv1.PodDisruptionBudget{}).
		WithIndex(&corev1.Pod{}, "spec.nodeName", node).WithInterceptorFuncs(c.intercept()).Build()
	c.stores.pods = cache.NewIndexer(cache.MetaNamespaceKeyFunc, disruption.Indexers())
	plain := func() cache.Indexer {
		return cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	c.stores.nodes, c.stores.pdbs, c.stores.empty = plain(), plain(), plain()
	core := corelisters.NewNodeLister(c.stores.nodes)
	c.views = view.New(view.Source{
		Pods: corelisters.NewPodLister(c.stores.pods), Nodes: core, Namespaces: corelisters.NewNamespaceLister(c.stores.empty),
		LimitRanges: corelisters.NewLimitRangeLister(c.stores.empty), PersistentVolumes: corelisters.NewPersistentVolumeLister(c.stores.empty),
		PersistentVolumeClaims: corelisters.NewPersistentVolumeClaimLister(c.stores.empty), DaemonSets: appslisters.NewDaemonSetLister(c.stores.empty),
		StorageClasses: storagelisters.NewStorageClassLister(c.stores.empty), Karpenter: c.Kube,
		Catalog:   func(*v1.EC2NodeClass) *capacity.Catalog { return cat },
		Available: func(k *capacity.Catalog) capacity.Set { return capacity.FullSet(len(k.Offerings)) },
	})
	c.Restart()
	return c
}

// Restart replaces the controller by one that knows nothing.
func (c *Cluster) Restart() {
	c.Controller = disruption.New(disruption.Options{
		Kube: c.Kube, Live: c.Kube, Pods: c.stores.pods, Nodes: corelisters.NewNodeLister(c.stores.nodes),
		PDBs: policylisters.NewPodDisruptionBudgetLister(c.stores.pdbs), Views: c, Seats: c, Judge: c, Admission: c, Events: c, Clock: c.Clock,
		Rival: c.Rival, Repair: c.Repair,
	})
	c.held = nil
}

// intercept gives objects a UID and a time of creation, as the API server does.
func (c *Cluster) intercept() interceptor.Funcs {
	before := func(verb string, o client.Object) error {
		if c.BeforeWrite != nil {
			return c.BeforeWrite(verb, o)
		}
		return nil
	}
	return interceptor.Funcs{
		Create: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if err := before("create", o); err != nil {
				return err
			}
			c.mu.Lock()
			c.serial++
			if o.GetUID() == "" {
				o.SetUID(types.UID(fmt.Sprintf("uid-%d", c.serial)))
			}
			if t := o.GetCreationTimestamp(); t.IsZero() {
				o.SetCreationTimestamp(metav1.NewTime(c.Clock.Now()))
			}
			c.mu.Unlock()
			return k.Create(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, k client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			if err := before("patch", o); err != nil {
				return err
			}
			return k.Patch(ctx, o, p, opts...)
		},
		Delete: func(ctx context.Context, k client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			if err := before("delete", o); err != nil {
				return err
			}
			return k.Delete(ctx, o, opts...)
		},
	}
}

// View implements disruption.Views.
func (c *Cluster) View(ctx context.Context) (*capacity.View, error) {
	c.mu.Lock()
	held := c.held
	c.mu.Unlock()
	return c.views.Build(ctx, view.Pending{Reserved: held})
}

// Pod implements disruption.Views.
func (c *Cluster) Pod(p *corev1.Pod) *capacity.Pod { return c.views.Pod(p) }

// Awaited implements disruption.Seats: pods wait for nobody here.
func (c *Cluster) Awaited(string) bool { return false }

// Waits implements disruption.Seats.
func (c *Cluster) Waits(pod types.UID) (waits, known bool) { return c.Waiting[pod], true }

// Bought implements disruption.Seats: views have every claim here.
func (c *Cluster) Bought(claim *karpv1.NodeClaim) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.Announced = append(c.Announced, claim.Name)
}

// Hold implements disruption.Seats.
func (c *Cluster) Hold(held map[string][]*corev1.Pod) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.held = held
}

// Held are the pods places are held for, by claim.
func (c *Cluster) Held() map[string][]*corev1.Pod {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Unhealthy implements disruption.Admission.
func (c *Cluster) Unhealthy(context.Context) string { return c.Sick }

// Refused implements disruption.Judge.
func (c *Cluster) Refused(_ context.Context, _ *capacity.View, _ []string, _ *plan.Result, pods map[types.UID]*corev1.Pod) (map[types.UID]string, error) {
	if c.JudgeErr != nil {
		return nil, c.JudgeErr
	}
	out := map[types.UID]string{}
	for uid, p := range pods {
		if why, ok := c.Judged[p.Name]; ok {
			out[uid] = why
		}
	}
	return out, nil
}

// Eventf implements disruption.Events.
//
//nolint:revive // client-go's signature
func (c *Cluster) Eventf(regarding, _ runtime.Object, _, reason, _, note string, args ...any) {
	c.mu.Lock()
	defer c.mu.Unlock()
	name := ""
	if o, ok := regarding.(client.Object); ok {
		name = o.GetName()
	}
	c.Said = append(c.Said, Event{name, reason, fmt.Sprintf(note, args...)})
}

// Pass brings the caches up to date and makes one pass.
func (c *Cluster) Pass(ctx context.Context) error {
	if err := c.Sync(ctx); err != nil {
		return err
	}
	return c.Controller.Pass(ctx)
}

// Sync makes the caches show what there is, and tells the controller of pods that have changed.
func (c *Cluster) Sync(ctx context.Context) error {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var pdbs policyv1.PodDisruptionBudgetList
	for _, list := range []client.ObjectList{&nodes, &pods, &pdbs} {
		if err := c.Kube.List(ctx, list); err != nil {
			return err
		}
	}
	all := make([]any, len(nodes.Items))
	for i := range nodes.Items {
		all[i] = &nodes.Items[i]
	}
	if err := c.stores.nodes.Replace(all, ""); err != nil {
		return err
	}
	if err := c.syncPods(&pods); err != nil {
		return err
	}
	all = make([]any, len(pdbs.Items))
	for i := range pdbs.Items {
		b := &pdbs.Items[i]
		if err := c.count(ctx, b, &pods); err != nil {
			return err
		}
		all[i] = b
	}
	return c.stores.pdbs.Replace(all, "")
}

func (c *Cluster) syncPods(pods *corev1.PodList) error {
	events := c.Controller.PodEvents()
	there := map[types.UID]bool{}
	before := map[types.UID]*corev1.Pod{}
	for _, o := range c.stores.pods.List() {
		if p, ok := o.(*corev1.Pod); ok {
			before[p.UID] = p
		}
	}
	all := make([]any, len(pods.Items))
	for i := range pods.Items {
		p := &pods.Items[i]
		all[i], there[p.UID] = p, true
	}
	if err := c.stores.pods.Replace(all, ""); err != nil {
		return err
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		switch was := before[p.UID]; {
		case was == nil:
			events.OnAdd(p, len(before) == 0)
		case was.ResourceVersion != p.ResourceVersion:
			events.OnUpdate(was, p)
		}
	}
	for uid, p := range before {
		if !there[uid] {
			events.OnDelete(p)
		}
	}
	return nil
}
