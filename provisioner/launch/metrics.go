// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"time"

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
	// Step is the time of each part of a launch that brought an instance, in seconds, by step: request (until CreateFleet is
	// sent), fleet (until EC2 has answered), describe (until the node's name is known), write (until the status is written).
	Step *prometheus.HistogramVec
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
		Step: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name:    "slipway_launch_step_duration_seconds",
			Help:    "Time spent in each step of a launch that brought an instance.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 16),
		}, []string{"step"}),
	}
}

// observe takes the parts of a launch that brought an instance; a part that it did not go through is left out.
func (m *Metrics) observe(t Timings) {
	for _, s := range [...]struct {
		step     string
		from, to time.Time
	}{{"request", t.HandedOver, t.Sent}, {"fleet", t.Sent, t.Answered}, {"describe", t.Answered, t.Described}, {"write", t.Described, t.Patched}} {
		if !s.from.IsZero() && !s.to.IsZero() {
			m.Step.WithLabelValues(s.step).Observe(max(s.to.Sub(s.from), 0).Seconds())
		}
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Attempts, m.Failures, m.Duration, m.Step}
}
