// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"maps"
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// world is the cluster while commands are chosen: nodes that are going are out of it, and the pods that will come from them
// have their places, so that no two commands count on the same room.
type world struct {
	pools []*capacity.Pool
	nodes []*capacity.Node
	at    map[string]int // position in nodes, by ID
	// fed are nodes that pods of other nodes will go to.
	fed map[string]bool
	// charged says that pools are the world's own and not the view's.
	charged bool
	// repels says whether some pod that is placed keeps others away; asked says whether that is known.
	repels, asked bool
}

// newWorld places the pods of all nodes that are leaving already, or belong to a command, first: on what is there and what is on
// its way. Those that find no place are the provisioner's to buy for. After that nodes on their way are closed: nothing
// voluntary is built on a node that may never come.
func newWorld(s *Snapshot) *world {
	w := &world{pools: s.View.Pools, nodes: append([]*capacity.Node(nil), s.View.Nodes...), at: make(map[string]int, len(s.View.Nodes)), fed: map[string]bool{}}
	for i, n := range w.nodes {
		w.at[n.ID()] = i
	}
	var going []*Node
	for _, n := range s.Nodes {
		if n.Disrupted() && n.Planned != nil {
			going = append(going, n)
		}
	}
	if len(going) > 0 {
		w.apply(going, w.move(going, nil))
	}
	for i, n := range w.nodes {
		if n != nil && (n.Phase == capacity.Planned || n.Phase == capacity.Launched) {
			w.close(i)
		}
	}
	return w
}

// close keeps pods off a node; those on it stay.
func (w *world) close(i int) {
	closed := *w.nodes[i]
	closed.Phase = capacity.Leaving
	w.nodes[i] = &closed
}

// closeAll keeps pods off nodes whose turn to be replaced has come, now or soon.
func (w *world) closeAll(nodes []*Node) {
	for _, n := range nodes {
		if n.Planned == nil {
			continue
		}
		if i, ok := w.at[n.Planned.ID()]; ok {
			w.close(i)
		}
	}
}

// feeds reports whether pods of other nodes will go to the node.
func (w *world) feeds(n *Node) bool { return n.Planned != nil && w.fed[n.Planned.ID()] }

// pods are those that have to move when the nodes go.
func pods(nodes []*Node) []*capacity.Pod {
	n := 0
	for _, node := range nodes {
		n += len(node.Plan)
	}
	out := make([]*capacity.Pod, 0, n)
	for _, node := range nodes {
		out = append(out, node.Plan...)
	}
	return out
}

// without is the view without the nodes, in the given order; nil for the world's own.
func (w *world) without(going []*Node, order []*capacity.Node) *capacity.View {
	gone := make(map[string]bool, len(going))
	for _, n := range going {
		if n.Planned != nil {
			gone[n.Planned.ID()] = true
		}
	}
	if order == nil {
		order = w.nodes
	}
	out := &capacity.View{Pools: w.pools, Nodes: make([]*capacity.Node, 0, len(order))}
	for _, n := range order {
		if n != nil && !gone[n.ID()] {
			out.Nodes = append(out.Nodes, n)
		}
	}
	return out
}

// replace plans the pods of the nodes on what is left and what can be bought.
func (w *world) replace(going []*Node) plan.Result {
	in := plan.Input{View: w.without(going, nil), Pods: pods(going)}
	w.reduce(in)
	return plan.Solve(in)
}

// reduce takes nodes out of a plan's view that none of its pods can use, where no rule looks at what runs on them: most nodes
// are full, and a plan costs what its view has.
func (w *world) reduce(in plan.Input) {
	classes := map[*capacity.Class]bool{}
	for _, p := range in.Pods {
		classes[p.Class] = true
	}
	for c := range classes {
		if len(c.Spread)+len(c.Affinity)+len(c.AntiAffinity) > 0 {
			return
		}
	}
	if w.repelling() {
		return
	}
	in.View.Nodes = slices.DeleteFunc(in.View.Nodes, func(n *capacity.Node) bool {
		if n.Phase != capacity.Usable {
			return true
		}
		free := n.Free()
		for c := range classes {
			if c.Requests.Fits(free) {
				return false
			}
		}
		return true
	})
}

// repelling reports whether a pod on any node has an anti-affinity.
func (w *world) repelling() bool {
	if w.asked {
		return w.repels
	}
	w.asked = true
	for _, n := range w.nodes {
		if n == nil {
			continue
		}
		for c := range n.Pods {
			w.repels = w.repels || len(c.AntiAffinity) > 0
		}
	}
	return w.repels
}

// move plans the pods of the nodes on what is left only, tried in the given order.
func (w *world) move(going []*Node, order []*capacity.Node) plan.Result {
	view := w.without(going, order)
	view.Pools = nil
	return plan.Solve(plan.Input{View: view, Pods: pods(going)})
}

// apply takes the nodes out and puts placed pods where they will be.
func (w *world) apply(going []*Node, r plan.Result) {
	for _, n := range going {
		if n.Planned == nil {
			continue
		}
		if i, ok := w.at[n.Planned.ID()]; ok {
			w.nodes[i] = nil
			delete(w.at, n.Planned.ID())
		}
	}
	w.fill(r.Placements)
}

// fill puts pods on nodes. Nodes are shared with the view: those that change are copied first.
func (w *world) fill(placements []plan.Placement) {
	copied := map[int]bool{}
	for _, p := range placements {
		i, ok := w.at[p.Node.ID()]
		if !ok {
			continue
		}
		w.fed[p.Node.ID()] = true
		if !copied[i] {
			n := *w.nodes[i]
			n.Pods = maps.Clone(n.Pods)
			if n.Pods == nil {
				n.Pods = map[*capacity.Class]int{}
			}
			w.nodes[i], copied[i] = &n, true
		}
		n := w.nodes[i]
		n.Pods[p.Pod.Class]++
		n.Used = n.Used.Add(p.Pod.Class.Requests)
	}
}

// charge takes what will be bought from limits and reservations, so that commands of one pass do not each count on what is left of
// them. A launch counts as the largest of its offerings, as in the plan it is of. Pools are the view's: they are copied first.
func (w *world) charge(launches []plan.Launch) {
	if len(launches) > 0 && !w.charged {
		pools := make([]*capacity.Pool, len(w.pools))
		for i, p := range w.pools {
			q := *p
			q.Reservations = maps.Clone(p.Reservations)
			pools[i] = &q
		}
		w.pools, w.charged = pools, true
	}
	for i := range launches {
		l := &launches[i]
		var size capacity.Resources
		for _, o := range l.Offerings {
			size = size.Max(o.Type.Capacity)
		}
		id := l.Offerings[0].ReservationID
		for _, p := range w.pools {
			if p.Name == l.Pool.Name {
				p.Usage, p.Nodes = p.Usage.Add(size), p.Nodes+1
			}
			if n, counted := p.Reservations[id]; counted && id != "" {
				p.Reservations[id] = n - 1
			}
		}
	}
}

// price is what launches cost at least, in US dollars an hour.
func price(launches []plan.Launch) float64 {
	sum := 0.0
	for i := range launches {
		sum += launches[i].Price()
	}
	return sum
}
