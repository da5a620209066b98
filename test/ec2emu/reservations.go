// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// Capacity types of instances on reservations that EC2 launches only when asked
// for that type. An instance on any other reservation is on-demand.
const (
	capacityBlock = string(ec2types.InstanceLifecycleCapacityBlock)
	interruptible = string(ec2types.InstanceLifecycleInterruptibleCapacityReservation)
)

// capacityBlockEnds is how long before its end EC2 begins to end the instances
// of a capacity block.
const capacityBlockEnds = 30 * time.Minute

// Reservation is capacity that is set aside: an on-demand capacity reservation or
// a capacity block.
type Reservation struct {
	// ID is made up if empty.
	ID, InstanceType, Zone string
	// Count is how many instances it holds.
	Count int
	Tags  map[string]string
	// OwnerID is the account by default; another one has shared it.
	OwnerID string
	// CapacityBlock makes it a block for machine learning: it ends at End, and its
	// instances are launched as capacity blocks only.
	CapacityBlock bool
	// Targeted takes only instances that name it; others also those that don't.
	Targeted bool
	// Interruptible capacity may be asked back, see InterruptReserved.
	Interruptible bool
	// Start and End are unlimited by default. At its end it expires, and its
	// instances become on-demand ones; a block's are terminated before.
	Start, End time.Time
}

// reservation is a Reservation in use; Emulator.mu guards it.
type reservation struct {
	Reservation
	state ec2types.CapacityReservationState
	used  int
}

func (r *reservation) free() int {
	if r.state != ec2types.CapacityReservationStateActive {
		return 0
	}
	return max(r.Count-r.used, 0)
}

// AddReservation adds a reservation, whose capacity exists whatever SetStock says,
// and returns its id.
func (e *Emulator) AddReservation(r Reservation) (string, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	orDefault(&r.OwnerID, e.opts.AccountID)
	if r.ID == "" {
		r.ID = e.world.newID("cr")
	}
	o := e.catalog.byName[r.InstanceType]
	switch {
	case o == nil || !e.catalog.offered(o, r.Zone):
		return "", fmt.Errorf("adding reservation %q: %q is not offered in %q", r.ID, r.InstanceType, r.Zone)
	case e.world.reservation(r.ID) != nil:
		return "", fmt.Errorf("adding reservation %q: there is one already", r.ID)
	case r.CapacityBlock && r.End.IsZero():
		return "", fmt.Errorf("adding reservation %q: a capacity block has an end", r.ID)
	}
	added := &reservation{Reservation: r, state: ec2types.CapacityReservationStateActive}
	now := e.clock.Now()
	if r.Start.IsZero() {
		added.Start = now
	}
	if added.Start.After(now) {
		added.state = ec2types.CapacityReservationStateScheduled
		e.agenda.add(added.Start, e.locked(func() { added.activate() }))
	}
	e.world.reservations = append(e.world.reservations, added)
	e.world.tags[r.ID] = sdkTags(r.Tags)
	if !r.End.IsZero() {
		if r.CapacityBlock {
			e.agenda.add(r.End.Add(-capacityBlockEnds), e.locked(func() { e.endBlock(added) }))
		}
		e.agenda.add(r.End, e.locked(func() { e.release(added, ec2types.CapacityReservationStateExpired) }))
	}
	return r.ID, nil
}

// locked wraps what the agenda runs.
func (e *Emulator) locked(fn func()) func() {
	return func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		fn()
	}
}

func (r *reservation) activate() {
	if r.state == ec2types.CapacityReservationStateScheduled {
		r.state = ec2types.CapacityReservationStateActive
	}
}

// CancelReservation gives the capacity back; instances on it go on as on-demand
// ones. It reports whether there was an active reservation.
func (e *Emulator) CancelReservation(id string) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.world.reservation(id)
	if r == nil || r.state != ec2types.CapacityReservationStateActive {
		return false
	}
	e.release(r, ec2types.CapacityReservationStateCancelled)
	return true
}

// release ends a reservation in a state. e.mu is held.
func (e *Emulator) release(r *reservation, s ec2types.CapacityReservationState) {
	if r.state != ec2types.CapacityReservationStateActive {
		return
	}
	r.state, r.used = s, 0
	for _, i := range e.world.instanceList {
		if i.reserved == r {
			i.reserved = nil
		}
	}
}

// endBlock terminates what runs on a capacity block. e.mu is held.
func (e *Emulator) endBlock(r *reservation) {
	for _, i := range e.world.instanceList {
		if i.reserved == r {
			e.shutDown(i, "Server.CapacityBlockExpiration: Capacity Block is ending")
		}
	}
}

