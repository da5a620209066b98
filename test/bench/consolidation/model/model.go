// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"fmt"
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/test/builder"
)

// Cluster is a cluster.
type Cluster struct {
	Now time.Time
	// Pools are what can be bought, NodePools the same as the API has them, by name.
	Pools     []*capacity.Pool
	NodePools map[string]*disruption.Pool
	// Machines are the nodes, by claim name.
	Machines map[string]*Machine
	// Bought counts nodes that were bought.
	Bought int
	serial int
}

// Machine is one node.
type Machine struct {
	Claim *karpv1.NodeClaim
	Node  *corev1.Node
	// Offering is what it was bought as.
	Offering capacity.CatalogOffering
	Pool     string
	Pods     []*capacity.Pod
	Born     time.Time
	// API are annotations and the like of pods: what changes a pod as the API has it before it is used.
	API func(*corev1.Pod)

	made *disruption.Node
}

// New returns a cluster without nodes. NodePools are made for the pools, with policy WhenEmptyOrUnderutilized, consolidateAfter 0s
// and a budget of 100 %; change says how they differ.
func New(pools []*capacity.Pool, change func(*builder.NodePoolBuilder)) *Cluster {
	c := &Cluster{Now: builder.Epoch(), Pools: pools, NodePools: map[string]*disruption.Pool{}, Machines: map[string]*Machine{}}
	for _, p := range pools {
		b := builder.NodePool(p.Name).UID("uid-" + p.Name)
		if change != nil {
			change(b)
		}
		np := b.Obj()
		if len(np.Spec.Disruption.Budgets) == 0 {
			np.Spec.Disruption.Budgets = []karpv1.Budget{{Nodes: "100%"}}
		}
		c.NodePools[p.Name] = &disruption.Pool{NodePool: np, Settings: capacity.ParsePoolAnnotations(np.Annotations)}
	}
	return c
}

// Buy adds a node of an offering to a pool.
func (c *Cluster) Buy(pool string, o capacity.CatalogOffering) *Machine {
	c.serial++
	c.Bought++
	name := fmt.Sprintf("%s-%05d", pool, c.serial)
	m := &Machine{Offering: o, Pool: pool, Born: c.Now}
	b := builder.NodeClaim(name).UID("uid-"+name).Pool(pool).Created(c.Now).Launched("aws:///"+o.Zone+"/i-"+name, o.Type.Name, o.Zone, o.CapacityType).
		Registered("node-" + name).Initialized()
	m.Claim = b.Obj()
	for i := range m.Claim.Status.Conditions {
		m.Claim.Status.Conditions[i].LastTransitionTime = metav1.NewTime(c.Now)
	}
	n := builder.Node("node-" + name).UID("uid-node-" + name).Pool(pool).ProviderID("aws:///" + o.Zone + "/i-" + name)
	for k, v := range o.Type.Labels {
		n.Label(k, v)
	}
	m.Node = n.InstanceType(o.Type.Name).Zone(o.Zone).CapacityType(o.CapacityType).Obj()
	c.Machines[name] = m
	return m
}

// Put places a pod on a node.
func (m *Machine) Put(pods ...*capacity.Pod) {
	m.Pods = append(m.Pods, pods...)
	m.made = nil
}

// Keep keeps the pods for which keep is true.
func (m *Machine) Keep(keep func(*capacity.Pod) bool) {
	m.Pods = slices.DeleteFunc(slices.Clone(m.Pods), func(p *capacity.Pod) bool { return !keep(p) })
	m.made = nil
}

// Touch has the node made anew for the next snapshot: something about it was changed.
func (m *Machine) Touch() { m.made = nil }

// node is the machine as a snapshot has it. It is made anew only when its pods have changed.
func (c *Cluster) node(m *Machine) *disruption.Node {
	if m.made != nil {
		return m.made
	}
	known := make(map[types.UID]*capacity.Pod, len(m.Pods))
	objects := make([]*corev1.Pod, len(m.Pods))
	planned := &capacity.Node{
		Name: m.Node.Name, Claim: m.Claim.Name, ClaimUID: m.Claim.UID, Pool: m.Pool, Phase: capacity.Usable, Labels: m.Node.Labels, Taints: m.Node.Spec.Taints,
		Capacity: m.Offering.Type.Capacity, Allocatable: m.Offering.Type.Allocatable, Pods: map[*capacity.Class]int{},
		InstanceType: m.Offering.Type.Name, Zone: m.Offering.Zone, CapacityType: m.Offering.CapacityType, Price: m.Offering.Price,
	}
	for i, p := range m.Pods {
		known[p.UID] = p
		objects[i] = object(p, m.Node.Name)
		if m.API != nil {
			m.API(objects[i])
		}
		planned.Pods[p.Class]++
		planned.Used = planned.Used.Add(p.Class.Requests)
	}
	for _, pool := range c.Pools {
		if pool.Name == m.Pool {
			planned.Used = planned.Used.Add(pool.Overhead(m.Offering.Type, m.Node.Labels))
			planned.Taints = append(slices.Clone(planned.Taints), pool.Taints...)
		}
	}
	m.made = &disruption.Node{
		Claim: m.Claim, Node: m.Node, Pool: c.NodePools[m.Pool], Planned: planned,
		Load: disruption.NewLoad(objects, func(p *corev1.Pod) *capacity.Pod { return known[p.UID] }, nil),
	}
	return m.made
}

