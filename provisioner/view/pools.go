// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// poolSet is every pool and what they can buy.
type poolSet struct {
	list     []*capacity.Pool // sorted
	byName   map[string]*capacity.Pool
	catalogs map[string]*capacity.Catalog // by class name
	// versions change with what makes the daemonset pods of the pool's nodes.
	versions map[string]poolVersion
}

type poolVersion struct {
	uid        types.UID
	generation int64
	catalog    *capacity.Catalog
	daemons    string // their IDs
}

// pools converts every NodePool. A pool that cannot be used now is in the result with Blocked saying why.
func (b *Builder) pools(ctx context.Context) (poolSet, error) {
	out := poolSet{byName: map[string]*capacity.Pool{}, catalogs: map[string]*capacity.Catalog{}, versions: map[string]poolVersion{}}
	var list karpv1.NodePoolList
	if err := b.src.Karpenter.List(ctx, &list, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing NodePools: %w", err)
	}
	var classes v1.EC2NodeClassList
	if err := b.src.Karpenter.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return out, fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	byName := make(map[string]*v1.EC2NodeClass, len(classes.Items))
	for i := range classes.Items {
		c := &classes.Items[i]
		byName[c.Name] = c
		out.catalogs[c.Name] = b.src.Catalog(c)
	}
	daemons, err := b.daemons()
	if err != nil {
		return out, err
	}
	ids := make([]string, len(daemons))
	for i, d := range daemons {
		ids[i] = d.ID
	}
	running := strings.Join(ids, ",")
	for i := range list.Items {
		np := &list.Items[i]
		p := b.pool(np, byName[np.Spec.Template.Spec.NodeClassRef.Name], daemons)
		out.list, out.byName[p.Name] = append(out.list, p), p
		out.versions[p.Name] = poolVersion{uid: np.UID, generation: np.Generation, catalog: p.Catalog, daemons: running}
	}
	slices.SortFunc(out.list, func(a, b *capacity.Pool) int {
		return cmp.Or(cmp.Compare(b.Weight, a.Weight), strings.Compare(a.Name, b.Name))
	})
	return out, nil
}

func (b *Builder) pool(np *karpv1.NodePool, class *v1.EC2NodeClass, daemons []*capacity.Class) *capacity.Pool {
	ref := np.Spec.Template.Spec.NodeClassRef
	p := &capacity.Pool{
		Name:          np.Name,
		Annotations:   np.Annotations,
		Static:        np.Spec.Replicas != nil,
		ClassRef:      capacity.ClassRef{Group: ref.Group, Kind: ref.Kind, Name: ref.Name},
		Taints:        np.Spec.Template.Spec.Taints,
		StartupTaints: np.Spec.Template.Spec.StartupTaints,
		Daemons:       daemons,
	}
	if np.Spec.Weight != nil {
		p.Weight = *np.Spec.Weight
	}
	said := capacity.ParsePoolAnnotations(np.Annotations)
	p.Evenness, p.LookAhead = said.Evenness, said.LookAhead
	p.Limits = corev1.ResourceList{}
	for name, q := range np.Spec.Limits {
		if name == "nodes" {
			p.LimitNodes = new(capacity.FromList(corev1.ResourceList{corev1.ResourcePods: q}).Pods) // a count that saturates
			continue
		}
		p.Limits[name] = q
	}
	reqs, err := Requirements(np)
	if err != nil {
		p.Blocked = err.Error()
		return p
	}
	p.Requirements = reqs
	if p.Blocked = Blocked(np, class); p.Blocked != "" {
		return p
	}
	if b.src.Rival != nil && ref.Group != v1alpha1.Group {
		// Whoever acts on such pools launches every NodeClaim of theirs, ours too.
		if rival := b.src.Rival(); rival != "" {
			p.Blocked = fmt.Sprintf("NodePool %q has a class of group %s, which is not Slipway's now: %s", np.Name, ref.Group, rival)
			return p
		}
	}
	p.Catalog = b.src.Catalog(class)
	if p.Catalog != nil {
		p.Requirements = p.Requirements.And(p.Catalog.Choices)
		p.Available = b.src.Available(p.Catalog)
		p.Reservations = b.reservations(p.Catalog)
	}
	return p
}

// reservations asks for the room of the catalogue's reservations, nil if it has none or they are not counted.
func (b *Builder) reservations(c *capacity.Catalog) map[string]int {
	if b.src.Reserved == nil {
		return nil
	}
	var out map[string]int
	for _, id := range c.Values(capacity.ReservationIDLabel, capacity.FullSet(len(c.Offerings))) {
		if out == nil {
			out = map[string]int{}
		}
		out[id] = b.src.Reserved(id)
	}
	return out
}

// Requirements are what every node of the pool satisfies: the template's requirements and labels, the pool's own label
// and that of its class.
func Requirements(np *karpv1.NodePool) (capacity.Requirements, error) {
	out := capacity.Requirements{}
	for _, r := range np.Spec.Template.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			return nil, fmt.Errorf("NodePool %q: spec.template.spec.requirements: %w", np.Name, err)
		}
		if r.MinValues != nil {
			q.MinValues = *r.MinValues
		}
		out = out.With(q)
	}
	ref := np.Spec.Template.Spec.NodeClassRef
	out = out.And(capacity.FromLabels(np.Spec.Template.Labels)).With(
		capacity.In(karpv1.NodePoolLabelKey, np.Name),
		capacity.In(karpv1.NodeClassLabelKey(ref.GroupKind()), ref.Name),
	)
	return out, nil
}

// Blocked says why nothing can be bought from the pool, empty if something can. It looks at the specs and the class's
// own condition rather than at the pool's Ready condition, so that a controller that is down stops no pod.
func Blocked(np *karpv1.NodePool, class *v1.EC2NodeClass) string {
	ref := np.Spec.Template.Spec.NodeClassRef
	switch {
	case np.Spec.Replicas != nil:
		return fmt.Sprintf("NodePool %q keeps a fixed number of nodes (spec.replicas)", np.Name)
	case !np.DeletionTimestamp.IsZero():
		return fmt.Sprintf("NodePool %q is being deleted", np.Name)
	case ref.Kind != capacity.ClassKind:
		return fmt.Sprintf("NodePool %q: spec.template.spec.nodeClassRef.kind %q is not one Slipway can launch (EC2NodeClass)", np.Name, ref.Kind)
	case class == nil:
		return fmt.Sprintf("EC2NodeClass %q does not exist", ref.Name)
	case !class.DeletionTimestamp.IsZero():
		return fmt.Sprintf("EC2NodeClass %q is being deleted", ref.Name)
	}
	for _, c := range class.GetConditions() {
		if c.Type == "Ready" {
			if c.Status == "True" {
				return ""
			}
			return fmt.Sprintf("EC2NodeClass %q is not ready: %s", ref.Name, cmp.Or(c.Message, c.Reason, "its status is "+string(c.Status)))
		}
	}
	return fmt.Sprintf("EC2NodeClass %q has not been resolved yet", ref.Name)
}
