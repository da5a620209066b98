// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// AdmissionLease is the Admission that slipway-webhook's lease tells of. It is asked by one pass at a time.
type AdmissionLease struct {
	Live client.Reader
	// Namespace is slipway-webhook's.
	Namespace string
	Clock     clock.PassiveClock

	// written is the renewal the lease told of last, and since when by this process's clock: the other one's may be wrong.
	written, since time.Time
}

// Unhealthy implements Admission. A lease that is not there or cannot be read tells of no health.
func (l *AdmissionLease) Unhealthy(ctx context.Context) string {
	lease := &coordinationv1.Lease{}
	if err := l.Live.Get(ctx, client.ObjectKey{Namespace: l.Namespace, Name: v1alpha1.AdmissionLease}, lease); err != nil {
		return fmt.Sprintf("Admission is not known to work, so pods might come back without their requests: reading Lease %s/%s: %s", l.Namespace, v1alpha1.AdmissionLease, err)
	}
	now := l.Clock.Now()
	if t := lease.Spec.RenewTime; t != nil && !t.Time.Equal(l.written) {
		if !l.written.IsZero() || v1alpha1.AdmissionHealthy(lease, now) {
			l.since = now
		}
		l.written = t.Time
	}
	seen := lease.DeepCopy()
	seen.Spec.RenewTime = nil
	if !l.since.IsZero() {
		seen.Spec.RenewTime = &metav1.MicroTime{Time: l.since}
	}
	if v1alpha1.AdmissionHealthy(seen, now) {
		return ""
	}
	return fmt.Sprintf("Admission does not work, so pods would come back without their requests: slipway-webhook has not renewed Lease %s/%s for %s", l.Namespace, v1alpha1.AdmissionLease, v1alpha1.AdmissionSilence)
}
