// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package sim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// registrationTimeout is when a claim whose machine never joins is deleted (Karpenter's).
const registrationTimeout = 15 * time.Minute

// Node adds a node that is ready, of the cheapest offering of a type, and its claim.
func (c *Cluster) Node(ctx context.Context, name, pool, typ string) (*karpv1.NodeClaim, error) {
	claim := builder.NodeClaim(name).UID("uid-" + name).Pool(pool).Created(c.Clock.Now()).Require(builder.In(corev1.LabelInstanceTypeStable, typ)).Obj()
	if err := c.Kube.Create(ctx, claim); err != nil {
		return nil, err
	}
	if err := c.launch(ctx, claim); err != nil {
		return nil, err
	}
	return claim, c.join(ctx, claim)
}

// Step lets time pass, and everybody but the disruption controller do what is due.
func (c *Cluster) Step(ctx context.Context, d time.Duration) error {
	c.Clock.Step(d)
	var claims karpv1.NodeClaimList
	if err := c.Kube.List(ctx, &claims); err != nil {
		return err
	}
	for i := range claims.Items {
		if err := c.live(ctx, &claims.Items[i]); err != nil {
			return fmt.Errorf("claim %q: %w", claims.Items[i].Name, err)
		}
	}
	if err := c.Sync(ctx); err != nil {
		return err
	}
	return c.schedule(ctx)
}

// live does what is due for a claim.
func (c *Cluster) live(ctx context.Context, claim *karpv1.NodeClaim) error {
	age := c.Clock.Since(claim.CreationTimestamp.Time)
	switch {
	case claim.DeletionTimestamp != nil:
		return c.drain(ctx, claim)
	case claim.Status.NodeName != "":
		return nil
	case c.Broken != nil && c.Broken(claim):
		if age >= registrationTimeout {
			return client.IgnoreNotFound(c.Kube.Delete(ctx, claim))
		}
		return nil
	case claim.Status.ProviderID == "":
		return c.launch(ctx, claim)
	case age >= c.Boot:
		return c.join(ctx, claim)
	}
	return nil
}

// launch gives the claim the cheapest instance that it accepts.
func (c *Cluster) launch(ctx context.Context, claim *karpv1.NodeClaim) error {
	reqs := capacity.Requirements{}
	for _, r := range claim.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			return err
		}
		if c.Catalog.Defines(q.Key) {
			reqs = reqs.With(q)
		}
	}
	wanted := capacity.FromList(claim.Spec.Resources.Requests)
	for i := range c.Catalog.Match(reqs).All {
		o := &c.Catalog.Offerings[i]
		if !wanted.Fits(o.Type.Allocatable) {
			continue
		}
		if claim.Labels == nil {
			claim.Labels = map[string]string{}
		}
		maps.Copy(claim.Labels, o.Type.Labels)
		claim.Labels[corev1.LabelInstanceTypeStable], claim.Labels[corev1.LabelTopologyZone], claim.Labels[karpv1.CapacityTypeLabelKey] = o.Type.Name, o.Zone, o.CapacityType
		if err := c.Kube.Update(ctx, claim); err != nil {
			return err
		}
		claim.Status.ProviderID = "aws:///" + o.Zone + "/i-" + claim.Name
		claim.Status.Capacity, claim.Status.Allocatable = o.Type.Capacity.List(), o.Type.Allocatable.List()
		claim.StatusConditions(status.WithClock(c.Clock)).SetTrue(karpv1.ConditionTypeLaunched)
		return c.Kube.Status().Update(ctx, claim)
	}
	return fmt.Errorf("nothing in the catalogue satisfies %v", claim.Spec.Requirements)
}

// join makes the claim's machine a node that is ready.
func (c *Cluster) join(ctx context.Context, claim *karpv1.NodeClaim) error {
	t := c.Catalog.Type(claim.Labels[corev1.LabelInstanceTypeStable])
	b := builder.Node("node-" + claim.Name).UID("uid-node-" + claim.Name).Pool(claim.Labels[karpv1.NodePoolLabelKey]).ProviderID(claim.Status.ProviderID)
	for k, v := range claim.Labels {
		b.Label(k, v)
	}
	n := b.Obj()
	n.Status.Capacity, n.Status.Allocatable = t.Capacity.List(), t.Allocatable.List()
	n.Spec.Taints = claim.Spec.Taints
	if err := c.Kube.Create(ctx, n); err != nil {
		return err
	}
	claim.Status.NodeName = n.Name
	conditions := claim.StatusConditions(status.WithClock(c.Clock))
	conditions.SetTrue(karpv1.ConditionTypeRegistered)
	conditions.SetTrue(karpv1.ConditionTypeInitialized)
	return c.Kube.Status().Update(ctx, claim)
}

