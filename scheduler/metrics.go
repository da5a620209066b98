// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"fmt"

	"github.com/prometheus/client_golang/prometheus"
)

// Metrics are the package's own metrics. Build them once a process.
type Metrics struct {
	// PostFilter observes the time one failed cycle spends in the plugin, in seconds.
	PostFilter prometheus.Histogram
	// Offered counts pods handed to the sink by outcome: parked or refused.
	Offered *prometheus.CounterVec
}

// NewMetrics registers the metrics, and a gauge of the gate's parked pods, with
// reg. It returns the registerer's error for a name that is taken.
func NewMetrics(reg prometheus.Registerer, gate *Gate) (*Metrics, error) {
	m := &Metrics{
		PostFilter: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name: "slipway_postfilter_duration_seconds",
			Help: "Time a failed scheduling cycle spent in Slipway's PostFilter.",
			// 1 µs to 2 ms: the budget is 50 µs.
			Buckets: prometheus.ExponentialBuckets(1e-6, 2, 12),
		}),
		Offered: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_offered_pods_total",
			Help: "Pods that fit on no node and were offered to the provisioner, by outcome.",
		}, []string{"outcome"}),
	}
	parked := prometheus.NewGaugeFunc(prometheus.GaugeOpts{
		Name: "slipway_parked_pods",
		Help: "Pods behind a closed gate, waiting for capacity.",
	}, func() float64 { return float64(gate.Closed()) })
	for _, c := range []prometheus.Collector{m.PostFilter, m.Offered, parked} {
		if err := reg.Register(c); err != nil {
			return nil, fmt.Errorf("registering scheduler metrics: %w", err)
		}
	}
	return m, nil
}
