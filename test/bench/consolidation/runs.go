// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bench/consolidation/sim"
	"github.com/slipway-sh/slipway/test/builder"
)

// small is a catalogue of three sizes.
func small() *capacity.Catalog {
	return builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a", "b"),
		builder.InstanceType("m5.xlarge").CPU("4").Memory("16Gi").OnDemand(0.2, "a", "b"),
		builder.InstanceType("m5.2xlarge").CPU("8").Memory("32Gi").OnDemand(0.4, "a", "b"),
	)
}

// run is one simulated run, watched.
type run struct {
	*sim.Cluster
	r     *rand.Rand
	pods  int
	wrong []string
}

func (u *run) pod(ctx context.Context, node, cpu, app string, annotations map[string]string) error {
	u.pods++
	p := builder.Pod(fmt.Sprintf("pod-%d", u.pods)).UID(fmt.Sprintf("uid-pod-%d", u.pods)).CPU(cpu).Label("app", app).Phase(corev1.PodRunning).Obj()
	p.Spec.NodeName, p.Annotations = node, annotations
	return u.Kube.Create(ctx, p)
}

// going counts nodes that are being deleted or belong to a command.
func (u *run) going(ctx context.Context) (n, total int, claims []karpv1.NodeClaim, err error) {
	if claims, err = u.Claims(ctx); err != nil {
		return 0, 0, nil, err
	}
	for i := range claims {
		if c := &claims[i]; c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			total++
			if c.DeletionTimestamp != nil || c.Annotations[disruption.RecordAnnotation] != "" {
				n++
			}
		}
	}
	return n, total, claims, nil
}

// drift has 500 nodes drift at once under a budget of a tenth.
func (r *report) drift(ctx context.Context) error {
	const nodes = 500
	np := builder.NodePool("p").UID("uid-p").Budget("10%").Consolidate(karpv1.ConsolidationPolicyWhenEmpty, karpv1.Never).
		NodeLabel("generation", "two").Require(builder.In("generation", "two")).Obj()
	u := &run{Cluster: sim.New(small(), np), r: rand.New(rand.NewPCG(r.seed, 3))}
	for i := range nodes {
		name := fmt.Sprintf("old-%03d", i)
		if _, err := u.Node(ctx, name, "p", "m5.large"); err != nil {
			return err
		}
		if err := u.pod(ctx, "node-"+name, "1500m", fmt.Sprintf("app-%d", i%25), nil); err != nil {
			return err
		}
	}
	for i := range 25 { // twenty pods each, of which one may be missing
		if err := u.Kube.Create(ctx, budgetOf(fmt.Sprintf("app-%d", i), 19)); err != nil {
			return err
		}
	}
	violations, most, passes := 0, 0, 0
	began := u.Clock.Now()
	for ; passes < 2000; passes++ {
		if err := u.Pass(ctx); err != nil {
			return err
		}
		n, total, claims, err := u.going(ctx)
		if err != nil {
			return err
		}
		most = max(most, n)
		if n > (total+9)/10 { // of all nodes there are, replacements too, as Karpenter counts
			fmt.Printf("drift: %d of %d nodes are in flight\n", n, total)
			violations++
		}
		old := slices.ContainsFunc(claims, func(c karpv1.NodeClaim) bool { return c.Labels["generation"] != "two" })
		if !old {
			break
		}
		if err := u.Step(ctx, 10*time.Second); err != nil {
			return err
		}
		missing, err := u.short(ctx, 19)
		if err != nil {
			return err
		}
		if missing > 0 {
			fmt.Printf("drift: %d apps have too few pods\n", missing)
		}
		violations += missing
	}
	_, total, claims, err := u.going(ctx)
	if err != nil {
		return err
	}
	for _, c := range claims {
		if c.Labels["generation"] != "two" {
			violations++
		}
	}
	fmt.Printf("drift: %d nodes replaced after %s, at most %d at a time, %d nodes in the end, %d evictions\n", nodes, u.Clock.Since(began), most, total, u.Evictions)
	r.figure("drift-500-violations", float64(violations), "count")
	return nil
}

func budgetOf(app string, least int) *policyv1.PodDisruptionBudget {
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Namespace: metav1.NamespaceDefault, Name: app},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: new(intstr.FromInt(least)), Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": app}},
		},
	}
}

