// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the launcher's measurements. They are registered by whoever builds the process ([Metrics.Collectors]).
type Metrics struct {
	// Attempts counts CreateFleet calls by result: "ok" or the kind of the error.
	Attempts *prometheus.CounterVec
	// Failures counts offerings that a fleet could not bring (Karpenter's metric, by zone, capacity type and EC2's code).
	Failures *prometheus.CounterVec
	// Duration is the time from hand-over to the written status, in seconds, by result: "launched" or "failed".
	Duration *prometheus.HistogramVec
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	return &Metrics{
		Attempts: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_launch_attempts_total",
			Help: "CreateFleet calls, by result: ok or the kind of the error.",
		}, []string{"result"}),
		Failures: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "karpenter_cloudprovider_instance_launch_failures_total",
			Help: "Offerings that a fleet request could not fulfil.",
		}, []string{"zone", "capacity_type", "reason"}),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slipway_launch_duration_seconds",
			Help:    "Time from the hand-over of a NodeClaim to its written status.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 15),
		}, []string{"result"}),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Attempts, m.Failures, m.Duration}
}
