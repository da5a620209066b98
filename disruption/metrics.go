// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// Metrics are the package's measurements; those that begin with karpenter_ have Karpenter's names and labels.
type Metrics struct {
	Evaluation *prometheus.HistogramVec
	Decisions  *prometheus.CounterVec
	ByPool     *prometheus.CounterVec
	Eligible   *prometheus.GaugeVec
	Allowed    *prometheus.GaugeVec
	Consuming  *prometheus.GaugeVec
	// Rejected counts consolidations that did not hold at the second look.
	Rejected *prometheus.CounterVec
	Failures *prometheus.CounterVec
	Pods     *prometheus.CounterVec
	Claims   *prometheus.CounterVec
	// TakenBack counts commands by why they were taken back, Savings what commands save, in US dollars an hour.
	TakenBack *prometheus.CounterVec
	Savings   *prometheus.CounterVec
	// Panics counts passes that were given up because of a fault in the package.
	Panics prometheus.Counter
	// Yields is 1 while nodes with classes of karpenter.k8s.aws are left alone because somebody else owns those.
	Yields prometheus.Gauge
	// UnhealthyDisrupted counts claims of nodes that were replaced because they did not work.
	UnhealthyDisrupted *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	gauge := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
	}
	return &Metrics{
		Evaluation: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "karpenter_voluntary_disruption_decision_evaluation_duration_seconds", Help: "Duration of the disruption decision evaluation process in seconds.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 16),
		}, []string{"reason", "consolidation_type"}),
		Decisions: counter("karpenter_voluntary_disruption_decisions_total", "Disruption decisions performed.", "decision", "reason", "consolidation_type"),
		ByPool:    counter("karpenter_voluntary_disruption_decisions_by_nodepool_total", "Disruption decisions performed, by NodePool.", "nodepool", "decision", "reason", "consolidation_type"),
		Eligible:  gauge("karpenter_voluntary_disruption_eligible_nodes", "Nodes eligible for disruption.", "reason"),
		Allowed:   gauge("karpenter_nodepools_allowed_disruptions", "Nodes of a NodePool that can be disrupting at once.", "nodepool", "reason"),
		Consuming: gauge("karpenter_nodepools_nodes_consuming_budgets", "Nodes that use the budget of a NodePool up.", "nodepool", "reason"),
		Rejected:  counter("karpenter_voluntary_disruption_failed_validations_total", "Consolidations that did not hold when they were looked at again.", "consolidation_type"),
		Failures:  counter("karpenter_voluntary_disruption_queue_failures_total", "Disruption decisions that failed after they were begun.", "decision", "reason", "consolidation_type"),
		Pods:      counter("karpenter_pods_disruption_initiated_total", "Pods on nodes whose disruption was begun.", "reason", "nodepool", "capacity_type"),
		Claims:    counter("karpenter_nodeclaims_disrupted_total", "NodeClaims deleted by Slipway, by reason.", "reason", "nodepool", "capacity_type"),
		TakenBack: counter("slipway_disruption_taken_back_total", "Disruptions that were taken back, by what stood against them.", "reason", "cause"),
		Savings:   counter("slipway_disruption_savings_dollars_per_hour_total", "What disruptions that were carried out save, in US dollars an hour.", "reason", "nodepool"),
		Panics:    prometheus.NewCounter(prometheus.CounterOpts{Name: "slipway_disruption_panics_total", Help: "Disruption passes that were given up because of a fault in Slipway."}),
		Yields: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slipway_disruption_yields", Help: "1 while nodes with classes of karpenter.k8s.aws are left alone because somebody else holds Karpenter's lease.",
		}),
		UnhealthyDisrupted: counter("karpenter_nodeclaims_unhealthy_disrupted_total", "NodeClaims deleted because their node was unhealthy, by its condition.", "condition", "nodepool", "capacity_type", "image_id"),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.Evaluation, m.Decisions, m.ByPool, m.Eligible, m.Allowed, m.Consuming, m.Rejected, m.Failures, m.Pods, m.Claims, m.TakenBack, m.Savings, m.Panics,
		m.Yields, m.UnhealthyDisrupted,
	}
}

// decided measures a decision.
func (m *Metrics) decided(d *Decision, took time.Duration) {
	m.Evaluation.WithLabelValues("all", "").Observe(took.Seconds())
	for _, r := range reasons() {
		m.Eligible.WithLabelValues(label(r)).Set(float64(d.Eligible[r]))
	}
	m.Allowed.Reset()
	m.Consuming.Reset()
	for name, q := range d.Quotas {
		for _, r := range reasons() {
			m.Allowed.WithLabelValues(name, string(r)).Set(float64(q.Allowed[r]))
			m.Consuming.WithLabelValues(name, string(r)).Set(float64(q.Used + q.Unready))
		}
	}
}

// performed counts a command whose effects have begun.
func (m *Metrics) performed(c *Command) {
	decision := c.Decision()
	m.Decisions.WithLabelValues(decision, label(c.Reason), c.Kind).Inc()
	pools := map[string]bool{}
	for _, n := range c.Going {
		if !pools[n.PoolName()] {
			pools[n.PoolName()] = true
			m.ByPool.WithLabelValues(n.PoolName(), decision, label(c.Reason), c.Kind).Inc()
		}
	}
}

// failed counts a command that was taken back.
func (m *Metrics) failed(r *Record, cause string) {
	m.TakenBack.WithLabelValues(label(r.Reason), cause).Inc()
	if cause == failedReplacement || cause == failedTimeout {
		m.Failures.WithLabelValues(r.Decision(), label(r.Reason), "").Inc()
	}
}

// disrupted counts a claim that was deleted, and its part of what its command saves: only now is that so.
func (m *Metrics) disrupted(r *Record, n *Node) {
	reason, kind := r.Reason, n.Claim.Labels[karpv1.CapacityTypeLabelKey]
	if r.Saving > 0 && len(r.Nodes) > 0 {
		m.Savings.WithLabelValues(label(reason), n.PoolName()).Add(r.Saving / float64(len(r.Nodes)))
	}
	m.Claims.WithLabelValues(label(reason), n.PoolName(), kind).Inc()
	m.Pods.WithLabelValues(label(reason), n.PoolName(), kind).Add(float64(len(n.Moving)))
	if t := n.trouble(); reason == ReasonUnhealthy && t != nil {
		m.UnhealthyDisrupted.WithLabelValues(snake(string(t.Type)), n.PoolName(), kind, n.Claim.Status.ImageID).Inc()
	}
}

// snake writes a condition's name as Karpenter's metric has it.
func snake(s string) string {
	var b strings.Builder
	for i, c := range s {
		if c >= 'A' && c <= 'Z' {
			if i > 0 {
				b.WriteByte('_')
			}
			c += 'a' - 'A'
		}
		b.WriteRune(c)
	}
	return b.String()
}

// label is a reason as Karpenter writes it in metrics.
func label(r karpv1.DisruptionReason) string { return strings.ToLower(string(r)) }
