// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	stdcmp "cmp"
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
	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// queue delivers what is put into it and notes what is deleted.
type queue struct {
	in chan []ec2.Message

	mu      sync.Mutex
	deleted []string
}

func (q *queue) Receive(ctx context.Context) ([]ec2.Message, error) {
	select {
	case m := <-q.in:
		return m, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (q *queue) Delete(_ context.Context, receipts []string) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.deleted = append(q.deleted, receipts...)
	slices.Sort(q.deleted)
	return nil
}

type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Eventf(o, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	kind := "node"
	if _, ok := o.(*karpv1.NodeClaim); ok {
		kind = "claim"
	}
	e.reasons = append(e.reasons, reason+" "+kind)
	slices.Sort(e.reasons)
}

// rig is a consumer over a fake API server and queue. It has the pool "default" and whatever else it is given.
type rig struct {
	t      *testing.T
	kube   client.Client
	queue  *queue
	events *events
	*Reactor
	stop func()

	mu     sync.Mutex
	writes []string
	fail   func(o client.Object) error // in place of a creation
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{t: t, queue: &queue{in: make(chan []ec2.Message)}, events: &events{}}
	if !slices.ContainsFunc(objects, func(o client.Object) bool { return o.GetName() == "default" }) {
		objects = append(objects, builder.NodePool("default").Obj())
	}
	note := func(verb string, o client.Object) {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.writes = append(r.writes, verb+" "+o.GetName())
	}
	r.kube = fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&karpv1.NodeClaim{}).
		WithIndex(&karpv1.NodeClaim{}, fieldInstanceID, InstanceIDOf).WithIndex(&karpv1.NodeClaim{}, fieldReplaces, ReplacedBy).
		WithIndex(&corev1.Pod{}, fieldPodNodeName, func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		WithInterceptorFuncs(interceptor.Funcs{
			Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
				if r.fail != nil {
					if err := r.fail(o); err != nil {
						return err
					}
				}
				note("create", o)
				return c.Create(ctx, o, opts...)
			},
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				note("patch", o)
				return c.Patch(ctx, o, p, opts...)
			},
			Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
				note("delete", o)
				return c.Delete(ctx, o, opts...)
			},
		}).Build()
	r.Reactor = New(Options{Kube: r.kube, Events: r.events})
	return r
}

// consume starts the consumer; call stop before the test ends.
func (r *rig) consume() {
	ctx, cancel := context.WithCancel(logr.NewContext(r.t.Context(), logr.Discard()))
	done := make(chan struct{})
	c := NewConsumer(r.Reactor, func(context.Context) (Queue, error) { return r.queue, nil })
	go func() {
		defer close(done)
		if err := c.Start(ctx); err != nil {
			r.t.Errorf("consumer ended: %v", err)
		}
	}()
	r.stop = func() { cancel(); <-done }
}

// send delivers bodies at once, with the delivery count, and waits until nothing happens any more.
func (r *rig) send(receives int, bodies ...string) {
	var messages []ec2.Message
	for i, b := range bodies {
		messages = append(messages, ec2.Message{ID: fmt.Sprint(i), Receipt: fmt.Sprintf("r%d", i), Body: b, Receives: receives})
	}
	r.queue.in <- messages
	time.Sleep(time.Second)
	synctest.Wait()
}

func warning(id string) string {
	return fmt.Sprintf(`{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","time":%q,"detail":{"instance-id":%q,"instance-action":"terminate"}}`,
		time.Now().UTC().Format(time.RFC3339), id)
}

