// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// EvennessAnnotation on a NodePool says how much more, in percent, smaller nodes may cost before everything goes on one that
// could hold it all: 0 to 100, with or without a percent sign.
const EvennessAnnotation = "slipway.sh/evenness"

// maxEvenness is the largest percentage that makes sense: a node counted twice as dear.
const maxEvenness = 100

// ParseEvenness reads the value of EvennessAnnotation as a fraction. The error names the annotation, the value and what is
// possible.
func ParseEvenness(value string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), "%"), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > maxEvenness {
		return 0, fmt.Errorf("annotation %s: %q is not a percentage: set a number from 0 to %d, or remove the annotation; until then the default counts",
			EvennessAnnotation, value, maxEvenness)
	}
	return v / 100, nil
}

// LookAheadAnnotation on a NodePool bounds the pods planned on it before they exist, at any time: a whole number, 0 for none.
const LookAheadAnnotation = "slipway.sh/look-ahead"

// ParseLookAhead reads the value of LookAheadAnnotation, a number of pods. The error names the annotation, the value and
// what is possible.
func ParseLookAhead(value string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(value))
	if err != nil || n < 0 {
		return 0, fmt.Errorf("annotation %s: %q is not a number of pods: set a whole number from 0, or remove the annotation for no bound; until then it counts as 0",
			LookAheadAnnotation, value)
	}
	return n, nil
}

// Annotations on a NodePool by which people move how its nodes are taken away.
const (
	// BudgetTimeZoneAnnotation names the time zone (IANA, for instance Europe/Berlin) in which the schedules of the pool's
	// disruption budgets are read; without it, UTC, as in Karpenter.
	BudgetTimeZoneAnnotation = "slipway.sh/budget-time-zone"
	// MinSavingAnnotation is the least part of their price, in percent, that nodes have to save by being replaced.
	MinSavingAnnotation = "slipway.sh/min-saving"
	// MinNodeAgeAnnotation is how long a node is left alone by consolidation after it was initialized, unless it is empty.
	MinNodeAgeAnnotation = "slipway.sh/min-node-age"
)

// ParseTimeZone reads the value of BudgetTimeZoneAnnotation.
func ParseTimeZone(value string) (*time.Location, error) {
	zone, err := time.LoadLocation(strings.TrimSpace(value))
	if err != nil || strings.TrimSpace(value) == "" || strings.TrimSpace(value) == "Local" {
		return nil, fmt.Errorf("annotation %s: %q is not a time zone: set a name of the IANA database such as Europe/Berlin, or remove the annotation for UTC; until then budgets with a schedule allow no disruption",
			BudgetTimeZoneAnnotation, value)
	}
	return zone, nil
}

// ParseMinSaving reads the value of MinSavingAnnotation as a fraction.
func ParseMinSaving(value string) (float64, error) {
	v, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(value), "%"), 64)
	if err != nil || math.IsNaN(v) || v < 0 || v > 100 {
		return 0, fmt.Errorf("annotation %s: %q is not a percentage: set a number from 0 to 100, or remove the annotation; until then the default counts",
			MinSavingAnnotation, value)
	}
	return v / 100, nil
}

// ParseMinNodeAge reads the value of MinNodeAgeAnnotation.
func ParseMinNodeAge(value string) (time.Duration, error) {
	d, err := time.ParseDuration(strings.TrimSpace(value))
	if err != nil || d < 0 {
		return 0, fmt.Errorf("annotation %s: %q is not a duration: set one such as 10m, or remove the annotation; until then the default counts",
			MinNodeAgeAnnotation, value)
	}
	return d, nil
}

// PoolSettings are what a NodePool's annotations say.
type PoolSettings struct {
	// BudgetZone is where budgets' schedules are read, nil for UTC. NoBudgetZone says that the pool names one that cannot be
	// read: scheduled budgets then allow nothing.
	BudgetZone   *time.Location
	NoBudgetZone bool
	// MinSaving and MinNodeAge are nil if the pool does not say, or says nothing that can be read.
	MinSaving  *float64
	MinNodeAge *time.Duration
	// Evenness is nil if the pool does not say, or says nothing that can be read.
	Evenness *float64
	// LookAhead is nil if the pool does not say. A value that cannot be read allows none: that costs time, never money.
	LookAhead *int
	// Problems are values that cannot be read, each naming the annotation, the value and the remedy.
	Problems []string
}

