// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// solver is the state of one Solve.
type solver struct {
	in      Input
	pools   []*pool
	nodes   []*node
	demands []*demand
	bins    []*bin
	hosts   int // hosts so far: nodes of the view, then bins
	step    int
	out     Result
	stuck   []stuck
	lessons
	reservations map[string]int // how many more instances each reservation takes
	recap        bool           // a cap was added: the plan has to be made anew
	byClass      map[demandKey]*demand
	counters     *counters
	dealt        [][]dealt // the pods of each launch
	fresh        []*node   // the nodes of the launches, once they are looked at again
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
	learned := lessons{caps: caps{}, nodes: map[string]bool{}}
	for round := 0; ; round++ {
		s := &solver{in: in, lessons: learned}
		s.run(round == maxRounds)
		if !s.recap || round == maxRounds {
			s.explain()
			return s.out
		}
	}
}

// lessons are what earlier rounds found out about the plan.
type lessons struct {
	caps  caps
	nodes map[string]bool // demands and nodes of the view that do not go together, by capKey
}

// caps bound how many pods of a demand may go to a domain, learned from rounds in which the domain took no more. A class
// that spreads must not have more in the other domains because of pods that were planned for this one and found no node.
type caps map[string]domainCap

// learn bounds how many pods of the demand may go to the domain; the least bound stays.
func (c caps) learn(d *demand, at string, bound domainCap) {
	key := capKey(d, at)
	if have, ok := c[key]; !ok || bound.most < have.most {
		c[key] = bound
	}
}

type domainCap struct {
	most   int
	why    Reason
	pool   string
	detail string
}

func capKey(d *demand, at string) string {
	return fmt.Sprintf("%s %d %s", d.class.ID, d.priority, at)
}

// run makes a plan. Unless it is the last round, what does not hold in the end is a lesson for the next; then it is left out.
func (s *solver) run(last bool) {
	s.countReservations()
	s.compile()
	for _, n := range s.in.View.Nodes {
		s.nodes = append(s.nodes, s.prepareNode(n))
	}
	s.topology()
	s.preferences()
	for i := 0; i < len(s.demands); {
		j := i
		for j < len(s.demands) && s.demands[j].priority == s.demands[i].priority {
			j++
		}
		s.tier(s.demands[i:j])
		i = j
	}
	s.placeInDomains()
	s.finish()
	s.replay(last)
}

// tier places the demands of one priority.
func (s *solver) tier(demands []*demand) {
	s.fillAll(demands)
	items := s.split(demands)
	s.pack(items)
	s.level(items)
	for _, it := range items {
		if it.left == 0 {
			continue
		}
		if len(it.at) > 0 {
			s.caps.learn(it.d, it.at.key(), domainCap{most: len(it.pods) - it.left, why: it.why, pool: it.whyPool, detail: it.whyDetail})
			s.recap = true
		}
		s.stuck = append(s.stuck, stuck{d: it.d, item: it, why: it.why, pool: it.whyPool, detail: it.whyDetail})
	}
}

// finish turns the bins into launches.
func (s *solver) finish() {
	for _, b := range s.bins {
		l := b.launch(s.in.MaxOfferings)
		pods := b.deal()
		l.hold(pods)
		s.out.Launches, s.dealt = append(s.out.Launches, l), append(s.dealt, pods)
	}
}
