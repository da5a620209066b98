// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/consolidation/model"
	"github.com/slipway-sh/slipway/test/builder"
)

// market sells nodes of 2, 4 and 8 cores at 10 cents a core, the last also as spot at a third.
func market() *capacity.Catalog {
	return builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.2, "a", "b"),
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").OnDemand(0.4, "a", "b"),
		builder.InstanceType("m5.2xlarge").CPU("8").Memory("32Gi").OnDemand(0.8, "a", "b").Spot(0.27, "a", "b"),
	)
}

// offering finds one way to buy a type.
func offering(t *testing.T, c *capacity.Catalog, name, kind string) capacity.CatalogOffering {
	t.Helper()
	for _, o := range c.Offerings {
		if o.Type.Name == name && o.CapacityType == kind && o.Zone == "a" {
			return o
		}
	}
	t.Fatalf("%s is not sold %s", name, kind)
	return capacity.CatalogOffering{}
}

// bed is a cluster of one on-demand pool, an hour after its nodes were bought.
type bed struct {
	*model.Cluster
	t   *testing.T
	cat *capacity.Catalog
	m   *disruption.Memory
}

func newBed(t *testing.T, change func(*builder.NodePoolBuilder)) *bed {
	cat := market()
	pool := builder.CapacityPool("p", cat).Require(capacity.In(karpv1.CapacityTypeLabelKey, "on-demand")).Obj()
	return &bed{Cluster: model.New([]*capacity.Pool{pool}, change), t: t, cat: cat, m: disruption.NewMemory()}
}

// node buys a node with n pods of so much CPU each.
func (b *bed) node(typ string, n int, cpu string) *model.Machine {
	m := b.Buy("p", offering(b.t, b.cat, typ, "on-demand"))
	class := builder.Class("app-" + cpu).CPU(cpu).Memory("100Mi").Obj()
	pods := builder.PodsOf(class, n)
	for _, p := range pods {
		p.Name = m.Claim.Name + "-" + p.Name
		p.UID = p.UID + "-of-" + m.Claim.UID
	}
	m.Put(pods...)
	return m
}

func (b *bed) decide(after time.Duration) disruption.Decision {
	b.Now = b.Now.Add(after)
	return disruption.Decide(b.Snapshot(), b.m)
}

// summary is what the commands do, one each: reason, claims, and the types bought.
func summary(d disruption.Decision) []string {
	var out []string
	for _, c := range d.Commands {
		s := string(c.Reason) + " " + strings.Join(c.Nodes, "+")
		for _, l := range c.Launches {
			s += " > " + l.Offerings[0].Type.Name
		}
		out = append(out, s)
	}
	slices.Sort(out)
	return out
}

// said is the message for a claim.
func said(d disruption.Decision, claim string) string {
	for _, r := range d.Rejections {
		if r.Node.Claim.Name == claim {
			return r.Event + ": " + r.Message
		}
	}
	return ""
}

func (b *bed) want(d disruption.Decision, want ...string) {
	b.t.Helper()
	if got := summary(d); !slices.Equal(got, want) {
		b.t.Errorf("commands %q, want %q", got, want)
	}
}

func TestEmptiness(t *testing.T) {
	b := newBed(t, nil)
	b.node("m5.large", 0, "1")
	b.node("m5.large", 2, "900m")
	b.node("m5.xlarge", 0, "1")
	b.want(b.decide(0), "Empty p-00001", "Empty p-00003") // whatever their age
}

func TestEmptinessWaits(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, "10m") })
	m := b.node("m5.large", 0, "1")
	b.want(b.decide(9 * time.Minute))
	b.m.PodChanged(m.Node.Name, b.Now)
	b.want(b.decide(9 * time.Minute)) // a pod has come and gone
	b.want(b.decide(time.Minute), "Empty p-00001")
}

func TestConsolidateAfterNever(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) {
		p.Consolidate(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpv1.Never)
	})
	b.node("m5.large", 0, "1")
	b.node("m5.2xlarge", 1, "100m")
	d := b.decide(100 * time.Hour)
	b.want(d)
	if got, want := said(d, "p-00002"), `Unconsolidatable: NodePool "p" has consolidation disabled`; got != want {
		t.Errorf("event %q, want %q", got, want)
	}
}

