// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func TestParseEvenness(t *testing.T) {
	for value, want := range map[string]float64{"0": 0, "1": 0.01, "2.5%": 0.025, "100%": 1} {
		if got, err := capacity.ParseEvenness(value); err != nil || got != want {
			t.Errorf("ParseEvenness(%q) = %v, %v, want %v", value, got, err, want)
		}
	}
	for _, value := range []string{"", "much", "-1", "101", "NaN", "Inf", "1%%"} {
		_, err := capacity.ParseEvenness(value)
		if err == nil || !strings.Contains(err.Error(), capacity.EvennessAnnotation) {
			t.Errorf("ParseEvenness(%q): error %v does not name the annotation", value, err)
		}
	}
}

func TestParseLookAhead(t *testing.T) {
	for value, want := range map[string]int{"0": 0, "1": 1, "500": 500} {
		if got, err := capacity.ParseLookAhead(value); err != nil || got != want {
			t.Errorf("ParseLookAhead(%q) = %d, %v, want %d", value, got, err, want)
		}
	}
	for _, value := range []string{"", "many", "-1", "1.5", "10%", "99999999999999999999"} {
		got, err := capacity.ParseLookAhead(value)
		if err == nil || !strings.Contains(err.Error(), capacity.LookAheadAnnotation) {
			t.Errorf("ParseLookAhead(%q): error %v does not name the annotation", value, err)
		}
		if got != 0 {
			t.Errorf("ParseLookAhead(%q) = %d, want 0 with an error", value, got)
		}
	}
}

func TestParseDisruptionAnnotations(t *testing.T) {
	got := capacity.ParsePoolAnnotations(map[string]string{
		capacity.BudgetTimeZoneAnnotation: "Europe/Berlin", capacity.MinSavingAnnotation: "7.5%", capacity.MinNodeAgeAnnotation: "20m",
	})
	if len(got.Problems) > 0 || got.BudgetZone == nil || got.BudgetZone.String() != "Europe/Berlin" || got.NoBudgetZone {
		t.Errorf("time zone = %v (broken %v), problems %v, want Europe/Berlin", got.BudgetZone, got.NoBudgetZone, got.Problems)
	}
	if got.MinSaving == nil || *got.MinSaving != 0.075 || got.MinNodeAge == nil || *got.MinNodeAge != 20*time.Minute {
		t.Errorf("least saving %v, least age %v, want 0.075 and 20m", got.MinSaving, got.MinNodeAge)
	}
	for _, annotations := range []map[string]string{
		{capacity.BudgetTimeZoneAnnotation: "Berlin"},
		{capacity.BudgetTimeZoneAnnotation: ""},
		{capacity.BudgetTimeZoneAnnotation: "Local"},
		{capacity.MinSavingAnnotation: "-1"},
		{capacity.MinSavingAnnotation: "NaN"},
		{capacity.MinNodeAgeAnnotation: "-1m"},
		{capacity.MinNodeAgeAnnotation: "ten"},
	} {
		got := capacity.ParsePoolAnnotations(annotations)
		for key := range annotations {
			if len(got.Problems) != 1 || !strings.Contains(got.Problems[0], key) {
				t.Errorf("%v: problems %q do not name the annotation", annotations, got.Problems)
			}
			if broken := key == capacity.BudgetTimeZoneAnnotation; got.NoBudgetZone != broken || got.MinSaving != nil || got.MinNodeAge != nil {
				t.Errorf("%v: settings %+v, want none but that the zone is broken: %v", annotations, got, broken)
			}
		}
	}
}

func TestParsePoolAnnotations(t *testing.T) {
	tests := []struct {
		name        string
		annotations map[string]string
		want        capacity.PoolSettings // but its problems
		problems    []string              // the annotations they name
	}{
		{name: "none", annotations: map[string]string{"team": "a"}},
		{
			name: "good", annotations: map[string]string{capacity.EvennessAnnotation: "50", capacity.LookAheadAnnotation: " 7"},
			want: capacity.PoolSettings{Evenness: new(0.5), LookAhead: new(7)},
		},
		{
			name: "bad", annotations: map[string]string{capacity.EvennessAnnotation: "much", capacity.LookAheadAnnotation: "many"},
			want: capacity.PoolSettings{LookAhead: new(0)}, problems: []string{capacity.EvennessAnnotation, capacity.LookAheadAnnotation},
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got := capacity.ParsePoolAnnotations(tt.annotations)
			var named []string
			for i, p := range got.Problems {
				for key, value := range tt.annotations {
					if strings.Contains(p, key) && strings.Contains(p, value) {
						named = append(named, key)
					}
				}
				if len(named) != i+1 {
					t.Errorf("problem %q does not name one annotation and its value", p)
				}
			}
			if d := cmp.Diff(tt.problems, named); d != "" {
				t.Errorf("problems with (-want +got):\n%s", d)
			}
			got.Problems = nil
			if d := cmp.Diff(tt.want, got); d != "" {
				t.Errorf("settings (-want +got):\n%s", d)
			}
		})
	}
}

func TestOfferingKeyIsReadAsWritten(t *testing.T) {
	for text, want := range map[string]capacity.OfferingKey{
		"m5.large/a/spot":           {InstanceType: "m5.large", Zone: "a", CapacityType: "spot"},
		"m5.large/a/reserved/cr-1":  {InstanceType: "m5.large", Zone: "a", CapacityType: "reserved", ReservationID: "cr-1"},
		"m5.large/a/spot//pg-1":     {InstanceType: "m5.large", Zone: "a", CapacityType: "spot", PlacementGroup: "pg-1"},
		"m5.large/a/reserved/cr/pg": {InstanceType: "m5.large", Zone: "a", CapacityType: "reserved", ReservationID: "cr", PlacementGroup: "pg"},
	} {
		if got := want.String(); got != text {
			t.Errorf("%+v is written %q, want %q", want, got, text)
		}
		if got, ok := capacity.ParseOfferingKey(text); !ok || got != want {
			t.Errorf("%q is read as %+v, %v", text, got, ok)
		}
	}
	if k, ok := capacity.ParseOfferingKey("a/b/c/d/e/f"); ok {
		t.Errorf("six parts are read as %+v", k)
	}
}
