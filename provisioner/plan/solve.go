// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"slices"
	"strings"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// solver is the state of one Solve.
type solver struct {
	in       Input
	pools    []*pool
	nodes    []*node
	demands  []*demand
	counters []*counter
	bins     []*bin
	step     int
	out      Result
	stuck    []stuck
}

// stuck are pods of a demand that found no place, with the reason if packing knows it better than matching.
type stuck struct {
	d      *demand
	pods   []*capacity.Pod
	why    Reason
	pool   string
	detail string
}

// Solve plans the input. It never fails: what cannot be placed is in Result.Unplaced.
func Solve(in Input) Result {
	if in.MaxOfferings == 0 {
		in.MaxOfferings = DefaultMaxOfferings
	}
	s := &solver{in: in}
	s.compile()
	for _, n := range in.View.Nodes {
		s.nodes = append(s.nodes, prepareNode(n))
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
	return s.out
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
		if len(it.pods) > 0 {
			it.d.record(it.at, "", -len(it.pods))
			s.stuck = append(s.stuck, stuck{d: it.d, pods: it.pods, why: it.why, pool: it.whyPool, detail: it.whyDetail})
		}
	}
}

// finish turns the bins into launches.
func (s *solver) finish() {
	for _, b := range s.bins {
		s.out.Launches = append(s.out.Launches, b.launch(s.in.MaxOfferings))
	}
	slices.SortStableFunc(s.out.Unplaced, func(a, b Unplaced) int { return strings.Compare(string(a.Pod.UID), string(b.Pod.UID)) })
}