func TestPodsThatDoNotCountLeaveTheNodeEmpty(t *testing.T) {
	b := newBed(t, nil)
	m := b.node("m5.large", 1, "1")
	m.API = func(p *corev1.Pod) { p.Annotations[corev1.PodDeletionCost] = "-2147483647" }
	b.want(b.decide(0), "Empty p-00001")
}

func TestUnderutilizedDeletesWhatFitsElsewhere(t *testing.T) {
	b := newBed(t, nil)
	b.node("m5.xlarge", 2, "900m")
	b.node("m5.large", 1, "900m")
	b.node("m5.xlarge", 4, "900m")
	b.want(b.decide(9 * time.Minute)) // too young
	d := b.decide(2 * time.Minute)
	b.want(d, "Underutilized p-00002")
	if c := d.Commands[0]; c.Saving != 0.2 || c.Decision() != "delete" || len(c.Placements) != 1 || c.Placements[0].Node.Claim != "p-00001" {
		t.Errorf("command %+v, want a delete that saves 0.2 and moves the pod to p-00001", c)
	}
}

func TestUnderutilizedReplaces(t *testing.T) {
	b := newBed(t, nil)
	b.node("m5.2xlarge", 2, "900m")
	b.want(b.decide(time.Hour), "Underutilized p-00001 > m5.large")
}

// A node that only a budget keeps from being replaced is not remembered as one nothing cheaper was found for.
func TestReplacementWaitsForBudget(t *testing.T) {
	cat := market()
	b := &bed{t: t, cat: cat, m: disruption.NewMemory(), Cluster: model.New([]*capacity.Pool{builder.CapacityPool("p", cat).Obj()},
		func(p *builder.NodePoolBuilder) { p.Budget("1") })}
	for range 3 { // all of them fit on one spot node, for which the budget does not allow enough
		b.node("m5.xlarge", 1, "2100m")
	}
	d := b.decide(time.Hour)
	if len(d.Commands) != 1 {
		t.Fatalf("commands %q, want one", summary(d))
	}
	for name := range b.Machines {
		if got := said(d, name); strings.Contains(got, "cheaper") {
			t.Errorf("%s: event %q, but the budget alone keeps it", name, got)
		}
	}
}

// Two half-used nodes become one of the next size down, and three become two: M to N.
func TestUnderutilizedMovesManyOntoFew(t *testing.T) {
	b := newBed(t, nil)
	for range 3 {
		b.node("m5.2xlarge", 2, "1900m")
	}
	d := b.decide(time.Hour)
	before := b.Price()
	for _, c := range d.Commands {
		if _, err := b.Carry(c); err != nil {
			t.Fatal(err)
		}
	}
	if got := b.Price(); got > 1.2001 || got >= before {
		t.Errorf("6 pods of 1.9 cores cost %.2f after %q, want at most the 1.20 of six times two cores", got, summary(d))
	}
	if err := b.Check(); err != nil {
		t.Error(err)
	}
	b.want(b.decide(time.Hour)) // at rest
}

func TestUnderutilizedLeavesSmallSavingsAlone(t *testing.T) {
	cat := builder.Catalog(
		builder.InstanceType("old.large").CPU("2").Memory("8Gi").OnDemand(0.2, "a"), builder.InstanceType("new.large").CPU("2").Memory("8Gi").OnDemand(0.196, "a"),
	)
	for _, tc := range []struct {
		annotation string
		want       []string
	}{
		{"", nil}, {"1.5%", []string{"Underutilized p-00001 > new.large"}}, {"much", nil},
	} {
		pool := builder.CapacityPool("p", cat).Obj()
		b := &bed{t: t, cat: cat, m: disruption.NewMemory(), Cluster: model.New([]*capacity.Pool{pool}, func(p *builder.NodePoolBuilder) {
			if tc.annotation != "" {
				p.Annotation(capacity.MinSavingAnnotation, tc.annotation)
			}
		})}
		b.node("old.large", 2, "900m")
		d := b.decide(time.Hour)
		b.want(d, tc.want...)
		if tc.want == nil && !strings.HasPrefix(said(d, "p-00001"), "Unconsolidatable: ") {
			t.Errorf("%q: event %q, want one that says why", tc.annotation, said(d, "p-00001"))
		}
	}
}