// spot is a joined spot node with its claim; its pods are those of pod.
func spot(n int) (*karpv1.NodeClaim, *corev1.Node) {
	id := fmt.Sprintf("aws:///us-east-1a/i-%d", n)
	claim := builder.NodeClaim(fmt.Sprintf("claim-%d", n)).UID(fmt.Sprintf("uid-%d", n)).Pool("default").Label("team", "a").
		Label("karpenter.k8s.aws/ec2nodeclass", builder.DefaultClass).Annotation(karpv1.NodePoolHashAnnotationKey, "123").Annotation("note", "from the pool").Annotation("slipway.sh/node-name", "x").
		Require(builder.In(karpv1.CapacityTypeLabelKey, "spot", "on-demand")).Request("cpu", "7").
		Launched(id, "m5.large", "us-east-1a", "spot").Registered(fmt.Sprintf("node-%d", n)).
		Resource("cpu", "2").Resource("memory", "8Gi").Resource("pods", "29").Obj()
	claim.Finalizers = []string{karpv1.TerminationFinalizer}
	return claim, builder.Node(fmt.Sprintf("node-%d", n)).ProviderID(id).Obj()
}

func pod(node, name, cpu string) *builder.PodBuilder { return builder.Pod(name).On(node).CPU(cpu) }

func daemon(node, name string) *corev1.Pod {
	return pod(node, name, "100m").OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "ds", "uid").Obj()
}

// replacements are the claims that replace others.
func (r *rig) replacements() []karpv1.NodeClaim {
	var list karpv1.NodeClaimList
	if err := r.kube.List(r.t.Context(), &list); err != nil {
		r.t.Fatal(err)
	}
	return slices.DeleteFunc(list.Items, func(c karpv1.NodeClaim) bool { return c.Annotations[capacity.ReplacesAnnotation] == "" })
}

func (r *rig) get(name string) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{}
	if err := r.kube.Get(r.t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		r.t.Fatal(err)
	}
	return c
}

func TestSpotNoticeBuysFirstAndEndsThen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim, node := spot(1)
		r := newRig(t, claim, node, pod("node-1", "web", "1500m").Obj(), daemon("node-1", "agent"), pod("node-1", "done", "1").Phase(corev1.PodSucceeded).Obj())
		r.consume()
		defer r.stop()
		r.send(1, warning("i-1"))

		made := r.replacements()
		if len(made) != 1 {
			t.Fatalf("%d replacements, want 1", len(made))
		}
		c := made[0]
		if d := cmp.Diff([]string{"create " + c.Name, "patch claim-1", "delete claim-1"}, r.writes); d != "" {
			t.Errorf("writes (-want +got):\n%s", d)
		}
		wantLabels := map[string]string{karpv1.NodePoolLabelKey: "default", "team": "a", "karpenter.k8s.aws/ec2nodeclass": builder.DefaultClass}
		if d := cmp.Diff(wantLabels, c.Labels); d != "" {
			t.Errorf("labels (-want +got):\n%s", d)
		}
		wantAnnotations := map[string]string{
			karpv1.NodePoolHashAnnotationKey: "123", "note": "from the pool", capacity.ReplacesAnnotation: "claim-1", capacity.AvoidAnnotation: "m5.large/us-east-1a/spot",
		}
		if d := cmp.Diff(wantAnnotations, c.Annotations); d != "" {
			t.Errorf("annotations (-want +got):\n%s", d)
		}
		if d := cmp.Diff(claim.Spec.Requirements, c.Spec.Requirements); d != "" {
			t.Errorf("requirements (-want +got):\n%s", d)
		}
		if cpu, n := c.Spec.Resources.Requests[corev1.ResourceCPU], c.Spec.Resources.Requests[corev1.ResourcePods]; cpu.String() != "1600m" || n.String() != "2" {
			t.Errorf("requests are %s cpu and %s pods, want those of the pods that run: 1600m and 2", cpu.String(), n.String())
		}
		if c.Status.ProviderID != "" || !slices.Contains(c.Finalizers, karpv1.TerminationFinalizer) {
			t.Errorf("provider id is %q, finalizers are %v", c.Status.ProviderID, c.Finalizers)
		}
		words := r.get("claim-1").Annotations
		if words[capacity.ReplacedByAnnotation] != c.Name || words[capacity.InterruptedAnnotation] != "spot_interrupted" {
			t.Errorf("annotations of the interrupted claim are %v", words)
		}
		if at, err := time.Parse(time.RFC3339, words[karpv1.NodeClaimTerminationTimestampAnnotationKey]); err != nil || time.Until(at) > 2*time.Minute || time.Until(at) < 118*time.Second-time.Second {
			t.Errorf("the termination time is %s, want two minutes after the notice (error %v)", at, err)
		}
		wantEvents := []string{"SpotInterrupted claim", "SpotInterrupted node", "TerminatingOnInterruption claim", "TerminatingOnInterruption node"}
		if d := cmp.Diff(wantEvents, r.events.reasons); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		if d := cmp.Diff([]string{"r0"}, r.queue.deleted); d != "" {
			t.Errorf("deleted messages (-want +got):\n%s", d)
		}

		// The same notice again, twice at once, and once more after a restart: nothing more happens.
		r.send(2, warning("i-1"), warning("i-1"))
		again := New(Options{Kube: r.kube, Events: r.events})
		if _, err := again.react(logr.NewContext(t.Context(), logr.Discard()), notice{kind: SpotInterrupted, instances: []string{"i-1"}}); err != nil {
			t.Error(err)
		}
		if n := len(r.replacements()); n != 1 || len(r.writes) != 3 {
			t.Errorf("%d replacements and writes %v after the notice was repeated", n, r.writes)
		}
	})
}

