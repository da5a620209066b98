// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-sh/slipway/cmd/internal/settings"
)

// docs/reference/configuration.md has every key with its flag, default and meaning.
func TestConfigurationIsDocumented(t *testing.T) {
	page, err := os.ReadFile("../../docs/reference/configuration.md")
	if err != nil {
		t.Fatal(err)
	}
	if table := settings.Table(flags(&options{})); !strings.Contains(string(page), table) {
		t.Errorf("the table of WebhookConfiguration in docs/reference/configuration.md is not this one:\n%s", table)
	}
}

func TestConfigurationFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: config.slipway.sh/v1alpha1\nkind: WebhookConfiguration\nmetricsPort: 9000\nlogLevel: loud\n"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	// What the file says is checked as flags are.
	o, err := parse([]string{"--config", path}, func(string) string { return "" }, io.Discard)
	if o.MetricsPort != 9000 || err == nil || !strings.Contains(err.Error(), "--log-level: \"loud\"") {
		t.Errorf("port %d, error %v; want 9000 and one about the log level", o.MetricsPort, err)
	}
}
