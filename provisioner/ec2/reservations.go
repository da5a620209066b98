// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// blockReclaim is how long before the end of a capacity block EC2 begins to take its instances back (EC2 user guide,
// "Capacity Blocks for ML"), with the margin Karpenter leaves: from then on nothing is launched into it.
const blockReclaim = 40 * time.Minute

// Reservation is a capacity reservation as a node class's status has it, and how many instances it still has room for.
type Reservation struct {
	v1.CapacityReservation
	Free int32
}

// CapacityReservations returns the active reservations any of the terms selects,
// sorted by id. A term's fields are ANDed; the tag value * stands for any value.
// Reservations of kinds that are not known (EC2 may add some) are left out, and so
// are ids that do not exist.
func (c *Client) CapacityReservations(ctx context.Context, terms []v1.CapacityReservationSelectorTerm) ([]Reservation, error) {
	found := map[string]Reservation{}
	for _, in := range reservationQueries(terms) {
		err := c.describeReservations(ctx, in, found)
		if err != nil && capacity.KindOf(err) != capacity.NotFound {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Reservation) int { return strings.Compare(a.ID, b.ID) }), nil
}

// ReservationsByID returns the active ones of the reservations of the given ids.
func (c *Client) ReservationsByID(ctx context.Context, ids []string) ([]Reservation, error) {
	found := map[string]Reservation{}
	for batch := range slices.Chunk(ids, batchValues) {
		// A filter passes over ids that are gone; the parameter for ids would fail the call.
		if err := c.describeReservations(ctx, &ec2.DescribeCapacityReservationsInput{
			Filters: []ec2types.Filter{filter("state", "active"), filter("capacity-reservation-id", batch...)},
		}, found); err != nil {
			return nil, err
		}
	}
	return slices.SortedFunc(maps.Values(found), func(a, b Reservation) int { return strings.Compare(a.ID, b.ID) }), nil
}

func reservationQueries(terms []v1.CapacityReservationSelectorTerm) []*ec2.DescribeCapacityReservationsInput {
	var out []*ec2.DescribeCapacityReservationsInput
	for _, t := range terms {
		filters := []ec2types.Filter{filter("state", "active")}
		if t.ID != "" {
			out = append(out, &ec2.DescribeCapacityReservationsInput{Filters: filters, CapacityReservationIds: []string{t.ID}})
			continue
		}
		if len(t.Tags) == 0 && t.InstanceMatchCriteria == "" {
			continue // the CRD refuses it: an owner alone selects nothing
		}
		if t.OwnerID != "" {
			filters = append(filters, filter("owner-id", t.OwnerID))
		}
		if t.InstanceMatchCriteria != "" {
			filters = append(filters, filter("instance-match-criteria", t.InstanceMatchCriteria))
		}
		out = append(out, &ec2.DescribeCapacityReservationsInput{Filters: append(filters, tagFilters(t.Tags)...), MaxResults: aws.Int32(1000)})
	}
	return out
}

func (c *Client) describeReservations(ctx context.Context, in *ec2.DescribeCapacityReservationsInput, found map[string]Reservation) error {
	pages := ec2.NewDescribeCapacityReservationsPaginator(c.ec2, in)
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "describing capacity reservations")
		}
		for _, r := range page.CapacityReservations {
			if out, ok := newReservation(r, c.opts.Clock.Now()); ok {
				found[out.ID] = out
			}
		}
	}
	return nil
}

// newReservation reads one answer; ok is false for a reservation that is over or of a kind that is not known.
func newReservation(r ec2types.CapacityReservation, now time.Time) (Reservation, bool) {
	out := Reservation{
		Free: aws.ToInt32(r.AvailableInstanceCount),
		CapacityReservation: v1.CapacityReservation{
			ID:                    aws.ToString(r.CapacityReservationId),
			AvailabilityZone:      aws.ToString(r.AvailabilityZone),
			InstanceMatchCriteria: string(r.InstanceMatchCriteria),
			InstanceType:          aws.ToString(r.InstanceType),
			OwnerID:               aws.ToString(r.OwnerId),
			ReservationType:       v1.CapacityReservationType(r.ReservationType),
			Interruptible:         aws.ToBool(r.Interruptible),
			State:                 v1.CapacityReservationStateActive,
		},
	}
	if out.ReservationType == "" {
		out.ReservationType = v1.CapacityReservationTypeDefault
	}
	switch r.InstanceMatchCriteria {
	case ec2types.InstanceMatchCriteriaOpen, ec2types.InstanceMatchCriteriaTargeted:
	default:
		return Reservation{}, false
	}
	if !slices.Contains(v1.CapacityReservationType("").Values(), out.ReservationType) || out.ID == "" {
		return Reservation{}, false
	}
	if end := r.EndDate; end != nil {
		if !end.After(now) {
			return Reservation{}, false
		}
		out.EndTime = &metav1.Time{Time: *end}
		if out.ReservationType == v1.CapacityReservationTypeCapacityBlock && !now.Before(end.Add(-blockReclaim)) {
			out.State = v1.CapacityReservationStateExpiring
		}
	}
	return out, true
}
