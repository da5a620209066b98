// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/consolidation/sim"
	"github.com/slipway-sh/slipway/test/builder"
)

// rig is a simulated cluster of one on-demand pool.
type rig struct {
	*sim.Cluster
	t *testing.T
}

func newRig(t *testing.T, change func(*builder.NodePoolBuilder)) *rig {
	log.SetLogger(logr.Discard())
	b := builder.NodePool("p").UID("uid-p").Require(builder.In(karpv1.CapacityTypeLabelKey, "on-demand"))
	if change != nil {
		change(b)
	}
	np := b.Obj()
	if len(np.Spec.Disruption.Budgets) == 0 {
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
	}
	return &rig{Cluster: sim.New(market(), np), t: t}
}

func (r *rig) node(name, typ string) {
	r.t.Helper()
	if _, err := r.Node(r.t.Context(), name, "p", typ); err != nil {
		r.t.Fatal(err)
	}
}

// pod runs a pod on a node.
func (r *rig) pod(name, node, cpu string, change ...func(*corev1.Pod)) {
	r.t.Helper()
	p := builder.Pod(name).UID("uid-"+name).CPU(cpu).Label("app", "a").Phase(corev1.PodRunning).Obj()
	p.Spec.NodeName = "node-" + node
	for _, f := range change {
		f(p)
	}
	if err := r.Kube.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
}

func (r *rig) pass() {
	r.t.Helper()
	if err := r.Pass(r.t.Context()); err != nil {
		r.t.Fatal(err)
	}
}

// run makes a pass every ten seconds.
func (r *rig) run(d time.Duration) { r.runEvery(d, 10*time.Second) }

func (r *rig) runEvery(d, every time.Duration) {
	r.t.Helper()
	for ; d > 0; d -= every {
		r.pass()
		if err := r.Step(r.t.Context(), every); err != nil {
			r.t.Fatal(err)
		}
	}
}

// claim reads a claim, nil if it is gone.
func (r *rig) claim(name string) *karpv1.NodeClaim {
	r.t.Helper()
	c := &karpv1.NodeClaim{}
	if err := r.Kube.Get(r.t.Context(), client.ObjectKey{Name: name}, c); client.IgnoreNotFound(err) != nil {
		r.t.Fatal(err)
	} else if err != nil {
		return nil
	}
	return c
}

func (r *rig) tainted(name string) bool {
	r.t.Helper()
	n := &corev1.Node{}
	if err := r.Kube.Get(r.t.Context(), client.ObjectKey{Name: "node-" + name}, n); err != nil {
		r.t.Fatal(err)
	}
	return slices.ContainsFunc(n.Spec.Taints, func(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) })
}

// untouched fails the test unless the node is as if nothing had been begun.
func (r *rig) untouched(name string) {
	r.t.Helper()
	c := r.claim(name)
	if c == nil || c.DeletionTimestamp != nil {
		r.t.Fatalf("claim %s is going", name)
	}
	if c.Annotations[disruption.RecordAnnotation] != "" || c.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason) != nil || r.tainted(name) {
		r.t.Errorf("claim %s: record %q, DisruptionReason %v, tainted %v, want none of it", name, c.Annotations[disruption.RecordAnnotation],
			c.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason), r.tainted(name))
	}
}

// heard reports whether an event with the reason was written on the object, with the text in it.
func (r *rig) heard(object, reason, text string) bool {
	return slices.ContainsFunc(r.Said, func(e sim.Event) bool {
		return e.Object == object && e.Reason == reason && strings.Contains(e.Note, text)
	})
}

// replacement is the claim bought for another.
func (r *rig) replacement(of string) *karpv1.NodeClaim {
	r.t.Helper()
	list, err := r.Claims(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	for i := range list {
		if slices.Contains(strings.Split(list[i].Annotations[capacity.ReplacesAnnotation], ","), of) {
			return &list[i]
		}
	}
	return nil
}

func TestEmptyNodeGoes(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.large")
	r.node("b", "m5.large")
	r.pod("app", "b", "1")
	r.pass()
	c := r.claim("a")
	if c.DeletionTimestamp == nil || !r.tainted("a") {
		t.Fatalf("claim a: deleted %v, tainted %v, want both", c.DeletionTimestamp, r.tainted("a"))
	}
	if got := c.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason); !got.IsTrue() || got.Reason != "Empty" {
		t.Errorf("DisruptionReason is %+v, want Empty", got)
	}
	if !c.StatusConditions().Get(karpv1.ConditionTypeConsolidatable).IsTrue() {
		t.Error("Consolidatable is not true")
	}
	if !r.heard("node-a", "DisruptionTerminating", "Disrupting Node: Empty") || !r.heard("a", "DisruptionTerminating", "Disrupting NodeClaim: Empty") {
		t.Errorf("events %v, want DisruptionTerminating on node and claim", r.Said)
	}
	r.untouched("b")
}

