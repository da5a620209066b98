// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

func at(s int) time.Time { return time.Unix(1000, 0).Add(time.Duration(s) * time.Second) }

func TestWay(t *testing.T) {
	phase := func(kind htmlreport.Kind, from, to int) htmlreport.Phase {
		return htmlreport.Phase{Kind: kind, From: time.Duration(from) * time.Second, To: time.Duration(to) * time.Second}
	}
	tests := map[string]struct {
		times bed.Times
		want  []htmlreport.Phase
	}{
		"waits for a node": {
			bed.Times{Created: at(0), Requested: at(1), Answered: at(2), Registered: at(5), Ready: at(6), Usable: at(7), Bound: at(8), Running: at(9)},
			[]htmlreport.Phase{phase(htmlreport.Deciding, 0, 1), phase(htmlreport.Buying, 1, 2), phase(htmlreport.Booting, 2, 6), phase(htmlreport.Binding, 6, 8), phase(htmlreport.Starting, 8, 9)},
		},
		"finds room": {
			bed.Times{Created: at(10), Requested: at(1), Answered: at(2), Ready: at(6), Usable: at(7), Bound: at(11), Running: at(12)},
			[]htmlreport.Phase{phase(htmlreport.Binding, 10, 11), phase(htmlreport.Starting, 11, 12)},
		},
		"bought for it before it was there": {
			bed.Times{Created: at(3), Requested: at(1), Answered: at(2), Ready: at(6), Usable: at(7), Bound: at(8), Running: at(9)},
			[]htmlreport.Phase{phase(htmlreport.Booting, 3, 6), phase(htmlreport.Binding, 6, 8), phase(htmlreport.Starting, 8, 9)},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, way(&tt.times, at(0)).Phases); diff != "" {
				t.Errorf("phases (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrices(t *testing.T) {
	instances := []ec2emu.Instance{{ID: "a", Price: 1}, {ID: "b", Price: 2}}
	got := prices(instances, []ec2emu.Event{
		{Type: ec2emu.Launched, InstanceID: "a", At: at(1)},
		{Type: ec2emu.Launched, InstanceID: "b", At: at(2)},
		{Type: ec2emu.Joined, InstanceID: "a", At: at(3)},
		{Type: ec2emu.ShuttingDown, InstanceID: "a", At: at(4)},
		{Type: ec2emu.Terminated, InstanceID: "a", At: at(5)},
	}, at(0))
	want := []htmlreport.Price{{At: time.Second, Price: 1}, {At: 2 * time.Second, Price: 3}, {At: 4 * time.Second, Price: 2}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("prices (-want +got):\n%s", diff)
	}
}
