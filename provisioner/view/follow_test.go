// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// feed is an informer without a watch: a test says what happens.
type feed struct {
	handlers []cache.ResourceEventHandler
	late     bool // it has not handed over what it holds
}

func (f *feed) AddEventHandler(h cache.ResourceEventHandler) (cache.ResourceEventHandlerRegistration, error) {
	f.handlers = append(f.handlers, h)
	return registration{f}, nil
}

type registration struct{ f *feed }

func (r registration) HasSynced() bool                     { return !r.f.late }
func (r registration) HasSyncedChecker() cache.DoneChecker { return nil }

// world is a cluster whose every change reaches its informers.
type world struct {
	t       testing.TB
	cluster *source.Cluster
	feeds   map[string]*feed
	objects map[string]map[string]client.Object
	pools   karpv1.NodePoolList
	classes v1.EC2NodeClassList
}

func newWorld(t testing.TB, objects ...runtime.Object) *world {
	w := &world{t: t, cluster: source.New(objects...), feeds: map[string]*feed{}, objects: map[string]map[string]client.Object{}}
	w.cluster.Sell(builder.DefaultClass, shop())
	w.check(w.cluster.Client.List(t.Context(), &w.pools))
	w.check(w.cluster.Client.List(t.Context(), &w.classes))
	for _, kind := range []string{"*v1.Pod", "*v1.Node", "*v1.NodeClaim", "*v1.Namespace", "*v1.CSINode"} {
		w.feeds[kind], w.objects[kind] = &feed{}, map[string]client.Object{}
	}
	return w
}

func (w *world) informers() view.Informers {
	return view.Informers{
		Pods: w.feeds["*v1.Pod"], Nodes: w.feeds["*v1.Node"], Claims: w.feeds["*v1.NodeClaim"], Namespaces: w.feeds["*v1.Namespace"], CSINodes: w.feeds["*v1.CSINode"],
	}
}

// put adds or replaces an object.
func (w *world) put(o client.Object) {
	kind, key := fmt.Sprintf("%T", o), client.ObjectKeyFromObject(o).String()
	old := w.objects[kind][key]
	if _, ok := o.(*karpv1.NodeClaim); !ok {
		w.cluster.Put(o)
	}
	w.objects[kind][key] = o
	for _, h := range w.feeds[kind].handlers {
		if old == nil {
			h.OnAdd(o, false)
		} else {
			h.OnUpdate(old, o)
		}
	}
}

// source reads the world as it is, claims included.
func (w *world) source() view.Source {
	src := w.cluster.Source()
	src.Karpenter = claimReader{src.Karpenter, w}
	return src
}

// claimReader lists Karpenter's objects as a cache does that copies nothing.
type claimReader struct {
	client.Reader
	w *world
}

func (c claimReader) List(ctx context.Context, list client.ObjectList, opts ...client.ListOption) error {
	switch list := list.(type) {
	case *karpv1.NodeClaimList:
		for _, o := range c.w.objects["*v1.NodeClaim"] {
			list.Items = append(list.Items, *o.(*karpv1.NodeClaim))
		}
	case *karpv1.NodePoolList:
		list.Items = c.w.pools.Items
	case *v1.EC2NodeClassList:
		list.Items = c.w.classes.Items
	default:
		return c.Reader.List(ctx, list, opts...)
	}
	return nil
}

func (w *world) check(err error) {
	w.t.Helper()
	if err != nil {
		w.t.Fatal(err)
	}
}

// drop deletes an object; missed has it learned from a list.
func (w *world) drop(o client.Object, missed bool) {
	kind := fmt.Sprintf("%T", o)
	delete(w.objects[kind], client.ObjectKeyFromObject(o).String())
	if _, ok := o.(*karpv1.NodeClaim); !ok {
		w.cluster.Delete(o)
	}
	var gone any = o
	if missed {
		gone = cache.DeletedFinalStateUnknown{Key: client.ObjectKeyFromObject(o).String(), Obj: o}
	}
	for _, h := range w.feeds[kind].handlers {
		h.OnDelete(gone)
	}
}

// any returns one of the objects of a kind, nil if there is none.
func (w *world) any(r *rand.Rand, kind string) client.Object {
	keys := make([]string, 0, len(w.objects[kind]))
	for k := range w.objects[kind] {
		keys = append(keys, k)
	}
	if len(keys) == 0 {
		return nil
	}
	slices.Sort(keys)
	return w.objects[kind][keys[r.IntN(len(keys))]]
}

