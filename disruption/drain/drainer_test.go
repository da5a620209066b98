// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/test/builder"
)

// recorder keeps events as "kind/name reason: note".
type recorder struct {
	mu     sync.Mutex
	events []string
}

func (r *recorder) Eventf(on, _ runtime.Object, _, reason, _, note string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	name := ""
	if o, ok := on.(client.Object); ok {
		name = o.GetName()
	}
	r.events = append(r.events, fmt.Sprintf("%s %s: %s", name, reason, fmt.Sprintf(note, args...)))
}

func (r *recorder) has(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, e := range r.events {
		if strings.HasPrefix(e, prefix) {
			n++
		}
	}
	return n
}

// rig is a drainer over a fake API server.
type rig struct {
	*Drainer
	t      *testing.T
	kube   client.Client
	clock  *clocktesting.FakeClock
	events *recorder
	node   *corev1.Node
	claim  *karpv1.NodeClaim

	mu sync.Mutex
	// refuse is the API server's answer to evictions of a pod, evicted those it agreed to, asked those it was asked for;
	// trials are dry runs.
	refuse                 map[string]error
	evicted, asked, trials []string
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{
		t: t, clock: clocktesting.NewFakeClock(epoch), events: &recorder{}, refuse: map[string]error{},
		node:  builder.Node("node").UID("node-uid").Obj(),
		claim: builder.NodeClaim("claim").UID("claim-uid").Obj(),
	}
	b := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&karpv1.NodeClaim{}).
		WithIndex(&storagev1.VolumeAttachment{}, fieldAttachmentNode, AttachmentNode).
		WithIndex(&corev1.Pod{}, fieldPodController, PodController)
	for _, i := range claim.Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	r.kube = b.WithInterceptorFuncs(interceptor.Funcs{SubResourceCreate: r.answer, SubResourcePatch: patchStatus}).Build()
	r.Drainer = New(Options{Kube: r.kube, Events: r.events, Clock: r.clock})
	return r
}

// patchStatus does what the fake API server does not: the real one takes a pod's labels and annotations by its status too.
func patchStatus(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if _, pod := o.(*corev1.Pod); pod && sub == "status" {
		return c.Patch(ctx, o, p)
	}
	return c.SubResource(sub).Patch(ctx, o, p, opts...)
}

// answer is the eviction API.
func (r *rig) answer(ctx context.Context, c client.Client, sub string, o, body client.Object, opts ...client.SubResourceCreateOption) error {
	e, ok := body.(*policyv1.Eviction)
	if !ok || sub != "eviction" {
		return c.SubResource(sub).Create(ctx, o, body, opts...)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	trial := len(e.DeleteOptions.DryRun) > 0
	if trial {
		r.trials = append(r.trials, o.GetName())
	} else {
		r.asked = append(r.asked, o.GetName())
	}
	if err := r.refuse[o.GetName()]; err != nil || trial {
		return err
	}
	r.evicted = append(r.evicted, o.GetName())
	return c.SubResource(sub).Create(ctx, o, body, opts...)
}

func (r *rig) ctx() context.Context { return logr.NewContext(r.t.Context(), logr.Discard()) }

// drain asks once.
func (r *rig) drain(deadline *time.Time) claim.Drainage {
	r.t.Helper()
	out, err := r.Drain(r.ctx(), r.claim, r.node, deadline)
	if err != nil {
		r.t.Fatal(err)
	}
	return out
}

// expect compares what was evicted since it was asked last.
func (r *rig) expect(want ...string) {
	r.t.Helper()
	slices.Sort(r.evicted)
	if d := cmp.Diff(want, r.evicted); d != "" {
		r.t.Errorf("evicted (-want +got):\n%s", d)
	}
	r.evicted = nil
}

var tooMany = apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)