// drain evicts what may be evicted from a claim's node and ends the claim when nothing is left.
func (c *Cluster) drain(ctx context.Context, claim *karpv1.NodeClaim) error {
	name := "node-" + claim.Name
	var pods corev1.PodList
	if claim.Status.NodeName != "" {
		if err := c.Kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": name}); err != nil {
			return err
		}
	}
	left := 0
	for i := range pods.Items {
		gone, err := c.evict(ctx, &pods.Items[i])
		if err != nil {
			return err
		}
		if !gone {
			left++
		}
	}
	if left > 0 {
		return nil
	}
	if claim.Status.NodeName != "" {
		if err := client.IgnoreNotFound(c.Kube.Delete(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}})); err != nil {
			return err
		}
	}
	claim.Finalizers = nil
	return client.IgnoreNotFound(c.Kube.Update(ctx, claim))
}

// evict deletes the pod if its annotation and budgets allow that; its owner makes another.
func (c *Cluster) evict(ctx context.Context, p *corev1.Pod) (gone bool, err error) {
	if p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" {
		return false, nil
	}
	for _, o := range c.stores.pdbs.List() {
		b, ok := o.(*policyv1.PodDisruptionBudget)
		if !ok || b.Namespace != p.Namespace || !selects(b, p) {
			continue
		}
		if b.Status.DisruptionsAllowed <= 0 {
			return false, nil
		}
		b.Status.DisruptionsAllowed--
	}
	c.Evictions++
	next := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Labels: p.Labels, Annotations: p.Annotations}, Spec: *p.Spec.DeepCopy()}
	next.Name, _, _ = strings.Cut(p.Name, ".")
	next.Name = fmt.Sprintf("%s.%d", next.Name, c.Evictions)
	next.Spec.NodeName = ""
	if err := c.Kube.Delete(ctx, p); err != nil {
		return false, err
	}
	return true, c.Kube.Create(ctx, next)
}

func selects(b *policyv1.PodDisruptionBudget, p *corev1.Pod) bool {
	sel, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	return err == nil && sel.Matches(labels.Set(p.Labels))
}

// count sets how many disruptions a budget allows: those of its pods that run beyond minAvailable.
func (c *Cluster) count(ctx context.Context, b *policyv1.PodDisruptionBudget, pods *corev1.PodList) error {
	running := int32(0)
	for i := range pods.Items {
		if p := &pods.Items[i]; p.Namespace == b.Namespace && selects(b, p) && p.Spec.NodeName != "" {
			running++
		}
	}
	allowed := max(running-int32(b.Spec.MinAvailable.IntValue()), 0)
	if b.Status.DisruptionsAllowed == allowed {
		return nil
	}
	b.Status.DisruptionsAllowed = allowed
	return c.Kube.Status().Update(ctx, b)
}

// schedule binds pods that wait to nodes with room, and buys nodes for the others.
func (c *Cluster) schedule(ctx context.Context) error {
	v, err := c.View(ctx)
	if err != nil {
		return err
	}
	objects := map[types.UID]*corev1.Pod{}
	in := plan.Input{View: v}
	for _, o := range c.stores.pods.List() {
		if p, ok := o.(*corev1.Pod); ok && p.Spec.NodeName == "" {
			objects[p.UID] = p
			in.Pods = append(in.Pods, c.views.Pod(p))
		}
	}
	if len(in.Pods) == 0 {
		return nil
	}
	slices.SortFunc(in.Pods, func(a, b *capacity.Pod) int { return strings.Compare(a.String(), b.String()) })
	r := plan.Solve(in)
	for _, p := range r.Placements {
		if p.Node.Phase != capacity.Usable {
			continue // it waits for that node
		}
		if err := c.bind(ctx, objects[p.Pod.UID], p.Node.Name); err != nil {
			return err
		}
	}
	for i := range r.Launches {
		var np karpv1.NodePool
		if err := c.Kube.Get(ctx, client.ObjectKey{Name: r.Launches[i].Pool.Name}, &np); err != nil {
			return err
		}
		claim := launch.NewClaim(&np, r.Launches[i])
		c.serial++
		claim.Name = fmt.Sprintf("%s-planned-%d", np.Name, c.serial)
		if err := c.Kube.Create(ctx, claim); err != nil {
			return err
		}
	}
	return c.Sync(ctx)
}

// bind puts a pod on a node.
func (c *Cluster) bind(ctx context.Context, p *corev1.Pod, node string) error {
	p = p.DeepCopy()
	p.Spec.NodeName = node
	p.Status.Phase = corev1.PodRunning
	return c.Kube.Update(ctx, p)
}

// Claims lists all claims.
func (c *Cluster) Claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	err := c.Kube.List(ctx, &list)
	return list.Items, err
}