// happen makes one random change.
func (w *world) happen(r *rand.Rand, i int) {
	names := func(prefix string) string { return fmt.Sprintf("%s%d", prefix, r.IntN(5)) }
	number := names("")
	switch r.IntN(12) {
	case 0, 1, 2: // a pod, with or without its node, bound or moved on
		p := builder.Pod("p"+names("")).Label("app", names("")).CPU("100m")
		if r.IntN(4) > 0 {
			p.On(names("n"))
		}
		if r.IntN(5) == 0 {
			p.Phase(corev1.PodSucceeded)
		}
		if r.IntN(5) == 0 {
			p.Deleted(builder.Epoch())
		}
		o := p.Obj()
		if old := w.objects["*v1.Pod"][client.ObjectKeyFromObject(o).String()]; old != nil {
			o.UID = old.GetUID() // one name has one identity until it is deleted
		} else {
			o.UID = types.UID(fmt.Sprintf("%s-%d", o.Name, i))
		}
		if r.IntN(4) == 0 {
			o.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{
				{TopologyKey: "zone", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}},
			}}}
		}
		o.Generation = int64(i)
		w.put(o)
	case 3, 4: // a node, of a claim or foreign
		n := builder.Node("n"+number).CPU("4").Label("seq", fmt.Sprint(i))
		if r.IntN(3) > 0 {
			n.ProviderID("aws:///a/i-"+number).Label(karpv1.NodeRegisteredLabelKey, "true")
		}
		if r.IntN(4) == 0 {
			n.NotReady()
		}
		w.put(n.Obj())
	case 5, 6: // a claim, launched or not
		c := builder.NodeClaim("c"+number).UID("c"+number).Pool("p").Request("cpu", "1")
		if r.IntN(3) > 0 {
			c.Launched("aws:///a/i-"+number, "m5.large", "a", "spot").Resource("cpu", "2")
		}
		w.put(c.Obj())
	case 7:
		w.put(&corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: names("ns"), Labels: map[string]string{"env": []string{"prod", "dev"}[r.IntN(2)]}}})
	case 8:
		w.put(&storagev1.CSINode{ObjectMeta: metav1.ObjectMeta{Name: names("n")}, Spec: storagev1.CSINodeSpec{Drivers: []storagev1.CSINodeDriver{
			{Name: "ebs.csi.aws.com", Allocatable: &storagev1.VolumeNodeResources{Count: new(int32(20 + r.IntN(5)))}},
		}}})
	default:
		kind := []string{"*v1.Pod", "*v1.Node", "*v1.NodeClaim", "*v1.CSINode", "*v1.Namespace"}[r.IntN(5)]
		if o := w.any(r, kind); o != nil {
			w.drop(o, r.IntN(2) == 0)
		}
	}
}

// describe puts a view into words.
func describe(v *capacity.View) []string {
	var out []string
	for _, p := range v.Pools {
		out = append(out, fmt.Sprintf("pool %s: %d nodes with %s", p.Name, p.Nodes, p.Usage))
	}
	for _, n := range v.Nodes {
		s := nodeShapeOf(n)
		terms := 0
		for c := range n.Pods {
			for _, t := range c.AntiAffinity {
				terms += len(t.Namespaces)
			}
		}
		out = append(out, fmt.Sprintf("%+v seq %s, %d namespaces", s, n.Labels["seq"], terms))
	}
	return out
}

// TestFollowedViewsEqualLoadedOnes is the property that makes following safe: whatever happened, in whatever order it was
// seen, the view is the one that is made of the lists.
func TestFollowedViewsEqualLoadedOnes(t *testing.T) {
	for seed := range uint64(30) {
		r := rand.New(rand.NewPCG(seed, 7))
		w := newWorld(t, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj(),
			builder.DaemonSet("cni").UID("cni").Template(builder.Pod("cni").CPU("100m")).Obj())
		b := view.New(w.source())
		w.check(b.Follow(w.informers()))
		for i := range 120 {
			w.happen(r, i)
			if r.IntN(3) > 0 {
				continue
			}
			var pending view.Pending
			if r.IntN(3) == 0 {
				pending.Claims = append(pending.Claims, builder.NodeClaim(fmt.Sprintf("c%d", r.IntN(7))).UID("new").Pool("p").Obj())
			}
			if p, ok := w.any(r, "*v1.Pod").(*corev1.Pod); ok && r.IntN(2) == 0 {
				pending.Reserved = map[string][]*corev1.Pod{fmt.Sprintf("c%d", r.IntN(7)): {p}}
			}
			got, err := b.Build(t.Context(), pending)
			w.check(err)
			want, err := view.New(w.source()).Build(t.Context(), pending)
			w.check(err)
			if diff := cmp.Diff(describe(want), describe(got)); diff != "" {
				t.Fatalf("seed %d, change %d: followed view differs (-loaded +followed):\n%s", seed, i, diff)
			}
		}
	}
}

