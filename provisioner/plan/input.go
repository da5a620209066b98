// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"maps"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Input is everything a plan depends on.
type Input struct {
	// View is the cluster: pools and nodes, pods on them included.
	View *capacity.View
	// Pods want a place. None of them is counted on a node of the view.
	Pods []*capacity.Pod
	// OnlyInFlight keeps pods off nodes that are usable already: the scheduler has just found that none of them fits, so
	// only nodes still on their way are of interest.
	OnlyInFlight bool
	// Barred are pairs of a class and where its pods must not go, because the scheduler's own filters refused them there.
	Barred []Bar
	// MaxOfferings bounds the offerings of one launch; 0 means DefaultMaxOfferings.
	MaxOfferings int
	// Known is what earlier plans have worked out of the same pools; nil for nothing.
	Known *Memo
}

// DefaultMaxOfferings is how many offerings a launch carries: Karpenter's 60, which keeps a CreateFleet request
// below EC2's limits while leaving it room to choose deep spot pools.
const DefaultMaxOfferings = 60

// Bar excludes a class from new nodes of a pool, all of them or those of one instance type, or from one node by its ID.
type Bar struct {
	Class        *capacity.Class
	Pool         string // new nodes of this pool
	InstanceType string // of this type; empty for all
	Node         string // or this node
	// Reason is shown when nothing else is left for the pod.
	Reason string
}

// Result is a plan.
type Result struct {
	// Placements put pods on nodes of the view.
	Placements []Placement
	// Launches are the nodes to buy, each with its pods.
	Launches []Launch
	// Unplaced are the pods that cannot be placed, each with the reason.
	Unplaced []Unplaced
}

// Placement puts one pod on a node of the view.
type Placement struct {
	Pod  *capacity.Pod
	Node *capacity.Node
	// Step is the placement's position in the order of the whole plan, see Launch.Steps.
	Step int
}

// Launch is one node to buy.
type Launch struct {
	Pool *capacity.Pool
	// Requirements are the node's: the pool's, narrowed by its pods and to the chosen instance types, zones and capacity types.
	Requirements capacity.Requirements
	// Offerings are acceptable ways to buy it, cheapest first; every one holds all pods.
	Offerings []capacity.CatalogOffering
	// Requests is what the pods and the daemonset pods of the node ask for.
	Requests capacity.Resources
	Pods     []*capacity.Pod
	// Steps are the positions of Pods in the order in which the plan was made: rules about zones and the like hold at every
	// moment for whoever places the pods one by one in this order.
	Steps []int
}

// Labels are the labels the node has if it is bought as its cheapest offering, as far as they are decided; its host name is not.
func (l *Launch) Labels() map[string]string {
	first := &l.Offerings[0]
	out := make(map[string]string, len(first.Type.Labels)+len(l.Requirements)+2)
	for key := range l.Requirements {
		if v, ok := l.label(key); ok {
			out[key] = v
		}
	}
	for _, key := range [...]string{corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey, capacity.ZoneIDLabel} {
		if v, ok := l.label(key); ok {
			out[key] = v
		}
	}
	maps.Copy(out, first.Type.Labels)
	return out
}

// label is one of Labels.
func (l *Launch) label(key string) (string, bool) {
	first := &l.Offerings[0]
	switch key {
	case corev1.LabelTopologyZone:
		return first.Zone, true
	case karpv1.CapacityTypeLabelKey:
		return first.CapacityType, true
	case capacity.ZoneIDLabel:
		return first.ZoneID, first.ZoneID != ""
	}
	if v, ok := first.Type.Labels[key]; ok {
		return v, true
	}
	if r, ok := l.Requirements[key]; ok && r.Finite() && len(r.Values()) == 1 {
		return r.Values()[0], true
	}
	return "", false
}

// Price is the cheapest offering's price in US dollars an hour.
func (l *Launch) Price() float64 { return l.Offerings[0].Price }

// Unplaced is a pod no node can hold, and why.
type Unplaced struct {
	Pod *capacity.Pod
	// Pool is the nearest pool: the one that fails the latest check. Empty if there is no pool at all.
	Pool string
	// Reason is one of the Reason constants; Detail says the number behind it.
	Reason Reason
	Detail string
}

// Reason classifies what blocks a pod. The order is the order of checks: a later reason means the pool came nearer.
type Reason string

const (
	NoPools        Reason = "NoNodePools"
	TaintNotToler  Reason = "TaintNotTolerated"
	Incompatible   Reason = "RequirementsIncompatible"
	PoolNotReady   Reason = "NodePoolNotReady"
	NoOffering     Reason = "NoOfferingAvailable"
	PortTaken      Reason = "HostPortTaken"
	TooLarge       Reason = "NoInstanceTypeLargeEnough"
	TooFew         Reason = "MinValuesNotMet"
	TopologyBlocks Reason = "TopologyRules"
	LimitReached   Reason = "LimitReached"
	Refused        Reason = "RefusedByScheduler"
)

// Nearer reports whether a pool that fails for this reason came nearer than one that fails for the other.
func (r Reason) Nearer(than Reason) bool { return r.rank() > than.rank() }

// rank orders reasons by how far the pool came.
func (r Reason) rank() int {
	for i, q := range [...]Reason{NoPools, TaintNotToler, Incompatible, PoolNotReady, NoOffering, PortTaken, TooLarge, TooFew, TopologyBlocks, LimitReached, Refused} {
		if q == r {
			return i
		}
	}
	return -1
}
