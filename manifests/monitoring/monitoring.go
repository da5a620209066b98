// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package monitoring embeds the Grafana dashboard and the alerts, so that a test can hold them against the metrics there
// are. It has no code. Import level 0.
package monitoring

import _ "embed"

// Dashboard is a Grafana dashboard in its JSON model.
//
//go:embed slipway.json
var Dashboard []byte

// Alerts is a PrometheusRule.
//
//go:embed alerts.yaml
var Alerts []byte
