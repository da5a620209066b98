// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"fmt"
	"hash/fnv"
	"maps"
	"math"
	"sync"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// reconsiderAfter is how long a node that could not be emptied or replaced by something cheaper is left alone while its pods
	// stay the same (Karpenter's memo of consolidated clusters). Each node has its own share of it, from a half to the whole
	// and a half, so that not all of them come due at once.
	reconsiderAfter = 5 * time.Minute
	// restFirst and restMost are how long a pool is left alone after a replacement did not come, doubling.
	restFirst = 5 * time.Minute
	restMost  = time.Hour
	// calmFirst and calmMost are how long a node is left alone after a command for it was taken back, doubling: what stood
	// against it is likely still there, a taint that comes and goes keeps pods off, and what is tried first each time keeps
	// others from being tried. When the node's pods have changed calmFirst is enough.
	calmFirst = time.Minute
	calmMost  = time.Hour
	// failuresMost is how many nodes of a pool in a row are planned in vain in one pass before the others wait for the next.
	failuresMost = 3
)

// Memory is what passes remember from one to the next, to be fast and not to try in vain. Losing it costs time only.
type Memory struct {
	mu sync.Mutex
	// pods are when a pod came to or left each node last.
	pods map[string]time.Time
	// rest are pools (by reason) and nodes (by claim) that are left alone for a while.
	rest map[string]rest
	calm map[string]refusal
	// replaced are the nodes nothing cheaper was found for.
	replaced map[string]verdict
	// homeless are the nodes whose pods would find no place even if nodes were bought.
	homeless map[string]verdict
	// stuck are the nodes whose pods did not all fit elsewhere, room what each node had left when that was found.
	stuck map[string]stuck
	room  map[string]capacity.Resources
	// worths are what pods of a class cost at least, with the catalogues that say so.
	worths map[*capacity.Class]float64
	market map[string]*capacity.Catalog
	priced time.Time
}

type rest struct {
	until time.Time
	pause time.Duration
}

// refusal is that a command for a node with these pods was taken back, at which instant and why.
type refusal struct {
	rest
	at   time.Time
	load uint64
	why  string
}

// stuck is that a node with these pods could not be emptied, because of a pod of the class.
type stuck struct {
	load  uint64
	class *capacity.Class
	until time.Time
	pod   string
}

// verdict is that a node with these pods and this price could not be replaced.
type verdict struct {
	load    uint64
	price   float64
	until   time.Time
	message string
}

// share is the claim's own part of reconsiderAfter.
func share(claim string) time.Duration {
	h := fnv.New32a()
	_, _ = h.Write([]byte(claim)) // never fails
	return reconsiderAfter/2 + time.Duration(uint64(reconsiderAfter)*uint64(h.Sum32()%1024)/1024)
}

// NewMemory returns an empty memory.
func NewMemory() *Memory {
	return &Memory{pods: map[string]time.Time{}, rest: map[string]rest{}, calm: map[string]refusal{}, replaced: map[string]verdict{}, homeless: map[string]verdict{}, stuck: map[string]stuck{}, worths: map[*capacity.Class]float64{}}
}

// PodChanged notes that a pod came to the node, left it or ended there.
func (m *Memory) PodChanged(node string, at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pods[node] = at
}

func (m *Memory) lastPod(n *Node) time.Time {
	if n.Node == nil {
		return time.Time{}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pods[n.Node.Name]
}

// Failed notes that a replacement for a node of the pool did not come; Succeeded that one did.
func (m *Memory) Failed(pool string, reason karpv1.DisruptionReason, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	key := pool + "/" + string(reason)
	m.rest[key] = m.rest[key].longer(now, restFirst, restMost)
}

func (r rest) longer(now time.Time, first, most time.Duration) rest {
	r.pause = min(max(2*r.pause, first), most)
	r.until = now.Add(r.pause)
	return r
}

// takenBack notes that a command for the node was taken back, and why. That a write failed says nothing about the node: it is not
// left alone for longer each time.
func (m *Memory) takenBack(n *Node, f failure, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	was := m.calm[n.Claim.Name]
	if was.load != n.sum || now.Sub(was.until) > calmMost || f.kind == failedAPI {
		was.rest = rest{} // another matter
	}
	m.calm[n.Claim.Name] = refusal{rest: was.longer(now, calmFirst, calmMost), at: now, load: n.sum, why: f.why}
}

// calming says why the node is left alone after that, empty if it is not.
func (m *Memory) calming(n *Node, now time.Time) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.calm) == 0 {
		return ""
	}
	r, ok := m.calm[n.Claim.Name]
	if ok && r.load != n.sum {
		r.until = r.at.Add(calmFirst)
	}
	if !ok || !now.Before(r.until) {
		return ""
	}
	return fmt.Sprintf("%s (not tried again before %s)", r.why, r.until.UTC().Format(time.TimeOnly))
}

