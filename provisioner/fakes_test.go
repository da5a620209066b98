// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// diary notes what the provisioner does to the outside, in order.
type diary struct {
	mu      sync.Mutex
	entries []string
}

func (d *diary) note(format string, args ...any) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.entries = append(d.entries, fmt.Sprintf(format, args...))
}

// take returns the entries since the last call.
func (d *diary) take() []string {
	d.mu.Lock()
	defer d.mu.Unlock()
	out := d.entries
	d.entries = nil
	return out
}

type fakeGate struct {
	d *diary
	// parked is what Parked returns; nil is nobody.
	parked func() []types.UID
}

func (g fakeGate) Parked(time.Duration) []types.UID {
	if g.parked == nil {
		return nil
	}
	return g.parked()
}

// park sets who is behind the gate.
func (b *bed) park(uids ...types.UID) {
	b.parkedMu.Lock()
	defer b.parkedMu.Unlock()
	b.parked = uids
}

func (b *bed) whoIsParked() []types.UID {
	b.parkedMu.Lock()
	defer b.parkedMu.Unlock()
	return b.parked
}

func (g fakeGate) Release(uids ...types.UID) {
	names := make([]string, len(uids))
	for i, u := range uids {
		names[i] = string(u)
	}
	slices.Sort(names)
	if len(names) > 0 {
		g.d.note("release %s", strings.Join(names, " "))
	}
}

func (g fakeGate) Reserve(uid types.UID, node string) bool {
	g.d.note("reserve %s on %s", uid, node)
	return false
}

type fakeNominator struct{ d *diary }

func (n fakeNominator) Nominate(_ context.Context, pod types.NamespacedName, _ types.UID, node string) error {
	n.d.note("nominate %s on %s", pod.Name, node)
	return nil
}

// fakeLauncher notes the claims that are in the API when it is asked to launch them.
type fakeLauncher struct {
	d   *diary
	api client.Client
}

func (l fakeLauncher) Launch(ctx context.Context, claims []*karpv1.NodeClaim) {
	for _, c := range claims {
		written := &karpv1.NodeClaim{}
		if err := l.api.Get(ctx, client.ObjectKeyFromObject(c), written); err != nil {
			l.d.note("launch of a claim that is not written: %v", err)
			continue
		}
		l.d.note("launch for %s", written.Annotations[PodsAnnotation])
	}
}

type fakeEvents struct{ d *diary }

func (e fakeEvents) Eventf(regarding, _ runtime.Object, kind, reason, _, note string, args ...any) {
	pod, ok := regarding.(*corev1.Pod)
	if !ok {
		e.d.note("event about a %T", regarding)
		return
	}
	text := fmt.Sprintf(note, args...)
	if reason == "Nominated" {
		text = "" // names a claim, whose name is random
	}
	e.d.note("event %s %s %s %s", pod.Name, kind, reason, text)
}

// judgeFunc is a judge that decides trial by trial; "" accepts.
type judgeFunc func(hypothesis.Trial) string

func (j judgeFunc) Verify(_ context.Context, _ []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	var out []hypothesis.Refusal
	for _, t := range trials {
		if why := j(t); why != "" {
			out = append(out, hypothesis.Refusal{Trial: t, Plugin: "Filter", Reason: why})
		}
	}
	return out, nil
}

// bed is a provisioner in a synctest bubble, with a cluster of plain objects.
type bed struct {
	*Provisioner
	*diary
	t       *testing.T
	ctx     context.Context //nolint:containedctx // the bubble's context ends with the test, and so does the bed
	cluster *source.Cluster
	api     client.Client
	// createFails is returned by the next so many creations of a claim.
	createFails []error
	// deleteFails is how many deletions of a claim fail.
	deleteFails int
	// createPause is what each creation takes, slow what that of a claim takes beyond it; may be nil.
	createPause time.Duration
	slow        func(*karpv1.NodeClaim) time.Duration
	claims      int
	parkedMu    sync.Mutex
	parked      []types.UID
}

// shop sells 4 and 16 cores.
func shop() *capacity.Catalog {
	return builder.Catalog(
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").OnDemand(0.2, "a", "b"),
		builder.InstanceType("m5.4xlarge").CPU("16").Memory("64Gi").OnDemand(0.8, "a", "b"),
	)
}

