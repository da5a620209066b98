// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func key(name, zone string) capacity.OfferingKey {
	return capacity.OfferingKey{InstanceType: name, Zone: zone, CapacityType: "spot"}
}

func TestShortageTimeouts(t *testing.T) {
	k := key("m5.large", "us-east-1a")
	type step struct {
		wait    time.Duration
		mark    bool
		wantOut bool
	}
	tests := []struct {
		name  string
		steps []step
	}{
		{"ends after three minutes", []step{{0, true, true}, {3*time.Minute - 1, false, true}, {1, false, false}}},
		{"reports meanwhile do not prolong it", []step{{0, true, true}, {2 * time.Minute, true, true}, {time.Minute, false, false}}},
		{"doubles when it is out again", []step{{0, true, true}, {3 * time.Minute, true, true}, {6*time.Minute - 1, false, true}, {1, false, false}}},
		{"starts over after a quiet time", []step{
			{0, true, true}, {3 * time.Minute, true, true}, {6*time.Minute + 20*time.Minute, true, true}, {3 * time.Minute, false, false},
		}},
		{"halves in a quiet time", []step{
			{0, true, true}, {3 * time.Minute, true, true}, {6 * time.Minute, true, true}, // now 12 minutes
			{12*time.Minute + 10*time.Minute, true, true}, // 6 remembered, so 12 again
			{12*time.Minute - 1, false, true}, {1, false, false},
		}},
		{"grows no further than half an hour", []step{
			{0, true, true},
			{3 * time.Minute, true, true},
			{6 * time.Minute, true, true},
			{12 * time.Minute, true, true},
			{24 * time.Minute, true, true},
			{30 * time.Minute, true, true},
			{30*time.Minute - 1, false, true},
			{1, false, false},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
			s := NewShortages(c)
			for i, st := range tt.steps {
				c.SetTime(c.Now().Add(st.wait))
				if st.mark {
					s.Mark(k)
				}
				if got := s.Out(k); got != st.wantOut {
					t.Fatalf("step %d: Out = %v, want %v", i, got, st.wantOut)
				}
			}
		})
	}
}

func TestShortagesReturned(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	s := NewShortages(c)
	s.Mark(key("m5.large", "us-east-1a"))
	c.SetTime(c.Now().Add(time.Minute))
	s.Mark(key("m5.large", "us-east-1b"))
	if got := s.Returned(); got != 0 {
		t.Errorf("Returned() = %d while all are left alone, want 0", got)
	}
	c.SetTime(c.Now().Add(2 * time.Minute))
	first := s.Returned()
	if again := s.Returned(); first == 0 || again != first {
		t.Errorf("Returned() = %d and then %d when the first may be tried again, want the same number twice, not 0", first, again)
	}
	c.SetTime(c.Now().Add(time.Minute))
	if got := s.Returned(); got == first {
		t.Errorf("Returned() is still %d when the second may be tried again", got)
	}
}

func TestShortagesAvailable(t *testing.T) {
	c := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	s := NewShortages(c)
	cat := capacity.NewCatalog([]*capacity.InstanceType{{Name: "m5.large", Offerings: []capacity.Offering{
		{Zone: "a", CapacityType: "spot", Price: 1}, {Zone: "b", CapacityType: "spot", Price: 2},
	}}})
	v := s.Version()
	if got := s.Available(cat).Len(); got != 2 {
		t.Fatalf("Available before any report has %d offerings, want 2", got)
	}
	s.Mark(key("m5.large", "a"), key("r5.large", "a"))
	if s.Version() == v {
		t.Error("Version is unchanged by a report")
	}
	set := s.Available(cat)
	if set.Len() != 1 || set.Has(0) {
		t.Errorf("Available = %v, want only the offering of zone b", set)
	}
	if again := s.Available(cat); &again[0] != &set[0] {
		t.Error("Available computed the set of an unchanged version again")
	}
	v = s.Version()
	c.SetTime(c.Now().Add(shortageFirst))
	if s.Version() == v {
		t.Error("Version is unchanged by the end of a time-out")
	}
	if got := s.Available(cat).Len(); got != 2 {
		t.Errorf("Available after the time-out has %d offerings, want 2", got)
	}
	c.SetTime(c.Now().Add(shortageQuiet))
	s.Mark(key("t3.large", "a"))
	if got := len(s.out); got != 1 {
		t.Errorf("%d offerings are remembered after the quiet time, want only the one just reported", got)
	}
}

func BenchmarkShortagesAvailable(b *testing.B) {
	s := NewShortages(clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	var types []*capacity.InstanceType
	for i := range 1400 {
		it := &capacity.InstanceType{Name: string(rune('a'+i%26)) + time.Duration(i).String()}
		for _, z := range []string{"a", "b", "c"} {
			it.Offerings = append(it.Offerings, capacity.Offering{Zone: z, CapacityType: "spot", Price: 1}, capacity.Offering{Zone: z, CapacityType: "on-demand", Price: 2})
		}
		types = append(types, it)
	}
	cat := capacity.NewCatalog(types)
	s.Mark(key("a0s", "a"))
	for b.Loop() {
		s.Available(cat)
	}
}
