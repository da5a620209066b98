// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func nodePoolRules() []Rule { return slices.Concat(nodePoolSense(), nodePoolHygiene()) }

// nodePoolSense are the rules about pools that cannot do what they say.
func nodePoolSense() []Rule {
	only := []Kind{NodePool}
	return []Rule{
		{
			ID: "N001", Title: "node class missing or not usable", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Cluster,
			Why:     "Nothing is bought from a pool whose class is missing, being deleted or not ready. Warned about only: with GitOps the class may come a moment later.",
			Example: `slipway N001: spec.template.spec.nodeClassRef: EC2NodeClass "defaults" does not exist. Did you mean "default"?`,
			Fix:     "Apply the class, or mend it.",
			Check:   classUnusable,
		},
		{
			ID: "N002", Title: "no instance type matches", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Catalog,
			Why:     "A pool that matches no instance type never buys a node, and nobody says so until a pod is pending.",
			Example: `slipway N002: spec.template.spec.requirements: match none of 1370 instance types. Without the requirement on karpenter.k8s.aws/instance-generation 32 types match.`,
			Fix:     "Relax a requirement.",
			Check:   nothingMatches,
		},
		{
			ID: "N003", Title: "contradictory requirements", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Requirements on one key, or a requirement and a label of the template, that exclude each other leave no node at all.",
			Example: `slipway N003: spec.template.spec.requirements[kubernetes.io/arch]: In [amd64] and In [arm64] exclude each other. Remove one of them.`,
			Fix:     "Remove one of them.",
			Check:   contradictions,
		},
		{
			ID: "N004", Title: "values nothing has", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{VAP, Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "If no value of a requirement exists, the pool can never buy a node; if some do not, they are typing errors or types this region does not sell, and are warned about.",
			Example: `slipway N004: spec.template.spec.requirements[karpenter.sh/capacity-type]: "on_demand" is not one of on-demand, reserved, spot. Did you mean "on-demand"?`,
			Fix:     "Use values that exist.",
			Check:   unknownValues,
		},
		{
			ID: "N005", Title: "budget schedule that does not do what it says", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "A schedule that cannot be read means zero disruptions for ever, silently; that is refused. One that never fires, never lifts, or together with others always forbids some reason is warned about. Schedules are read with Karpenter's own cron library, in UTC, and simulated over 8 days.",
			Example: `slipway N005: spec.disruption.budgets[1].schedule: "0 9 * * 7" cannot be read: day of week 7 is above 6. Use 0 for Sunday.`,
			Fix:     "Correct the schedule or its duration.",
			Check:   badSchedules,
		},
		{
			ID: "N006", Title: "limits absent or below the smallest node", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Without limits a mistake in a workload can buy any number of nodes. Limits below the smallest matching instance type buy none.",
			Example: `slipway N006: spec.limits.cpu: 1 is below 2, what the smallest matching type has. Raise it, or allow smaller types.`,
			Fix:     "Set limits that hold at least one node.",
			Check:   limits,
		},
		{
			ID: "N007", Title: "overlapping pools of equal weight", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Cluster,
			Why:     "Pods that fit both get one or the other by price alone. Weights say which is meant to come first.",
			Example: `slipway N007: spec.weight: "general" and "general-2" have weight 0 and take the same pods. Give one of them more weight.`,
			Fix:     "Give one of them more weight, or taint it.",
			Check:   overlappingPools,
		},
	}
}

// nodePoolHygiene are the rules about pools that work, but not as well as they could.
func nodePoolHygiene() []Rule {
	only := []Kind{NodePool}
	return []Rule{
		{
			ID: "N008", Title: "expireAfter without terminationGracePeriod", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "An expired node drains without a bound: protected pods and budgets that allow nothing keep it, tainted and paid for.",
			Example: `slipway N008: spec.template.spec: expireAfter 720h without terminationGracePeriod: one protected pod keeps an expired node for ever. Set terminationGracePeriod.`,
			Fix:     "Set terminationGracePeriod.",
			Check:   endlessDrain,
		},
		{
			ID: "N009", Title: "defaults that are not written down", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Without requirements on operating system, architecture and capacity type a pool buys all of them by price: images that run on one architecture only fail on the other, and spot nodes come as a surprise.",
			Example: `slipway N009: spec.template.spec.requirements: nothing on kubernetes.io/arch: amd64 and arm64 nodes are bought, by price. Write it down.`,
			Fix:     "Write it down.",
			Check:   silentDefaults,
		},
		{
			ID: "N010", Title: "consolidation without a pause", Mode: v1alpha1.Audit, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "consolidateAfter 0s moves pods as soon as anything changes; it is also the default, so nobody may have asked for it.",
			Example: `slipway N010: spec.disruption.consolidateAfter: 0s consolidates with every change. Use 1m or more.`,
			Fix:     "Use 1m or more.",
			Check:   restless,
		},
		{
			ID: "N011", Title: "this update drifts nodes", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: only, Needs: Cluster,
			Why:     "A change of the template replaces every node of the pool, at the pace of its budgets.",
			Example: `slipway N011: spec.template: drifts 42 of 60 nodes of "general"; budgets allow 6 at a time. Check that this is meant.`,
			Fix:     "Check that this is meant.",
			Check:   driftsNodes,
		},
		{
			ID: "N012", Title: "deletion of a pool with nodes", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{VAP}, Kinds: []Kind{NodePool, Definition}, Needs: Nothing,
			Why:     "Deleting a NodePool deletes its nodes with their pods; deleting the CustomResourceDefinition deletes all nodes of the cluster, past every budget.",
			Example: `slipway N012: metadata.annotations[slipway.sh/confirm-delete]: "general" has 60 nodes that would go with it. Annotate it with slipway.sh/confirm-delete=general first.`,
			Fix:     "Annotate it with slipway.sh/confirm-delete=<its name> first.",
			Check:   deletesNodes,
		},
		{
			ID: "N013", Title: "duplicate taint", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Two taints of one key and effect make the pool invalid: it never gets ready.",
			Example: `slipway N013: spec.template.spec.taints: dedicated:NoSchedule is there twice. Remove one.`,
			Fix:     "Remove one.",
			Check:   duplicateTaints,
		},
		{
			ID: "N014", Title: "limits below what is there", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Limits stop purchases; nothing shrinks a pool that is above them.",
			Example: `slipway N014: spec.limits.cpu: 100 is below 240, what the pool's nodes have. Nothing will shrink; delete nodes yourself.`,
			Fix:     "Nothing will shrink; delete nodes yourself.",
			Check:   limitsBelowUse,
		},
	}
}
