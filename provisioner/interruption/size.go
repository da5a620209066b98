// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Catalogs says what can be bought for a node class; it never waits. The answer is nil while nothing is known.
type Catalogs interface {
	For(class *v1.EC2NodeClass) *capacity.Catalog
}

const (
	// growth is how many times the room of the nodes they replace replacements may have at most: a storm of notices is answered
	// with fewer writes and calls, and one machine never stands for more than that many.
	growth = 8
	// keep is how many replacements a group has at least, whatever they could hold.
	keep = 2
	// variety is how many instance types have to hold a replacement that is larger than what was there: spot needs depth.
	variety = 8
)

// room is how much the replacements of a group of nodes may hold: what the largest of them had room for, or a multiple that
// enough instance types have which the nodes' own requirements allow.
func (b *buyer) room(ctx context.Context, claim *karpv1.NodeClaim, loads []load) capacity.Resources {
	one := largest(loads)
	most := int64(1)
	for most < growth && most*keep*2 <= int64(len(loads)) {
		most *= 2
	}
	if most == 1 || b.Catalogs == nil || one.IsZero() {
		return one
	}
	sizes := b.sizes(ctx, claim)
	for factor := most; factor > 1; factor /= 2 {
		room := capacity.Resources{}.AddTimes(one, factor)
		room.Ephemeral = one.Ephemeral // a disk of the class's size, whatever the type
		n := 0
		for _, t := range sizes {
			if room.Fits(t.Allocatable) {
				n++
			}
		}
		if n >= variety {
			return room
		}
	}
	return one
}

// sizes are the instance types the claim's requirements allow, but for bare metal and accelerated ones.
func (b *buyer) sizes(ctx context.Context, claim *karpv1.NodeClaim) []*capacity.InstanceType {
	class := &v1.EC2NodeClass{}
	if err := b.Kube.Get(ctx, types.NamespacedName{Name: claim.Spec.NodeClassRef.Name}, class); err != nil {
		log.FromContext(ctx).V(1).Info("replacements are no larger than what they replace", "nodeClass", claim.Spec.NodeClassRef.Name, "reason", err.Error())
		return nil
	}
	catalog := b.Catalogs.For(class)
	if catalog == nil {
		return nil
	}
	requirements := capacity.Requirements{}
	for _, s := range claim.Spec.Requirements {
		q, err := capacity.NewRequirement(s.Key, s.Operator, s.Values...)
		if err != nil {
			return nil
		}
		requirements = requirements.With(q)
	}
	var out []*capacity.InstanceType
	seen := map[string]bool{}
	match := catalog.Match(requirements)
	for i := range match.All {
		t := catalog.Offerings[i].Type
		if !seen[t.Name] && !strings.Contains(t.Name, ".metal") && !accelerated(t) {
			out = append(out, t)
		}
		seen[t.Name] = true
	}
	return out
}

func accelerated(t *capacity.InstanceType) bool {
	for _, key := range []string{v1.LabelInstanceGPUCount, v1.LabelInstanceAcceleratorCount} {
		if _, ok := t.Labels[key]; ok {
			return true
		}
	}
	return false
}
