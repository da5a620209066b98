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

// workload draws pods of 64 workloads: 50 millicores to a core, 1 to 8 GiB a core.
type workload struct {
	r       *rand.Rand
	classes []*capacity.Class
	serial  int
}

func newWorkload(seed uint64) *workload {
	w := &workload{r: rand.New(rand.NewPCG(seed, 7))}
	for i, millis := range []int{50, 100, 100, 200, 250, 250, 500, 1000} {
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

// podsPerNode is more pods than a full node holds on average.
const podsPerNode = 70

// cluster has so many nodes of 16 vCPU, filled by the planner, of whose pods the given share is left, an hour later. From then
// on nodes of 2 to 32 vCPU can be bought. budget is the pool's, 100 % if empty.
func (r *report) cluster(nodes int, left float64, budget string) (*model.Cluster, *workload, error) {
	w := newWorkload(r.seed)
	result := plan.Solve(plan.Input{View: &capacity.View{Pools: r.pools("16")}, Pods: w.pods(nodes * podsPerNode)})
	if len(result.Unplaced) > 0 {
		return nil, nil, fmt.Errorf("pod %s has no place: %s", result.Unplaced[0].Pod.NamespacedName, result.Unplaced[0].Detail)
	}
	if len(result.Launches) < nodes {
		return nil, nil, fmt.Errorf("%d pods need %d nodes only, not %d", nodes*podsPerNode, len(result.Launches), nodes)
	}
	result.Launches = result.Launches[:nodes]
	c := model.New(r.pools("2", "4", "8", "16", "32"), func(b *builder.NodePoolBuilder) {
		if budget != "" {
			b.Budget(budget)
		}
	})
	for _, l := range result.Launches {
		m := c.Buy(l.Pool.Name, l.Offerings[0])
		for _, p := range l.Pods {
			if w.r.Float64() < left {
				m.Put(p)
			}
		}
	}
	c.Now = c.Now.Add(time.Hour)
	return c, w, nil
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