// ParsePoolAnnotations reads the annotations of a NodePool.
func ParsePoolAnnotations(annotations map[string]string) PoolSettings {
	var out PoolSettings
	if v, ok := annotations[EvennessAnnotation]; ok {
		if e, err := ParseEvenness(v); err != nil {
			out.Problems = append(out.Problems, err.Error())
		} else {
			out.Evenness = &e
		}
	}
	if v, ok := annotations[LookAheadAnnotation]; ok {
		n, err := ParseLookAhead(v)
		if err != nil {
			out.Problems = append(out.Problems, err.Error())
		}
		out.LookAhead = &n
	}
	out.parseDisruption(annotations)
	return out
}

func (s *PoolSettings) parseDisruption(annotations map[string]string) {
	problem := func(err error) bool {
		if err != nil {
			s.Problems = append(s.Problems, err.Error())
		}
		return err != nil
	}
	if v, ok := annotations[BudgetTimeZoneAnnotation]; ok {
		zone, err := ParseTimeZone(v)
		s.BudgetZone, s.NoBudgetZone = zone, problem(err)
	}
	if v, ok := annotations[MinSavingAnnotation]; ok {
		if f, err := ParseMinSaving(v); !problem(err) {
			s.MinSaving = &f
		}
	}
	if v, ok := annotations[MinNodeAgeAnnotation]; ok {
		if d, err := ParseMinNodeAge(v); !problem(err) {
			s.MinNodeAge = &d
		}
	}
}

// Annotations by which Slipway's processes leave word for each other on NodeClaims.
const (
	// LaunchGroupAnnotation names the group of equal claims that share CreateFleet calls. Whoever creates the claims sets it
	// to the same unique value on each; they must be equal but for their names.
	LaunchGroupAnnotation = "slipway.sh/launch-group"
	// LaunchGroupSizeAnnotation is how many claims the group has, so that a launcher that sees them one after the other
	// knows how many are still to come. Without it the launcher waits a moment after each for the next.
	LaunchGroupSizeAnnotation = "slipway.sh/launch-group-size"
	// PlannedAnnotation is when the plan was made that the claim is part of (RFC 3339 with nanoseconds). A claim that has it
	// is handed to the launcher by the process that made the plan.
	PlannedAnnotation = "slipway.sh/planned-at"
	// ReplacedByAnnotation on a NodeClaim that is being ended lists the claims, separated by commas, that were bought for its
	// pods: their eviction waits for those to be ready as long as the deadline allows.
	ReplacedByAnnotation = "slipway.sh/replaced-by"
	// InterruptedAnnotation on a NodeClaim says that its instance is being taken away, and by what (a kind of notice).
	InterruptedAnnotation = "slipway.sh/interrupted"
	// ReplacesAnnotation lists the claims, separated by commas, for whose nodes' pods this one was bought.
	ReplacesAnnotation = "slipway.sh/replaces"
	// AvoidAnnotation lists offerings (see [OfferingKey.String]), separated by commas, that EC2 has just taken an instance of
	// back, or has announced to: the launcher counts them as shortages.
	AvoidAnnotation = "slipway.sh/avoid-offering"
)

// LeaseHolderPrefix begins the name by which a process of Slipway holds Karpenter's leader lease.
const LeaseHolderPrefix = "slipway_"

// String returns type/zone/capacity type, and then the reservation and the placement group for those that have one; a group
// comes fifth, after a reservation that may be empty.
func (k OfferingKey) String() string {
	s := k.InstanceType + "/" + k.Zone + "/" + k.CapacityType
	if k.ReservationID != "" || k.PlacementGroup != "" {
		s += "/" + k.ReservationID
	}
	if k.PlacementGroup != "" {
		s += "/" + k.PlacementGroup
	}
	return s
}

// ParseOfferingKeys reads keys separated by commas and leaves out what is none.
func ParseOfferingKeys(s string) []OfferingKey {
	var out []OfferingKey
	for part := range strings.SplitSeq(s, ",") {
		if k, ok := ParseOfferingKey(part); ok {
			out = append(out, k)
		}
	}
	return out
}

// ParseOfferingKey reads what String wrote; false if it is something else.
func ParseOfferingKey(s string) (OfferingKey, bool) {
	parts := strings.Split(s, "/")
	if len(parts) < 3 || len(parts) > 5 || parts[0] == "" || parts[1] == "" || parts[2] == "" {
		return OfferingKey{}, false
	}
	k := OfferingKey{InstanceType: parts[0], Zone: parts[1], CapacityType: parts[2]}
	if len(parts) > 3 {
		k.ReservationID = parts[3]
	}
	if len(parts) > 4 {
		k.PlacementGroup = parts[4]
	}
	return k, true
}