func TestDrainEndsAndRefusalsHoldUpNobody(t *testing.T) {
	r := newRig(t, pod("web"), pod("api"), pod("db"), pod("daemon", owned("DaemonSet")))
	r.refuse["db"] = apierrors.NewInternalError(errors.New("this pod has more than one PodDisruptionBudget"))
	got := r.drain(nil)
	r.expect("api", "web")
	if got.Left != 4 || got.Blocker != "EvictionRefused" || !strings.Contains(got.Message, "more than one PodDisruptionBudget") || !strings.Contains(got.Message, `"default/db"`) {
		t.Errorf("drainage is %+v", got)
	}
	// Refused again and again: asked at most every ten seconds, and the message keeps saying since when.
	for range 300 {
		r.clock.Step(time.Second)
		got = r.drain(nil)
	}
	if n := len(r.asked); n < 30 || n > 40 {
		t.Errorf("the API server was asked %d times in 300 s, want about 30 and never more often than every ten seconds for long", n)
	}
	if !strings.Contains(got.Message, "since "+epoch.Format(time.RFC3339)) {
		t.Errorf("the message does not say since when: %q", got.Message)
	}
	if n := r.events.has("node FailedDraining"); n < 2 || n > 4 {
		t.Errorf("%d events in 300 s", n)
	}
	delete(r.refuse, "db")
	r.clock.Step(10 * time.Second)
	r.drain(nil)
	r.expect("db")
	r.drain(nil)
	r.expect("daemon")
	if got := r.drain(nil); got.Left != 0 || got.Blocker != "" {
		t.Errorf("at the end there is %+v", got)
	}
}

func TestDrainWithTwoBudgets(t *testing.T) {
	r := newRig(t, pod("web"), pod("two", app("two")), pdb("first", "two", 3, 3, 0), pdb("second", "two", 3, 3, 0))
	for range 20 {
		r.drain(nil)
		r.clock.Step(time.Second)
	}
	if d := cmp.Diff([]string{"web"}, r.asked); d != "" {
		t.Errorf("asked for (-want +got):\n%s", d)
	}
	got := r.drain(nil)
	for _, want := range []string{`"first"`, `"second"`, `"default/two"`} {
		if !strings.Contains(got.Message, want) {
			t.Errorf("the message %q lacks %s", got.Message, want)
		}
	}
	if got.Blocker != string(MultipleBudgets) || got.Again != againBlocked {
		t.Errorf("drainage is %+v", got)
	}
	deadline := r.clock.Now().Add(10 * time.Second)
	r.drain(&deadline) // the pod's 30 s are longer than that
	if got := r.drain(&deadline); got.Left != 0 {
		t.Errorf("after the deadline there is %+v", got)
	}
	if r.events.has("two Disrupted") != 1 {
		t.Errorf("events %v", r.events.events)
	}
}

// A pod with an hour to stop, or one with somebody's finalizer, is named with since when and until when: nothing is refused, and the drain
// waits all the same.
func TestLongTerminationIsSaid(t *testing.T) {
	slow := pod("slow", deleted(epoch.Add(time.Hour)))
	slow.DeletionGracePeriodSeconds, slow.Finalizers = new(int64(3600)), []string{"example.com/flush"}
	r := newRig(t, slow)
	if got := r.drain(nil); got.Left != 1 || got.Message != "" {
		t.Errorf("at once the drainage is %+v, want no message", got)
	}
	r.clock.Step(2 * time.Minute)
	got := r.drain(nil)
	want := fmt.Sprintf(`pod "default/slow" has been terminating since %s and has until %s (finalizers [example.com/flush])`,
		epoch.Format(time.RFC3339), epoch.Add(time.Hour).Format(time.RFC3339))
	if got.Blocker != "" || got.Message != want {
		t.Errorf("blocker %q, message %q, want none and %q", got.Blocker, got.Message, want)
	}
}

func TestBlockedSinceSurvivesRestart(t *testing.T) {
	r := newRig(t, pod("web", annotated("karpenter.sh/do-not-disrupt", "true")))
	r.claim.StatusConditions().SetFalse(karpv1.ConditionTypeDrained, "DoNotDisrupt", "x")
	since := r.claim.StatusConditions().Get(karpv1.ConditionTypeDrained).LastTransitionTime
	if got := r.drain(nil); !strings.Contains(got.Message, since.UTC().Format(time.RFC3339)) {
		t.Errorf("message %q, want it to say since %s", got.Message, since)
	}
}