func TestReplacementSurvivesACrashBeforeTheEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim, node := spot(1)
		r := newRig(t, claim, node, pod("node-1", "web", "1").Obj())
		ctx := logr.NewContext(t.Context(), logr.Discard())
		names, err := r.buyer.replace(ctx, SpotInterrupted, claim, node)
		if err != nil || len(names) != 1 {
			t.Fatalf("replacements %q, error %v", names, err)
		}
		// The process dies here; the next one gets the notice again.
		again := New(Options{Kube: r.kube, Events: r.events})
		if _, err := again.react(ctx, notice{kind: SpotInterrupted, instances: []string{"i-1"}}); err != nil {
			t.Fatal(err)
		}
		if n := len(r.replacements()); n != 1 {
			t.Errorf("%d replacements, want 1", n)
		}
		if r.get("claim-1").DeletionTimestamp == nil {
			t.Error("the interrupted claim is not deleted")
		}
	})
}

func TestNoticesTogetherArePackedTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []client.Object
		var bodies []string
		for n := range 10 { // nodes of two CPUs, half empty: five hold what is on them
			claim, node := spot(n)
			objects = append(objects, claim, node, pod(node.Name, fmt.Sprintf("web-%d", n), "900m").Obj(), daemon(node.Name, fmt.Sprintf("agent-%d", n)))
			bodies = append(bodies, warning(fmt.Sprintf("i-%d", n)))
		}
		r := newRig(t, objects...)
		r.consume()
		defer r.stop()
		r.send(1, bodies...)
		groups, replaced := map[string]bool{}, map[string]string{}
		made := r.replacements()
		for _, c := range made {
			groups[c.Annotations[capacity.LaunchGroupAnnotation]+" of "+c.Annotations[capacity.LaunchGroupSizeAnnotation]] = true
			for old := range strings.SplitSeq(c.Annotations[capacity.ReplacesAnnotation], ",") {
				replaced[old] = c.Name
			}
			if cpu := c.Spec.Resources.Requests[corev1.ResourceCPU]; cpu.String() != "1900m" {
				t.Errorf("a replacement asks for %s cpu, want 1900m", cpu.String())
			}
		}
		if len(made) != 5 || len(groups) != 1 || len(replaced) != 10 {
			t.Errorf("%d replacements in launches %v for %d nodes, want 5 in one for 10", len(made), groups, len(replaced))
		}
		for old, name := range replaced {
			if got := r.get(old).Annotations[capacity.ReplacedByAnnotation]; got != name {
				t.Errorf("%s says that it is replaced by %q, want %q", old, got, name)
			}
		}
	})
}