// SetReservationCount changes how many instances a reservation holds; those on
// it stay. It reports whether there is such a reservation.
func (e *Emulator) SetReservationCount(id string, n int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	r := e.world.reservation(id)
	if r != nil {
		r.Count = n
	}
	return r != nil
}

// InterruptReserved takes back the capacity under an instance of an interruptible
// reservation: the notice is on the queue when it returns, and the instance is
// shut down two minutes later (see Options.Speed).
func (e *Emulator) InterruptReserved(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	if i.reserved == nil || !i.reserved.Interruptible {
		return fmt.Errorf("interrupting instance %q: it is not on an interruptible reservation", id)
	}
	e.notifyInstance(i, "EC2 Capacity Reservation Instance Interruption Warning", instanceDetail{Action: "terminate"})
	e.endAfterNotice(i, ReservationNotice, "Server.CapacityReservationInterruption: Capacity reservation instance interruption")
	return nil
}

func (w *world) reservation(id string) *reservation {
	n := slices.IndexFunc(w.reservations, func(r *reservation) bool { return r.ID == id })
	if n < 0 {
		return nil
	}
	return w.reservations[n]
}

// resolveReservation finds what a launch says about reservations, and checks it.
func (e *Emulator) resolveReservation(s *launchSpec, data *ec2types.ResponseLaunchTemplateData) *refusal {
	if m := data.InstanceMarketOptions; m != nil {
		s.market = m.MarketType
	}
	spec := data.CapacityReservationSpecification
	if spec == nil {
		return nil
	}
	s.preference = spec.CapacityReservationPreference
	target := spec.CapacityReservationTarget
	if target == nil {
		return nil
	}
	if target.CapacityReservationResourceGroupArn != nil {
		return invalid("UnsupportedOperation", "Capacity reservation resource groups are not supported here")
	}
	id := aws.ToString(target.CapacityReservationId)
	if s.target = e.world.reservation(id); s.target == nil {
		return invalid("InvalidCapacityReservationId.NotFound", "The capacity reservation '%s' does not exist", id)
	}
	if s.target.InstanceType != s.offer.name || s.target.Zone != s.subnet.Zone {
		return invalid("InvalidParameterValue", "The capacity reservation '%s' does not match the instance type '%s' and the Availability Zone '%s' of the request", id, s.offer.name, s.subnet.Zone)
	}
	return nil
}

// open returns the reservations that a launch may use without naming them.
func (e *Emulator) open(s *launchSpec) []*reservation {
	if s.capacityType != onDemand || s.target != nil || s.preference == ec2types.CapacityReservationPreferenceNone {
		return nil
	}
	var out []*reservation
	for _, r := range e.world.reservations {
		if !r.Targeted && !r.CapacityBlock && !r.Interruptible && r.InstanceType == s.offer.name && r.Zone == s.subnet.Zone && s.tenancy != ec2types.TenancyDedicated {
			out = append(out, r)
		}
	}
	return out
}

// reservedRoom is how many of want instances reservations hold for a launch;
// only says that nothing else will do.
func (e *Emulator) reservedRoom(s *launchSpec, want int) (n int, only bool, why *refusal) {
	if s.target != nil {
		switch {
		case s.target.state != ec2types.CapacityReservationStateActive:
			return 0, true, invalid("InvalidCapacityReservationState.Unavailable", "The capacity reservation '%s' is %s", s.target.ID, s.target.state)
		case s.target.CapacityBlock != (s.capacityType == capacityBlock) || s.capacityType == interruptible && !s.target.Interruptible:
			return 0, true, invalid("InvalidParameterCombination", "The capacity reservation '%s' cannot be used by a launch of market type '%s'", s.target.ID, s.capacityType)
		}
		n = min(want, s.target.free())
	}
	for _, r := range e.open(s) {
		n = min(want, n+r.free())
	}
	only = s.target != nil || s.preference == ec2types.CapacityReservationPreferenceCapacityReservationsOnly ||
		s.capacityType == capacityBlock || s.capacityType == interruptible
	if only && n < want {
		why = invalid("ReservationCapacityExceeded", "The requested reservation does not have sufficient compatible and available capacity for this request.")
	}
	return n, only, why
}

// takeSlot takes a place on a reservation for one instance; nil is no reservation.
func (e *Emulator) takeSlot(s *launchSpec) *reservation {
	candidates := e.open(s)
	if s.target != nil {
		candidates = []*reservation{s.target}
	}
	for _, r := range candidates {
		if r.free() > 0 {
			r.used++
			return r
		}
	}
	return nil
}
