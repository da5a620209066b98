// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

const (
	// AdmissionLease is the Lease in Slipway's namespace that slipway-webhook renews while admission works.
	AdmissionLease = "slipway-admission"
	// AdmissionSilence is how long it may be silent before admission counts as broken.
	AdmissionSilence = time.Minute
)

// AdmissionHealthy reports whether admission works, by its Lease; nil is a Lease that does not exist, in a cluster that may
// have no slipway-webhook at all. While it is not healthy no pod is to be evicted voluntarily: it would come back without
// requests and scheduler.
func AdmissionHealthy(l *coordinationv1.Lease, now time.Time) bool {
	return l != nil && l.Spec.RenewTime != nil && now.Sub(l.Spec.RenewTime.Time) <= AdmissionSilence
}
