// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/slipway-sh/slipway/webhook/lint"
)

func TestLint(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	good := write("good.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}")
	warns := write("warns.yaml", "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}")
	bad := write("bad.yaml", `{apiVersion: v1, kind: Pod, metadata: {name: p, annotations: {karpenter.sh/do-not-disrupt: "no"}}, spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}`)
	broken := write("broken.yaml", "a: [")
	tests := map[string]struct {
		args  []string
		stdin string
		code  int
		out   string
	}{
		"good":           {args: []string{good}, out: "1 object, 0 errors, 0 warnings"},
		"warnings":       {args: []string{warns}, out: "warning: R001: pod p: spec.containers[a]: no cpu request."},
		"strict":         {args: []string{"--strict", warns}, code: 1, out: "2 warnings"},
		"an error":       {args: []string{bad}, code: 1, out: "error: D001"},
		"a folder":       {args: []string{dir}, code: 2, out: "3 objects, 1 error, 2 warnings"},
		"unreadable":     {args: []string{broken}, code: 2},
		"not there":      {args: []string{filepath.Join(dir, "none")}, code: 2},
		"no format":      {args: []string{"-o", "xml", good}, code: 2},
		"no cluster":     {args: []string{"--context", "nowhere", good}, code: 2},
		"standard input": {args: []string{"-"}, stdin: "{apiVersion: karpenter.sh/v1beta1, kind: NodePool, metadata: {name: a}, spec: {}}", code: 1, out: "apiVersion: karpenter.sh/v1\n"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBECONFIG", filepath.Join(dir, "kubeconfig"))
			cmd := lintCommand()
			var out bytes.Buffer
			cmd.SetArgs(tt.args)
			cmd.SetOut(&out)
			cmd.SetIn(strings.NewReader(tt.stdin))
			cmd.SilenceErrors, cmd.SilenceUsage = true, true
			err := cmd.ExecuteContext(t.Context())
			code := 0
			if e, ok := errors.AsType[exitError](err); ok {
				code = e.code
			} else if err != nil {
				t.Fatalf("error without a code: %v", err)
			}
			if code != tt.code || !strings.Contains(out.String(), tt.out) {
				t.Errorf("code %d (%v), want %d; output\n%swant %q in it", code, err, tt.code, out.String(), tt.out)
			}
		})
	}
}

func TestLintJSON(t *testing.T) {
	cmd := lintCommand()
	var out bytes.Buffer
	cmd.SetArgs([]string{"-o", "json", "-"})
	cmd.SetOut(&out)
	cmd.SetIn(strings.NewReader("{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: [{name: a}]}}"))
	if err := cmd.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	var report lint.Report
	if err := json.Unmarshal(out.Bytes(), &report); err != nil {
		t.Fatal(err)
	}
	if report.Objects != 1 || report.Warnings != 2 || report.Findings[0].Rule != "R001" || report.Findings[0].Line != 1 {
		t.Errorf("report is %+v", report)
	}
}
