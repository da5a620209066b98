// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
)

func TestParse(t *testing.T) {
	tests := map[string]struct {
		args []string
		env  map[string]string
		want string // in the error; empty for none
	}{
		"nothing":       {},
		"environment":   {env: map[string]string{"PORT": "9000"}},
		"flag wins":     {args: []string{"--port=9001"}, env: map[string]string{"PORT": "9000"}},
		"no port":       {args: []string{"--port=70000"}, want: "--port: 70000 is not a port"},
		"a port twice":  {args: []string{"--metrics-port=9443"}, want: "--metrics-port and --port are both 9443"},
		"no level":      {args: []string{"--log-level=loud"}, want: `--log-level: "loud" is not debug, info or error`},
		"no duration":   {env: map[string]string{"LAME_DUCK": "soon"}, want: "environment variable LAME_DUCK (flag --lame-duck)"},
		"an argument":   {args: []string{"x"}, want: `unexpected argument "x"`},
		"no namespace":  {args: []string{"--namespace="}, want: "--namespace is empty"},
		"no secret":     {args: []string{"--cert-secret="}, want: "--cert-secret is empty and there is no --cert-dir"},
		"files instead": {args: []string{"--cert-secret=", "--cert-dir=/certs"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, err := parse(tt.args, func(k string) string { return tt.env[k] }, io.Discard)
			switch {
			case err == nil && tt.want != "":
				t.Errorf("no error, want %q", tt.want)
			case err != nil && (tt.want == "" || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

// The API server calls a Service by <name>.<namespace>.svc.
func TestCertificateNames(t *testing.T) {
	o, err := parse(nil, func(string) string { return "" }, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if got := names(&o)[2]; got != "slipway-webhook.slipway-system.svc" {
		t.Errorf("the name the API server calls is %q", got)
	}
}