// Drift buys first, waits until the new node is ready, then lets the old one go.
func TestDriftReplacesFirst(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large") // has no label team
	r.pod("app", "old", "1500m")
	r.BeforeWrite = func(verb string, o client.Object) error {
		if claim, ok := o.(*karpv1.NodeClaim); ok && verb == "create" && len(r.Held()[claim.Name]) != 1 {
			t.Errorf("held when %s is created: %v, want a stand-in for app", claim.Name, r.Held())
		}
		return nil
	}
	r.pass()
	next := r.replacement("old")
	if next == nil || r.claim("old").DeletionTimestamp != nil || !r.tainted("old") {
		t.Fatalf("replacement %v, old deleted %v, tainted %v: want one, not yet, and yes", next, r.claim("old").DeletionTimestamp, r.tainted("old"))
	}
	if next.Labels["team"] != "a" || next.Annotations[disruption.ReplacedForAnnotation] != "RequirementsDrifted" || next.Annotations[disruption.MovingAnnotation] != "default/app" {
		t.Errorf("replacement has labels %v and annotations %v", next.Labels, next.Annotations)
	}
	if got := r.claim("old").StatusConditions().Get(karpv1.ConditionTypeDrifted); !got.IsTrue() || got.Reason != "RequirementsDrifted" {
		t.Errorf("Drifted is %+v, want RequirementsDrifted", got)
	}
	r.pass()
	if held := r.Held()[next.Name]; len(held) != 1 || held[0].Name != "app" || held[0].Spec.NodeName != "" {
		t.Errorf("held on the replacement: %v, want a stand-in for app", held)
	}
	r.run(5 * time.Minute)
	if r.claim("old") != nil {
		t.Error("the old claim is still there")
	}
	var pods corev1.PodList
	if err := r.Kube.List(t.Context(), &pods); err != nil {
		t.Fatal(err)
	}
	if len(pods.Items) != 1 || pods.Items[0].Spec.NodeName != "node-"+next.Name {
		t.Errorf("pods %v, want one on the replacement", pods.Items)
	}
	list, err := r.Claims(t.Context())
	if err != nil || len(list) != 1 {
		t.Errorf("%d claims with error %v, want the replacement alone", len(list), err)
	}
}

// Whatever comes between the decision and the end takes the node back into service, with the reason.
func TestTakenBack(t *testing.T) {
	protect := func(p *corev1.Pod) { p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"} }
	for name, tc := range map[string]struct {
		// when the taint is about to be written
		meanwhile func(*rig)
		want      string
	}{
		"protected pod lands": {func(r *rig) { r.pod("job", "a", "100m", protect) }, `Pod has "karpenter.sh/do-not-disrupt" annotation`},
		"any pod lands":       {func(r *rig) { r.pod("web", "a", "100m") }, "not empty any more"},
		"node is protected": {func(r *rig) {
			n := &corev1.Node{}
			if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-a"}, n); err != nil {
				t.Fatal(err)
			}
			n.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			if err := r.Kube.Update(t.Context(), n); err != nil {
				t.Fatal(err)
			}
			if err := r.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
		}, "Disruption is blocked through"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.node("a", "m5.large")
			once := false
			r.BeforeWrite = func(verb string, o client.Object) error {
				if _, node := o.(*corev1.Node); node && verb == "patch" && !once {
					once = true
					tc.meanwhile(r)
				}
				return nil
			}
			r.pass()
			r.untouched("a")
			if !r.heard("node-a", "DisruptionBlocked", tc.want) || !r.heard("a", "ConsolidationRejected", "Consolidation rejected: delete") {
				t.Errorf("events %v, want DisruptionBlocked with %q and ConsolidationRejected", r.Said, tc.want)
			}
		})
	}
}