// Spot is replaced by spot for enough money only, and for less the more pools it can come from.
func TestSpotBySpot(t *testing.T) {
	few := []*builder.InstanceTypeBuilder{
		builder.InstanceType("big").CPU("8").Memory("32Gi").Spot(0.30, "a"), builder.InstanceType("small").CPU("2").Memory("8Gi").Spot(0.24, "a"),
	}
	many := slices.Clone(few)
	for _, name := range []string{"s1", "s2", "s3", "s4", "s5"} {
		many = append(many, builder.InstanceType(name).CPU("2").Memory("8Gi").Spot(0.241, "a", "b"))
	}
	for name, tc := range map[string]struct {
		types []*builder.InstanceTypeBuilder
		want  []string
	}{"one pool": {few, nil}, "many pools": {many, []string{"Underutilized p-00001 > small"}}} {
		cat := builder.Catalog(tc.types...)
		b := &bed{t: t, cat: cat, m: disruption.NewMemory(), Cluster: model.New([]*capacity.Pool{builder.CapacityPool("p", cat).Obj()}, nil)}
		m := b.Buy("p", offering(t, cat, "big", "spot"))
		m.Put(builder.PodsOf(builder.Class("a").CPU("1500m").Obj(), 1)...)
		t.Log(name)
		b.want(b.decide(time.Hour), tc.want...)
	}
}

func TestBalancedWantsItsMoneysWorth(t *testing.T) {
	balanced := func(p *builder.NodePoolBuilder) { p.Consolidate(karpv1.ConsolidationPolicyBalanced, "0s") }
	b := newBed(t, balanced)
	keep := func(m *model.Machine) {
		m.Node.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
	}
	keep(b.node("m5.2xlarge", 8, "100m")) // room for the others
	b.node("m5.large", 15, "100m")        // a fifth of the price for two thirds of the disruption
	d := b.decide(time.Hour)
	b.want(d)
	b = newBed(t, balanced)
	keep(b.node("m5.2xlarge", 8, "100m"))
	b.node("m5.large", 2, "100m")
	b.want(b.decide(time.Hour), "Underutilized p-00002")
}

func TestBlockers(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(*model.Machine)
		want   string
	}{
		"pod": {func(m *model.Machine) {
			m.API = func(p *corev1.Pod) { p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "true" }
		}, `DisruptionBlocked: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/p-00001-app-100m-0)`},
		"pod for a while": {func(m *model.Machine) {
			m.API = func(p *corev1.Pod) { p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "5m" }
		}, `DisruptionBlocked: Pod has "karpenter.sh/do-not-disrupt" annotation (Pod=default/p-00001-app-100m-0)`},
		"node": {
			func(m *model.Machine) {
				m.Node.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: "true"}
			},
			`DisruptionBlocked: Disruption is blocked through the "karpenter.sh/do-not-disrupt" annotation`,
		},
		"not initialized": {func(m *model.Machine) { delete(m.Node.Labels, karpv1.NodeInitializedLabelKey) }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, nil)
			m := b.node("m5.2xlarge", 1, "100m")
			tc.change(m)
			m.Touch()
			d := b.decide(time.Hour)
			b.want(d)
			if got := said(d, "p-00001"); got != tc.want && tc.want != "" {
				t.Errorf("event %q, want %q", got, tc.want)
			}
		})
	}
}

func TestProtectionByDurationEnds(t *testing.T) {
	b := newBed(t, nil)
	m := b.node("m5.2xlarge", 2, "900m")
	start := b.Now
	m.API = func(p *corev1.Pod) {
		p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "2h"
		p.Status.StartTime = &metav1.Time{Time: start}
	}
	b.want(b.decide(2*time.Hour - time.Second))
	b.want(b.decide(time.Second), "Underutilized p-00001 > m5.large")
}

