// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// Maker makes mixes over one catalogue.
type Maker struct {
	Catalog *capacity.Catalog
	// Openb are the pods of the Alibaba trace, nil if it is not at hand.
	Openb []TracePod
	Seed  uint64
}

// ErrNoTrace is the kind of error of a mix whose trace is not at hand.
var ErrNoTrace = errors.New("the trace is not there")

// Names lists the mixes without topology rules.
func Names() []string {
	return []string{"synthetic", "big", "memory", "cpu", "openb", "openb-gpu", "real"}
}

// Make returns n pods of the named mix with nodes of at most so many vCPU, 0 for any. Pods that no node can hold are not drawn.
func (m *Maker) Make(name string, n, cores int) (plan.Input, error) {
	r := rand.New(rand.NewPCG(m.Seed, 1))
	switch name {
	case "synthetic":
		return m.drawn(r, n, cores, []int{100, 200, 250, 500, 500, 1000, 1000, 2000, 4000}, []float64{0.5, 1, 2, 2, 4, 4, 8, 16})
	case "big":
		return m.drawn(r, n, cores, []int{4000, 6000, 8000, 8000, 12000, 16000, 24000, 32000}, []float64{1, 2, 4, 4, 8})
	case "memory":
		return m.drawn(r, n, cores, []int{100, 250, 500, 1000, 1000, 2000}, []float64{8, 8, 12, 16, 24, 32})
	case "cpu":
		return m.drawn(r, n, cores, []int{250, 500, 1000, 2000, 4000, 8000}, []float64{0.25, 0.5, 1, 1, 2})
	case "openb", "openb-gpu":
		return m.openb(r, n, cores, name == "openb-gpu")
	case "real":
		in := plan.Input{View: &capacity.View{Pools: fivePools(m.Catalog, cores)}}
		return in, m.workloads(&in, r, n, nil)
	}
	return plan.Input{}, fmt.Errorf("there is no mix %q", name)
}

// drawn draws pods one by one: cores and GiB a core from two lists.
func (m *Maker) drawn(r *rand.Rand, n, cores int, millis []int, perCore []float64) (plan.Input, error) {
	in := plan.Input{View: &capacity.View{Pools: onePool(m.Catalog, cores)}}
	d := newDealer(&in)
	for d.dealt < n {
		cpu := millis[r.IntN(len(millis))]
		mem := int(float64(cpu) / 1000 * 1024 * perCore[r.IntN(len(perCore))])
		if err := d.deal(shape{millis: cpu, mib: mem}, 1); err != nil {
			return plan.Input{}, err
		}
	}
	d.done()
	return in, nil
}

// shape is what a pod asks for.
type shape struct {
	millis, mib, gpus int
}

func (s shape) String() string { return fmt.Sprintf("%dm-%dMi-%dgpu", s.millis, s.mib, s.gpus) }

func (s shape) builder(id string) *builder.ClassBuilder {
	b := builder.Class(id).CPU(fmt.Sprintf("%dm", s.millis)).Memory(fmt.Sprintf("%dMi", s.mib))
	if s.gpus > 0 {
		b.Request("nvidia.com/gpu", strconv.Itoa(s.gpus)).Tolerate(tolerate(gpuTaint))
	}
	return b
}

// dealer collects pods by shape and leaves out shapes no node can hold.
type dealer struct {
	in     *plan.Input
	counts map[shape]int
	fits   map[shape]bool
	order  []shape
	dealt  int
	missed int
}

func newDealer(in *plan.Input) *dealer {
	return &dealer{in: in, counts: map[shape]int{}, fits: map[shape]bool{}}
}

// missing is how often in a row a shape may be drawn that fits nowhere.
const missing = 100_000

func (d *dealer) deal(s shape, n int) error {
	ok, known := d.fits[s]
	if !known {
		ok = Fits(d.in.View.Pools, s.builder("").Obj())
		d.fits[s] = ok
	}
	if !ok {
		if d.missed++; d.missed > missing {
			return fmt.Errorf("no pod of the mix fits any node")
		}
		return nil
	}
	if d.counts[s] == 0 {
		d.order = append(d.order, s)
	}
	d.counts[s] += n
	d.dealt += n
	return nil
}

// done turns what was dealt into pods.
func (d *dealer) done() {
	for _, s := range d.order {
		d.in.Pods = append(d.in.Pods, builder.PodsOf(s.builder(s.String()).Obj(), d.counts[s])...)
	}
}

// Fits reports whether some offering of some pool can hold a pod of the class.
func Fits(pools []*capacity.Pool, c *capacity.Class) bool {
	return slices.ContainsFunc(pools, func(p *capacity.Pool) bool {
		if _, ok := c.Tolerates(p.Taints); !ok {
			return false
		}
		for _, term := range c.Terms {
			if p.Requirements.Compatible(term, p.Catalog.Defines) != nil {
				continue
			}
			for i := range p.Catalog.Match(p.Requirements.And(term)).All {
				t := p.Catalog.Offerings[i].Type
				if c.Requests.Add(p.Overhead(t, nil)).Fits(t.Allocatable) {
					return true
				}
			}
		}
		return false
	})
}

// zipf deals n pods to k workloads, harmonically; each gets at least one.
func zipf(n, k int) []int {
	total := 0.0
	for i := range k {
		total += 1 / float64(i+1)
	}
	out, left := make([]int, k), n
	for i := range k {
		out[i] = min(left, max(1, int(float64(n)/float64(i+1)/total)))
		left -= out[i]
	}
	out[0] += left
	return out
}
