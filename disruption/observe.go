// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// writtenFor is how long a claim is believed to exist although the cache does not show it.
const writtenFor = 30 * time.Second

// droppedFor is how long the cache may show the record of a command that was taken back.
const droppedFor = time.Hour

// observe makes a snapshot of what the caches show and this process has done since.
func (c *Controller) observe(ctx context.Context) (*Snapshot, error) {
	view, err := c.Views.View(ctx)
	if err != nil {
		return nil, fmt.Errorf("building the view: %w", err)
	}
	s := &Snapshot{Now: c.Clock.Now(), View: view, Pools: map[string]*Pool{}, Repair: c.Repair, instances: c.instances, asked: c.asked}
	if c.Admission != nil {
		s.Paused = c.Admission.Unhealthy(ctx)
	}
	pdbs, err := c.PDBs.List(labels.Everything())
	if err != nil {
		return nil, fmt.Errorf("listing PodDisruptionBudgets: %w", err)
	}
	s.limits = newLimits(pdbs)
	if err := c.observePools(ctx, s); err != nil {
		return nil, err
	}
	c.observeWaiting(s)
	return s, c.observeNodes(ctx, s)
}

func (c *Controller) observePools(ctx context.Context, s *Snapshot) error {
	var pools karpv1.NodePoolList
	if err := c.Kube.List(ctx, &pools, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodePools: %w", err)
	}
	var classes v1.EC2NodeClassList
	if err := c.Kube.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	known := make([]*v1.EC2NodeClass, len(classes.Items))
	for i := range classes.Items {
		known[i] = &classes.Items[i]
	}
	for i := range pools.Items {
		np := &pools.Items[i]
		ref := np.Spec.Template.Spec.NodeClassRef
		if capacity.Managed(ref) && !c.managed(ref) {
			s.yielded = append(s.yielded, np)
		}
		if !c.managed(ref) {
			continue
		}
		s.Pools[np.Name] = newPool(np, known)
	}
	return nil
}

func (c *Controller) observeNodes(ctx context.Context, s *Snapshot) error {
	var claims karpv1.NodeClaimList
	if err := c.Kube.List(ctx, &claims, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing NodeClaims: %w", err)
	}
	planned := byClaim(s.View)
	c.mu.Lock()
	defer c.mu.Unlock()
	seen, alive := make(map[string]bool, len(claims.Items)), make(map[types.UID]bool, len(claims.Items))
	for i := range claims.Items {
		claim := &claims.Items[i]
		seen[claim.Name] = true
		alive[claim.UID] = claim.DeletionTimestamp == nil
		delete(c.written, claim.Name)
		if !c.managed(claim.Spec.NodeClassRef) {
			continue
		}
		n := &Node{Claim: claim, Pool: s.Pools[claim.Labels[karpv1.NodePoolLabelKey]], Planned: planned[claim.Name], deleted: c.deleted[claim.UID]}
		n.Node = c.nodeOf(claim)
		n.Record = c.recordOf(claim)
		n.Awaited = c.Seats.Awaited(claim.Name)
		n.KeptFree = c.Buffers != nil && c.Buffers.KeptFree(claim.Name)
		n.Load = c.loads.of(n.Node, c.Pods, c.load)
		s.Nodes = append(s.Nodes, n)
	}
	for name := range c.mine {
		if !seen[name] {
			delete(c.mine, name)
		}
	}
	maps.DeleteFunc(c.dropped, func(_ string, at time.Time) bool { return s.Now.Sub(at) > droppedFor })
	maps.DeleteFunc(c.deleted, func(uid types.UID, _ bool) bool { return !alive[uid] })
	s.unseen = map[string]string{}
	for name, w := range c.written {
		if s.Now.Sub(w.at) > writtenFor {
			delete(c.written, name)
			continue
		}
		s.unseen[name] = w.pool
	}
	slices.SortFunc(s.Nodes, func(a, b *Node) int { return strings.Compare(a.Claim.Name, b.Claim.Name) })
	c.loads.forget(s)
	return nil
}

// nodeOf finds the claim's Node, nil if it has not joined.
func (c *Controller) nodeOf(claim *karpv1.NodeClaim) *corev1.Node {
	if claim.Status.NodeName == "" {
		return nil
	}
	n, err := c.Nodes.Get(claim.Status.NodeName)
	if err != nil || n.Spec.ProviderID != claim.Status.ProviderID {
		return nil
	}
	return n
}

// recordOf is the command the claim belongs to. What this process has just written or taken back counts before the cache. The
// lock is held.
func (c *Controller) recordOf(claim *karpv1.NodeClaim) *Record {
	r := ParseRecord(claim.Annotations[RecordAnnotation])
	if r != nil {
		if _, taken := c.dropped[r.ID]; taken {
			r = nil
		}
	}
	if mine := c.mine[claim.Name]; mine != nil {
		if r != nil && r.ID == mine.ID && len(r.Replacements) == len(mine.Replacements) {
			delete(c.mine, claim.Name)
		}
		return mine
	}
	return r
}

// loads are the pods of each node, kept while none of them changes.
type loads struct {
	mu    sync.Mutex
	known map[string]*Load
	none  *Load
}