func TestJudgeRefusesAMove(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.xlarge")
	r.node("b", "m5.large")
	r.pod("small", "b", "500m")
	r.pod("large", "a", "1")
	r.Clock.Step(time.Hour)
	r.Judged = map[string]string{"small": "default/small => NodeAffinity: no", "large": "default/large => NodeAffinity: no"}
	r.pass()
	r.untouched("a")
	r.untouched("b")
	if !r.heard("b", "DisruptionBlocked", "NodeAffinity: no") && !r.heard("a", "DisruptionBlocked", "NodeAffinity: no") {
		t.Errorf("events %v, want the judge's words", r.Said)
	}
	r.Judged = nil
	r.run(10 * time.Minute)
	if list, _ := r.Claims(t.Context()); len(list) != 1 {
		t.Errorf("%d claims are left, want 1", len(list))
	}
}

// A node that counts as empty is deleted, or stays: nothing is bought for what is on it.
func TestEmptyNodeIsNotReplaced(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.large")
	r.pod("app", "a", "1", func(p *corev1.Pod) { p.Annotations = map[string]string{corev1.PodDeletionCost: "-2147483647"} })
	r.pass()
	if next := r.replacement("a"); next != nil {
		t.Errorf("%s was bought for a node that is empty", next.Name)
	}
	r.untouched("a")
}

// What is refused at the second look is not begun again each second, and says why meanwhile.
func TestRefusalsBecomeRare(t *testing.T) {
	r := newRig(t, nil)
	r.node("a", "m5.xlarge")
	r.pod("app", "a", "1")
	r.Clock.Step(time.Hour)
	r.Judged = map[string]string{"app": "default/app => NodeAffinity: no"}
	taints := 0
	r.BeforeWrite = func(_ string, o client.Object) error {
		if n, ok := o.(*corev1.Node); ok && len(n.Spec.Taints) > 0 {
			taints++
		}
		return nil
	}
	r.runEvery(30*time.Minute, 5*time.Second)
	if taints < 2 || taints > 6 { // after 0, 1, 3, 7, 15 minutes
		t.Errorf("the node was tainted %d times in half an hour, want 2 to 6", taints)
	}
	if !r.heard("node-a", "DisruptionBlocked", "NodeAffinity: no (not tried again before") {
		t.Errorf("events %v, want why the node is left alone", r.Said)
	}
}

// A replacement that never joins is given up when it is deleted, the old node works on, and attempts become rare.
func TestReplacementNeverComes(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) {
		p.NodeLabel("team", "a").Require(builder.In("team", "a")).Budget("1")
	})
	for _, name := range []string{"a", "b", "c"} {
		r.node(name, "m5.large")
		r.pod("app-"+name, name, "1500m")
	}
	r.Broken = func(c *karpv1.NodeClaim) bool { return c.Annotations[capacity.ReplacesAnnotation] != "" }
	attempts := map[string]bool{}
	for range 60 {
		r.runEvery(time.Minute, time.Minute)
		alive := 0
		list, err := r.Claims(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			if c.Annotations[capacity.ReplacesAnnotation] != "" {
				attempts[c.Name] = true
				if c.DeletionTimestamp == nil {
					alive++
				}
			}
		}
		if alive > 1 {
			t.Fatalf("%d replacements at once, want 1", alive)
		}
	}
	if len(attempts) > 4 || len(attempts) < 2 {
		t.Errorf("%d attempts in an hour, want 2 to 4", len(attempts))
	}
	for _, name := range []string{"a", "b", "c"} {
		if c := r.claim(name); c == nil || c.DeletionTimestamp != nil {
			t.Errorf("healthy node %s was taken away", name)
		}
	}
	r.Broken = nil
	r.runEvery(2*time.Hour, time.Minute)
	for _, name := range []string{"a", "b", "c"} {
		if r.claim(name) != nil {
			t.Errorf("node %s was not replaced after the image was repaired", name)
		}
	}
}

// The process dies after every write in turn; its successor brings everything to one of two ends.
func TestRestartAnywhere(t *testing.T) {
	errDied := errors.New("the process has died")
	for n := 1; n < 14; n++ {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
			r.node("old", "m5.large")
			r.pod("app", "old", "1500m")
			writes := 0
			r.BeforeWrite = func(string, client.Object) error {
				if writes++; writes >= n {
					return errDied
				}
				return nil
			}
			r.pass()
			r.BeforeWrite = nil
			r.Restart()
			r.run(10 * time.Minute)
			list, err := r.Claims(t.Context())
			if err != nil || len(list) != 1 || list[0].Name == "old" || list[0].Annotations[disruption.RecordAnnotation] != "" {
				t.Errorf("claims %v, error %v, want one replacement alone", names(list), err)
			}
		})
	}
}

