// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"errors"
	"time"
)

// Kind classifies failures of the cloud by what has to be done about them. Behaviour follows kinds, never error text.
type Kind string

const (
	// Unknown: nothing is known about the cause; retried with backoff.
	Unknown Kind = ""
	// NoCapacity: EC2 is out of the offering (or a quota for it is used up); the next offering is tried.
	NoCapacity Kind = "NoCapacity"
	// Throttled: too many requests; retried after a delay.
	Throttled Kind = "Throttled"
	// Unauthorized: the role lacks a permission; retried rarely, reported on the claim and its pods.
	Unauthorized Kind = "Unauthorized"
	// Unavailable: the cloud answered with a server error or did not answer; retried with backoff and the same client token.
	Unavailable Kind = "Unavailable"
	// NotFound: the object named in the request does not exist.
	NotFound Kind = "NotFound"
	// Invalid: the request can never work as it is (bad image, bad template parameters); reported, not retried until its input changes.
	Invalid Kind = "Invalid"
	// Conflict: an idempotency token was used with other parameters.
	Conflict Kind = "Conflict"
	// NotReady: a thing the launch depends on (node class, launch template) is not there yet; retried when it changes.
	NotReady Kind = "NotReady"
)

// Error is a failure with its kind and, for the cloud's own errors, its code.
type Error struct {
	Kind Kind
	// Code is the cloud's error code, for instance InsufficientInstanceCapacity; empty if there is none.
	Code string
	// Offerings are the offerings a NoCapacity error is about; empty if the cloud did not say.
	Offerings []OfferingKey
	// RetryAfter is how long the sender asks to wait; 0 if it does not.
	RetryAfter time.Duration
	Err        error
}

// Error implements error.
func (e *Error) Error() string {
	if e.Code != "" && e.Err == nil {
		return string(e.Kind) + ": " + e.Code
	}
	if e.Err == nil {
		return string(e.Kind)
	}
	return e.Err.Error()
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Err }

// KindOf returns the kind of the first [Error] in err's chain, Unknown if there is none.
func KindOf(err error) Kind {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Kind
	}
	return Unknown
}
