// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const gpu, efa = corev1.ResourceName("nvidia.com/gpu"), corev1.ResourceName("vpc.amazonaws.com/efa")

// res builds a vector from name, quantity pairs.
func res(pairs ...string) capacity.Resources {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return capacity.FromList(list)
}

func TestFromList(t *testing.T) {
	for name, tc := range map[string]struct {
		got, want capacity.Resources
	}{
		"units": {
			res("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "1k", "pods", "110"),
			capacity.Resources{CPU: 1500, Memory: 1 << 30, Ephemeral: 1000, Pods: 110},
		},
		"parts of a unit are rounded up": {res("cpu", "100u", "memory", "1500m"), capacity.Resources{CPU: 1, Memory: 2}},
		"extended resources are sorted, zeros dropped": {
			res("vpc.amazonaws.com/efa", "2", "nvidia.com/gpu", "1", "hugepages-2Mi", "0"),
			capacity.Resources{Extended: []capacity.Quantity{{Name: gpu, Value: 1}, {Name: efa, Value: 2}}},
		},
		"nothing": {res(), capacity.Resources{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if back := capacity.FromList(tc.got.List()); !back.Equal(tc.got) {
				t.Errorf("List reads back as %s, want %s", back, tc.got)
			}
		})
	}
}

func TestArithmetic(t *testing.T) {
	a := res("cpu", "2", "memory", "4Gi", "pods", "3", string(gpu), "1")
	b := res("cpu", "3", "memory", "1Gi", "ephemeral-storage", "1", string(gpu), "1", string(efa), "4")
	for name, tc := range map[string]struct {
		got, want capacity.Resources
	}{
		"sum":                          {a.Add(b), res("cpu", "5", "memory", "5Gi", "pods", "3", "ephemeral-storage", "1", string(gpu), "2", string(efa), "4")},
		"difference may be negative":   {a.Sub(b), capacity.Resources{CPU: -1000, Memory: 3 << 30, Ephemeral: -1, Pods: 3, Extended: []capacity.Quantity{{Name: efa, Value: -4}}}},
		"a difference of zero is zero": {a.Sub(a), capacity.Resources{Extended: []capacity.Quantity{}}},
		"times":                        {a.AddTimes(b, 2), res("cpu", "8", "memory", "6Gi", "pods", "3", "ephemeral-storage", "2", string(gpu), "3", string(efa), "8")},
		"times zero":                   {a.AddTimes(b, 0), a},
		"maximum":                      {a.Max(b), res("cpu", "3", "memory", "4Gi", "pods", "3", "ephemeral-storage", "1", string(gpu), "1", string(efa), "4")},
		"maximum with nothing":         {a.Sub(b).Max(capacity.Resources{}), capacity.Resources{Memory: 3 << 30, Pods: 3}},
		"maximum of opposite signs":    {res(string(gpu), "2").Max(capacity.Resources{Extended: []capacity.Quantity{{Name: gpu, Value: -2}}}), res(string(gpu), "2")},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.got.Equal(tc.want) {
				t.Errorf("got %s, want %s", tc.got, tc.want)
			}
		})
	}
	if !a.Equal(res("cpu", "2", "memory", "4Gi", "pods", "3", string(gpu), "1")) {
		t.Errorf("arithmetic changed its operand to %s", a)
	}
	if !a.Sub(a).IsZero() || a.IsZero() {
		t.Errorf("IsZero: of a-a %v, of a %v", a.Sub(a).IsZero(), a.IsZero())
	}
}

func TestFits(t *testing.T) {
	type want struct {
		Fits  bool
		Count int64
		Short corev1.ResourceName
		Asked int64
		Have  int64
	}
	for name, tc := range map[string]struct {
		ask, free capacity.Resources
		want      want
	}{
		"exactly":                         {res("cpu", "2", "memory", "2Gi"), res("cpu", "2", "memory", "2Gi"), want{Fits: true, Count: 1}},
		"the scarcest resource counts":    {res("cpu", "1", "memory", "3Gi", "pods", "1"), res("cpu", "8", "memory", "10Gi", "pods", "9"), want{Fits: true, Count: 3}},
		"too much CPU":                    {res("cpu", "1001m"), res("cpu", "1"), want{Short: "cpu", Asked: 1001, Have: 1000}},
		"no pod slot":                     {res("pods", "1"), res("cpu", "1"), want{Short: "pods", Asked: 1}},
		"missing extended resource":       {res(string(gpu), "1"), res("cpu", "1"), want{Short: gpu, Asked: 1}},
		"extended resources count":        {res(string(gpu), "2"), res(string(gpu), "5"), want{Fits: true, Count: 2}},
		"nothing asked fits anywhere":     {res(), res(), want{Fits: true, Count: math.MaxInt64}},
		"over-committed where not asked":  {res("cpu", "1"), capacity.Resources{CPU: 1000, Memory: -1, Extended: []capacity.Quantity{{Name: gpu, Value: -1}}}, want{Fits: true, Count: 1}},
		"over-committed where asked":      {res("cpu", "1"), capacity.Resources{CPU: -1}, want{Short: "cpu", Asked: 1000, Have: -1}},
		"negative asks block nothing":     {capacity.Resources{CPU: -5, Extended: []capacity.Quantity{{Name: gpu, Value: -1}}}, capacity.Resources{CPU: -9}, want{Fits: true, Count: math.MaxInt64}},
		"the first shortage is named":     {res("memory", "1", "ephemeral-storage", "1", string(gpu), "1"), res(), want{Short: "memory", Asked: 1}},
		"ephemeral storage is a resource": {res("ephemeral-storage", "2"), res("ephemeral-storage", "1"), want{Short: "ephemeral-storage", Asked: 2, Have: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := want{Fits: tc.ask.Fits(tc.free), Count: tc.ask.Count(tc.free)}
			name, asked, have, short := tc.ask.Shortage(tc.free)
			got.Short, got.Asked, got.Have = name, asked, have
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fit (-want +got):\n%s", diff)
			}
			if short == got.Fits {
				t.Errorf("Shortage says %v, Fits %v", short, got.Fits)
			}
		})
	}
}

func TestPrintedResources(t *testing.T) {
	for want, r := range map[string]capacity.Resources{
		"":                                   {},
		"cpu=1500m":                          res("cpu", "1500m"),
		"memory=512Mi":                       res("memory", "512Mi"),
		"memory=1.50Gi":                      res("memory", "1536Mi"),
		"memory=2Gi":                         res("memory", "2Gi"),
		"cpu=2 pods=3 " + string(gpu) + "=1": res("cpu", "2", "pods", "3", string(gpu), "1"),
	} {
		if got := r.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}