func TestDrainWaitsForReplacement(t *testing.T) {
	replacement := builder.NodeClaim("next").Created(epoch).Obj()
	r := newRig(t, pod("web"), replacement)
	r.claim.Annotations = map[string]string{capacity.ReplacedByAnnotation: "next,gone"}
	r.claim.DeletionTimestamp = &metav1.Time{Time: epoch.Add(-time.Minute)}
	deadline := epoch.Add(2 * time.Minute)
	if got := r.drain(&deadline); got.Blocker != string(Replacement) || !strings.Contains(got.Message, "next") || strings.Contains(got.Message, "gone") {
		t.Errorf("drainage is %+v", got)
	}
	r.expect()
	replacement = builder.NodeClaim("next").Initialized().Obj()
	current := &karpv1.NodeClaim{}
	if err := r.kube.Get(r.ctx(), client.ObjectKey{Name: "next"}, current); err != nil {
		t.Fatal(err)
	}
	current.Status = replacement.Status
	if err := r.kube.Status().Update(r.ctx(), current); err != nil {
		t.Fatal(err)
	}
	r.drain(&deadline)
	r.expect("web")
}

// A replacement that joins and never becomes usable is not waited for without end, whether or not the node has one.
func TestReplacementThatIsNeverInitialized(t *testing.T) {
	r := newRig(t, pod("web"), builder.NodeClaim("next").Created(epoch).Registered("next").Obj())
	r.claim.Annotations = map[string]string{capacity.ReplacedByAnnotation: "next"}
	r.claim.DeletionTimestamp = &metav1.Time{Time: epoch}
	r.clock.Step(20 * time.Minute)
	if got := r.drain(nil); got.Blocker != string(Replacement) {
		t.Errorf("drainage is %+v, want it to wait", got)
	}
	r.clock.Step(time.Second)
	r.drain(nil)
	r.expect("web")
}

func TestNotes(t *testing.T) {
	stuck := pod("stuck", deleted(epoch.Add(-2*time.Minute)))
	stuck.Finalizers = []string{"example.com/held"}
	r := newRig(t, stuck, pod("odd", annotated("karpenter.sh/do-not-disrupt", "tomorrow")))
	r.drain(nil)
	r.drain(nil)
	r.expect("odd")
	if r.events.has("node FailedDraining: Pod \"default/stuck\" is left behind") != 1 || r.events.has("odd InvalidDoNotDisruptAnnotation") != 1 {
		t.Errorf("events %v", r.events.events)
	}
}

func TestAttached(t *testing.T) {
	volume := func(name string) *storagev1.VolumeAttachment {
		return &storagev1.VolumeAttachment{
			ObjectMeta: metav1.ObjectMeta{Name: "attachment-" + name},
			Spec:       storagev1.VolumeAttachmentSpec{NodeName: "node", Attacher: "ebs", Source: storagev1.VolumeAttachmentSource{PersistentVolumeName: &name}},
		}
	}
	pvc := func(name, volume string) *corev1.PersistentVolumeClaim {
		return &corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"}, Spec: corev1.PersistentVolumeClaimSpec{VolumeName: volume}}
	}
	mounting := func(claim string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = []corev1.Volume{{Name: "v", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim}}}}
		}
	}
	ephemeral := func(p *corev1.Pod) {
		p.Spec.Volumes = []corev1.Volume{{Name: "e", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}}}
	}
	elsewhere := volume("pv-other")
	elsewhere.Spec.NodeName = "other"
	hung := pod("hung", deleted(epoch.Add(-time.Hour)), mounting("stuck"))
	hung.Finalizers = []string{"example.com/held"}
	stays := tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})
	r := newRig(t, volume("pv-left"), volume("pv-kept"), volume("pv-stuck"), volume("pv-done"), volume("pv-own"), elsewhere,
		pvc("kept", "pv-kept"), pvc("stuck", "pv-stuck"), pvc("done", "pv-done"), pvc("agent-e", "pv-own"),
		pod("storage", stays, mounting("kept")), pod("agent", stays, ephemeral), pod("done", phase(corev1.PodSucceeded), mounting("done")), hung)
	got, err := r.Attached(r.ctx(), r.node)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"attachment-pv-done", "attachment-pv-left"}, got); d != "" {
		t.Errorf("attached (-want +got):\n%s", d)
	}
}
