// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"flag"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

type sample struct {
	Name  string
	Port  int
	Share float64
	On    bool
	Wait  time.Duration
	CA    string
}

func sampleFlags(s *sample) *flag.FlagSet {
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&s.Name, "cluster-name", "", "name")
	fs.IntVar(&s.Port, "metrics-port", 8080, "port")
	fs.Float64Var(&s.Share, "share", 0.5, "share")
	fs.BoolVar(&s.On, "enabled", false, "on")
	fs.DurationVar(&s.Wait, "lame-duck", time.Second, "wait")
	fs.StringVar(&s.CA, "cluster-ca-bundle", "", "ca")
	return fs
}

const head = "apiVersion: config.slipway.sh/v1alpha1\nkind: TestConfiguration\n"

func TestFile(t *testing.T) {
	defaults := sample{Port: 8080, Share: 0.5, Wait: time.Second}
	with := func(change func(*sample)) sample {
		s := defaults
		change(&s)
		return s
	}
	tests := map[string]struct {
		file string
		args []string
		env  map[string]string
		want sample
		err  []string // each is in the error
	}{
		"empty": {file: head, want: defaults},
		"all": {
			file: head + "clusterName: prod\nmetricsPort: 9000\nshare: 0.25\nenabled: true\nlameDuck: 15s\nclusterCABundle: abc\n",
			want: sample{"prod", 9000, 0.25, true, 15 * time.Second, "abc"},
		},
		"JSON":                {file: `{"apiVersion": "config.slipway.sh/v1alpha1", "kind": "TestConfiguration", "metricsPort": 9000}`, want: with(func(s *sample) { s.Port = 9000 })},
		"environment wins":    {file: head + "metricsPort: 9000\n", env: map[string]string{"METRICS_PORT": "9100"}, want: with(func(s *sample) { s.Port = 9100 })},
		"flags win":           {file: head + "metricsPort: 9000\nenabled: true\n", env: map[string]string{"METRICS_PORT": "9100"}, args: []string{"--metrics-port=9200", "--enabled=false"}, want: with(func(s *sample) { s.Port = 9200 })},
		"misspelt":            {file: head + "metricPort: 9000\n", err: []string{`unknown key "metricPort" (did you mean metricsPort?)`}},
		"a flag's name":       {file: head + "cluster-ca-bundle: a\n", err: []string{`unknown key "cluster-ca-bundle" (did you mean clusterCABundle?)`}},
		"nothing like it":     {file: head + "colour: red\n", err: []string{`unknown key "colour"; known are clusterCABundle, clusterName, `}},
		"itself":              {file: head + "config: x\n", err: []string{`unknown key "config"`}},
		"no version":          {file: "clusterName: a\n", err: []string{`apiVersion is missing, it has to be "config.slipway.sh/v1alpha1"`, `kind is missing, it has to be "TestConfiguration"`}},
		"of another process":  {file: strings.Replace(head, "Test", "Webhook", 1), err: []string{`kind is "WebhookConfiguration", it has to be "TestConfiguration"`}},
		"a later version":     {file: strings.Replace(head, "v1alpha1", "v2", 1), err: []string{`apiVersion is "config.slipway.sh/v2"`}},
		"string for number":   {file: head + "metricsPort: \"9000\"\n", err: []string{`metricsPort: it is "9000" and has to be a number`}},
		"number for string":   {file: head + "clusterName: 7\n", err: []string{`clusterName: it is 7 and has to be a string`}},
		"fraction":            {file: head + "metricsPort: 1.5\n", err: []string{"metricsPort: parse error"}},
		"number for duration": {file: head + "lameDuck: 15\n", err: []string{`lameDuck: it is 15 and has to be a duration in quotes, such as "15s"`}},
		"word for boolean":    {file: head + "enabled: maybe\n", err: []string{`enabled: it is "maybe" and has to be a boolean`}},
		"null":                {file: head + "clusterName:\n", err: []string{"clusterName: it is missing and has to be a string"}},
		"list":                {file: head + "clusterName: [a]\n", err: []string{"clusterName: it is a list"}},
		"twice":               {file: head + "share: 0.1\nshare: 0.2\n", err: []string{`"share" already set`}},
		"no YAML":             {file: "{", err: []string{"reading --config"}},
		"everything at once":  {file: head + "metricPort: 1\nclusterName: 7\n", env: map[string]string{"ENABLED": "x"}, err: []string{"metricPort", "clusterName", "environment variable ENABLED"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "config.yaml")
			if err := os.WriteFile(path, []byte(tt.file), 0o600); err != nil {
				t.Fatal(err)
			}
			var got sample
			err := Parse(sampleFlags(&got), "TestConfiguration", append(tt.args, "--config="+path), func(k string) string { return tt.env[k] })
			if len(tt.err) == 0 {
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(tt.want, got); diff != "" {
					t.Errorf("settings (-want +got):\n%s", diff)
				}
			}
			for _, want := range tt.err {
				if err == nil || !strings.Contains(err.Error(), want) || want[0] != 'e' && !strings.Contains(err.Error(), path) {
					t.Errorf("error %v, want one with the file's name and %q", err, want)
				}
			}
		})
	}
	var got sample
	if err := Parse(sampleFlags(&got), "TestConfiguration", []string{"--config=/missing/x.yaml"}, os.Getenv); err == nil || !strings.Contains(err.Error(), "/missing/x.yaml") {
		t.Errorf("of a file that is not there: error %v", err)
	}
}