// inBubble runs a test in virtual time. The cluster has one NodePool, p, whose class is ready, and the objects.
func inBubble(t *testing.T, judge Judge, test func(b *bed), objects ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		b := &bed{diary: &diary{}, t: t, ctx: ctx}
		b.cluster = source.New(append(objects, builder.NodePool("p").UID("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())...)
		b.cluster.Sell(builder.DefaultClass, shop())
		b.api = interceptor.NewClient(b.cluster.Client, interceptor.Funcs{Create: b.create, Delete: b.remove})
		b.Provisioner = b.process(judge)
		test(b)
		cancel()
		synctest.Wait()
	})
}

// process is a new provisioner on the bed's cluster, as after a restart.
func (b *bed) process(judge Judge) *Provisioner {
	p := New(Options{
		Kube: b.api, Pods: b.cluster.Pods(), Views: view.New(b.cluster.Source()), Gate: fakeGate{b.diary, b.whoIsParked}, Nominator: fakeNominator{b.diary},
		Launcher: fakeLauncher{b.diary, b.api}, Events: fakeEvents{b.diary}, Judge: judge, Clock: clock.RealClock{}, Logger: logr.Discard(),
		Batch: demand.Options{Debounce: 5 * time.Millisecond, MaxAge: time.Second, MaxSize: 1000},
	})
	p.nodes = b.cluster.Nodes()
	return p
}

// create gives claims a UID and a creation time as the API server does, or fails as the test asked.
func (b *bed) create(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
	time.Sleep(b.createPause)
	if claim, ok := o.(*karpv1.NodeClaim); ok && b.slow != nil {
		time.Sleep(b.slow(claim))
	}
	b.diary.mu.Lock()
	defer b.diary.mu.Unlock()
	if len(b.createFails) > 0 {
		err := b.createFails[0]
		b.createFails = b.createFails[1:]
		if errors.Is(err, errAnswerLost) {
			b.claims++
			o.SetUID(types.UID(fmt.Sprintf("claim-%d", b.claims)))
			if cerr := c.Create(ctx, o.DeepCopyObject().(client.Object), opts...); cerr != nil {
				return cerr
			}
			o.SetUID("")
		}
		return err
	}
	b.claims++
	o.SetUID(types.UID(fmt.Sprintf("claim-%d", b.claims)))
	return c.Create(ctx, o, opts...)
}

// errAnswerLost is for createFails: the claim is written and the answer does not arrive.
var errAnswerLost = errors.New("connection reset by peer")

// remove deletes, or fails as the test asked.
func (b *bed) remove(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
	b.diary.mu.Lock()
	defer b.diary.mu.Unlock()
	if b.deleteFails > 0 {
		b.deleteFails--
		return errors.New("connection refused")
	}
	return c.Delete(ctx, o, opts...)
}

// run starts the loop as the leader.
func (b *bed) run() {
	go func() {
		if err := b.Run(b.ctx); err != nil {
			b.t.Errorf("Run: %v", err)
		}
	}()
	b.Leading()
	synctest.Wait()
}

// offer has pods fail to schedule and the queue drain, and waits until the batch is planned.
func (b *bed) offer(pods ...*corev1.Pod) {
	for _, p := range pods {
		b.cluster.Put(p)
		b.Offer(p, nil)
	}
	b.Drained()
	b.pass(10 * time.Millisecond)
}

// pass lets time pass.
func (b *bed) pass(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}

// written lists the claims in the API.
func (b *bed) written() []*karpv1.NodeClaim {
	b.t.Helper()
	var list karpv1.NodeClaimList
	if err := b.api.List(b.t.Context(), &list); err != nil {
		b.t.Fatal(err)
	}
	out := make([]*karpv1.NodeClaim, len(list.Items))
	for i := range list.Items {
		out[i] = &list.Items[i]
	}
	return out
}

// claim is the only claim in the API.
func (b *bed) claim() *karpv1.NodeClaim {
	b.t.Helper()
	all := b.written()
	if len(all) != 1 {
		b.t.Fatalf("%d claims, want one", len(all))
	}
	return all[0]
}

// launched gives the claim an instance and, if node is not nil, that node.
func (b *bed) launched(c *karpv1.NodeClaim, node *builder.NodeBuilder) *karpv1.NodeClaim {
	b.t.Helper()
	c = c.DeepCopy()
	c.Status.ProviderID = "aws:///a/i-1"
	if node != nil {
		n := node.ProviderID(c.Status.ProviderID).Label(karpv1.NodeRegisteredLabelKey, "true").Obj()
		c.Status.NodeName = n.Name
		b.cluster.Put(n)
	}
	if err := b.api.Status().Update(b.t.Context(), c); err != nil {
		b.t.Fatal(err)
	}
	b.onClaim(b.ctx, c, false)
	return c
}

// pod is a pending pod whose UID is its name.
func pod(name, cpu string) *corev1.Pod {
	return builder.Pod(name).UID(name).CPU(cpu).Memory("1Gi").Created(builder.Epoch()).Obj()
}
