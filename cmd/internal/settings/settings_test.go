// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"flag"
	"io"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  map[string]string
		want int
		err  string
	}{
		"the default":           {want: 1},
		"environment":           {env: map[string]string{"HOW_MANY": "2"}, want: 2},
		"the flag wins":         {args: []string{"--how-many=3"}, env: map[string]string{"HOW_MANY": "2"}, want: 3},
		"an empty variable":     {env: map[string]string{"HOW_MANY": ""}, want: 1},
		"a wrong variable":      {env: map[string]string{"HOW_MANY": "x"}, err: `environment variable HOW_MANY (flag --how-many): "x"`},
		"an argument":           {args: []string{"x"}, err: `unexpected argument "x"`},
		"both":                  {args: []string{"y"}, env: map[string]string{"HOW_MANY": "x"}, err: "HOW_MANY"},
		"no such flag":          {args: []string{"--many=3"}, err: "not defined: -many"},
		"a flag almost":         {args: []string{"--how-mny=3"}, err: "did you mean --how-many?"},
		"not Slipway's to read": {env: map[string]string{"KUBECONFIG": "/a:/b"}, want: 1},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			fs := flag.NewFlagSet("test", flag.ContinueOnError)
			fs.SetOutput(io.Discard)
			got := fs.Int("how-many", 1, "")
			file := fs.String(Kubeconfig, "", "")
			err := Parse(fs, "TestConfiguration", tt.args, func(k string) string { return tt.env[k] })
			switch {
			case tt.err == "" && err != nil:
				t.Error(err)
			case tt.err != "" && (err == nil || !strings.Contains(err.Error(), tt.err)):
				t.Errorf("error %v, want one with %q", err, tt.err)
			}
			if err == nil && *got != tt.want || *file != "" {
				t.Errorf("how-many is %d and kubeconfig %q, want %d and nothing", *got, *file, tt.want)
			}
		})
	}
	fs := flag.NewFlagSet("test", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	if err := Parse(fs, "TestConfiguration", []string{"--help"}, func(string) string { return "" }); !errors.Is(err, flag.ErrHelp) {
		t.Errorf("--help gives %v, want flag.ErrHelp", err)
	}
}

func TestNearest(t *testing.T) {
	known := []string{"cluster-name", "cluster-endpoint", "port"}
	for name, want := range map[string]string{"clustername": "cluster-name", "cluster-nam": "cluster-name", "prt": "port", "anything-else": "", "": ""} {
		if got := Nearest(name, known); got != want {
			t.Errorf("nearest to %q is %q, want %q", name, got, want)
		}
	}
}