// TestStormsKeepToTheCallsThereAre sends notices for a long time and counts launches.
func TestStormsKeepToTheCallsThereAre(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var objects []client.Object
		const n = 200
		for i := range n {
			claim, node := spot(i)
			objects = append(objects, claim, node, pod(node.Name, fmt.Sprintf("web-%d", i), "1500m").Obj())
		}
		r := newRig(t, objects...)
		ctx := logr.NewContext(t.Context(), logr.Discard())
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if _, err := r.react(ctx, notice{kind: SpotInterrupted, instances: []string{fmt.Sprintf("i-%d", i)}}); err != nil {
					t.Error(err)
				}
			})
			time.Sleep(50 * time.Millisecond)
		}
		wg.Wait()
		launches := map[string]bool{}
		for _, c := range r.replacements() {
			launches[stdcmp.Or(c.Annotations[capacity.LaunchGroupAnnotation], c.Name)] = true
		}
		if got := len(launches); got < 40 || got > calls+10*callsPerSecond+2 {
			t.Errorf("%d launches in 10 s, want no more than EC2 takes", got)
		}
	})
}

func TestReactionsByKind(t *testing.T) {
	claim, node := spot(1)
	web := pod("node-1", "web", "1").Obj()
	unjoined := claim.DeepCopy()
	unjoined.Status.NodeName = ""
	rebalance := claim.DeepCopy()
	rebalance.Annotations[OnRebalanceAnnotation] = "replace"
	foreign := claim.DeepCopy()
	foreign.Spec.NodeClassRef.Group = "example.com"
	tests := []struct {
		name       string
		kind       Kind
		objects    []client.Object
		wantWrites []string
		wantEvents []string
		wantResult string
		wantAvoid  bool // on the interrupted claim
		wantEnd    bool // a termination time
	}{
		{
			name: "only daemonset pods", kind: SpotInterrupted, objects: []client.Object{claim, node, daemon("node-1", "agent")},
			wantWrites: []string{"patch claim-1", "delete claim-1"}, wantEvents: []string{"SpotInterrupted", "TerminatingOnInterruption"}, wantResult: nothingOnIt, wantAvoid: true, wantEnd: true,
		},
		{
			name: "never joined", kind: SpotInterrupted, objects: []client.Object{unjoined},
			wantWrites: []string{"patch claim-1", "delete claim-1"}, wantEvents: []string{"SpotInterrupted", "TerminatingOnInterruption"}, wantResult: notJoined, wantAvoid: true, wantEnd: true,
		},
		{
			name: "rebalance recommendation is told", kind: RebalanceRecommended, objects: []client.Object{claim, node, web},
			wantEvents: []string{"SpotRebalanceRecommendation"},
		},
		{
			name: "rebalance recommendation is followed where the pool says so", kind: RebalanceRecommended, objects: []client.Object{rebalance, node, web},
			wantWrites: []string{"create", "patch claim-1", "delete claim-1"}, wantEvents: []string{"SpotRebalanceRecommendation", "TerminatingOnInterruption"}, wantResult: "bought",
		},
		{
			name: "scheduled change", kind: ScheduledChange, objects: []client.Object{claim, node, web},
			wantWrites: []string{"create", "patch claim-1", "delete claim-1"}, wantEvents: []string{"InstanceUnhealthy", "TerminatingOnInterruption"}, wantResult: "bought",
		},
		{
			name: "stopped", kind: InstanceStopped, objects: []client.Object{claim, node, web},
			wantWrites: []string{"create", "patch claim-1", "delete claim-1"}, wantEvents: []string{"InstanceStopping", "TerminatingOnInterruption"}, wantResult: "bought",
		},
		{
			name: "terminated", kind: InstanceTerminated, objects: []client.Object{claim, node, web},
			wantWrites: []string{"create", "patch claim-1", "delete claim-1"}, wantEvents: []string{"InstanceTerminating", "TerminatingOnInterruption"}, wantResult: "bought",
		},
		{
			name: "a failing machine is not drained", kind: SystemStatus, objects: []client.Object{claim, node, web},
			wantWrites: []string{"create", "patch claim-1", "delete claim-1"}, wantEvents: []string{"InstanceUnhealthy", "TerminatingOnInterruption"}, wantResult: "bought", wantEnd: true,
		},
		{name: "another provider's claim", kind: SpotInterrupted, objects: []client.Object{foreign, node, web}},
		{name: "nobody's instance", kind: SpotInterrupted},
		{
			name: "pool without room for both", kind: SpotInterrupted, objects: []client.Object{claim, node, web, builder.NodePool("default").Limit("cpu", "3").Obj()},
			wantWrites: []string{"patch claim-1", "delete claim-1"}, wantEvents: []string{"SpotInterrupted", "TerminatingOnInterruption"}, wantResult: atLimit, wantAvoid: true, wantEnd: true,
		},
		{
			name: "pool without room for another node", kind: SpotInterrupted, objects: []client.Object{claim, node, web, builder.NodePool("default").Limit("nodes", "1").Obj()},
			wantWrites: []string{"patch claim-1", "delete claim-1"}, wantEvents: []string{"SpotInterrupted", "TerminatingOnInterruption"}, wantResult: atLimit, wantAvoid: true, wantEnd: true,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []client.Object
				for _, o := range tc.objects {
					objects = append(objects, o.DeepCopyObject().(client.Object))
				}
				r := newRig(t, objects...)
				ours, err := r.react(logr.NewContext(t.Context(), logr.Discard()), notice{kind: tc.kind, instances: []string{"i-1"}})
				if err != nil {
					t.Fatal(err)
				}
				if ours != (len(tc.wantEvents) > 0) {
					t.Errorf("ours is %v", ours)
				}
				var writes []string
				for _, w := range r.writes {
					if strings.HasPrefix(w, "create ") {
						w = "create"
					}
					writes = append(writes, w)
				}
				if d := cmp.Diff(tc.wantWrites, writes); d != "" {
					t.Errorf("writes (-want +got):\n%s", d)
				}
				var reasons []string
				for _, e := range r.events.reasons {
					if reason, ok := strings.CutSuffix(e, " claim"); ok {
						reasons = append(reasons, reason)
					}
				}
				if d := cmp.Diff(tc.wantEvents, reasons); d != "" {
					t.Errorf("events (-want +got):\n%s", d)
				}
				if tc.wantResult != "" && testutil.ToFloat64(r.Metrics.Replacements.WithLabelValues(tc.wantResult)) != 1 {
					t.Errorf("no replacement counted as %q", tc.wantResult)
				}
				if len(tc.objects) == 0 {
					return
				}
				c := r.get("claim-1")
				if got := c.Annotations[capacity.AvoidAnnotation] != ""; got != tc.wantAvoid {
					t.Errorf("the claim says which offering is spent: %v, want %v", got, tc.wantAvoid)
				}
				if got := c.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey] != ""; got != tc.wantEnd {
					t.Errorf("the claim has a termination time: %v, want %v", got, tc.wantEnd)
				}
			})
		})
	}
}

