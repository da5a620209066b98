// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// move is one pod of the finished plan going to its node.
type move struct {
	d      *demand
	n      *node
	launch int // of the result, -1 for a placement
	it     *item
	pod    *capacity.Pod
	step   int
}

// replay goes through the finished plan pod by pod, in its order, with all of its nodes there from the start, and asks the
// topology rules again: only now is it known which domains there are and how many daemonset pods are in them. Nodes were packed
// in another order than domains were dealt: pods that are refused because others came before them are put before those. A pod that
// no rule would let in even so teaches the next round to keep it from its domain or, in the last one, is taken out of the plan.
func (s *solver) replay(last bool) {
	if (s.recap && !last) || !slices.ContainsFunc(s.demands, func(d *demand) bool { return len(d.rules) > 0 }) {
		return
	}
	moves := s.moves()
	for reordered := false; len(moves) > 0; {
		refused := s.refused(moves)
		for range maxReorders {
			if len(refused) == 0 {
				break
			}
			reordered = true
			moves = putFirst(moves, refused)
			refused = s.refused(moves)
		}
		if len(refused) == 0 {
			if reordered {
				s.renumber(moves)
			}
			break
		}
		if s.learnFrom(moves, refused); s.recap && !last {
			return
		}
		moves = s.takeOut(moves, refused)
	}
	s.out.Launches = slices.DeleteFunc(s.out.Launches, func(l Launch) bool { return len(l.Pods) == 0 })
}

// maxReorders bounds how often refused pods are put before the others.
const maxReorders = 4

// putFirst puts some of the moves before the others.
func putFirst(moves, first []move) []move {
	front := make(map[*capacity.Pod]bool, len(first))
	for _, m := range first {
		front[m.pod] = true
	}
	out := slices.Clone(first)
	for _, m := range moves {
		if !front[m.pod] {
			out = append(out, m)
		}
	}
	return out
}

// renumber gives the moves their steps in the order they are in now.
func (s *solver) renumber(moves []move) {
	steps := make([]int, len(moves))
	for i, m := range moves {
		steps[i] = m.step
	}
	slices.Sort(steps)
	at := make(map[*capacity.Pod]int, len(moves))
	for i, m := range moves {
		at[m.pod] = steps[i]
	}
	for i, p := range s.out.Placements {
		if step, ok := at[p.Pod]; ok {
			s.out.Placements[i].Step = step
		}
	}
	for i, pods := range s.dealt {
		for k, p := range pods {
			if step, ok := at[p.pod]; ok {
				pods[k].step = step
			}
		}
		slices.SortFunc(pods, func(a, b dealt) int { return a.step - b.step })
		s.out.Launches[i].hold(pods)
	}
}

// moves are the pods of the plan that topology rules have to do with, in order.
func (s *solver) moves() []move {
	byNode := make(map[*capacity.Node]*node, len(s.nodes))
	for _, n := range s.nodes {
		byNode[n.Node] = n
	}
	var out []move
	add := func(m move) {
		if len(m.d.rules)+len(m.d.counted) > 0 {
			out = append(out, m)
		}
	}
	for _, p := range s.out.Placements {
		add(move{d: s.byClass[demandKey{p.Pod.Class, p.Pod.Priority}], n: byNode[p.Node], launch: -1, pod: p.Pod, step: p.Step})
	}
	keys := s.labelKeys()
	s.fresh = make([]*node, len(s.dealt))
	for i, pods := range s.dealt {
		s.fresh[i] = s.bought(i, keys)
		for _, p := range pods {
			add(move{d: p.it.d, n: s.fresh[i], launch: i, it: p.it, pod: p.pod, step: p.step})
		}
	}
	slices.SortFunc(out, func(a, b move) int { return a.step - b.step })
	return out
}

// labelKeys are the labels of nodes that topology rules look at.
func (s *solver) labelKeys() map[string]bool {
	out := map[string]bool{}
	for _, d := range s.demands {
		for _, r := range d.rules {
			out[r.key] = true
		}
		for _, t := range d.class.NodeTerms {
			for key := range t {
				out[key] = true
			}
		}
	}
	return out
}

// bought is the node of a launch, with those of its labels that are among the keys.
func (s *solver) bought(launch int, keys map[string]bool) *node {
	l, b := &s.out.Launches[launch], s.bins[launch]
	n := &node{host: b.host, Node: &capacity.Node{Claim: "new", Pool: l.Pool.Name, Taints: l.Pool.Taints, Labels: map[string]string{}}}
	for key := range keys {
		if v, ok := l.label(key); ok {
			n.Labels[key] = v
		}
	}
	for _, d := range l.Pool.Daemons {
		if b.pool.runsOn(d).Has(b.chosen) {
			n.coming = append(n.coming, d)
		}
	}
	return n
}

// refused tries the moves until no more of them obeys the rules, and returns those.
func (s *solver) refused(moves []move) []move {
	s.recount()
	for {
		var no []move
		for _, m := range moves {
			if m.n.obeys(m.d) {
				m.n.record(m.d)
			} else {
				no = append(no, m)
			}
		}
		if len(no) == 0 || len(no) == len(moves) {
			return no
		}
		moves = no
	}
}

// recount counts everything anew, without the pods of the plan but with its nodes.
func (s *solver) recount() {
	nodes := slices.Clone(s.nodes)
	for i, n := range s.fresh {
		if len(s.out.Launches[i].Pods) > 0 {
			nodes = append(nodes, n)
		}
	}
	for _, ct := range s.counters.byID {
		ct.reset()
	}
	for _, n := range nodes {
		s.counters.count(n)
	}
	there := domainsOf(nodes)
	for _, d := range s.demands {
		for _, r := range d.rules {
			r.daemons, r.floorAt = false, 0 // they are counted now, and the floor is to be found anew
			there.set(d, r)
		}
	}
}

// learnFrom bounds the domains of the refused, or bars them from the nodes of the view they were planned for.
func (s *solver) learnFrom(moves, refused []move) {
	dealt := map[*item]int{}
	for _, m := range moves {
		dealt[m.it]++
	}
	for _, m := range refused {
		dealt[m.it]--
	}
	for _, m := range refused {
		switch {
		case m.it == nil:
			s.lessons.nodes[capKey(m.d, m.n.ID())] = true
			s.recap = true
		case len(m.it.at) > 0:
			s.caps.learn(m.d, m.it.at.key(), domainCap{most: dealt[m.it], why: TopologyBlocks, pool: s.out.Launches[m.launch].Pool.Name})
			s.recap = true
		}
	}
}

// takeOut takes the refused out of the plan and returns the other moves.
func (s *solver) takeOut(moves, refused []move) []move {
	out := map[*capacity.Pod]bool{}
	for _, m := range refused {
		out[m.pod] = true
		s.stuck = append(s.stuck, stuck{d: m.d, pods: []*capacity.Pod{m.pod}, why: TopologyBlocks, pool: m.n.Pool})
		if m.launch < 0 {
			continue
		}
		l := &s.out.Launches[m.launch]
		l.Requests = l.Requests.Sub(m.d.class.Requests)
		s.dealt[m.launch] = slices.DeleteFunc(s.dealt[m.launch], func(p dealt) bool { return p.pod == m.pod })
		l.hold(s.dealt[m.launch])
	}
	s.out.Placements = slices.DeleteFunc(s.out.Placements, func(p Placement) bool { return out[p.Pod] })
	return slices.DeleteFunc(moves, func(m move) bool { return out[m.pod] })
}