// Succeeded forgets failures.
func (m *Memory) Succeeded(pool string, reason karpv1.DisruptionReason) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.rest, pool+"/"+string(reason))
}

// resting reports whether the pool is left alone after a failure.
func (m *Memory) resting(pool string, reason karpv1.DisruptionReason, now time.Time) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return now.Before(m.rest[pool+"/"+string(reason)].until)
}

// known says why the node could not be replaced when it was last looked at, if that still holds.
func (m *Memory) known(n *Node, now time.Time) (string, bool) {
	return m.replaced[n.Claim.Name].holds(n, now)
}

func (m *Memory) remember(n *Node, now time.Time, message string) {
	m.replaced[n.Claim.Name] = verdictOn(n, now, message)
}

func verdictOn(n *Node, now time.Time, message string) verdict {
	return verdict{load: n.sum, price: n.Price(), until: now.Add(share(n.Claim.Name)), message: message}
}

func (v verdict) holds(n *Node, now time.Time) (string, bool) {
	if !v.about(n) || !now.Before(v.until) {
		return "", false
	}
	return v.message, true
}

// about reports whether there is a verdict, on the node as it is.
func (v verdict) about(n *Node) bool {
	return !v.until.IsZero() && v.load == n.sum && v.price == n.Price()
}

// forget drops what is known of nodes that are gone.
func (m *Memory) forget(s *Snapshot) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.replaced)+len(m.homeless)+len(m.calm) <= 3*len(s.Nodes) && len(m.pods) <= 2*len(s.Nodes)+1000 {
		return
	}
	claims, nodes := map[string]bool{}, map[string]bool{}
	for _, n := range s.Nodes {
		claims[n.Claim.Name] = true
		if n.Node != nil {
			nodes[n.Node.Name] = true
		}
	}
	keep(m.replaced, claims)
	keep(m.homeless, claims)
	keep(m.stuck, claims)
	keep(m.calm, claims)
	keep(m.pods, nodes)
}

func keep[V any](m map[string]V, names map[string]bool) {
	maps.DeleteFunc(m, func(name string, _ V) bool { return !names[name] })
}

// worthOf is what the pods cost at least on nodes bought for them: each its larger share of the node that is cheapest for it. No
// plan that buys nodes for them is cheaper.
func (m *Memory) worthOf(v *capacity.View, pods []*capacity.Pod, now time.Time) float64 {
	m.renewMarket(v, now)
	sum := 0.0
	for _, p := range pods {
		w, ok := m.worths[p.Class]
		if !ok {
			w = leastPrice(v, p.Class)
			m.worths[p.Class] = w
		}
		sum += w
	}
	return sum
}

// renewMarket forgets prices when a catalogue is another one, or after a while: shortages come and go.
func (m *Memory) renewMarket(v *capacity.View, now time.Time) {
	same := now.Sub(m.priced) < reconsiderAfter && len(m.market) == len(v.Pools)
	for _, p := range v.Pools {
		same = same && m.market[p.Name] == p.Catalog
	}
	if same {
		return
	}
	m.market, m.worths, m.priced = make(map[string]*capacity.Catalog, len(v.Pools)), map[*capacity.Class]float64{}, now
	for _, p := range v.Pools {
		m.market[p.Name] = p.Catalog
	}
}

// leastPrice is the least a pod of the class can cost: over all offerings it may run on, the price times the largest part of the
// node it takes.
func leastPrice(v *capacity.View, c *capacity.Class) float64 {
	least := math.Inf(1)
	for _, p := range v.Pools {
		if p.Catalog == nil || p.Blocked != "" {
			continue
		}
		if _, ok := c.Tolerates(p.Taints); !ok {
			continue
		}
		for _, term := range c.Terms {
			if p.Requirements.Compatible(term, p.Catalog.Defines) != nil {
				continue
			}
			for i := range p.Catalog.Match(p.Requirements.And(term)).And(p.Available).All {
				o := &p.Catalog.Offerings[i]
				if share := largestShare(c.Requests, o.Type.Allocatable); share <= 1 {
					least = min(least, share*o.Price)
				}
			}
		}
	}
	return least
}

// largestShare is the part of the node that the request takes, by the resource it takes most of; more than 1 if it does not fit.
func largestShare(r, of capacity.Resources) float64 {
	share := 0.0
	add := func(want, have int64) {
		switch {
		case want <= 0:
		case have <= 0:
			share = math.Inf(1)
		default:
			share = max(share, float64(want)/float64(have))
		}
	}
	add(r.CPU, of.CPU)
	add(r.Memory, of.Memory)
	add(r.Ephemeral, of.Ephemeral)
	add(r.Pods, of.Pods)
	for _, q := range r.Extended {
		add(q.Value, of.Get(q.Name))
	}
	return share
}
