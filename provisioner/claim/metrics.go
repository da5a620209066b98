// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the package's measurements; those that begin with karpenter_ have Karpenter's names and labels.
type Metrics struct {
	NodesCreated     *prometheus.CounterVec
	NodesTerminated  *prometheus.CounterVec
	NodesDrained     *prometheus.CounterVec
	ClaimsTerminated *prometheus.CounterVec
	ClaimsDisrupted  *prometheus.CounterVec
	// Orphans counts instances that were ended because no claim stood for them.
	Orphans prometheus.Counter
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		NodesCreated:     counter("karpenter_nodes_created_total", "Nodes that were registered.", "nodepool", "zone"),
		NodesTerminated:  counter("karpenter_nodes_terminated_total", "Nodes that were let go after their instance had ended.", "nodepool", "zone"),
		NodesDrained:     counter("karpenter_nodes_drained_total", "Nodes that all pods that have to leave have left.", "nodepool"),
		ClaimsTerminated: counter("karpenter_nodeclaims_terminated_total", "NodeClaims whose end is complete.", "nodepool", "capacity_type", "zone"),
		ClaimsDisrupted:  counter("karpenter_nodeclaims_disrupted_total", "NodeClaims deleted by Slipway, by reason.", "reason", "nodepool", "capacity_type"),
		Orphans: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_orphan_instances_terminated_total",
			Help: "Instances that were terminated because no NodeClaim stood for them.",
		}),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.NodesCreated, m.NodesTerminated, m.NodesDrained, m.ClaimsTerminated, m.ClaimsDisrupted, m.Orphans}
}
