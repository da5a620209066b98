// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"cmp"
	"slices"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// load is what has to move off one node.
type load struct {
	// pods are the requests of each pod that moves, daemons those of the node's daemonset pods together.
	pods    []capacity.Resources
	daemons capacity.Resources
	// room is what the node has for pods.
	room capacity.Resources
	// alone says that its pods get a node of their own: some of them may not share one with pods they don't share one with now.
	alone bool
	// zonal says that some of them have volumes, which may be bound to the node's zone.
	zonal bool
}

// bin is a node to be bought: the pods of these loads (by index) with a set of daemonset pods.
type bin struct {
	loads    []int
	pods     capacity.Resources
	daemons  capacity.Resources
	requests capacity.Resources
}

// item is a pod to be packed.
type item struct {
	load     int
	requests capacity.Resources
	share    float64
}

// pack puts the pods of nodes that one launch can replace together on as few nodes as room allows, evenly filled. All get the same
// size where that is one room has, so that they share a launch.
func pack(loads []load, room capacity.Resources) []bin {
	var together, apart []bin
	var items []item
	for i, l := range loads {
		if l.alone || !fitsAll(l, room) {
			apart = append(apart, single(i, l))
			continue
		}
		for _, p := range l.pods {
			items = append(items, item{load: i, requests: p, share: share(p, room)})
		}
	}
	slices.SortStableFunc(items, func(a, b item) int { return cmp.Compare(b.share, a.share) })
	together = firstFit(items, loads, room)
	if even, ok := spread(items, loads, room, len(together)); ok {
		together = even
	}
	bins := slices.Concat(together, apart)
	level(bins, loads, room)
	return bins
}

// largest is the room of the largest of the nodes whose pods may be put together.
func largest(loads []load) capacity.Resources {
	var room capacity.Resources
	for _, l := range loads {
		if !l.alone && bigger(l.room, room) {
			room = l.room
		}
	}
	return room
}

// bigger compares nodes by CPU and then memory.
func bigger(a, b capacity.Resources) bool {
	return cmp.Or(cmp.Compare(a.Get(corev1.ResourceCPU), b.Get(corev1.ResourceCPU)), cmp.Compare(a.Get(corev1.ResourceMemory), b.Get(corev1.ResourceMemory))) > 0
}

func fitsAll(l load, room capacity.Resources) bool {
	return !slices.ContainsFunc(l.pods, func(p capacity.Resources) bool { return !p.Add(l.daemons).Fits(room) })
}

func single(i int, l load) bin {
	b := bin{loads: []int{i}, daemons: l.daemons}
	for _, p := range l.pods {
		b.pods = b.pods.Add(p)
	}
	return b
}

// share is how much of the node the pod takes of what it takes most of.
func share(p, room capacity.Resources) float64 {
	most := 0.0
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		if have := room.Get(name); have > 0 {
			most = max(most, float64(p.Get(name))/float64(have))
		}
	}
	return most
}

// firstFit packs the items, largest first, each into the first bin with room.
func firstFit(items []item, loads []load, room capacity.Resources) []bin {
	var bins []bin
	for _, it := range items {
		i := slices.IndexFunc(bins, func(b bin) bool { return b.takes(it, loads, room) })
		if i < 0 {
			bins = append(bins, bin{})
			i = len(bins) - 1
		}
		bins[i].add(it, loads)
	}
	return bins
}

// spread packs the items into n bins, each into the one that is least full; false if that does not work out.
func spread(items []item, loads []load, room capacity.Resources, n int) ([]bin, bool) {
	bins := make([]bin, n)
	full := make([]float64, n)
	for _, it := range items {
		best := -1
		for i := range bins {
			if (best < 0 || full[i] < full[best]) && bins[i].takes(it, loads, room) {
				best = i
			}
		}
		if best < 0 {
			return nil, false
		}
		bins[best].add(it, loads)
		full[best] += it.share
	}
	return bins, true
}

func (b *bin) takes(it item, loads []load, room capacity.Resources) bool {
	return b.pods.Add(it.requests).Add(b.daemons.Max(loads[it.load].daemons)).Fits(room)
}

func (b *bin) add(it item, loads []load) {
	b.pods, b.daemons = b.pods.Add(it.requests), b.daemons.Max(loads[it.load].daemons)
	if !slices.Contains(b.loads, it.load) {
		b.loads = append(b.loads, it.load)
	}
}

// level gives the bins one size, if there is or was a node with so much room; otherwise each its own.
func level(bins []bin, loads []load, room capacity.Resources) {
	var most capacity.Resources
	for i := range bins {
		bins[i].requests = bins[i].pods.Add(bins[i].daemons)
		most = most.Max(bins[i].requests)
	}
	if !most.Fits(room) && !slices.ContainsFunc(loads, func(l load) bool { return most.Fits(l.room) }) {
		return
	}
	for i := range bins {
		bins[i].requests = most
	}
}
