// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"k8s.io/utils/ptr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// shrink finds nodes whose pods fit into the room of the others. It looks at resources, selectors, taints and host ports only
// and takes microseconds a node, where a plan for each would take milliseconds; what it chooses is planned once, together.
type shrink struct {
	world *world
	// order are the nodes pods may go to: those that stay anyway first, then candidates, the one most worth keeping first.
	order []*capacity.Node
	free  []capacity.Resources
	ports [][]capacity.HostPort
	index map[string]int // position in order, by ID
	gone  []bool         // chosen to go
	fed   []bool         // has been given pods of others
	// classes are what is known of the pods' classes.
	classes map[*capacity.Class]*classRoom
	why     map[*Node]string
	// grown are positions with more room than when nodes were found stuck.
	grown []int
	// loose is what the pods that would fit elsewhere are worth, of nodes that were not chosen.
	loose map[*Node]float64
}

// classRoom is where pods of one class have been looked for.
type classRoom struct {
	// from is the first position that may still have room; of the ones before, only those skipped may: they belonged to the node
	// that was looked at.
	from    int
	skipped []int
	// admits is 1 for positions that may hold the class by labels and taints, -1 for those that may not.
	admits []int8
}

func newShrink(w *world, list []*Node) *shrink {
	s := &shrink{world: w, index: make(map[string]int, len(w.nodes)), classes: map[*capacity.Class]*classRoom{}, why: map[*Node]string{}, loose: map[*Node]float64{}}
	candidate := make(map[string]bool, len(list))
	for _, n := range list {
		candidate[n.Planned.ID()] = true
	}
	for _, n := range w.nodes {
		if n != nil && n.Phase == capacity.Usable && !candidate[n.ID()] {
			s.order = append(s.order, n)
		}
	}
	for _, n := range slices.Backward(list) {
		if i, ok := w.at[n.Planned.ID()]; ok {
			s.order = append(s.order, w.nodes[i])
		}
	}
	s.free, s.ports = make([]capacity.Resources, len(s.order)), make([][]capacity.HostPort, len(s.order))
	s.gone, s.fed = make([]bool, len(s.order)), make([]bool, len(s.order))
	for i, n := range s.order {
		s.free[i], s.index[n.ID()] = n.Free(), i
		for c, k := range n.Pods {
			if k > 0 {
				s.ports[i] = append(s.ports[i], c.HostPorts...)
			}
		}
	}
	// Nodes that are closed count for topology in the plan that follows.
	for _, n := range w.nodes {
		if n != nil && n.Phase != capacity.Usable {
			s.order = append(s.order, n)
		}
	}
	return s
}

// placed is one pod on one position.
type placed struct {
	class *capacity.Class
	at    int
}

// choose goes through the candidates, the one that saves most for what it disturbs first.
func (s *shrink) choose(d *decider, list []*Node, b *balance) []*Node {
	s.grow(d.m)
	var out []*Node
	left := map[string]int{}
	for pool, q := range d.out.Quotas {
		left[pool] = q.Left(karpv1.DisruptionReasonUnderutilized)
	}
	for _, n := range list {
		me, ok := s.index[n.Planned.ID()]
		switch {
		case !ok || s.gone[me]:
			continue
		case s.fed[me]:
			s.why[n] = stayFed
			continue
		case left[n.PoolName()] <= 0:
			s.why[n] = stayBudget(karpv1.DisruptionReasonUnderutilized)
			continue
		}
		if why := b.refuses(&Command{Record: Record{Saving: n.Price()}, Going: []*Node{n}}); why != "" {
			s.why[n] = why
			continue
		}
		_, known := d.known(n)
		if why, still := s.stillStuck(d, n); still && known {
			s.why[n] = why
			continue
		}
		moves, pod := s.empty(d, n, me, !known)
		if pod != nil {
			s.why[n] = fmt.Sprintf("Not all pods would schedule, %s fits on no node that is there", pod.NamespacedName)
			d.m.stuck[n.Claim.Name] = stuck{load: n.sum, class: pod.Class, until: d.s.Now.Add(share(n.Claim.Name)), pod: s.why[n]}
			continue
		}
		for _, mv := range moves {
			s.fed[mv.at] = true
		}
		s.gone[me] = true
		left[n.PoolName()]--
		out = append(out, n)
	}
	return out
}

// grow notes which nodes have more room than at the last pass, and how much each has now.
func (s *shrink) grow(m *Memory) {
	room := make(map[string]capacity.Resources, len(s.free))
	for i := range s.free {
		id := s.order[i].ID()
		if before, known := m.room[id]; !known || !s.free[i].Fits(before) {
			s.grown = append(s.grown, i)
		}
		room[id] = s.free[i]
	}
	m.room = room
}

// stillStuck reports whether nothing has changed for a node that could not be emptied: its pods are the same, and no node that
// has more room now takes a pod of the class that had no place. What that misses is found when the node's time has come.
func (s *shrink) stillStuck(d *decider, n *Node) (why string, still bool) {
	was, ok := d.m.stuck[n.Claim.Name]
	if !ok || was.load != n.sum || !d.s.Now.Before(was.until) {
		return "", false
	}
	room := s.roomOf(was.class)
	for _, i := range s.grown {
		if s.takes(was.class, room, i) {
			return "", false
		}
	}
	return was.pod, true
}