// TestFollowSharesNodes checks that nothing is converted again for a change elsewhere.
func TestFollowSharesNodes(t *testing.T) {
	w := newWorld(t, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	b := view.New(w.source())
	w.check(b.Follow(w.informers()))
	for _, n := range []string{"a", "b", "c"} {
		w.put(builder.Node(n).CPU("4").Obj())
	}
	pod := func() *builder.PodBuilder { return builder.Pod("p").UID("p").CPU("1").On("b") }
	nodes := func() map[string]*capacity.Node {
		v, err := b.Build(t.Context(), view.Pending{})
		w.check(err)
		out := map[string]*capacity.Node{}
		for _, n := range v.Nodes {
			out[n.Name] = n
		}
		return out
	}
	first := nodes()
	w.put(pod().Obj())
	second := nodes()
	if first["a"] != second["a"] || first["c"] != second["c"] || first["b"] == second["b"] {
		t.Error("a pod on node b must renew that node only")
	}
	running := pod().Phase(corev1.PodRunning).Obj()
	running.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	w.put(running)
	if third := nodes(); third["b"] != second["b"] {
		t.Error("a pod that becomes ready changes nothing in a view")
	}
	resizing := pod().Generation(2).Phase(corev1.PodRunning).Obj()
	resizing.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: resizing.Spec.Containers[0].Name, AllocatedResources: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("3")}}}
	w.put(resizing)
	if got := nodes()["b"].Used.String(); !strings.HasPrefix(got, "cpu=3 ") {
		t.Errorf("a resized pod counts as %s", got)
	}
}

// TestFollowWaitsForItsInformers checks that views come from lists until the informers have handed over what they hold, and
// that whoever listens too is told after the builder.
func TestFollowWaitsForItsInformers(t *testing.T) {
	w := newWorld(t, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	w.feeds["*v1.Node"].late = true
	b := view.New(w.source())
	in := w.informers()
	count := func() int {
		v, err := b.Build(t.Context(), view.Pending{})
		w.check(err)
		return len(v.Nodes)
	}
	var seen []int
	in.OnNode = cache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { seen = append(seen, count()) }, UpdateFunc: func(any, any) { seen = append(seen, count()) }, DeleteFunc: func(any) { seen = append(seen, count()) },
	}
	w.check(b.Follow(in))
	w.cluster.Put(builder.Node("a").Obj()) // listed, no event yet
	if n := count(); n != 1 {
		t.Errorf("%d nodes before the informers are synced, want the one that is listed", n)
	}
	w.feeds["*v1.Node"].late = false
	w.put(builder.Node("a").Obj())
	w.put(builder.Node("a").Label("x", "y").Obj())
	w.drop(builder.Node("a").Obj(), false)
	if diff := cmp.Diff([]int{1, 1, 0}, seen); diff != "" {
		t.Errorf("nodes in the view when the listener was told (-want +got):\n%s", diff)
	}
}

// TestFollowWhileViewing has events and views at once, for the race detector.
func TestFollowWhileViewing(t *testing.T) {
	w := newWorld(t, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	b := view.New(w.source())
	w.check(b.Follow(w.informers()))
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 200 {
			w.put(builder.Node(fmt.Sprintf("n%d", i%7)).CPU("4").Label("seq", fmt.Sprint(i)).Obj())
			w.put(builder.Pod(fmt.Sprintf("p%d", i)).UID(fmt.Sprintf("p%d", i)).On(fmt.Sprintf("n%d", i%7)).Obj())
		}
	}()
	for deadline := time.Now().Add(time.Minute); ; {
		v, err := b.Build(t.Context(), view.Pending{})
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range v.Nodes {
			if int64(len(n.Pods)) > n.Used.Pods {
				t.Fatalf("node %s has %d classes and %d pods", n.Name, len(n.Pods), n.Used.Pods)
			}
		}
		select {
		case <-done:
			return
		default:
		}
		if time.Now().After(deadline) {
			t.Fatal("events do not get through while views are made")
		}
	}
}
