// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package monitoring

import (
	"cmp"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/disruption/drain"
	monitoring "github.com/slipway-sh/slipway/manifests/monitoring"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/interruption"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/scheduler"
	"github.com/slipway-sh/slipway/webhook"
)

var update = flag.Bool("update", false, "write docs/reference/metrics.md anew")

const reference = "../../docs/reference/metrics.md"

// metric is what a collector says of itself.
type metric struct{ name, kind, labels, help string }

// recorder is a Registerer that remembers.
type recorder struct{ collectors []prometheus.Collector }

func (r *recorder) Register(c prometheus.Collector) error {
	r.collectors = append(r.collectors, c)
	return nil
}

func (r *recorder) MustRegister(cs ...prometheus.Collector) {
	r.collectors = append(r.collectors, cs...)
}
func (r *recorder) Unregister(prometheus.Collector) bool { return false }

// processes are the metrics of each process's packages.
func processes(t *testing.T) map[string][]metric {
	t.Helper()
	own := &recorder{}
	if _, err := scheduler.NewMetrics(own, scheduler.NewGate(clock.RealClock{}, scheduler.DefaultGateDeadline)); err != nil {
		t.Fatal(err)
	}
	out := map[string][]metric{}
	for process, collectors := range map[string][]prometheus.Collector{
		"slipway-scheduler": slices.Concat(own.collectors, provisioner.NewMetrics().Collectors(), launch.NewMetrics().Collectors(),
			ec2.NewMetrics().Collectors(), disruption.NewMetrics().Collectors()),
		"slipway-controller": slices.Concat(claim.NewMetrics().Collectors(), drain.NewMetrics().Collectors(), interruption.NewMetrics().Collectors()),
		"slipway-webhook":    webhook.NewMetrics().Collectors(),
	} {
		for _, c := range collectors {
			out[process] = append(out[process], describe(t, c))
		}
		slices.SortFunc(out[process], func(a, b metric) int { return cmp.Compare(a.name, b.name) })
	}
	return out
}

// describe reads a collector's description. prometheus.Desc shows its fields as text only.
func describe(t *testing.T, c prometheus.Collector) metric {
	t.Helper()
	descs := make(chan *prometheus.Desc, 8)
	c.Describe(descs)
	text := (<-descs).String()
	m := regexp.MustCompile(`fqName: "([^"]+)", help: "(.*?)", (?:unit: ".*?", )?constLabels: \{.*\}, variableLabels: \{(.*?)\}+$`).FindStringSubmatch(text)
	if m == nil {
		t.Fatalf("cannot read the description %s", text)
	}
	kind := "gauge"
	switch name := fmt.Sprintf("%T", c); {
	case strings.HasSuffix(m[1], "_total"):
		kind = "counter"
	case strings.Contains(strings.ToLower(name), "histogram"):
		kind = "histogram"
	}
	return metric{name: m[1], help: strings.ReplaceAll(m[2], `\"`, `"`), kind: kind, labels: strings.ReplaceAll(m[3], ",", ", ")}
}

func TestReference(t *testing.T) {
	var b strings.Builder
	b.WriteString(`# Metrics

Written by ` + "`go test ./test/monitoring -update`" + ` from what the packages register. Names that begin with karpenter_ and their labels are Karpenter's, so
that dashboards made for it go on; kube-scheduler's, controller-runtime's and client-go's own metrics come in addition.
`)
	all := processes(t)
	for _, process := range []string{"slipway-scheduler", "slipway-controller", "slipway-webhook"} {
		fmt.Fprintf(&b, "\n## %s\n\n| metric | kind | labels | meaning |\n|---|---|---|---|\n", process)
		for _, m := range all[process] {
			fmt.Fprintf(&b, "| `%s` | %s | %s | %s |\n", m.name, m.kind, m.labels, strings.ReplaceAll(m.help, "|", `\|`))
		}
	}
	if *update {
		if err := os.WriteFile(reference, []byte(b.String()), 0o644); err != nil { //nolint:gosec // a page of the documentation
			t.Fatal(err)
		}
		return
	}
	have, err := os.ReadFile(reference)
	if err != nil {
		t.Fatal(err)
	}
	if diff := gocmp.Diff(b.String(), string(have)); diff != "" {
		t.Errorf("docs/reference/metrics.md is not current; run go test ./test/monitoring -update (-want +got):\n%s", diff)
	}
}

// names are all metrics there are.
func names(t *testing.T) map[string]bool {
	t.Helper()
	out := map[string]bool{}
	for _, list := range processes(t) {
		for _, m := range list {
			out[m.name] = true
			if m.kind == "histogram" {
				for _, suffix := range []string{"_bucket", "_sum", "_count"} {
					out[m.name+suffix] = true
				}
			}
		}
	}
	return out
}

// check fails the test for each metric of an expression that no package registers.
func check(t *testing.T, there map[string]bool, where, expression string) {
	t.Helper()
	used := regexp.MustCompile(`\b(slipway|karpenter)_[a-z0-9_]+`).FindAllString(expression, -1)
	if len(used) == 0 {
		t.Errorf("%s: no metric of Slipway's in %q", where, expression)
	}
	for _, name := range used {
		if !there[name] {
			t.Errorf("%s: no package registers %s", where, name)
		}
	}
}

func TestDashboard(t *testing.T) {
	var d struct {
		Panels []struct {
			ID      int    `json:"id"`
			Title   string `json:"title"`
			Type    string `json:"type"`
			GridPos struct{ X, Y, W, H int }
			Targets []struct {
				Expr string `json:"expr"`
			} `json:"targets"`
		} `json:"panels"`
	}
	if err := json.Unmarshal(monitoring.Dashboard, &d); err != nil {
		t.Fatal(err)
	}
	there, ids := names(t), map[int]bool{}
	for _, p := range d.Panels {
		if ids[p.ID] {
			t.Errorf("panel %q: id %d is taken", p.Title, p.ID)
		}
		ids[p.ID] = true
		if p.Type != "row" && len(p.Targets) == 0 {
			t.Errorf("panel %q shows nothing", p.Title)
		}
		for _, target := range p.Targets {
			check(t, there, "panel "+p.Title, target.Expr)
		}
	}
}

func TestAlerts(t *testing.T) {
	var rule struct {
		Spec struct {
			Groups []struct {
				Rules []struct {
					Alert, Expr string
					Labels      map[string]string
					Annotations map[string]string
				}
			}
		}
	}
	if err := yaml.Unmarshal(monitoring.Alerts, &rule); err != nil {
		t.Fatal(err)
	}
	runbooks, err := os.ReadFile("../../docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	there, seen := names(t), 0
	for _, g := range rule.Spec.Groups {
		for _, r := range g.Rules {
			seen++
			check(t, there, r.Alert, r.Expr)
			if !strings.HasSuffix(r.Annotations["runbook_url"], "docs/operating.md#"+strings.ToLower(r.Alert)) {
				t.Errorf("%s: runbook_url %q does not lead to its section", r.Alert, r.Annotations["runbook_url"])
			}
			if !strings.Contains(string(runbooks), "\n### "+r.Alert+"\n") {
				t.Errorf("%s: docs/operating.md has no section for it", r.Alert)
			}
			if r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("%s: no summary or no severity", r.Alert)
			}
		}
	}
	if seen == 0 {
		t.Error("no alerts")
	}
}