// short counts the apps of which fewer pods run than there have to be.
func (u *run) short(ctx context.Context, least int) (int, error) {
	var pods corev1.PodList
	if err := u.Kube.List(ctx, &pods); err != nil {
		return 0, err
	}
	running := map[string]int{}
	for i := range pods.Items {
		if pods.Items[i].Spec.NodeName != "" {
			running[pods.Items[i].Labels["app"]]++
		} else {
			running[pods.Items[i].Labels["app"]] += 0
		}
	}
	n := 0
	for _, k := range running {
		if k < least {
			n++
		}
	}
	return n, nil
}

// violations makes seeded runs in which what limits disruption changes meanwhile.
func (r *report) violations(ctx context.Context) error {
	type result struct {
		wrong     []string
		disrupted int
		err       error
	}
	results := make([]result, r.runs)
	var wg sync.WaitGroup
	var next atomic.Int64
	for range runtime.GOMAXPROCS(0) { // runs share nothing
		wg.Go(func() {
			for i := int(next.Add(1)) - 1; i < r.runs; i = int(next.Add(1)) - 1 {
				x := &results[i]
				x.wrong, x.disrupted, x.err = r.oneRun(ctx, r.seed*1000+uint64(i))
			}
		})
	}
	wg.Wait()
	total, commands := 0, 0
	for i, x := range results {
		if x.err != nil {
			return fmt.Errorf("run %d: %w", i, x.err)
		}
		for _, w := range x.wrong {
			fmt.Printf("violations: run %d: %s\n", i, w)
		}
		total, commands = total+len(x.wrong), commands+x.disrupted
	}
	if commands == 0 {
		return errors.New("no run has disrupted anything")
	}
	fmt.Printf("violations: %d runs, %d nodes disrupted\n", r.runs, commands)
	r.figure("disruption-violations", float64(total), "count")
	return nil
}

// oneRun watches twelve nodes for twenty minutes.
func (r *report) oneRun(ctx context.Context, seed uint64) (wrong []string, disrupted int, err error) {
	np := builder.NodePool("p").UID("uid-p").Budget("30%").Annotation(capacity.MinNodeAgeAnnotation, "1m").Obj()
	u := &run{Cluster: sim.New(small(), np), r: rand.New(rand.NewPCG(seed, 5))}
	types := []string{"m5.large", "m5.xlarge", "m5.2xlarge"}
	for i := range 12 {
		name := fmt.Sprintf("n-%02d", i)
		if _, err := u.Node(ctx, name, "p", types[u.r.IntN(3)]); err != nil {
			return nil, 0, err
		}
		for range u.r.IntN(4) {
			if err := u.pod(ctx, "node-"+name, "400m", fmt.Sprintf("app-%d", u.r.IntN(4)), nil); err != nil {
				return nil, 0, err
			}
		}
	}
	for i := range 4 {
		if err := u.Kube.Create(ctx, budgetOf(fmt.Sprintf("app-%d", i), u.r.IntN(4))); err != nil {
			return nil, 0, err
		}
	}
	known := map[string]bool{}
	for range 60 {
		if u.r.IntN(3) == 0 {
			if err := u.disturb(ctx); err != nil {
				return nil, 0, err
			}
		}
		if u.r.IntN(15) == 0 {
			u.Restart()
		}
		if err := u.watched(ctx, known); err != nil {
			return nil, 0, err
		}
		if err := u.Step(ctx, 20*time.Second); err != nil {
			return nil, 0, err
		}
	}
	return u.wrong, len(known), nil
}

