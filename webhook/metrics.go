// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"github.com/prometheus/client_golang/prometheus"
)

// Reasons of answers that allow without having looked (label reason of slipway_admission_failed_open_total).
const (
	failedPanic    = "panic"
	failedDeadline = "deadline"
	failedCold     = "cold_cache"
	failedLarge    = "oversized"
	failedRead     = "unreadable"
	failedOverload = "overload"
)

// Metrics are what the process tells about itself.
type Metrics struct {
	Requests      *prometheus.CounterVec
	Duration      *prometheus.HistogramVec
	Findings      *prometheus.CounterVec
	FailedOpen    *prometheus.CounterVec
	Grandfathered *prometheus.CounterVec
	Defaulted     *prometheus.CounterVec
	Feasibility   *prometheus.CounterVec
	CatalogAge    prometheus.Gauge
	CertExpiry    prometheus.Gauge
	Canary        prometheus.Gauge
	Heartbeat     prometheus.Gauge
	Unadmitted    prometheus.Gauge
}

// NewMetrics returns metrics that are registered nowhere yet.
func NewMetrics() *Metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "slipway", Subsystem: "admission", Name: name, Help: help}, labels)
	}
	gauge := func(name, help string) prometheus.Gauge {
		return prometheus.NewGauge(prometheus.GaugeOpts{Namespace: "slipway", Subsystem: "admission", Name: name, Help: help})
	}
	return &Metrics{
		Requests: counter("requests_total", "Reviews answered, by hook, operation and outcome (allowed, patched, denied, failed_open).", "hook", "operation", "outcome"),
		Duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Namespace: "slipway", Subsystem: "admission", Name: "duration_seconds", Help: "Time from the review's last byte to the answer, by hook.",
			Buckets: []float64{.00025, .0005, .001, .0025, .005, .01, .025, .1, .5, 1},
		}, []string{"hook"}),
		Findings:      counter("findings_total", "Findings, by rule and what they led to (denied, warned, audited).", "rule", "action"),
		FailedOpen:    counter("failed_open_total", "Reviews allowed without having been looked at, by reason.", "reason"),
		Grandfathered: counter("grandfathered_total", "Pods that were not refused because their controller ran before, by rule.", "rule"),
		Defaulted:     counter("defaulted_requests_total", "Requests filled in, by resource and kind of source.", "resource", "source"),
		Feasibility:   counter("feasibility_total", "Answers to whether a pod can ever run (yes, no, unknown).", "result"),
		CatalogAge:    gauge("catalog_age_seconds", "Age of the oldest instance catalogue in use."),
		CertExpiry:    gauge("cert_expiry_seconds", "Time until the serving certificate expires."),
		Canary:        gauge("canary_success", "1 if the last dry-run pod came back as admission should have made it, else 0."),
		Heartbeat:     gauge("heartbeat_age_seconds", "Time since the lease was renewed last."),
		Unadmitted:    gauge("unadmitted_pods", "Pods of managed namespaces that no admission has seen."),
	}
}

// Collectors lists all metrics, to be registered.
func (m *Metrics) Collectors() []prometheus.Collector {
	return []prometheus.Collector{
		m.Requests, m.Duration, m.Findings, m.FailedOpen, m.Grandfathered, m.Defaulted, m.Feasibility,
		m.CatalogAge, m.CertExpiry, m.Canary, m.Heartbeat, m.Unadmitted,
	}
}
