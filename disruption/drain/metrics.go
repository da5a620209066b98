// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Metrics are the package's measurements; those that begin with karpenter_ have Karpenter's names and labels.
type Metrics struct {
	// Evictions counts requests to the eviction API by the answer's HTTP status.
	Evictions *prometheus.CounterVec
	// Drained counts pods that were made to leave: evicted, deleted at a deadline, or succeeded by a ready one.
	Drained *prometheus.CounterVec
	// Moved counts the same pods by why their node goes: the claim's DisruptionReason, or deleted if it has none.
	Moved *prometheus.CounterVec
	// Blocked is the time pods were kept on nodes that are being drained, by what kept them, in seconds.
	Blocked *prometheus.CounterVec
	// Surges counts successors made ahead: started, finished, or skipped.
	Surges *prometheus.CounterVec
	// Stuck counts pods that were left behind because their deletion did not come to an end.
	Stuck prometheus.Counter
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	counter := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &Metrics{
		Evictions: counter("karpenter_pods_eviction_requests_total", "Requests to the eviction API, by HTTP status.", "code"),
		Drained:   counter("karpenter_pods_drained_total", "Pods that were made to leave a node: evicted, deleted at its deadline, or succeeded by a ready pod.", "reason"),
		Moved:     counter("slipway_drain_evictions_total", "Pods that were made to leave a node, by why the node goes.", "reason"),
		Blocked:   counter("slipway_drain_blocked_seconds_total", "Seconds that pods were kept on nodes being drained, by what kept them.", "blocker"),
		Surges:    counter("slipway_drain_surges_total", "Successors made before their pod leaves: started, finished, or skipped.", "result"),
		Stuck: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_drain_stuck_pods_total", Help: "Pods left on a node because their deletion did not end within a minute after its grace period.",
		}),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Evictions, m.Drained, m.Moved, m.Blocked, m.Surges, m.Stuck}
}

// moved counts a pod that was made to leave in that way a node that goes for that reason.
func (m *Metrics) moved(reason, how string) {
	m.Drained.WithLabelValues(how).Inc()
	m.Moved.WithLabelValues(reason).Inc()
}

// reasonOf is why the claim's node goes: its condition DisruptionReason in lower case, or deleted if it has none.
func reasonOf(c *karpv1.NodeClaim) string {
	if r := c.StatusConditions().Get(karpv1.ConditionTypeDisruptionReason); r.IsTrue() {
		return strings.ToLower(r.Reason)
	}
	return "deleted"
}