func names(list []karpv1.NodeClaim) []string {
	out := make([]string, len(list))
	for i := range list {
		out[i] = list[i].Name
	}
	return out
}

func TestRestartWhileWaiting(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	next := r.replacement("old")
	r.Restart()
	r.pass()
	if len(r.Held()[next.Name]) != 1 {
		t.Errorf("held after the restart: %v, want the place for app", r.Held())
	}
	// A pod asks at the last moment not to be disrupted.
	r.run(30 * time.Second)
	p := &corev1.Pod{}
	if err := r.Kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "app"}, p); err != nil {
		t.Fatal(err)
	}
	p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	if err := r.Kube.Update(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	r.run(time.Minute)
	r.untouched("old")
}

func TestPoolGoesWhileDisrupting(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.NodeLabel("team", "a").Require(builder.In("team", "a")) })
	r.node("old", "m5.large")
	r.pod("app", "old", "1500m")
	r.pass()
	if err := r.Kube.Delete(t.Context(), &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: "p"}}); err != nil {
		t.Fatal(err)
	}
	r.pass()
	r.untouched("old") // what becomes of its claims is the garbage collector's
	r.pass()
}

func TestLeftOverTaintIsCleared(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) {
		p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never)
	})
	r.node("a", "m5.large")
	n := &corev1.Node{}
	if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-a"}, n); err != nil {
		t.Fatal(err)
	}
	n.Spec.Taints = append(n.Spec.Taints, karpv1.DisruptedNoScheduleTaint, corev1.Taint{Key: "mine", Effect: corev1.TaintEffectNoSchedule})
	if err := r.Kube.Update(t.Context(), n); err != nil {
		t.Fatal(err)
	}
	r.pass()
	if r.tainted("a") {
		t.Error("the taint is still there")
	}
	if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "node-a"}, n); err != nil || len(n.Spec.Taints) != 1 {
		t.Errorf("taints %v, error %v, want the other one kept", n.Spec.Taints, err)
	}
}

func TestBudgetsOfPods(t *testing.T) {
	pdb := func(name string, least int) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name}, Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt(least)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "a"}},
		}}
	}
	for name, tc := range map[string]struct {
		pdbs []*policyv1.PodDisruptionBudget
		want string
	}{
		"never": {[]*policyv1.PodDisruptionBudget{pdb("strict", 1)}, "Pdb prevents pod evictions (Pod=default/app, PodDisruptionBudget=[default/strict])"},
		"two":   {[]*policyv1.PodDisruptionBudget{pdb("one", 0), pdb("two", 0)}, "Eviction does not support multiple PDBs"},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil)
			r.node("a", "m5.2xlarge")
			r.pod("app", "a", "1")
			for _, b := range tc.pdbs {
				if err := r.Kube.Create(t.Context(), b); err != nil {
					t.Fatal(err)
				}
			}
			r.Clock.Step(time.Hour)
			r.pass()
			r.untouched("a")
			if !r.heard("a", "DisruptionBlocked", tc.want) {
				t.Errorf("events %v, want %q", r.Said, tc.want)
			}
		})
	}
}

func TestStaticPoolKeepsItsNumber(t *testing.T) {
	r := newRig(t, func(p *builder.NodePoolBuilder) { p.Replicas(3) })
	r.run(2 * time.Minute)
	list, err := r.Claims(t.Context())
	if err != nil || len(list) != 3 {
		t.Fatalf("%d claims with error %v, want 3", len(list), err)
	}
	np := &karpv1.NodePool{}
	if err := r.Kube.Get(t.Context(), client.ObjectKey{Name: "p"}, np); err != nil {
		t.Fatal(err)
	}
	np.Spec.Replicas = new(int64(1))
	if err := r.Kube.Update(t.Context(), np); err != nil {
		t.Fatal(err)
	}
	r.run(time.Minute)
	if list, err = r.Claims(t.Context()); err != nil || len(list) != 1 {
		t.Errorf("%d claims with error %v, want 1", len(list), err)
	}
}
