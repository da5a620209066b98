// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	resourcehelper "k8s.io/component-helpers/resource"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Why a node gets no replacement ahead, as values of the metric.
const (
	notJoined   = "not_joined"
	nothingOnIt = "no_pods"
	noPool      = "no_pool"
	atLimit     = "pool_limit"
)

// draft is what replaces c, nil if there is nothing to be bought: why says so.
func (b *buyer) draft(ctx context.Context, kind Kind, c *karpv1.NodeClaim, node *corev1.Node) (w *want, why string, err error) {
	if node == nil {
		return nil, notJoined, nil
	}
	l, err := b.load(ctx, c, node)
	if err != nil {
		return nil, "", err
	}
	if len(l.pods) == 0 {
		return nil, nothingOnIt, nil
	}
	pool := &karpv1.NodePool{}
	err = b.Kube.Get(ctx, types.NamespacedName{Name: c.Labels[karpv1.NodePoolLabelKey]}, pool)
	switch {
	case apierrors.IsNotFound(err) || err == nil && pool.DeletionTimestamp != nil:
		return nil, noPool, nil
	case err != nil:
		return nil, "", fmt.Errorf("reading the NodePool of NodeClaim %q: %w", c.Name, err)
	}
	w = &want{old: c, claim: replacement(c), load: l}
	if zone := c.Labels[corev1.LabelTopologyZone]; l.zonal && zone != "" {
		require(w.claim, corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, zone)
	}
	if spentOffering(kind) {
		w.claim.Annotations[capacity.AvoidAnnotation] = offeringOf(c).String()
	}
	if len(pool.Spec.Limits) == 0 {
		return w, "", nil
	}
	// Limits are counted node by node.
	w.fixed = true
	w.claim.Spec.Resources.Requests = single(0, l).pods.Add(l.daemons).List()
	ok, err := b.limits.fit(ctx, b.Kube, pool, c, w.claim)
	if err != nil {
		return nil, "", err
	}
	if !ok {
		return nil, atLimit, nil
	}
	return w, "", nil
}

// replaced returns the claims that were written for the claim's pods before.
func (b *buyer) replaced(ctx context.Context, c *karpv1.NodeClaim) ([]string, error) {
	var list karpv1.NodeClaimList
	if err := b.Kube.List(ctx, &list, client.MatchingFields{fieldReplaces: c.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the replacements of NodeClaim %q: %w", c.Name, err)
	}
	var out []string
	for i := range list.Items {
		if r := &list.Items[i]; r.DeletionTimestamp == nil {
			out = append(out, r.Name)
		}
	}
	return out, nil
}

// load is what the pods of a node ask for.
func (b *buyer) load(ctx context.Context, c *karpv1.NodeClaim, node *corev1.Node) (l load, err error) {
	var pods corev1.PodList
	if err := b.Kube.List(ctx, &pods, client.MatchingFields{fieldPodNodeName: node.Name}); err != nil {
		return l, fmt.Errorf("listing the pods of node %q: %w", node.Name, err)
	}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		requests := resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{})
		requests[corev1.ResourcePods] = *resource.NewQuantity(1, resource.DecimalSI)
		owner := metav1.GetControllerOf(p)
		switch {
		case owner != nil && (owner.Kind == "Node" || owner.Kind == "DaemonSet"):
			l.daemons = l.daemons.Add(capacity.FromList(requests))
		case p.DeletionTimestamp != nil: // leaving anyway; what follows it is somebody's demand already
		default:
			l.pods = append(l.pods, capacity.FromList(requests))
			l.alone = l.alone || selective(p)
			l.zonal = l.zonal || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil })
		}
	}
	if l.room = capacity.FromList(c.Status.Allocatable); l.room.IsZero() {
		l.room = capacity.FromList(node.Status.Allocatable)
	}
	return l, nil
}

// selective reports whether the pod may not be put together with any other: it spreads, keeps away from pods, or takes a port of
// the node.
func selective(p *corev1.Pod) bool {
	hard := func(c corev1.TopologySpreadConstraint) bool { return c.WhenUnsatisfiable == corev1.DoNotSchedule }
	if slices.ContainsFunc(p.Spec.TopologySpreadConstraints, hard) {
		return true
	}
	if a := p.Spec.Affinity; a != nil && a.PodAntiAffinity != nil && len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) > 0 {
		return true
	}
	for _, c := range p.Spec.Containers {
		if slices.ContainsFunc(c.Ports, func(q corev1.ContainerPort) bool { return q.HostPort > 0 }) {
			return true
		}
	}
	return false
}

// replacement is a claim like c, made the way its NodePool made it then: what the instance decided since is left out, so
// that any instance that satisfied c's author will do. A pool that has changed since finds it drifted, as it finds c.
func replacement(c *karpv1.NodeClaim) *karpv1.NodeClaim {
	out := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: replacementName(c, 0), Labels: map[string]string{}, Annotations: map[string]string{},
			Finalizers: []string{karpv1.TerminationFinalizer}, OwnerReferences: c.OwnerReferences,
		},
		Spec: *c.Spec.DeepCopy(),
	}
	for k, v := range c.Labels {
		if !karpv1.WellKnownLabels.Has(k) || k == karpv1.NodePoolLabelKey {
			out.Labels[k] = v
		}
	}
	maps.Copy(out.Annotations, c.Annotations)
	maps.DeleteFunc(out.Annotations, func(k, _ string) bool { return ownAnnotation(k) })
	out.Annotations[capacity.ReplacesAnnotation] = c.Name
	out.Spec.Resources.Requests = nil
	return out
}

// ownAnnotation reports whether the annotation is about one claim and its instance rather than from its pool.
func ownAnnotation(key string) bool {
	switch key {
	case karpv1.NodePoolHashAnnotationKey, karpv1.NodePoolHashVersionAnnotationKey, OnRebalanceAnnotation:
		return false
	case karpv1.NodeClaimTerminationTimestampAnnotationKey:
		return true
	}
	domain, _, _ := strings.Cut(key, "/")
	return domain == "slipway.sh" || domain == "karpenter.k8s.aws" || domain == "compatibility.karpenter.k8s.aws"
}

// replacementName is the name of the nth claim named after c. It follows from the claim's UID: one that is written again is
// found to be there.
func replacementName(c *karpv1.NodeClaim, n int) string {
	id := string(c.UID)
	if n > 0 {
		id += "/" + strconv.Itoa(n)
	}
	sum := sha256.Sum256([]byte(id))
	return c.Labels[karpv1.NodePoolLabelKey] + "-" + hex.EncodeToString(sum[:5])
}

// spentOffering reports whether the notice says that EC2 has no more of the offering.
func spentOffering(kind Kind) bool {
	return kind == SpotInterrupted || kind == ReservationInterrupted || kind == BlockEnding
}

// offeringOf is what the claim's instance was bought as.
func offeringOf(c *karpv1.NodeClaim) capacity.OfferingKey {
	return capacity.OfferingKey{
		InstanceType: c.Labels[corev1.LabelInstanceTypeStable], Zone: c.Labels[corev1.LabelTopologyZone],
		CapacityType: c.Labels[karpv1.CapacityTypeLabelKey], ReservationID: c.Labels[v1.LabelCapacityReservationID],
		PlacementGroup: c.Labels[v1.LabelPlacementGroupID],
	}
}