// disturb changes something that limits disruption.
func (u *run) disturb(ctx context.Context) error {
	switch u.r.IntN(4) {
	case 0: // the pool's budget
		np := &karpv1.NodePool{}
		if err := u.Kube.Get(ctx, client.ObjectKey{Name: "p"}, np); err != nil {
			return err
		}
		np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: []string{"0", "1", "20%", "50%", "100%"}[u.r.IntN(5)]}}
		return u.Kube.Update(ctx, np)
	case 1: // a pod's annotation
		var pods corev1.PodList
		if err := u.Kube.List(ctx, &pods); err != nil || len(pods.Items) == 0 {
			return err
		}
		p := &pods.Items[u.r.IntN(len(pods.Items))]
		p.Annotations = map[string]string{karpv1.DoNotDisruptAnnotationKey: []string{"true", "false"}[u.r.IntN(2)]}
		return u.Kube.Update(ctx, p)
	case 2: // a budget of pods
		b := &policyv1.PodDisruptionBudget{}
		if err := u.Kube.Get(ctx, client.ObjectKey{Namespace: metav1.NamespaceDefault, Name: fmt.Sprintf("app-%d", u.r.IntN(4))}, b); err != nil {
			return err
		}
		b.Spec.MinAvailable = new(intstr.FromInt(u.r.IntN(5)))
		return u.Kube.Update(ctx, b)
	default: // pods come and go
		var pods corev1.PodList
		if err := u.Kube.List(ctx, &pods); err != nil {
			return err
		}
		if len(pods.Items) > 0 && u.r.IntN(2) == 0 {
			return u.Kube.Delete(ctx, &pods.Items[u.r.IntN(len(pods.Items))])
		}
		return u.pod(ctx, "", "400m", fmt.Sprintf("app-%d", u.r.IntN(4)), nil)
	}
}

// watched makes a pass and checks what it has begun and ended against what held at that moment.
func (u *run) watched(ctx context.Context, known map[string]bool) error {
	before := map[string]bool{}
	_, _, claims, err := u.going(ctx)
	if err != nil {
		return err
	}
	for i := range claims {
		before[claims[i].Name] = claims[i].DeletionTimestamp != nil || claims[i].Annotations[disruption.RecordAnnotation] != ""
	}
	deleted := map[string]bool{}
	for i := range claims {
		deleted[claims[i].Name] = claims[i].DeletionTimestamp != nil
	}
	if err := u.Pass(ctx); err != nil {
		return err
	}
	n, total, claims, err := u.going(ctx)
	if err != nil {
		return err
	}
	begun := 0
	for i := range claims {
		c := &claims[i]
		is := c.DeletionTimestamp != nil || c.Annotations[disruption.RecordAnnotation] != ""
		if is && !before[c.Name] {
			begun++
			if err := u.begun(ctx, c); err != nil {
				return err
			}
		}
		if c.DeletionTimestamp != nil && !deleted[c.Name] {
			known[c.Name] = true
			if err := u.ended(ctx, c); err != nil {
				return err
			}
		}
	}
	np := &karpv1.NodePool{}
	if err := u.Kube.Get(ctx, client.ObjectKey{Name: "p"}, np); err != nil {
		return err
	}
	allowed, err := disruption.Allowed(np, capacity.PoolSettings{}, total, karpv1.DisruptionReasonUnderutilized, u.Clock.Now())
	if err != nil {
		return err
	}
	if begun > 0 && n > allowed {
		u.wrong = append(u.wrong, fmt.Sprintf("%d of %d nodes are disrupted, %d begun in this pass, %d are allowed", n, total, begun, allowed))
	}
	return nil
}

// begun checks the PodDisruptionBudgets of the pods of a claim whose disruption was begun in this pass.
func (u *run) begun(ctx context.Context, c *karpv1.NodeClaim) error {
	var pods corev1.PodList
	var budgets policyv1.PodDisruptionBudgetList
	if err := u.Kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": "node-" + c.Name}); err != nil {
		return err
	}
	if err := u.Kube.List(ctx, &budgets); err != nil {
		return err
	}
	for i := range pods.Items {
		for k := range budgets.Items {
			if b := &budgets.Items[k]; b.Name == pods.Items[i].Labels["app"] && b.Status.DisruptionsAllowed == 0 {
				u.wrong = append(u.wrong, fmt.Sprintf("claim %s was begun with pod %s on it, which budget %s does not let go", c.Name, pods.Items[i].Name, b.Name))
			}
		}
	}
	return nil
}

// ended checks the pods of a claim that was deleted in this pass.
func (u *run) ended(ctx context.Context, c *karpv1.NodeClaim) error {
	var pods corev1.PodList
	if err := u.Kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": "node-" + c.Name}); err != nil {
		return err
	}
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
			u.wrong = append(u.wrong, fmt.Sprintf("claim %s was deleted with pod %s on it, which is not to be disrupted", c.Name, p.Name))
		}
	}
	return nil
}