// Budgets hold for what one pass decides, beside what is disrupted already.
func TestBudgetsHold(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Budget("30%") })
	for range 10 {
		b.node("m5.large", 0, "1")
	}
	leaving := b.Machines["p-00003"]
	leaving.Claim.Annotations = map[string]string{}
	now := metav1.NewTime(b.Now)
	leaving.Claim.DeletionTimestamp = &now
	broken := b.Machines["p-00004"]
	broken.Node.Status.Conditions[0].Status = corev1.ConditionUnknown
	d := b.decide(0)
	if len(d.Commands) != 1 {
		t.Errorf("%d commands, want 1: 3 of 10 are allowed, one is leaving and one is not ready", len(d.Commands))
	}
	q := d.Quotas["p"]
	if q.Nodes != 10 || q.Used != 2 || q.Unready != 1 || q.Left(karpv1.DisruptionReasonEmpty) != 0 {
		t.Errorf("quota %+v, want 10 nodes, 2 used, 1 not ready, none left", q)
	}
}

func TestDrift(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) {
		p.Annotation(karpv1.NodePoolHashAnnotationKey, "2").Annotation(karpv1.NodePoolHashVersionAnnotationKey, "v3").Budget("2")
	})
	for i := range 4 {
		m := b.node("m5.2xlarge", 1, "7")
		m.Claim.Annotations = map[string]string{karpv1.NodePoolHashAnnotationKey: "1", karpv1.NodePoolHashVersionAnnotationKey: "v3"}
		switch i {
		case 2:
			m.Claim.Annotations[karpv1.NodePoolHashVersionAnnotationKey] = "v2" // not compared
		case 3:
			m.Claim.StatusConditions().SetTrueWithReason(karpv1.ConditionTypeDrifted, "NodePoolDrifted", "NodePoolDrifted")
			for k := range m.Claim.Status.Conditions {
				if c := &m.Claim.Status.Conditions[k]; c.Type == karpv1.ConditionTypeDrifted {
					c.LastTransitionTime = metav1.NewTime(b.Now.Add(-time.Hour))
				}
			}
		}
	}
	d := b.decide(0)
	// The one that has been drifted for longest first, within the budget, each bought anew before it goes.
	b.want(d, "Drifted p-00001 > m5.2xlarge", "Drifted p-00004 > m5.2xlarge")
	if d.Commands[0].Nodes[0] != "p-00004" || d.Commands[0].Drift != "NodePoolDrifted" {
		t.Errorf("first command is %v for %q, want p-00004 for NodePoolDrifted", d.Commands[0].Nodes, d.Commands[0].Drift)
	}
}

func TestDriftRestsAfterFailures(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Require(builder.In("team", "a")) })
	b.node("m5.large", 2, "900m") // has no label team
	for i, pause := range []time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute} {
		b.want(b.decide(0), "Drifted p-00001 > m5.large")
		b.m.Failed("p", karpv1.DisruptionReasonDrifted, b.Now)
		d := b.decide(pause - time.Second)
		if len(d.Commands) > 0 {
			t.Errorf("failure %d: tried again within %s", i+1, pause)
		}
		b.Now = b.Now.Add(time.Second)
	}
	b.m.Succeeded("p", karpv1.DisruptionReasonDrifted)
	b.want(b.decide(0), "Drifted p-00001 > m5.large")
}

// Commands of one pass share what is left of limits and reservations.
func TestCommandsShareLimits(t *testing.T) {
	for name, tc := range map[string]struct {
		limit func(*capacity.Pool)
		want  int
	}{
		"none":  {func(*capacity.Pool) {}, 4},
		"cores": {func(p *capacity.Pool) { p.Limits = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("16")} }, 2}, // 8 are in use; EC2 may pick 4 each
		"nodes": {func(p *capacity.Pool) { p.LimitNodes = new(int64(5)) }, 1},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, func(p *builder.NodePoolBuilder) { p.Require(builder.In("team", "a")) })
			for range 4 { // drifted
				b.node("m5.large", 2, "900m")
			}
			tc.limit(b.Pools[0])
			d := b.decide(0)
			if len(d.Commands) != tc.want {
				t.Errorf("commands %q, want %d", summary(d), tc.want)
			}
			if p := b.Snapshot().View.Pools[0]; p.Nodes != 4 {
				t.Errorf("deciding has changed the view: %d nodes, want 4", p.Nodes)
			}
		})
	}
}

