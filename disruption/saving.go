// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"slices"

	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// worthwhile narrows what the command may buy to what still saves enough, and says why it does not if it does not.
func worthwhile(c *Command) string {
	before, least := 0.0, 0.0
	spot := false
	for _, n := range c.Going {
		if n.Planned == nil {
			return fmt.Sprintf("NodeClaim %q is not in the view any more", n.Claim.Name)
		}
		before += n.Price()
		least = max(least, ptr.Deref(n.Pool.Settings.MinSaving, DefaultMinSaving))
		spot = spot || n.Planned.CapacityType == karpv1.CapacityTypeSpot
	}
	after := price(c.Launches)
	if c.Saving = before - after; c.Saving <= 0 {
		return noCheaper
	}
	if after > before*(1-least) {
		return fmt.Sprintf("Replacing it saves %.1f %%, less than the %.1f %% it has to", 100*c.Saving/before, 100*least)
	}
	if len(c.Launches) > 0 {
		for i := range c.Launches {
			l, pools, why := narrow(c.Launches[i], before*(1-least)/after)
			if why != "" {
				return why
			}
			c.Launches[i] = l
			if need := least + spotRisk/float64(max(pools, 1)); spot && pools > 0 && after > before*(1-need) {
				return fmt.Sprintf("Replacing spot by spot from %d pools saves %.1f %%, less than the %.1f %% its risk is worth", pools, 100*c.Saving/before, 100*need)
			}
		}
	}
	return ""
}

// narrow keeps the offerings of a launch that cost at most factor times its cheapest, so that whatever EC2 picks still saves. Of
// spot and on-demand the replacement is pinned to spot where spot is what saves, as Karpenter does. pools is how many spot
// pools are left.
func narrow(l plan.Launch, factor float64) (out plan.Launch, pools int, why string) {
	limit := l.Price() * factor
	cheap := make([]capacity.CatalogOffering, 0, len(l.Offerings))
	kind := l.Offerings[0].CapacityType
	for _, o := range l.Offerings {
		if o.Price <= limit && o.CapacityType == kind {
			cheap = append(cheap, o)
		}
	}
	var types, zones []string
	for _, o := range cheap {
		if !slices.Contains(types, o.Type.Name) {
			types = append(types, o.Type.Name)
		}
		if !slices.Contains(zones, o.Zone) {
			zones = append(zones, o.Zone)
		}
	}
	if kind == karpv1.CapacityTypeSpot {
		pools = len(cheap)
	}
	out = l
	out.Offerings = cheap
	out.Requirements = l.Requirements.With(
		capacity.In("node.kubernetes.io/instance-type", types...), capacity.In("topology.kubernetes.io/zone", zones...), capacity.In(karpv1.CapacityTypeLabelKey, kind),
	)
	for key, q := range l.Requirements {
		if q.MinValues > 0 {
			if have := distinct(cheap, key); have < q.MinValues {
				return out, pools, fmt.Sprintf("MinValues of %s would not be met by what is cheaper: %d of %d values", key, have, q.MinValues)
			}
		}
	}
	return out, pools, ""
}

// distinct counts the values the offerings have for a label.
func distinct(offerings []capacity.CatalogOffering, key string) int {
	seen := map[string]bool{}
	for _, o := range offerings {
		switch key {
		case "topology.kubernetes.io/zone":
			seen[o.Zone] = true
		case karpv1.CapacityTypeLabelKey:
			seen[o.CapacityType] = true
		case "node.kubernetes.io/instance-type":
			seen[o.Type.Name] = true
		default:
			if v, ok := o.Type.Labels[key]; ok {
				seen[v] = true
			}
		}
	}
	return len(seen)
}
