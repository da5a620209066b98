// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

const (
	// beatEvery is how often the lease is renewed, canaryEvery how often a dry-run pod is sent through the API server, and
	// missesAllowed how many of them may go wrong before the lease is left to run out.
	beatEvery     = 10 * time.Second
	canaryEvery   = 30 * time.Second
	missesAllowed = 1
)

// Heartbeat tells the rest of Slipway that admission works, by renewing a Lease: v1alpha1.AdmissionHealthy reads it, and
// voluntary disruption stops without it, because pods would be created again without requests and scheduler. It beats only
// while this replica is ready and a dry-run pod comes back from the API server as admission should have made it, which
// proves the way from there to here, certificates and policies too.
type Heartbeat struct {
	Kube kubernetes.Interface
	// Namespace has the Lease; Probe is the managed namespace of the dry-run pods, empty for none.
	Namespace, Probe string
	// Identity is this replica's name.
	Identity string
	// Scheduler is the name that the dry-run pod should get, empty if none is injected.
	Scheduler string
	Ready     func() error
	Clock     clock.WithTicker
	Metrics   *Metrics
	Log       logr.Logger

	misses int
	// proved says that a dry-run pod has come back as it should once.
	proved bool
	beaten time.Time
}

// Run beats until ctx ends.
func (h *Heartbeat) Run(ctx context.Context) {
	var lastCanary time.Time
	for {
		now := h.Clock.Now()
		if h.Probe != "" && (!h.proved || now.Sub(lastCanary) >= canaryEvery) {
			lastCanary = now
			h.canary(ctx)
		}
		if err := h.Beat(ctx); err != nil && ctx.Err() == nil {
			h.Log.Error(err, "renewing the admission lease")
		}
		if !h.beaten.IsZero() {
			h.Metrics.Heartbeat.Set(h.Clock.Since(h.beaten).Seconds())
		}
		select {
		case <-ctx.Done():
			return
		case <-h.Clock.After(beatEvery):
		}
	}
}

// canary sends one dry-run pod and counts misses.
func (h *Heartbeat) canary(ctx context.Context) {
	if err := h.Try(ctx); err != nil {
		h.misses++
		h.Metrics.Canary.Set(0)
		h.Log.Info("The dry-run pod did not come back as it should", "reason", err.Error(), "misses", h.misses)
		return
	}
	h.misses, h.proved = 0, true
	h.Metrics.Canary.Set(1)
}

// Try sends a pod without requests through the API server, as a dry run, and looks at what comes back.
func (h *Heartbeat) Try(ctx context.Context) error {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "slipway-canary-", Namespace: h.Probe},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "canary", Image: "canary.invalid/never-pulled"}}},
	}
	got, err := h.Kube.CoreV1().Pods(h.Probe).Create(ctx, pod, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
	switch {
	case err != nil:
		return fmt.Errorf("creating a dry-run pod in namespace %q: %w", h.Probe, err)
	case got.Annotations[v1alpha1.DefaultedAnnotation] == "":
		return errors.New("the webhook filled in no requests")
	case h.Scheduler != "" && got.Spec.SchedulerName != h.Scheduler:
		return fmt.Errorf("schedulerName is %q and not %q", got.Spec.SchedulerName, h.Scheduler)
	}
	return nil
}

// Beat renews the lease unless this replica is not well. The replicas share one lease, so only one older than a beat is
// written.
func (h *Heartbeat) Beat(ctx context.Context) error {
	proved := h.Probe == "" || h.proved
	if well := h.Ready() == nil && proved && h.misses <= missesAllowed; !well {
		return nil
	}
	leases := h.Kube.CoordinationV1().Leases(h.Namespace)
	now := metav1.NewMicroTime(h.Clock.Now())
	lease, err := leases.Get(ctx, v1alpha1.AdmissionLease, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		_, err = leases.Create(ctx, &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.AdmissionLease, Namespace: h.Namespace},
			Spec: coordinationv1.LeaseSpec{
				HolderIdentity: new(h.Identity), RenewTime: &now, LeaseDurationSeconds: new(int32(v1alpha1.AdmissionSilence / time.Second)),
			},
		}, metav1.CreateOptions{})
		if err == nil {
			h.beaten = now.Time
		}
		if err == nil || apierrors.IsAlreadyExists(err) { // or another replica was faster
			return nil
		}
	}
	if err != nil {
		return fmt.Errorf("lease %q: %w", v1alpha1.AdmissionLease, err)
	}
	h.beaten = now.Time
	if lease.Spec.RenewTime != nil && now.Sub(lease.Spec.RenewTime.Time) < beatEvery/2 {
		return nil
	}
	lease = lease.DeepCopy()
	lease.Spec.HolderIdentity, lease.Spec.RenewTime = new(h.Identity), &now
	if _, err := leases.Update(ctx, lease, metav1.UpdateOptions{}); err != nil && !apierrors.IsConflict(err) {
		return fmt.Errorf("lease %q: %w", v1alpha1.AdmissionLease, err)
	}
	return nil
}