// Nodes whose pods have no other place are not planned again in each pass, and not all at once.
func TestDriftWithoutPlaces(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Require(builder.In("team", "a")) })
	for range 8 { // they have no label team
		b.node("m5.large", 1, "900m")
	}
	for _, p := range b.Pools {
		p.Blocked = "its class is not ready"
	}
	counted := func(d disruption.Decision) (n int) {
		for _, r := range d.Rejections {
			if strings.Contains(r.Message, "Not all pods would schedule") {
				n++
			}
		}
		return n
	}
	for i, want := range []int{3, 6, 8, 8} { // what is known is told, and three more are tried
		d := b.decide(time.Second)
		b.want(d)
		if got := counted(d); got != want {
			t.Errorf("pass %d: %d nodes are said to have pods without a place, want %d", i+1, got, want)
		}
	}
	for _, p := range b.Pools {
		p.Blocked = ""
	}
	if d := b.decide(10 * time.Minute); len(d.Commands) == 0 {
		t.Error("nothing is tried again after ten minutes")
	}
}

func TestExpiry(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) {
		p.Budget("0").Consolidate(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpv1.Never)
	})
	for range 3 {
		m := b.node("m5.large", 2, "900m")
		m.Claim.Spec.ExpireAfter = karpv1.MustParseNillableDuration("100h")
	}
	b.want(b.decide(99 * time.Hour)) // the budget allows nothing
	d := b.decide(time.Hour)         // and does not stop the end, for which replacements are bought
	b.want(d, "Expired p-00001 > m5.large", "Expired p-00002 > m5.large", "Expired p-00003 > m5.large")
	for _, c := range d.Commands {
		if !c.Forced {
			t.Errorf("command %v is not forced", c.Nodes)
		}
	}
}

// Until its time is over a node keeps pods that must not be evicted, whatever its terminationGracePeriod.
func TestExpiryWaitsForProtectedPods(t *testing.T) {
	b := newBed(t, nil)
	m := b.node("m5.large", 2, "900m")
	m.Claim.Spec.ExpireAfter = karpv1.MustParseNillableDuration("100h")
	m.Claim.Spec.TerminationGracePeriod = &metav1.Duration{Duration: time.Hour}
	m.API = func(p *corev1.Pod) { p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "true" }
	m.Touch()
	end := m.Claim.CreationTimestamp.Add(100 * time.Hour).Sub(b.Now)
	d := b.decide(end - time.Second)
	b.want(d)
	if got := said(d, "p-00001"); !strings.Contains(got, "do-not-disrupt") {
		t.Errorf("event %q, want what keeps the node", got)
	}
	b.want(b.decide(time.Second), "Expired p-00001 > m5.large")
}

// Nodes born together are replaced one after the other before their end.
func TestExpiryIsSpread(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) {
		p.Budget("100%").Consolidate(karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized, karpv1.Never)
	})
	for range 40 {
		m := b.node("m5.large", 2, "900m")
		m.Claim.Spec.ExpireAfter = karpv1.MustParseNillableDuration("100h")
	}
	b.want(b.decide(90*time.Hour - time.Minute))
	most, total := 0, 0
	for range 60 { // the ten hours before the end, in steps of ten minutes
		d := b.decide(10 * time.Minute)
		most, total = max(most, len(d.Commands)), total+len(d.Commands)
		for _, c := range d.Commands {
			if c.Forced {
				t.Fatalf("%v was not replaced before its end", c.Nodes)
			}
			if _, err := b.Carry(c); err != nil {
				t.Fatal(err)
			}
		}
	}
	if most > 12 || total != 40 {
		t.Errorf("%d of 40 nodes were replaced, at most %d of them within ten minutes, want all and at most 12", total, most)
	}
}

