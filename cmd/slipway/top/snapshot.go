// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Order is what nodes are sorted by.
type Order string

// Orders, as keys choose them.
const (
	ByName  Order = "name"
	ByCPU   Order = "cpu"
	ByPrice Order = "price"
	ByAge   Order = "age"
)

// Snapshot is what can be shown at one instant.
type Snapshot struct {
	At    time.Time
	Pools []Pool
	Nodes []Node
	// Flight are nodes on their way in or out, the oldest first; Waiting are pods without a node, likewise.
	Flight  []Flight
	Waiting []Waiting
	Total   Pool
}

// Pool sums up nodes. Price is US dollars an hour as planned, of all but Unpriced nodes.
type Pool struct {
	Name           string
	Ready          bool
	Nodes, Pods    int
	CPU, Memory    Share
	Price          float64
	Unpriced, Late int // Late are nodes that are not ready
}

// Share is what is asked for of what there is.
type Share struct{ Asked, Has int64 }

// Percent is 0 to 100, and more if more is asked for than there is.
func (s Share) Percent() int {
	if s.Has == 0 {
		return 0
	}
	return int(100 * s.Asked / s.Has)
}

func (s *Share) add(o Share) { s.Asked, s.Has = s.Asked+o.Asked, s.Has+o.Has }

// Node is a row of the nodes.
type Node struct {
	Name, Pool, Type, Zone, Capacity, State string
	Pods                                    int
	CPU, Memory                             Share
	Price                                   float64
	Priced                                  bool
	Since                                   time.Time
}

// Flight is a node on its way.
type Flight struct {
	What, Object, Detail string
	Since                time.Time
}

// Waiting is a pod without a node.
type Waiting struct {
	Pod, Why string
	Since    time.Time
}

// poolless is the pool of nodes that have none.
const poolless = "(no pool)"

// Snapshot is what holds at the time.
func (w *World) Snapshot(at time.Time, by Order) Snapshot {
	w.mu.Lock()
	defer w.mu.Unlock()
	s := Snapshot{At: at, Total: Pool{Ready: true}}
	pools := map[string]*Pool{}
	for name, ready := range w.pools {
		pools[name] = &Pool{Name: name, Ready: ready}
	}
	byNode := map[string]claim{}
	for _, c := range w.claims {
		if c.node != "" {
			byNode[c.node] = c
		}
		if f, ok := c.flight(); ok {
			s.Flight = append(s.Flight, f)
		}
	}
	for name, n := range w.nodes {
		row := n.row(w.used[name], w.on[name], byNode[name])
		s.Nodes = append(s.Nodes, row)
		if pools[row.Pool] == nil {
			pools[row.Pool] = &Pool{Name: row.Pool, Ready: true}
		}
		pools[row.Pool].count(&row)
		s.Total.count(&row)
	}
	for _, p := range pools {
		s.Pools = append(s.Pools, *p)
	}
	for _, p := range w.waiting {
		why := p.why
		if p.nominated != "" {
			why = "for node " + p.nominated
		}
		s.Waiting = append(s.Waiting, Waiting{Pod: p.name, Why: why, Since: p.since})
	}
	slices.SortFunc(s.Pools, func(a, b Pool) int { return cmp.Or(byRest(a.Name, b.Name), strings.Compare(a.Name, b.Name)) })
	slices.SortFunc(s.Flight, func(a, b Flight) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Object, b.Object)) })
	slices.SortFunc(s.Waiting, func(a, b Waiting) int { return cmp.Or(a.Since.Compare(b.Since), strings.Compare(a.Pod, b.Pod)) })
	sortNodes(s.Nodes, by)
	return s
}

// byRest has nodes without a pool come last.
func byRest(a, b string) int {
	switch {
	case a == b:
		return 0
	case a == poolless:
		return 1
	case b == poolless:
		return -1
	}
	return 0
}

func (p *Pool) count(n *Node) {
	p.Nodes++
	p.Pods += n.Pods
	p.CPU.add(n.CPU)
	p.Memory.add(n.Memory)
	p.Price += n.Price
	if !n.Priced && n.Pool != poolless {
		p.Unpriced++
	}
	if n.State != "ready" {
		p.Late++
	}
}

func sortNodes(nodes []Node, by Order) {
	slices.SortFunc(nodes, func(a, b Node) int {
		name := strings.Compare(a.Name, b.Name)
		switch by {
		case ByCPU:
			return cmp.Or(cmp.Compare(b.CPU.Percent(), a.CPU.Percent()), name)
		case ByPrice:
			return cmp.Or(cmp.Compare(b.Price, a.Price), name)
		case ByAge:
			return cmp.Or(b.Since.Compare(a.Since), name)
		case ByName:
		}
		return cmp.Or(byRest(a.Pool, b.Pool), strings.Compare(a.Pool, b.Pool), name)
	})
}

func (n *node) row(used use, pods int, c claim) Node {
	state := "ready"
	switch {
	case !c.deleting.IsZero():
		state = "draining"
	case n.disrupted:
		state = "disrupting"
	case !n.ready:
		state = "not ready"
	case n.cordoned:
		state = "cordoned"
	}
	return Node{
		Name: n.name, Pool: cmp.Or(n.pool, poolless), Type: n.instanceType, Zone: n.zone, Capacity: n.capacityType, State: state, Pods: pods,
		CPU: Share{used.cpu, n.has.cpu}, Memory: Share{used.memory, n.has.memory}, Price: c.price, Priced: c.priced, Since: n.since,
	}
}

// flight says how far a claim has come, if it is on its way.
func (c *claim) flight() (Flight, bool) {
	f := Flight{Object: c.name, Since: c.since, Detail: c.instanceType}
	switch {
	case !c.deleting.IsZero():
		f.What, f.Since = "draining", c.deleting
		f.Object = cmp.Or(c.node, c.name)
	case c.reason != "":
		f.What, f.Object = "disrupting", cmp.Or(c.node, c.name)
	case c.usable:
		return f, false
	case c.registered:
		f.What = "joining"
	case c.launched:
		f.What = "booting"
	default:
		f.What = "launching"
	}
	if c.reason != "" {
		f.Detail = strings.TrimSpace(f.Detail + " " + c.reason)
	}
	if c.replaces != "" {
		f.Detail = strings.TrimSpace(fmt.Sprintf("%s in place of %s", f.Detail, c.replaces))
	}
	return f, true
}
