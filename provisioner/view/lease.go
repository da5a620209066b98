// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Lease tells who owns the node classes of karpenter.k8s.aws: whoever holds Karpenter's leader lease.
type Lease struct {
	// Live reads from the API server; Name is the lease's, in any namespace.
	Live  client.Reader
	Name  string
	Clock clock.PassiveClock

	mu   sync.Mutex
	seen map[string]renewal // by namespace
}

// renewal is the last change of a lease and when that was seen. As in leader elections clocks of other machines are not trusted.
type renewal struct {
	holder string
	at     metav1.MicroTime
	seen   time.Time
}

// Holder says who but Slipway holds a lease that is being renewed, empty if nobody. One that is seen for the first time counts as
// held until it has not been renewed for its duration.
func (l *Lease) Holder(ctx context.Context) (string, error) {
	var list coordinationv1.LeaseList
	if err := l.Live.List(ctx, &list, client.MatchingFields{metav1.ObjectNameField: l.Name}); err != nil {
		return "", fmt.Errorf("reading the leases %q: %w", l.Name, err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now, before := l.Clock.Now(), l.seen
	l.seen = make(map[string]renewal, len(list.Items))
	holder := ""
	for i := range list.Items {
		x := &list.Items[i]
		if x.Spec.HolderIdentity == nil || *x.Spec.HolderIdentity == "" || strings.HasPrefix(*x.Spec.HolderIdentity, capacity.LeaseHolderPrefix) {
			continue
		}
		is := renewal{holder: *x.Spec.HolderIdentity, seen: now}
		if x.Spec.RenewTime != nil {
			is.at = *x.Spec.RenewTime
		}
		if was, ok := before[x.Namespace]; ok && was.holder == is.holder && was.at.Equal(&is.at) {
			is.seen = was.seen
		}
		l.seen[x.Namespace] = is
		lasts := 15 * time.Second // client-go's default
		if s := x.Spec.LeaseDurationSeconds; s != nil {
			lasts = time.Duration(*s) * time.Second
		}
		if now.Sub(is.seen) < lasts {
			holder = fmt.Sprintf("lease %s/%s is held by %s", x.Namespace, x.Name, is.holder)
		}
	}
	return holder, nil
}