func (s *shrink) roomOf(c *capacity.Class) *classRoom {
	room := s.classes[c]
	if room == nil {
		room = &classRoom{admits: make([]int8, len(s.free))}
		s.classes[c] = room
	}
	return room
}

// empty gives every pod of the node a position, or undoes it all and names the largest pod that has none. If it is to, it goes on
// after that and sums up what the pods are worth that would fit.
func (s *shrink) empty(d *decider, n *Node, me int, sum bool) (moves []placed, stuck *capacity.Pod) {
	from := map[*capacity.Class]int{}
	for _, p := range n.largest {
		if _, begun := from[p.Class]; !begun {
			from[p.Class] = 0
			s.begin(p.Class, me)
		}
	}
	loose := []*capacity.Pod{}
	for _, p := range n.largest {
		at, ok := s.find(p.Class, me, from)
		if !ok {
			if stuck == nil {
				stuck = p
			}
			if !sum {
				break
			}
			continue
		}
		s.free[at] = s.free[at].Sub(p.Class.Requests)
		s.ports[at] = append(s.ports[at], p.Class.HostPorts...)
		moves = append(moves, placed{p.Class, at})
		loose = append(loose, p)
	}
	if stuck == nil {
		for c, k := range from { // what has no room now will have none
			s.classes[c].advance(k)
		}
		return moves, nil
	}
	for _, mv := range slices.Backward(moves) {
		s.free[mv.at] = s.free[mv.at].Add(mv.class.Requests)
		s.ports[mv.at] = s.ports[mv.at][:len(s.ports[mv.at])-len(mv.class.HostPorts)]
	}
	if sum {
		s.loose[n] = d.m.worthOf(d.s.View, loose, d.s.Now)
	}
	return nil, stuck
}

// begin passes over the positions without room for the class, while no pod of the node is placed yet: what is refused now is refused
// for good.
func (s *shrink) begin(c *capacity.Class, me int) {
	room := s.roomOf(c)
	room.skipped = slices.DeleteFunc(room.skipped, func(i int) bool { return i != me && (s.gone[i] || !s.takes(c, room, i)) })
	for ; room.from < len(s.free); room.from++ {
		if room.from == me {
			room.skipped = append(room.skipped, me)
		} else if !s.gone[room.from] && s.takes(c, room, room.from) {
			return
		}
	}
}

// place is the k-th position where the class may have room; false if there are no more.
func (r *classRoom) place(k, most int) (int, bool) {
	if k < len(r.skipped) {
		return r.skipped[k], true
	}
	i := r.from + k - len(r.skipped)
	return i, i < most
}

// advance gives up the first k positions.
func (r *classRoom) advance(k int) {
	r.from += max(k-len(r.skipped), 0)
	r.skipped = r.skipped[min(k, len(r.skipped)):]
}

// find is the first position that takes a pod of the class. from are where the search of this node has come to.
func (s *shrink) find(c *capacity.Class, me int, from map[*capacity.Class]int) (int, bool) {
	room := s.roomOf(c)
	for k := from[c]; ; k++ {
		i, ok := room.place(k, len(s.free))
		if !ok {
			from[c] = k
			return 0, false
		}
		if i != me && !s.gone[i] && s.takes(c, room, i) {
			from[c] = k
			return i, true
		}
	}
}

// takes reports whether the position has room for one more pod of the class.
func (s *shrink) takes(c *capacity.Class, room *classRoom, i int) bool {
	if room.admits[i] < 0 || !c.Requests.Fits(s.free[i]) {
		return false
	}
	if room.admits[i] == 0 {
		room.admits[i] = -1
		if _, ok := c.Tolerates(s.order[i].Taints); ok && s.order[i].Satisfies(c.Terms) && c.Unsupported == "" {
			room.admits[i] = 1
		}
	}
	return room.admits[i] > 0 && !slices.ContainsFunc(c.HostPorts, func(p capacity.HostPort) bool {
		return slices.ContainsFunc(s.ports[i], p.Conflicts)
	})
}

// bySize puts large pods first: small ones fill what they leave.
func bySize(pods []*capacity.Pod) []*capacity.Pod {
	out := slices.Clone(pods)
	slices.SortStableFunc(out, func(a, b *capacity.Pod) int {
		x, y := a.Class.Requests, b.Class.Requests
		return cmp.Or(cmp.Compare(y.CPU+y.Memory>>22, x.CPU+x.Memory>>22), strings.Compare(a.Class.ID, b.Class.ID))
	})
	return out
}

// rest are the candidates that may be worth replacing: those that are not going, have not been given pods of others, and cost
// more than the pods are worth that have no place elsewhere. The most wasteful for what it disturbs comes first.
func (s *shrink) rest(d *decider, list []*Node) []*Node {
	waste := map[*Node]float64{}
	var out []*Node
	for _, n := range list {
		i, ok := s.index[n.Planned.ID()]
		if d.taken[n] || !ok || s.fed[i] || s.world.feeds(n) {
			continue
		}
		if why, known := d.known(n); known {
			d.reject(n, eventUnconsolidatable, why)
			continue
		}
		w := n.Price() - (d.m.worthOf(d.s.View, n.Plan, d.s.Now) - s.loose[n])
		if w <= n.Price()*ptr.Deref(n.Pool.Settings.MinSaving, DefaultMinSaving) {
			d.unconsolidatable(n, noCheaper)
			continue
		}
		waste[n] = w / n.Cost
		out = append(out, n)
	}
	return d.sorted(out, waste)
}
