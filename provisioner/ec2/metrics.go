// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Metrics are what can be measured of the catalogues.
type Metrics struct {
	// Static is 1 while prices of a capacity type are not EC2's own: on-demand prices those of the release, spot prices
	// those of on-demand.
	Static *prometheus.GaugeVec
	// Refreshes counts refreshes by part (types, zones, onDemandPrices, spotPrices) and result: ok or the kind of the error.
	Refreshes *prometheus.CounterVec
}

// NewMetrics returns metrics that are not registered anywhere yet.
func NewMetrics() *Metrics {
	return &Metrics{
		Static: prometheus.NewGaugeVec(prometheus.GaugeOpts{
			Name: "slipway_prices_static",
			Help: "1 while the prices of the capacity type are stand-ins and not those of EC2.",
		}, []string{"capacity_type"}),
		Refreshes: prometheus.NewCounterVec(prometheus.CounterOpts{
			Name: "slipway_catalog_refreshes_total",
			Help: "Refreshes of what EC2 sells, by part and result: ok or the kind of the error.",
		}, []string{"part", "result"}),
	}
}

// Collectors returns everything that has to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{m.Static, m.Refreshes}
}

// measure counts what a refresh comes to.
func (m *Metrics) measure(part string, do func(context.Context) error) func(context.Context) error {
	return func(ctx context.Context) error {
		err := do(ctx)
		m.Refreshes.WithLabelValues(part, result(err)).Inc()
		return err
	}
}

func result(err error) string {
	if err == nil {
		return "ok"
	}
	return cmp.Or(string(capacity.KindOf(err)), "Unknown")
}