func TestReplacementsStayInsideLimits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := []client.Object{builder.NodePool("default").Limit("cpu", "9").Limit("memory", "1Ti").Obj()}
		var bodies []string
		for n := range 3 { // 6 CPUs in use: one replacement of 2 fits, two do not
			claim, node := spot(n)
			claim.Labels["karpenter.k8s.aws/instance-cpu"], claim.Labels["karpenter.k8s.aws/instance-memory"] = "2", "8192"
			objects = append(objects, claim, node, pod(node.Name, fmt.Sprintf("web-%d", n), "1").Obj())
			bodies = append(bodies, warning(fmt.Sprintf("i-%d", n)))
		}
		r := newRig(t, objects...)
		r.consume()
		defer r.stop()
		r.send(1, bodies...)
		made := r.replacements()
		if len(made) != 1 {
			t.Fatalf("%d replacements, want the one that fits", len(made))
		}
		var narrowed []string
		for _, q := range made[0].Spec.Requirements {
			if q.Operator == corev1.NodeSelectorOpLt {
				narrowed = append(narrowed, q.Key+" < "+q.Values[0])
			}
		}
		slices.Sort(narrowed)
		want := []string{"karpenter.k8s.aws/instance-cpu < 3", "karpenter.k8s.aws/instance-memory < 8193"}
		if d := cmp.Diff(want, narrowed); d != "" {
			t.Errorf("the replacement may be larger than what it replaces (-want +got):\n%s", d)
		}
	})
}

