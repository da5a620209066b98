// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/consolidation/model"
)

// budget is how many nodes may be disrupted at a time, Karpenter's default.
const budget = "10%"

// world is a cluster with Slipway at work.
type world struct {
	*model.Cluster

	memory *disruption.Memory
	boot   time.Duration
	full   bool
	free   map[string]*room // by claim
	where  map[types.UID]string
	out    answer
}

// room is what is left of a node.
type room struct{ all, free capacity.Resources }

// live lets the day pass.
func live(d *day, pool *capacity.Pool, o options) (answer, error) {
	w := &world{
		Cluster: model.New([]*capacity.Pool{pool}, o.settle), memory: disruption.NewMemory(),
		boot: time.Duration(o.boot) * time.Second, full: o.scoring == mostAllocated, free: map[string]*room{}, where: map[types.UID]string{},
	}
	began := time.Now()
	leaving := map[int][]*capacity.Pod{} // by the step in which they end
	next, steps, nodes := 0, d.seconds/o.step, 0
	for s := range steps {
		w.leave(leaving[s])
		delete(leaving, s)
		var come []*capacity.Pod
		for next < len(d.arrivals) && d.arrivals[next].At < (s+1)*o.step {
			a, c := d.arrivals[next], d.kinds[d.arrivals[next].Kind].class
			name := fmt.Sprintf("%s-%d", c.ID, next)
			p := &capacity.Pod{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: name}, UID: types.UID(name), Class: c}
			come = append(come, p)
			end := s + max(1, a.Life/o.step)
			leaving[end] = append(leaving[end], p)
			next++
		}
		if err := w.schedule(come); err != nil {
			return answer{}, err
		}
		if s%(o.every/o.step) == 0 {
			if err := w.consolidate(); err != nil {
				return answer{}, err
			}
		}
		w.out.Dollars += w.Price() * float64(o.step) / 3600
		nodes += len(w.Machines)
		w.Now = w.Now.Add(time.Duration(o.step) * time.Second)
	}
	w.out.Nodes, w.out.Seconds, w.out.Bought = float64(nodes)/float64(steps), time.Since(began).Seconds(), w.Bought
	return w.out, w.Check()
}

// put places a pod on a node.
func (w *world) put(m *model.Machine, p *capacity.Pod) {
	m.Put(p)
	w.note(m, p)
}

// note counts a pod that was placed on a node.
func (w *world) note(m *model.Machine, p *capacity.Pod) {
	name := m.Claim.Name
	if w.free[name] == nil {
		w.free[name] = &room{m.Offering.Type.Allocatable, m.Offering.Type.Allocatable}
	}
	w.free[name].free = w.free[name].free.Sub(p.Class.Requests)
	w.where[p.UID] = name
}

// leave takes pods off their nodes.
func (w *world) leave(pods []*capacity.Pod) {
	gone := map[string]map[*capacity.Pod]bool{}
	for _, p := range pods {
		name := w.where[p.UID]
		if gone[name] == nil {
			gone[name] = map[*capacity.Pod]bool{}
		}
		gone[name][p] = true
		w.free[name].free = w.free[name].free.Add(p.Class.Requests)
		delete(w.where, p.UID)
	}
	for name, of := range gone {
		w.Machines[name].Keep(func(p *capacity.Pod) bool { return !of[p] })
	}
}

// schedule places pods as kube-scheduler does: one after the other, on the node of which most is left (least, if full nodes
// are preferred); those that fit on none are planned.
func (w *world) schedule(pods []*capacity.Pod) error {
	names := slices.Sorted(maps.Keys(w.free))
	var waiting []*capacity.Pod
	for _, p := range pods {
		best, most := "", 0.0
		for _, name := range names {
			n := w.free[name]
			if !p.Class.Requests.Fits(n.free) {
				continue
			}
			left := n.free.Sub(p.Class.Requests)
			score := float64(left.CPU)/float64(n.all.CPU) + float64(left.Memory)/float64(n.all.Memory)
			if w.full {
				score = -score
			}
			if best == "" || score > most {
				best, most = name, score
			}
		}
		if best == "" {
			waiting = append(waiting, p)
			continue
		}
		w.put(w.Machines[best], p)
	}
	if len(waiting) == 0 {
		return nil
	}
	w.out.Late += len(waiting)
	r := plan.Solve(plan.Input{View: w.Snapshot().View, Pods: waiting})
	if len(r.Unplaced) > 0 {
		return fmt.Errorf("pod %s has no place: %s", r.Unplaced[0].Pod.NamespacedName, r.Unplaced[0].Detail)
	}
	for _, p := range r.Placements {
		w.put(w.Machines[p.Node.Claim], p.Pod)
	}
	for i := range r.Launches {
		m := w.Buy(r.Launches[i].Pool.Name, r.Launches[i].Offerings[0])
		for _, p := range r.Launches[i].Pods {
			w.put(m, p)
		}
	}
	return nil
}

// consolidate decides once and carries out what was decided.
func (w *world) consolidate() error {
	d := disruption.Decide(w.Snapshot(), w.memory)
	for _, c := range d.Commands {
		for _, n := range c.Going {
			m := w.Machines[n.Claim.Name]
			w.out.Evictions += len(n.Plan)
			w.out.Removed++
			if len(c.Launches) > 0 {
				w.out.Dollars += m.Offering.Price * w.boot.Hours()
			}
			delete(w.free, n.Claim.Name)
		}
		bought, err := w.Carry(c)
		if err != nil {
			return err
		}
		for _, m := range bought {
			for _, p := range m.Pods {
				w.note(m, p)
			}
			if w.free[m.Claim.Name] == nil {
				w.free[m.Claim.Name] = &room{m.Offering.Type.Allocatable, m.Offering.Type.Allocatable}
			}
		}
		for _, p := range c.Placements {
			w.note(w.Machines[p.Node.Claim], p.Pod)
		}
	}
	return nil
}
