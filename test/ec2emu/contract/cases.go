// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"reflect"
	"strings"
)

// step is one call, made on both sides in the same order: what one makes, a later
// one uses.
type step struct {
	name string // "ec2 CreateFleet (dry run)"
	call func(context.Context, *side) (any, error)
}

// action is the name without what is special of the step.
func (s step) action() string {
	action, _, _ := strings.Cut(s.name, " (")
	return action
}

// on makes a step of a client's method. then may remember something of a success.
func on[C, I, O, F any](name string, client func(*side) C, method func(C, context.Context, *I, ...F) (*O, error), in func(*side) *I, then ...func(*side, *O)) step {
	return step{name: name, call: func(ctx context.Context, s *side) (any, error) {
		out, err := method(client(s), ctx, in(s))
		if err != nil {
			return nil, err
		}
		for _, remember := range then {
			remember(s, out)
		}
		return out, nil
	}}
}

// ask makes the call on one side.
func (s step) ask(ctx context.Context, on *side) answer {
	out, err := s.call(ctx, on)
	if err != nil || reflect.ValueOf(out).IsNil() {
		return answer{code: codeOf(err)}
	}
	return answer{shape: shapeOf(out)}
}

// steps are all calls, in order.
func steps() []step {
	var all []step
	for _, part := range [][]step{lookSteps(), typeSteps(), profileSteps(), templateSteps(), instanceSteps(), tagSteps(), fleetSteps(), endSteps(), queueSteps(), otherSteps()} {
		all = append(all, part...)
	}
	return all
}

// notInMoto are actions of the emulator that moto doesn't have, so that nothing
// can be compared.
func notInMoto() []string {
	return []string{
		"ec2 DescribeCapacityReservations", "ec2 DescribePlacementGroups", "pricing GetProducts",
	}
}
