// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/apimachinery/pkg/types"
)

// Metrics are the provisioner's metrics.
type Metrics struct {
	// Step is how long each part of the way of a batch took, in seconds, by step: batch (since the first of its pods was
	// offered), view, plan (verification included), verify, claim; and bind, from a usable node to a pod of its plan being bound to it.
	Step *prometheus.HistogramVec
	// BatchSize is how many pods a batch had.
	BatchSize prometheus.Histogram
	// Claims counts the NodeClaims created, by pool.
	Claims *prometheus.CounterVec
	// Unplaced counts refusals by reason; a pod that is planned again counts again.
	Unplaced *prometheus.CounterVec
	// Settled counts pods that took a place planned before they existed; Seats is how many such places wait for their pods.
	Settled prometheus.Counter
	Seats   prometheus.Gauge
	// OffPlan counts pods that landed on a node other pods were still waiting for.
	OffPlan prometheus.Counter
	// Forgotten counts waiting pods that nothing would have happened to any more, by where they were found. It should stay
	// at zero.
	Forgotten *prometheus.CounterVec
	// Cancelled counts claims that were deleted because no pod waited for them any more, by pool.
	Cancelled *prometheus.CounterVec
	// Pods is how many pods wait for capacity, by state: waiting (to be planned), planned (on a claim), unplaced.
	Pods *prometheus.GaugeVec
	// Rejected counts pods that the plan accepted and the scheduler's own filters refused, by plugin. It should stay at
	// zero: each one is a rule that package plan has wrong.
	Rejected *prometheus.CounterVec
}

// NewMetrics returns unregistered metrics.
func NewMetrics() *Metrics {
	return &Metrics{
		Step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "slipway_provisioner_step_duration_seconds", Help: "Time spent in each step of planning a batch, and until its pods are bound to their usable nodes.",
			Buckets: prometheus.ExponentialBuckets(0.0001, 2, 16),
		}, []string{"step"}),
		BatchSize: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "slipway_provisioner_batch_pods", Help: "Pods planned together.", Buckets: prometheus.ExponentialBuckets(1, 4, 8),
		}),
		Claims: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_provisioner_nodeclaims_created_total", Help: "NodeClaims created for pods that fit nowhere.",
		}, []string{"nodepool"}),
		Unplaced: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_provisioner_unplaced_total", Help: "Times a pod was planned and no node could hold it, by reason.",
		}, []string{"reason"}),
		Settled: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_provisioner_lookahead_settled_total", Help: "Pods that took a place planned before they were created.",
		}),
		Seats: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "slipway_provisioner_lookahead_pods", Help: "Places planned for pods that their owners have still to create.",
		}),
		OffPlan: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "slipway_provisioner_off_plan_total", Help: "Pods that landed on a node that was bought for others who had not come yet.",
		}),
		Forgotten: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_provisioner_forgotten_total", Help: "Waiting pods found without anything that would have moved them, by where: gate, node, batch, claim, pod.",
		}, []string{"where"}),
		Cancelled: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_provisioner_nodeclaims_cancelled_total", Help: "NodeClaims deleted before use because no pod waited for them any more.",
		}, []string{"nodepool"}),
		Pods: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slipway_provisioner_pods", Help: "Pods that wait for capacity, by state.",
		}, []string{"state"}),
		Rejected: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_provisioner_judge_rejected_total", Help: "Pods the plan placed and the scheduler's filters refused, by plugin.",
		}, []string{"plugin"}),
	}
}

// Collectors lists all metrics for registration.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Step, m.BatchSize, m.Claims, m.Unplaced, m.Settled, m.Seats, m.OffPlan, m.Forgotten, m.Cancelled, m.Pods, m.Rejected}
}

// waited observes how long the first pod of a batch has waited for it.
func (m *Metrics) waited(now time.Time, offered map[types.UID]time.Time) {
	first := now
	for _, t := range offered {
		if t.Before(first) {
			first = t
		}
	}
	m.Step.WithLabelValues("batch").Observe(now.Sub(first).Seconds())
}

func (m *Metrics) observe(start, viewed, solved, claimed time.Time, pods int) {
	m.Step.WithLabelValues("view").Observe(viewed.Sub(start).Seconds())
	m.Step.WithLabelValues("plan").Observe(solved.Sub(viewed).Seconds())
	m.Step.WithLabelValues("claim").Observe(claimed.Sub(solved).Seconds())
	m.BatchSize.Observe(float64(pods))
}

// count sets the gauge of waiting pods.
func (m *Metrics) count(pods [3]int, seats int) {
	m.Seats.Set(float64(seats))
	for s, name := range [...]string{waiting: "waiting", planned: "planned", unplaced: "unplaced"} {
		m.Pods.WithLabelValues(name).Set(float64(pods[s]))
	}
}
