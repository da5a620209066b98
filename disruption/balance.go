// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"math"
	"slices"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// balanceK is the k of policy Balanced: a move may disrupt at most k times the share of its pool that it saves (Karpenter's
// BalancedK).
const balanceK = 2

// balance are the sums that policy Balanced scores a move against: of all nodes of the pool, candidates or not.
type balance struct {
	price, cost map[string]float64
}

// balance sums up the pools if one of the candidates is of a Balanced one.
func (d *decider) balance(list []*Node) *balance {
	if !slices.ContainsFunc(list, func(n *Node) bool { return n.Policy().IsBalanced() }) {
		return nil
	}
	b := &balance{price: map[string]float64{}, cost: map[string]float64{}}
	for _, n := range d.s.Nodes {
		if n.Initialized() {
			b.price[n.PoolName()] += n.Price()
			b.cost[n.PoolName()] += n.Cost
		}
	}
	return b
}

// refuses says why policy Balanced does not want the move, empty if it does or nobody asks. The score is the share of the pool's
// price it saves over the share of the pool's disruption cost it disrupts, and has to be at least 1/k in each Balanced pool;
// the saving of a move over several pools is split by what its nodes cost.
func (b *balance) refuses(c *Command) string {
	if b == nil {
		return ""
	}
	total := 0.0
	prices, costs := map[string]float64{}, map[string]float64{}
	for _, n := range c.Going {
		total += n.Price()
		prices[n.PoolName()] += n.Price()
		costs[n.PoolName()] += n.Cost
	}
	for _, n := range c.Going {
		pool := n.PoolName()
		if !n.Policy().IsBalanced() {
			continue
		}
		saving := c.Saving
		if len(prices) > 1 && total > 0 {
			saving *= prices[pool] / total
		}
		if s := score(saving, costs[pool], b.price[pool], b.cost[pool]); s < 1.0/balanceK {
			return fmt.Sprintf("Score %.2f < threshold %.2f (policy %s, k: %d)", s, 1.0/balanceK, karpv1.ConsolidationPolicyBalanced, balanceK)
		}
	}
	return ""
}

// score is Karpenter's ScoreMove.
func score(saving, cost, poolPrice, poolCost float64) float64 {
	switch {
	case poolPrice <= 0 || poolCost <= 0 || saving <= 0:
		return 0
	case cost <= 0:
		return math.Inf(1)
	}
	return (saving / poolPrice) / (cost / poolCost)
}