func newLoads() *loads { return &loads{known: map[string]*Load{}, none: &Load{Cost: baseCost}} }

// changed has the node's pods looked at again.
func (l *loads) changed(node string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.known, node)
}

func (l *loads) of(n *corev1.Node, pods Indexer, load func([]*corev1.Pod) *Load) *Load {
	if n == nil {
		return l.none
	}
	l.mu.Lock()
	known := l.known[n.Name]
	if known == nil { // an event that comes meanwhile takes it out again
		known = &Load{}
		l.known[n.Name] = known
	} else {
		l.mu.Unlock()
		return known
	}
	l.mu.Unlock()
	whole := false
	defer func() {
		if !whole { // a panic must not leave a node behind that looks empty
			l.changed(n.Name)
		}
	}()
	list := podsOn(pods, n.Name)
	*known = *load(list)
	whole = true
	return known
}

func podsOn(pods Indexer, node string) []*corev1.Pod {
	objects, err := pods.ByIndex(NodeIndex, node)
	if err != nil {
		panic("disruption: the pod informer lacks disruption.Indexers: " + err.Error())
	}
	list := make([]*corev1.Pod, 0, len(objects))
	for _, o := range objects {
		if p, ok := o.(*corev1.Pod); ok {
			list = append(list, p)
		}
	}
	return list
}

// load sorts out the pods of one node.
func (c *Controller) load(pods []*corev1.Pod) *Load { return NewLoad(pods, c.Views.Pod, c.Replacement) }

// NewLoad sorts out the pods of one node; convert makes them what the planner knows, replacement, which may be nil, what takes
// their place. The list is sorted in place.
func NewLoad(pods []*corev1.Pod, convert func(*corev1.Pod) *capacity.Pod, replacement func(*corev1.Pod) *corev1.Pod) *Load {
	out := &Load{}
	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(string(a.UID), string(b.UID)) })
	for _, p := range pods {
		if ended(p) {
			continue
		}
		out.Pods = append(out.Pods, p)
		if p.Annotations[karpv1.DoNotDisruptAnnotationKey] != "" {
			out.guarded = append(out.guarded, p)
		}
		if reschedulable(p) {
			next := p
			if replacement != nil {
				next = replacement(p)
			}
			out.Moving = append(out.Moving, next)
			out.Plan = append(out.Plan, convert(moved(next, next != p)))
		}
	}
	out.largest = bySize(out.Plan)
	out.Cost = disruptionCost(out.Moving)
	h := fnv.New64a()
	for _, p := range out.Moving {
		_, _ = h.Write([]byte(p.UID)) // never fails
		_, _ = h.Write(binary.LittleEndian.AppendUint64(nil, uint64(p.Generation)))
	}
	out.sum = h.Sum64()
	return out
}

// moved is the pod as it will want a place again. One whose volumes have to be reached from where it goes is to be seen without
// its node, and one that comes back changed is another; any other is the same pod to the planner.
func moved(p *corev1.Pod, changed bool) *corev1.Pod {
	held := slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
	if !held && !changed && len(p.Spec.ResourceClaims) == 0 {
		return p
	}
	out := *p // what is below the surface is shared and read-only
	out.UID = "moving/" + p.UID
	out.Spec.NodeName = ""
	return &out
}

func (l *loads) forget(s *Snapshot) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.known) <= 2*len(s.Nodes) {
		return
	}
	there := map[string]bool{}
	for _, n := range s.Nodes {
		if n.Node != nil {
			there[n.Node.Name] = true
		}
	}
	for name := range l.known {
		if !there[name] {
			delete(l.known, name)
		}
	}
}

// PodEvents is to be registered with the pod informer.
func (c *Controller) PodEvents() cache.ResourceEventHandler {
	note := func(p *corev1.Pod, cameOrWent bool) {
		if p.Spec.NodeName == "" {
			return
		}
		c.loads.changed(p.Spec.NodeName)
		if cameOrWent && !ownedBy(p, "apps/v1", "DaemonSet") {
			c.memory.PodChanged(p.Spec.NodeName, c.Clock.Now())
		}
		c.Changed()
	}
	return cache.ResourceEventHandlerDetailedFuncs{
		AddFunc: func(obj any, initial bool) {
			if p, ok := obj.(*corev1.Pod); ok {
				note(p, !initial)
			}
		},
		UpdateFunc: func(before, after any) {
			a, ok1 := before.(*corev1.Pod)
			b, ok2 := after.(*corev1.Pod)
			if !ok1 || !ok2 {
				return
			}
			bound := a.Spec.NodeName == "" && b.Spec.NodeName != ""
			leaves := ended(a) != ended(b) || (a.DeletionTimestamp == nil) != (b.DeletionTimestamp == nil)
			if a.ResourceVersion != b.ResourceVersion {
				note(b, bound || leaves)
			}
		},
		DeleteFunc: func(obj any) {
			if t, ok := obj.(cache.DeletedFinalStateUnknown); ok {
				obj = t.Obj
			}
			if p, ok := obj.(*corev1.Pod); ok {
				note(p, true)
			}
		},
	}
}
