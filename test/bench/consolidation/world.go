// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/bench/consolidation/model"
	"github.com/slipway-sh/slipway/test/bench/plan/bound"
	"github.com/slipway-sh/slipway/test/builder"
)

// workload draws pods of 64 workloads: eight sizes, each with 1 to 8 GiB a core.
type workload struct {
	r       *rand.Rand
	classes []*capacity.Class
	serial  int
}

// sizes are what pods of a workload ask for in millicores, 306 on average.
func sizes() []int { return []int{50, 100, 100, 200, 250, 250, 500, 1000} }

// smallSizes are 244 on average: of these a node of 16 vCPU has 20 at 40 % use.
func smallSizes() []int { return []int{50, 100, 100, 150, 250, 300, 500, 500} }

func newWorkload(seed uint64, sizes []int) *workload {
	w := &workload{r: rand.New(rand.NewPCG(seed, 7))}
	for i, millis := range sizes {
		for k, ratio := range []float64{1, 1, 2, 2, 4, 4, 4, 8} {
			name := fmt.Sprintf("w%d-%d", i, k)
			w.classes = append(w.classes, builder.Class(name).Label("app", name).CPU(fmt.Sprintf("%dm", millis)).
				Memory(fmt.Sprintf("%dMi", int(float64(millis)*1.024*ratio))).Obj())
		}
	}
	return w
}

// pods draws n pods.
func (w *workload) pods(n int) []*capacity.Pod {
	out := make([]*capacity.Pod, n)
	for i := range out {
		c := w.classes[w.r.IntN(len(w.classes))]
		w.serial++
		name := fmt.Sprintf("%s-%06d", c.ID, w.serial)
		out[i] = &capacity.Pod{NamespacedName: types.NamespacedName{Namespace: c.Namespace, Name: name}, UID: types.UID("uid-" + name), Class: c}
	}
	return out
}

// pools is one pool of on-demand c, m and r types of x86 with so many vCPU.
func (r *report) pools(cores ...string) []*capacity.Pool {
	req := capacity.In
	return []*capacity.Pool{builder.CapacityPool("p", r.catalog).Require(
		req(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand), req("karpenter.k8s.aws/instance-category", "c", "m", "r"), req("kubernetes.io/arch", "amd64"),
		req("karpenter.k8s.aws/instance-cpu", cores...),
	).Obj()}
}

// podsPerNode is more pods than a full node holds on average; so many of sizes and, in the same way, more of smaller ones.
func podsPerNode(sizes []int) int {
	sum := 0
	for _, s := range sizes {
		sum += s
	}
	return 70 * 306 * len(sizes) / sum
}

// spec is a cluster of nodes of 16 vCPU, filled by the planner, of whose pods a share is left.
type spec struct {
	nodes int
	// left is the share of the pods, pods their number: one of both.
	left float64
	pods int
	// budget is the pool's, 100 % if empty.
	budget string
	// sizes are the pods', see sizes.
	sizes []int
}

// cluster makes the cluster, an hour later. From then on nodes of 2 to 32 vCPU can be bought.
func (r *report) cluster(x spec) (*model.Cluster, *workload, error) {
	w := newWorkload(r.seed, x.sizes)
	result := plan.Solve(plan.Input{View: &capacity.View{Pools: r.pools("16")}, Pods: w.pods(x.nodes * podsPerNode(x.sizes))})
	if len(result.Unplaced) > 0 {
		return nil, nil, fmt.Errorf("pod %s has no place: %s", result.Unplaced[0].Pod.NamespacedName, result.Unplaced[0].Detail)
	}
	if len(result.Launches) < x.nodes {
		return nil, nil, fmt.Errorf("%d pods need %d nodes only, not %d", w.serial, len(result.Launches), x.nodes)
	}
	result.Launches = result.Launches[:x.nodes]
	stays, err := w.staying(result.Launches, x)
	if err != nil {
		return nil, nil, err
	}
	c := model.New(r.pools("2", "4", "8", "16", "32"), func(b *builder.NodePoolBuilder) {
		if x.budget != "" {
			b.Budget(x.budget)
		}
	})
	for _, l := range result.Launches {
		m := c.Buy(l.Pool.Name, l.Offerings[0])
		for _, p := range l.Pods {
			if stays(p) {
				m.Put(p)
			}
		}
	}
	c.Now = c.Now.Add(time.Hour)
	return c, w, nil
}

// staying draws which pods of full nodes stay.
func (w *workload) staying(full []plan.Launch, x spec) (func(*capacity.Pod) bool, error) {
	if x.pods == 0 {
		return func(*capacity.Pod) bool { return w.r.Float64() < x.left }, nil
	}
	var all []*capacity.Pod
	for i := range full {
		all = append(all, full[i].Pods...)
	}
	if len(all) < x.pods {
		return nil, fmt.Errorf("%d full nodes hold %d pods, not %d", x.nodes, len(all), x.pods)
	}
	stays := make(map[*capacity.Pod]bool, x.pods)
	for _, i := range w.r.Perm(len(all))[:x.pods] {
		stays[all[i]] = true
	}
	return func(p *capacity.Pod) bool { return stays[p] }, nil
}

// use is the shares of the nodes' cores and memory that pods ask for.
func use(c *model.Cluster) (cores, memory float64) {
	var asked, there capacity.Resources
	for _, m := range c.Machines {
		there = there.Add(m.Offering.Type.Allocatable)
		for _, p := range m.Pods {
			asked = asked.Add(p.Class.Requests)
		}
	}
	return float64(asked.CPU) / float64(there.CPU), float64(asked.Memory) / float64(there.Memory)
}

// lowest is the least that nodes for the cluster's pods can cost, in US dollars an hour.
func lowest(c *model.Cluster) (float64, error) {
	p, err := bound.Of(plan.Input{View: &capacity.View{Pools: c.Pools}, Pods: c.Pods()})
	if err != nil {
		return 0, err
	}
	b, err := bound.Solve(p, bound.Options{Time: 10 * time.Second})
	return b.Value, err
}

// carry carries out a decision and checks what has become of the cluster.
func carry(c *model.Cluster, d disruption.Decision) (bought []*model.Machine, evicted int, err error) {
	for _, cmd := range d.Commands {
		for _, n := range cmd.Going {
			evicted += len(n.Plan)
		}
		more, err := c.Carry(cmd)
		if err != nil {
			return nil, 0, err
		}
		bought = append(bought, more...)
	}
	return bought, evicted, c.Check()
}

// rest decides and carries out until nothing is left to do, so many seconds of the cluster's time apart. each is called after
// every decision.
func rest(c *model.Cluster, m *disruption.Memory, every time.Duration, each func(d disruption.Decision, took time.Duration, bought []*model.Machine, evicted int)) error {
	idle := 0
	for range 2000 {
		s := c.Snapshot()
		began := time.Now()
		d := disruption.Decide(s, m)
		took := time.Since(began)
		bought, evicted, err := carry(c, d)
		if err != nil {
			return err
		}
		each(d, took, bought, evicted)
		if idle++; len(d.Commands) > 0 {
			idle = 0
		}
		if idle > int(30*time.Minute/every) { // new nodes are old enough by then, and what was rejected is looked at again
			return nil
		}
		c.Now = c.Now.Add(every)
	}
	return fmt.Errorf("the cluster does not come to rest")
}

// quantile is the q-quantile of durations.
func quantile(list []time.Duration, q float64) time.Duration {
	list = slices.Sorted(slices.Values(list))
	return list[min(int(q*float64(len(list))), len(list)-1)]
}