func TestMessagesThatCannotBeDealtWith(t *testing.T) {
	tests := []struct {
		name        string
		body        string // "" is a warning about i-1
		age         time.Duration
		receives    int
		fail        bool
		wantDeleted bool
		wantDropped string
	}{
		{name: "malformed, first delivery", body: "hello", receives: 1},
		{name: "malformed, third delivery", body: "hello", receives: 3, wantDeleted: true, wantDropped: "malformed"},
		{name: "about the past", age: 11 * time.Minute, receives: 1, wantDeleted: true, wantDropped: "stale"},
		{name: "foreign", body: warning("i-9"), receives: 1, wantDeleted: true},
		{name: "failing, second delivery", receives: 2, fail: true},
		{name: "failing, tenth delivery", receives: 10, fail: true, wantDeleted: true, wantDropped: "failing"},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				claim, node := spot(1)
				r := newRig(t, claim, node)
				if tc.fail { // the API server lists nothing
					r.Kube = interceptor.NewClient(r.kube.(client.WithWatch), interceptor.Funcs{
						List: func(context.Context, client.WithWatch, client.ObjectList, ...client.ListOption) error {
							return errors.New("away")
						},
					})
				}
				body := tc.body
				if body == "" {
					body = warning("i-1")
				}
				time.Sleep(tc.age)
				r.consume()
				defer r.stop()
				r.send(tc.receives, body)
				if got := len(r.queue.deleted) == 1; got != tc.wantDeleted {
					t.Errorf("deleted is %v, want %v", got, tc.wantDeleted)
				}
				if tc.wantDropped != "" && testutil.ToFloat64(r.Metrics.Dropped.WithLabelValues(tc.wantDropped)) != 1 {
					t.Errorf("not counted as %q", tc.wantDropped)
				}
				if n := len(r.writes); n != 0 {
					t.Errorf("writes %v", r.writes)
				}
			})
		})
	}
}

// A replacement that cannot be written does not keep the node from being drained.
// What is still being dealt with keeps no message in the queue, not even when each came alone.
func TestMessagesWaitForNoOther(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim, node := spot(1)
		r := newRig(t, claim, node, pod(node.Name, "web", "1").Obj())
		written := make(chan struct{})
		r.fail = func(client.Object) error { <-written; return nil }
		r.consume()
		const n = 2000
		for i := range n { // the same notice again and again: all wait for the outcome of the first
			select {
			case r.queue.in <- []ec2.Message{{ID: fmt.Sprint(i), Receipt: fmt.Sprint(i), Body: warning("i-1"), Receives: 1}}:
			case <-time.After(time.Minute):
				close(written)
				t.Fatalf("message %d is not received while %d are being dealt with", i+1, i)
			}
		}
		close(written)
		time.Sleep(time.Minute)
		synctest.Wait()
		r.stop()
		if got := len(r.queue.deleted); got != n {
			t.Errorf("%d of %d messages are deleted", got, n)
		}
	})
}

func TestFailedReplacementStillEndsTheNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		claim, node := spot(1)
		r := newRig(t, claim, node, pod("node-1", "web", "1").Obj())
		r.fail = func(client.Object) error { return errors.New("quota") }
		if _, err := r.react(logr.NewContext(t.Context(), logr.Discard()), notice{kind: SpotInterrupted, instances: []string{"i-1"}}); err != nil {
			t.Fatal(err)
		}
		if r.get("claim-1").DeletionTimestamp == nil {
			t.Error("the interrupted claim is not deleted")
		}
		if testutil.ToFloat64(r.Metrics.Replacements.WithLabelValues("failed")) != 1 {
			t.Error("the failure is not counted")
		}
	})
}

func TestPoll(t *testing.T) {
	now := time.Now()
	claim, node := spot(1)
	r := newRig(t, claim, node)
	reader := statusReader{
		{ID: "i-1", System: now.Add(-3 * time.Minute)},
		{ID: "i-9", Event: "instance-stop"}, // not ours
	}
	p := NewPoller(r.Reactor, reader)
	for range 2 {
		if err := p.poll(logr.NewContext(t.Context(), logr.Discard())); err != nil {
			t.Fatal(err)
		}
	}
	if r.get("claim-1").DeletionTimestamp == nil {
		t.Error("the claim of the failing instance is not deleted")
	}
	if got := testutil.ToFloat64(r.Metrics.Unhealthy.WithLabelValues("SystemStatus")); got != 1 {
		t.Errorf("%g instances counted as failing, want 1", got)
	}
	if got := testutil.ToFloat64(r.Metrics.Unhealthy.WithLabelValues("EventStatus")); got != 0 {
		t.Errorf("%g foreign instances counted", got)
	}
}

// What one cause hits is replaced together, whether EC2's status or one message tells of it.
func TestOneCauseIsAnsweredOnce(t *testing.T) {
	for name, tell := range map[string]func(*rig, context.Context) error{
		"status": func(r *rig, ctx context.Context) error {
			var troubles statusReader
			for n := range 10 {
				troubles = append(troubles, ec2.InstanceTrouble{ID: fmt.Sprintf("i-%d", n), System: time.Now().Add(-time.Hour)})
			}
			return NewPoller(r.Reactor, troubles).poll(ctx)
		},
		"health event": func(r *rig, ctx context.Context) error {
			n := notice{kind: ScheduledChange}
			for i := range 10 {
				n.instances = append(n.instances, fmt.Sprintf("i-%d", i))
			}
			_, err := r.react(ctx, n)
			return err
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var objects []client.Object
				for n := range 10 {
					claim, node := spot(n)
					objects = append(objects, claim, node, pod(node.Name, fmt.Sprintf("web-%d", n), "900m").Obj())
				}
				r := newRig(t, objects...)
				if err := tell(r, logr.NewContext(t.Context(), logr.Discard())); err != nil {
					t.Fatal(err)
				}
				if made := r.replacements(); len(made) != 5 {
					t.Errorf("%d replacements for ten half empty nodes, want 5", len(made))
				}
			})
		})
	}
}

type statusReader []ec2.InstanceTrouble

func (s statusReader) InstancesInTrouble(context.Context) ([]ec2.InstanceTrouble, error) {
	return s, nil
}

func TestJudge(t *testing.T) {
	now := time.Now()
	tests := []struct {
		name string
		in   ec2.InstanceTrouble
		want Kind
	}{
		{"checks flap", ec2.InstanceTrouble{Instance: now.Add(-time.Minute)}, None},
		{"instance check fails", ec2.InstanceTrouble{Instance: now.Add(-2 * time.Minute)}, InstanceStatus},
		{"host check fails", ec2.InstanceTrouble{System: now.Add(-time.Hour)}, SystemStatus},
		{"scheduled event", ec2.InstanceTrouble{Event: "instance-retirement"}, EventStatus},
		{"a failing check outweighs an event", ec2.InstanceTrouble{System: now.Add(-time.Hour), Event: "instance-stop"}, SystemStatus},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			if got, _ := judge(tc.in, now); got != tc.want {
				t.Errorf("got %q, want %q", got, tc.want)
			}
		})
	}
}
