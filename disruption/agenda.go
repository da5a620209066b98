// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"math"
	"slices"
)

// A pass looks at everything when much has changed. Otherwise it does a slice of what there is to do, so that what has just changed
// is decided in some milliseconds however large the cluster is; the next pass, a second later, goes on.
const (
	// muchChanged is the part of all nodes that has to have changed for a pass to look at everything.
	muchChanged = 8
	// slicePods bounds the pods that a slice plans anew; one node is planned in any case. Of many pods to plan, a slice takes its
	// backlogShare.
	slicePods    = 64
	backlogShare = 8
	// sliceAgain bounds the nodes looked at only because their turn has come again.
	sliceAgain = 4
)

// agenda is what consolidation looks at in one pass, beside nodes that it has an opinion of.
type agenda struct {
	// later are nodes whose turn to be looked at again has come, and is put off.
	later map[*Node]bool
	// pods is how many pods may still be planned anew.
	pods int
	// whole says that everything is looked at.
	whole bool
}

// newAgenda sorts the candidates into those nothing is known of, with the pods and the price they have now, and those whose turn has
// come again; of the latter the ones that have waited for longest are chosen.
func (d *decider) newAgenda(list []*Node) *agenda {
	var again []*Node
	changed, pods := 0, 0
	for _, n := range list {
		switch v := d.m.replaced[n.Claim.Name]; {
		case !v.about(n):
			changed++
			pods += len(n.Plan)
		case !d.s.Now.Before(v.until):
			again = append(again, n)
		}
	}
	if changed > max(len(d.s.Nodes)/muchChanged, groupSize) {
		return &agenda{pods: math.MaxInt, whole: true}
	}
	a := &agenda{later: map[*Node]bool{}, pods: max(slicePods, pods/backlogShare)}
	slices.SortStableFunc(again, func(x, y *Node) int {
		return d.m.replaced[x.Claim.Name].until.Compare(d.m.replaced[y.Claim.Name].until)
	})
	for _, n := range again[min(sliceAgain, len(again)):] {
		a.later[n] = true
	}
	d.out.More = d.out.More || len(a.later) > 0
	return a
}

// known says why nothing was found for the node when it was last looked at, if that still holds or has to do for this pass.
func (d *decider) known(n *Node) (string, bool) {
	if d.agenda.later[n] {
		return d.m.replaced[n.Claim.Name].message, true
	}
	return d.m.known(n, d.s.Now)
}

// sorted puts the nodes to be planned anew into order: the most wasteful first, where not everything is looked at those that have
// changed before the others, of which the one that has waited for longest comes first.
func (d *decider) sorted(list []*Node, waste map[*Node]float64) []*Node {
	slices.SortStableFunc(list, func(a, b *Node) int {
		x, y := d.m.replaced[a.Claim.Name], d.m.replaced[b.Claim.Name]
		switch before, after := x.about(a), y.about(b); {
		case d.agenda.whole, !before && !after:
		case !before:
			return -1
		case !after:
			return 1
		default:
			return x.until.Compare(y.until)
		}
		switch {
		case waste[a] > waste[b]:
			return -1
		case waste[a] < waste[b]:
			return 1
		}
		return 0
	})
	return list
}

// group takes the nodes from the front of a list that are planned together.
func (a *agenda) group(list []*Node) int {
	n, pods := 0, 0
	for n < len(list) && n < groupSize {
		if pods += len(list[n].Plan); n > 0 && pods > a.pods {
			break
		}
		n++
	}
	return n
}
