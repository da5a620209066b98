// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"errors"
	"flag"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

func TestFlags(t *testing.T) {
	got, err := parse([]string{"-addr=127.0.0.1:0", "-zones=us-east-1a,us-east-1b", "-speed=10", "-throttle"}, &bytes.Buffer{})
	if err != nil {
		t.Fatal(err)
	}
	if o := got.emulator; o.Addr != "127.0.0.1:0" || !gocmp.Equal(o.Zones, []string{"us-east-1a", "us-east-1b"}) || o.Speed != 10 || !o.Throttle {
		t.Errorf("options %+v", o)
	}
	if _, err := parse([]string{"start"}, &bytes.Buffer{}); err == nil {
		t.Error("an argument was taken")
	}
}

func TestHelpListsTheControls(t *testing.T) {
	var out bytes.Buffer
	if _, err := parse([]string{"-help"}, &out); !errors.Is(err, flag.ErrHelp) {
		t.Fatal(err)
	}
	for _, part := range []string{"-throttle", ec2emu.AdminPath + "faults"} {
		if !strings.Contains(out.String(), part) {
			t.Errorf("the help does not have %q", part)
		}
	}
}

func TestGreeting(t *testing.T) {
	emu, err := start(t.Context(), &settings{})
	if err != nil {
		t.Fatal(err)
	}
	defer emu.Close()
	if text := greeting(emu); !strings.Contains(text, "AWS_ENDPOINT_URL="+emu.URL()+" AWS_REGION=us-east-1") {
		t.Errorf("greeting without the environment:\n%s", text)
	}
}

func TestBadKubeconfig(t *testing.T) {
	if _, err := start(t.Context(), &settings{kubeconfig: "/none"}); err == nil {
		t.Error("a kubeconfig that is not there was taken")
	}
}
