// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Consolidation is what disruption would do with a cluster. Prices and savings are US dollars an hour.
type Consolidation struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	// Nodes are the nodes of NodePools, Price what they cost together. Unpriced are those of them whose price is not known.
	Nodes    int     `json:"nodes"`
	Price    float64 `json:"pricePerHour"`
	Unpriced int     `json:"unpricedNodes,omitempty"`
	// Commands are what one pass would begin, Saving what they save together.
	Commands []Move  `json:"commands"`
	Saving   float64 `json:"savingPerHour"`
	// Stays are the other nodes with why they stay.
	Stays []Stay `json:"stays"`
	// WithoutBudgets is what one pass would begin if the pools had no disruption budgets.
	WithoutBudgets Outlook `json:"withoutBudgets"`
	// StandInClaims are nodes that came without a NodeClaim.
	StandInClaims  []string       `json:"standInClaims,omitempty"`
	StandInClasses []string       `json:"standInClasses,omitempty"`
	Ignored        map[string]int `json:"ignoredKinds,omitempty"`
}

// Move is nodes that go together and what is bought instead.
type Move struct {
	Reason string `json:"reason"`
	// Decision is delete or replace.
	Decision string   `json:"decision"`
	Nodes    []Going  `json:"nodes"`
	Bought   []Node   `json:"bought,omitempty"`
	Placed   []Placed `json:"placed,omitempty"`
	Saving   float64  `json:"savingPerHour"`
	// Refused is why the scheduler's filters would not have it; such a command is taken back and saves nothing.
	Refused string `json:"refused,omitempty"`
}

// Going is a node that is there. Its price is 0 where it is not known.
type Going struct {
	Node     string `json:"node"`
	NodePool string `json:"nodePool"`
	Offering
	Pods int `json:"pods"`
}

// Stay is a node that is left as it is, and why.
type Stay struct {
	Going
	Why string `json:"why"`
}

// Outlook is how much a decision does.
type Outlook struct {
	Nodes  int     `json:"nodes"`
	Saving float64 `json:"savingPerHour"`
}

// Consolidate decides what one pass of disruption would begin at the instant now, on the nodes of the input and with the market's
// offerings, and has the scheduler's own filters judge the moves. What only a running process knows does not count: when pods
// came and went last beyond what NodeClaims say, what failed before, and drift that only EC2 sees.
func Consolidate(ctx context.Context, in *Input, m *Market, now time.Time) (*Consolidation, error) {
	// 1. The cluster, its view and the judge.
	st, err := setOut(ctx, in, m)
	if err != nil {
		return nil, err
	}
	defer st.judge.Close()
	// 2. The decision, and the one that budgets keep from being made.
	s := disruption.Survey(now, st.view, objectsOf(in, st), st.builder.Pod)
	d := disruption.Decide(s, disruption.NewMemory())
	all := disruption.Decide(s.Unbounded(), disruption.NewMemory())
	// 3. What that comes to.
	out := &Consolidation{
		APIVersion: "slipway.sh/v1alpha1", Kind: "ConsolidationPreview", Commands: []Move{}, Stays: []Stay{},
		StandInClaims: in.StoodIn, StandInClasses: st.stoodIn, Ignored: in.Ignored,
	}
	for _, n := range s.Nodes {
		out.Nodes, out.Price = out.Nodes+1, out.Price+n.Price()
		if n.Price() == 0 {
			out.Unpriced++
		}
	}
	for _, cmd := range d.Commands {
		mv := move(cmd)
		if mv.Refused, err = st.refused(ctx, cmd); err != nil {
			return nil, err
		}
		if mv.Refused == "" {
			out.Saving += mv.Saving
		}
		out.Commands = append(out.Commands, mv)
	}
	for _, cmd := range all.Commands {
		out.WithoutBudgets.Nodes += len(cmd.Going)
		out.WithoutBudgets.Saving += saving(cmd)
	}
	for _, r := range disruption.Stays(s, &d) {
		out.Stays = append(out.Stays, Stay{Going: going(r.Node), Why: r.Message})
	}
	return out, nil
}

func objectsOf(in *Input, st *stage) disruption.Objects {
	o := disruption.Objects{Pools: in.Pools, Classes: in.Classes, PDBs: in.PDBs}
	for _, object := range in.Objects {
		switch object := object.(type) {
		case *karpv1.NodeClaim:
			o.Claims = append(o.Claims, object)
		case *corev1.Node:
			o.Nodes = append(o.Nodes, object)
		case *corev1.Pod:
			o.Pods = append(o.Pods, object)
		}
	}
	for _, p := range in.Pods {
		o.Waiting = append(o.Waiting, st.builder.Pod(p))
	}
	return o
}

// refused asks the judge about the pods of one command, on the cluster without its nodes.
func (st *stage) refused(ctx context.Context, cmd *disruption.Command) (string, error) {
	pods := cmd.Pods()
	if len(pods) == 0 {
		return "", nil
	}
	var gone []string
	for _, n := range cmd.Going {
		if n.Node != nil {
			gone = append(gone, n.Node.Name)
		}
	}
	class := func(p *corev1.Pod) *capacity.Class { return st.builder.Pod(p).Class }
	r := &plan.Result{Launches: cmd.Launches, Placements: cmd.Placements}
	nodes, trials := provisioner.Planner{}.Hypotheses(st.view, r, provisioner.Pods{Wanting: pods, Class: class})
	refusals, err := st.judge.VerifyWithout(ctx, gone, nodes, trials)
	if err != nil || len(refusals) == 0 {
		return "", err
	}
	first := refusals[0]
	return fmt.Sprintf("%s/%s => %s: %s", first.Pod.Namespace, first.Pod.Name, first.Plugin, first.Reason), nil
}

func move(cmd *disruption.Command) Move {
	mv := Move{Reason: string(cmd.Reason), Decision: cmd.Decision(), Saving: saving(cmd)}
	for _, n := range cmd.Going {
		mv.Nodes = append(mv.Nodes, going(n))
	}
	for i := range cmd.Launches {
		mv.Bought = append(mv.Bought, node(&cmd.Launches[i]))
	}
	for _, p := range cmd.Placements {
		mv.Placed = append(mv.Placed, Placed{Pod: p.Pod.NamespacedName.String(), Node: p.Node.ID()})
	}
	slices.SortFunc(mv.Placed, func(a, b Placed) int { return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.Pod, b.Pod)) })
	return mv
}

// saving is what a command saves an hour: what its nodes cost less what is bought instead. Drift and expiry may cost something.
// Where the price of a node is not known neither is the saving: 0.
func saving(cmd *disruption.Command) float64 {
	sum := 0.0
	for _, n := range cmd.Going {
		if n.Price() == 0 {
			return 0
		}
		sum += n.Price()
	}
	for i := range cmd.Launches {
		sum -= cmd.Launches[i].Price()
	}
	return sum
}

func going(n *disruption.Node) Going {
	g := Going{Node: n.Claim.Name, NodePool: n.PoolName(), Pods: len(n.Moving)}
	if n.Node != nil {
		g.Node = n.Node.Name
	}
	labels := n.Claim.Labels
	g.InstanceType, g.Zone = labels[corev1.LabelInstanceTypeStable], labels[corev1.LabelTopologyZone]
	g.CapacityType, g.Price = labels[karpv1.CapacityTypeLabelKey], n.Price()
	return g
}
