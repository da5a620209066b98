// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
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

// draft is the claim that would replace c, nil if there is none to be bought: why says so.
func (b *buyer) draft(ctx context.Context, kind Kind, c *karpv1.NodeClaim, node *corev1.Node) (claim *karpv1.NodeClaim, why string, err error) {
	if node == nil {
		return nil, notJoined, nil
	}
	requests, moving, err := b.load(ctx, node.Name)
	if err != nil {
		return nil, "", err
	}
	if moving == 0 {
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
	claim = replacement(c, requests)
	if spentOffering(kind) {
		claim.Annotations[capacity.AvoidAnnotation] = offeringOf(c).String()
	}
	ok, err := b.limits.fit(ctx, b.Kube, pool, c, claim)
	if err != nil {
		return nil, "", err
	}
	if !ok {
		return nil, atLimit, nil
	}
	return claim, "", nil
}

// load is what the pods of a node ask for, daemonset pods included, and how many of them have to move.
func (b *buyer) load(ctx context.Context, node string) (requests corev1.ResourceList, moving int, err error) {
	var pods corev1.PodList
	if err := b.Kube.List(ctx, &pods, client.MatchingFields{fieldPodNodeName: node}); err != nil {
		return nil, 0, fmt.Errorf("listing the pods of node %q: %w", node, err)
	}
	requests = corev1.ResourceList{}
	count := int64(0)
	for i := range pods.Items {
		p := &pods.Items[i]
		owner := metav1.GetControllerOf(p)
		switch {
		case p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed:
			continue
		case owner != nil && owner.Kind == "Node", owner != nil && owner.Kind == "DaemonSet":
		case p.DeletionTimestamp != nil:
			continue // leaving anyway; what follows it is somebody's demand already
		default:
			moving++
		}
		count++
		for name, q := range resourcehelper.PodRequests(p, resourcehelper.PodResourcesOptions{}) {
			sum := requests[name]
			sum.Add(q)
			requests[name] = sum
		}
	}
	requests[corev1.ResourcePods] = *resource.NewQuantity(count, resource.DecimalSI)
	return requests, moving, nil
}

// replacement is a claim like c, made the way its NodePool made it then: what the instance decided since is left out, so
// that any instance that satisfied c's author will do. A pool that has changed since finds it drifted, as it finds c.
func replacement(c *karpv1.NodeClaim, requests corev1.ResourceList) *karpv1.NodeClaim {
	out := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{
			Name: replacementName(c), Labels: map[string]string{}, Annotations: map[string]string{},
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
	out.Spec.Resources.Requests = requests
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

// replacementName follows from the claim's UID: a notice that is delivered again finds the replacement there.
func replacementName(c *karpv1.NodeClaim) string {
	sum := sha256.Sum256([]byte(c.UID))
	return c.Labels[karpv1.NodePoolLabelKey] + "-" + hex.EncodeToString(sum[:5])
}

// spentOffering reports whether the notice says that EC2 has no more of the offering.
func spentOffering(kind Kind) bool { return kind == SpotInterrupted || kind == ReservationInterrupted }

// offeringOf is what the claim's instance was bought as.
func offeringOf(c *karpv1.NodeClaim) capacity.OfferingKey {
	return capacity.OfferingKey{
		InstanceType: c.Labels[corev1.LabelInstanceTypeStable], Zone: c.Labels[corev1.LabelTopologyZone],
		CapacityType: c.Labels[karpv1.CapacityTypeLabelKey], ReservationID: c.Labels[v1.LabelCapacityReservationID],
	}
}