func TestStaticPools(t *testing.T) {
	b := newBed(t, func(p *builder.NodePoolBuilder) { p.Replicas(3).Limit("nodes", "4").Require(builder.In("team", "a")) })
	b.node("m5.large", 1, "900m").Claim.Labels["team"] = "a"
	b.node("m5.large", 0, "900m").Claim.Labels["team"] = "b" // drifted, empty and never consolidated
	lacking, surplus := disruption.Scale(b.Snapshot())
	if len(surplus) != 0 || lacking[b.NodePools["p"]] != 1 {
		t.Errorf("lacking %v, surplus %d, want 1 and 0", lacking, len(surplus))
	}
	d := b.decide(time.Hour)
	b.want(d, "Drifted p-00002")
	if len(d.Commands) == 1 && (len(d.Commands[0].Copies) != 1 || len(d.Commands[0].Replacements) != 1) {
		t.Errorf("command %+v, want a copy of the template in exchange", d.Commands[0])
	}
	for range 3 {
		b.node("m5.large", 2, "900m").Claim.Labels["team"] = "a"
	}
	lacking, surplus = disruption.Scale(b.Snapshot())
	if len(lacking) != 0 || len(surplus) != 2 || surplus[0].Claim.Name != "p-00002" || surplus[1].Claim.Name != "p-00001" {
		t.Errorf("lacking %v, surplus %v, want the empty node and then the one that disturbs least", lacking, surplus)
	}
}

// Host ports and spread rules are kept: what the quick search finds is planned with all rules before it counts.
func TestUnderutilizedKeepsRules(t *testing.T) {
	b := newBed(t, nil)
	labels := map[string]string{"app": "spread"}
	class := builder.Class("spread").Label("app", "spread").CPU("500m").NodeSpread(1, labels).Obj()
	pods := builder.PodsOf(class, 4)
	for i := range 4 {
		b.node("m5.large", 1, "100m").Put(pods[i])
	}
	for range 10 {
		d := b.decide(time.Hour)
		if len(d.Commands) == 0 {
			break
		}
		for _, c := range d.Commands {
			if _, err := b.Carry(c); err != nil {
				t.Fatal(err)
			}
		}
		if err := b.Check(); err != nil {
			t.Fatal(err)
		}
		least, most := 10, 0
		for _, m := range b.Machines {
			k := 0
			for _, p := range m.Pods {
				if p.Class == class {
					k++
				}
			}
			least, most = min(least, k), max(most, k)
		}
		if most-least > 1 {
			t.Fatalf("%d and %d pods on nodes after %q, want a skew of at most 1", least, most, summary(d))
		}
	}
	if len(b.Machines) > 2 {
		t.Errorf("%d nodes are left for 4 pods of half a core and 4 small ones, want at most 2", len(b.Machines))
	}
}

func TestRepair(t *testing.T) {
	broken := func(m *model.Machine, since time.Time) {
		m.Node.Status.Conditions = append(m.Node.Status.Conditions, corev1.NodeCondition{
			Type: "NetworkingReady", Status: corev1.ConditionFalse, LastTransitionTime: metav1.NewTime(since),
		})
		m.Touch()
	}
	never := func(p *builder.NodePoolBuilder) { p.Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never) }
	b := newBed(t, never)
	var all []*model.Machine
	for range 5 {
		m := b.node("m5.large", 2, "900m")
		m.API = func(p *corev1.Pod) { p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "true" } // they do not work
		all = append(all, m)
	}
	broken(all[1], b.Now)
	decide := func(after time.Duration, repair bool) disruption.Decision {
		b.Now = b.Now.Add(after)
		s := b.Snapshot()
		s.Repair = repair
		return disruption.Decide(s, b.m)
	}
	b.want(decide(29*time.Minute, true))
	b.want(decide(time.Minute, false)) // not asked for
	b.want(decide(0, true), "Unhealthy p-00002 > m5.large")
	all[1].Node.Annotations = map[string]string{"karpenter.sh/do-not-repair": "true"}
	d := decide(0, true)
	b.want(d)
	if got := said(d, "p-00002"); !strings.HasPrefix(got, "NodeRepairBlocked: ") {
		t.Errorf("event %q, want NodeRepairBlocked", got)
	}
	all[1].Node.Annotations = nil
	broken(all[3], b.Now.Add(-time.Hour))
	d = decide(0, true) // two of five: more than a fifth
	b.want(d)
	if got := said(d, "p-00004"); !strings.Contains(got, "More than 20% nodes are unhealthy") {
		t.Errorf("event %q, want the breaker's", got)
	}
	// What has lasted for a moment only counts as well: a fault that spreads is not the nodes' own.
	all[3].Node.Status.Conditions = nil
	b.want(decide(0, true), "Unhealthy p-00002 > m5.large")
	broken(all[4], b.Now)
	b.want(decide(0, true))
}
