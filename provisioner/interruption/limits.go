// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// limits keeps replacements inside the limits of their NodePool, which count the old node until it is gone.
type limits struct {
	mu sync.Mutex
	// promised is the most each replacement may become, until its instance says what it is.
	promised map[string]corev1.ResourceList
}

func newLimits() *limits { return &limits{promised: map[string]corev1.ResourceList{}} }

func (l *limits) forget(claim string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.promised, claim)
}

// fit reports whether the pool's limits have room for the replacement beside the claim it replaces. In a limited pool the
// replacement is kept to the size of the instance it replaces, so that what is promised is what it can become.
func (l *limits) fit(ctx context.Context, kube client.Reader, pool *karpv1.NodePool, old, claim *karpv1.NodeClaim) (bool, error) {
	if len(pool.Spec.Limits) == 0 {
		return true, nil
	}
	var all karpv1.NodeClaimList
	if err := kube.List(ctx, &all, client.MatchingLabels{karpv1.NodePoolLabelKey: pool.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return false, fmt.Errorf("listing the NodeClaims of NodePool %q: %w", pool.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	used := l.usage(pool.Name, all.Items, claim.Name)
	need := counted(old.Status.Capacity)
	for name, limit := range pool.Spec.Limits {
		sum := used[name]
		sum.Add(need[name])
		if sum.Cmp(limit) > 0 {
			return false, nil
		}
	}
	keepSize(pool, old, claim)
	l.promised[claim.Name] = need
	return true, nil
}

// usage is what the pool's claims count for, without the one named: their instance's capacity, and before they have one
// what they were promised or, if others wrote them, ask for. The lock is held.
func (l *limits) usage(pool string, claims []karpv1.NodeClaim, without string) corev1.ResourceList {
	used := corev1.ResourceList{}
	seen := map[string]bool{}
	for i := range claims {
		c := &claims[i]
		seen[c.Name] = true
		switch promised, mine := l.promised[c.Name]; {
		case c.Name == without:
		case len(c.Status.Capacity) > 0:
			delete(l.promised, c.Name)
			add(used, counted(c.Status.Capacity))
		case mine:
			add(used, promised)
		default:
			add(used, counted(c.Spec.Resources.Requests))
		}
	}
	for name, promised := range l.promised {
		if !seen[name] && name != without && len(name) > len(pool) && name[:len(pool)+1] == pool+"-" {
			add(used, promised) // written a moment ago
		}
	}
	return used
}

// counted is the resources of one node, the node itself included.
func counted(r corev1.ResourceList) corev1.ResourceList {
	out := r.DeepCopy()
	if out == nil {
		out = corev1.ResourceList{}
	}
	out["nodes"] = *resource.NewQuantity(1, resource.DecimalSI)
	return out
}

func add(to, what corev1.ResourceList) {
	for name, q := range what {
		sum := to[name]
		sum.Add(q)
		to[name] = sum
	}
}

// keepSize narrows the replacement to instances no larger than the old one in what the pool limits.
func keepSize(pool *karpv1.NodePool, old, claim *karpv1.NodeClaim) {
	atMost := func(label string) {
		n, err := strconv.ParseInt(old.Labels[label], 10, 64)
		if err != nil {
			require(claim, corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, old.Labels[corev1.LabelInstanceTypeStable])
			return
		}
		require(claim, label, corev1.NodeSelectorOpLt, strconv.FormatInt(n+1, 10))
	}
	for name := range pool.Spec.Limits {
		switch name {
		case "nodes":
		case corev1.ResourceCPU:
			atMost(v1.LabelInstanceCPU)
		case corev1.ResourceMemory:
			atMost(v1.LabelInstanceMemory)
		default:
			require(claim, corev1.LabelInstanceTypeStable, corev1.NodeSelectorOpIn, old.Labels[corev1.LabelInstanceTypeStable])
		}
	}
}

func require(c *karpv1.NodeClaim, key string, op corev1.NodeSelectorOperator, value string) {
	c.Spec.Requirements = append(c.Spec.Requirements, karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: op, Values: []string{value}})
}