// object is a pod as the API has it, as far as disruption looks at it.
func object(p *capacity.Pod, node string) *corev1.Pod {
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: p.Namespace, Name: p.Name, UID: p.UID, Labels: p.Class.Labels, Annotations: map[string]string{}},
		Spec:       corev1.PodSpec{NodeName: node, Priority: &p.Priority},
		Status:     corev1.PodStatus{Phase: corev1.PodRunning},
	}
}

// Snapshot is the cluster as it is.
func (c *Cluster) Snapshot() *disruption.Snapshot {
	s := &disruption.Snapshot{Now: c.Now, Pools: c.NodePools, View: &capacity.View{}}
	for _, p := range c.Pools {
		q := *p
		q.Usage, q.Nodes = capacity.Resources{}, 0
		s.View.Pools = append(s.View.Pools, &q)
	}
	for _, name := range slices.Sorted(maps.Keys(c.Machines)) {
		n := c.node(c.Machines[name])
		s.Nodes = append(s.Nodes, n)
		s.View.Nodes = append(s.View.Nodes, n.Planned)
		if q := s.View.Pool(n.PoolName()); q != nil {
			q.Usage, q.Nodes = q.Usage.Add(n.Planned.Capacity), q.Nodes+1
		}
	}
	return s
}

// Carry carries a command out: what it buys is there, its pods are where they were planned, its nodes are gone. It returns the
// nodes that were bought. Every pod of a command's nodes must be in its plan.
func (c *Cluster) Carry(cmd *disruption.Command) ([]*Machine, error) {
	var bought []*Machine
	left := map[types.UID]*capacity.Pod{}
	for _, n := range cmd.Going {
		for _, p := range n.Plan {
			left[p.UID] = p
		}
		if m := c.Machines[n.Claim.Name]; m == nil || len(m.Pods) != len(n.Plan) {
			return bought, fmt.Errorf("command %s takes node %s away, on which an earlier command has put pods", cmd.ID, n.Claim.Name)
		}
		delete(c.Machines, n.Claim.Name)
	}
	for _, l := range cmd.Launches {
		m := c.Buy(l.Pool.Name, l.Offerings[0])
		m.Claim.Annotations = map[string]string{disruption.ReplacedForAnnotation: string(cmd.Reason)}
		m.Claim.Spec.Resources.Requests = l.Requests.List()
		bought = append(bought, m)
		for _, p := range l.Pods {
			m.Put(p)
			delete(left, p.UID)
		}
	}
	for _, p := range cmd.Placements {
		m := c.Machines[p.Node.Claim]
		if m == nil {
			return bought, fmt.Errorf("command %s puts pod %s on %s, which is not there", cmd.ID, p.Pod.NamespacedName, p.Node.ID())
		}
		m.Put(p.Pod)
		delete(left, p.Pod.UID)
	}
	for _, p := range left {
		return bought, fmt.Errorf("command %s leaves pod %s without a place", cmd.ID, p.NamespacedName)
	}
	return bought, nil
}

// Schedule places pods as the planner would: on what is there, else on what it buys.
func (c *Cluster) Schedule(pods []*capacity.Pod) error {
	s := c.Snapshot()
	r := plan.Solve(plan.Input{View: s.View, Pods: pods})
	if len(r.Unplaced) > 0 {
		return fmt.Errorf("pod %s has no place: %s", r.Unplaced[0].Pod.NamespacedName, r.Unplaced[0].Detail)
	}
	for _, p := range r.Placements {
		c.Machines[p.Node.Claim].Put(p.Pod)
	}
	for _, l := range r.Launches {
		c.Buy(l.Pool.Name, l.Offerings[0]).Put(l.Pods...)
	}
	return nil
}

// Price is what all nodes cost, in US dollars an hour.
func (c *Cluster) Price() float64 {
	sum := 0.0
	for _, m := range c.Machines {
		sum += m.Offering.Price
	}
	return sum
}

// Pods are all pods.
func (c *Cluster) Pods() []*capacity.Pod {
	var out []*capacity.Pod
	for _, name := range slices.Sorted(maps.Keys(c.Machines)) {
		out = append(out, c.Machines[name].Pods...)
	}
	return out
}

// Check says what is wrong with the cluster: a node that holds more than it has.
func (c *Cluster) Check() error {
	for name, m := range c.Machines {
		n := c.node(m)
		if !n.Planned.Used.Fits(n.Planned.Allocatable) {
			return fmt.Errorf("node %s (%s) holds %s and has %s", name, m.Offering.Type.Name, n.Planned.Used, n.Planned.Allocatable)
		}
	}
	return nil
}
