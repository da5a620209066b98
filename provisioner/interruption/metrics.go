// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import "github.com/prometheus/client_golang/prometheus"

// Metrics are the package's measurements; those that begin with karpenter_ have Karpenter's names and labels.
type Metrics struct {
	Received *prometheus.CounterVec
	Deleted  prometheus.Counter
	// InQueue is the age of a message when its reaction is complete, in seconds.
	InQueue prometheus.Histogram
	// Unhealthy counts instances whose status checks fail or that have a scheduled event, once a trouble.
	Unhealthy *prometheus.CounterVec
	// Malformed counts deliveries of messages that could not be understood, Dropped messages that were given up, by reason.
	Malformed prometheus.Counter
	Dropped   *prometheus.CounterVec
	// Replacements counts replacements by result: bought, or why there was none.
	Replacements *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	counter := func(name, help string) prometheus.Counter {
		return prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help})
	}
	counters := func(name, help, label string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, []string{label})
	}
	return &Metrics{
		Received: counters("karpenter_interruption_received_messages_total", "Messages received from the interruption queue, by type.", "message_type"),
		Deleted:  counter("karpenter_interruption_deleted_messages_total", "Messages deleted from the interruption queue."),
		InQueue: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "karpenter_interruption_message_queue_duration_seconds",
			Help:    "Age of a message when the reaction to it was complete.",
			Buckets: prometheus.ExponentialBuckets(0.01, 2, 16),
		}),
		Unhealthy:    counters("karpenter_interruption_instance_status_unhealthy_total", "Instances with failing status checks or scheduled events, by category.", "category"),
		Malformed:    counter("slipway_interruption_malformed_messages_total", "Deliveries of messages that could not be understood."),
		Dropped:      counters("slipway_interruption_dropped_messages_total", "Messages deleted without a reaction: malformed, stale or failing.", "reason"),
		Replacements: counters("slipway_interruption_replacements_total", "Replacements of interrupted nodes: bought, or why there was none.", "result"),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Received, m.Deleted, m.InQueue, m.Unhealthy, m.Malformed, m.Dropped, m.Replacements}
}
