// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"

	"sigs.k8s.io/karpenter/pkg/controllers/disruption"
	"sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
)

// validation is how long Karpenter waits in its loop before it looks at a command again, in seconds: so many commands can be begun in a time.
const validation = 15

// consolidate does what Karpenter's loop does in so many seconds: the first method that finds a command carries it out, and the
// loop begins anew.
func (w *world) consolidate(ctx context.Context, seconds int) error {
	for range max(1, seconds/validation) {
		found, err := w.disrupt(ctx)
		if err != nil {
			return err
		}
		if !found {
			return nil
		}
	}
	return nil
}

func (w *world) disrupt(ctx context.Context) (bool, error) {
	for _, m := range w.methods {
		candidates, totals, err := disruption.GetCandidatesWithTotals(ctx, w.cluster, w.store, w.recorder, w.clock, w.provider, m.ShouldDisrupt, m.Class(), w.queue, nil)
		if err != nil {
			return false, fmt.Errorf("finding candidates: %w", err)
		}
		if len(candidates) == 0 {
			continue
		}
		if s, ok := m.(disruption.NodePoolTotalsSetter); ok {
			s.SetNodePoolTotals(totals)
		}
		budgets, err := disruption.BuildDisruptionBudgetMapping(ctx, w.cluster, w.clock, w.store, w.provider, w.recorder, m.Reason())
		if err != nil {
			return false, fmt.Errorf("counting budgets: %w", err)
		}
		commands, err := m.ComputeCommands(ctx, budgets, candidates...)
		if err != nil {
			return false, fmt.Errorf("computing commands: %w", err)
		}
		commands = slices.DeleteFunc(commands, func(c disruption.Command) bool { return c.Decision() == disruption.NoOpDecision })
		for i := range commands {
			if err := w.command(ctx, &commands[i]); err != nil {
				return false, err
			}
		}
		if len(commands) > 0 {
			return true, nil
		}
	}
	return false, nil
}

// command carries a command out. Nodes that are replaced cost until what is bought instead has booted.
func (w *world) command(ctx context.Context, c *disruption.Command) error {
	for _, going := range c.Candidates {
		m := w.machines[going.Name()]
		for _, p := range slices.Clone(w.store.pods[m.node.Name]) {
			w.leave(p)
			w.out.Evictions++
		}
		if len(c.Replacements) > 0 {
			w.out.Dollars += m.price * w.boot.Hours()
		}
		delete(w.machines, m.node.Name)
		delete(w.store.claims, m.claim.Name)
		delete(w.store.pods, m.node.Name)
		w.cluster.DeleteNode(m.node.Name)
		w.cluster.DeleteNodeClaim(m.claim.Name)
		w.out.Removed++
	}
	var claims []*scheduling.NodeClaim
	for _, r := range c.Replacements {
		claims = append(claims, r.NodeClaim)
	}
	return w.carry(ctx, claims, c.Results.ExistingNodes)
}
