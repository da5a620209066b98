// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// solver is the state of one Solve.
type solver struct {
	in           Input
	pools        []*pool
	nodes        []*node
	demands      []*demand
	bins         []*bin
	hosts        int // hosts so far: nodes of the view, then bins
	step         int
	out          Result
	stuck        []stuck
	caps         caps
	reservations map[string]int // how many more instances each reservation takes
	recap        bool           // a cap was added: the plan has to be made anew
}

// stuck are pods of a demand that found no place, with the reason if packing knows it better than matching.
type stuck struct {
	d      *demand
	pods   []*capacity.Pod
	item   *item // or what is left of it in the end
	why    Reason
	pool   string
	detail string
}

// maxRounds bounds how often a plan is made anew because a domain could not take its share of a class. Each round caps at
// least one more domain; nearly all inputs need one round.
const maxRounds = 10

// Solve plans the input. It never fails: what cannot be placed is in Result.Unplaced.
func Solve(in Input) Result {
	if in.MaxOfferings == 0 {
		in.MaxOfferings = DefaultMaxOfferings
	}
	caps := caps{}
	for round := 0; ; round++ {
		s := &solver{in: in, caps: caps}
		s.run()
		if !s.recap || round == maxRounds {
			return s.out
		}
	}
}

// caps bound how many pods of a demand may go to a domain, learned from rounds in which the domain took no more. A class
// that spreads must not have more in the other domains because of pods that were planned for this one and found no node.
type caps map[string]domainCap

type domainCap struct {
	most   int
	why    Reason
	pool   string
	detail string
}

func capKey(d *demand, at string) string {
	return fmt.Sprintf("%s %d %s", d.class.ID, d.priority, at)
}

func (s *solver) run() {
	s.countReservations()
	s.compile()
	for _, n := range s.in.View.Nodes {
		s.nodes = append(s.nodes, prepareNode(n, s.hosts))
		s.hosts++
	}
	s.topology()
	for i := 0; i < len(s.demands); {
		j := i
		for j < len(s.demands) && s.demands[j].priority == s.demands[i].priority {
			j++
		}
		s.tier(s.demands[i:j])
		i = j
	}
	s.finish()
	s.explain()
}

// tier places the demands of one priority.
func (s *solver) tier(demands []*demand) {
	for _, d := range demands {
		s.fillNodes(d)
	}
	var items []*item
	for _, d := range demands {
		items = append(items, s.split(d)...)
	}
	s.pack(items)
	for _, it := range items {
		if it.left == 0 {
			continue
		}
		if len(it.at) > 0 {
			s.caps[capKey(it.d, it.at.key())] = domainCap{most: len(it.pods) - it.left, why: it.why, pool: it.whyPool, detail: it.whyDetail}
			s.recap = true
		}
		s.stuck = append(s.stuck, stuck{d: it.d, item: it, why: it.why, pool: it.whyPool, detail: it.whyDetail})
	}
}

// finish turns the bins into launches.
func (s *solver) finish() {
	for _, b := range s.bins {
		s.out.Launches = append(s.out.Launches, b.launch(s.in.MaxOfferings))
	}
}
