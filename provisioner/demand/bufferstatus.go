// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
)

// Reasons of a buffer's conditions, Karpenter's.
const (
	reasonResolved          = "Resolved"
	reasonResolutionFailed  = "ResolutionFailed"
	reasonTemplateNotFound  = "PodTemplateNotFound"
	reasonScalableNotFound  = "ScalableRefNotFound"
	reasonFits              = "FitsExistingCapacity"
	reasonRequires          = "RequiresNewCapacity"
	reasonNotReady          = "NotReadyForProvisioning"
	reasonEmpty             = "BufferEmpty"
	messageNotReady         = "Buffer is not ReadyForProvisioning"
	messageEmpty            = "Buffer has no chunks"
	messageResolvedTemplate = "Pod template resolved successfully"
)

// Kept is what has become of a buffer's chunks.
type Kept struct {
	// There have room on usable nodes, Coming on nodes that are on their way.
	There, Coming int
	// Why some have none, "" if all have.
	Why string
}

// Tell writes the buffer's status, if that is news.
func (b *Buffers) Tell(ctx context.Context, buffer Buffer, k Kept) {
	b.mu.Lock()
	defer b.mu.Unlock()
	o := buffer.object
	before := o.DeepCopy()
	buffer.describe(k)
	if equality.Semantic.DeepEqual(before.Status, o.Status) {
		return
	}
	if err := b.Kube.Status().Patch(ctx, o, client.MergeFrom(before)); err != nil {
		*o = *before // told again next time
		if !apierrors.IsNotFound(err) {
			logr.FromContextOrDiscard(ctx).Info("the status of a CapacityBuffer could not be written", "capacityBuffer", buffer.Key(), "reason", err.Error())
		}
	}
}

// describe sets the status of the buffer's object.
func (b Buffer) describe(k Kept) {
	s := &b.object.Status
	s.ProvisioningStrategy = b.object.Spec.ProvisioningStrategy
	s.PodTemplateRef, s.PodTemplateGeneration = nil, nil
	if b.problem.reason != "" {
		s.Replicas = nil
		b.object.SetCondition(buffersv1beta1.ReadyForProvisioningCondition, metav1.ConditionFalse, b.problem.reason, b.problem.message)
		b.object.SetCondition(buffersv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonNotReady, messageNotReady)
		return
	}
	if b.template.name != "" {
		s.PodTemplateRef = &buffersv1beta1.LocalObjectRef{Name: b.template.name}
		s.PodTemplateGeneration = new(b.template.generation)
	}
	s.Replicas = new(int32(len(b.Chunks)))
	b.object.SetCondition(buffersv1beta1.ReadyForProvisioningCondition, metav1.ConditionTrue, reasonResolved, messageResolvedTemplate)
	switch {
	case len(b.Chunks) == 0:
		b.object.SetCondition(buffersv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonEmpty, messageEmpty)
	case k.There == len(b.Chunks):
		b.object.SetCondition(buffersv1beta1.ProvisioningCondition, metav1.ConditionTrue, reasonFits, fmt.Sprintf("All %d chunks have room on usable nodes", k.There))
	default:
		message := fmt.Sprintf("%d of %d chunks have room on usable nodes, %d on nodes that are on their way", k.There, len(b.Chunks), k.Coming)
		if k.Why != "" {
			message += "; " + k.Why
		}
		b.object.SetCondition(buffersv1beta1.ProvisioningCondition, metav1.ConditionFalse, reasonRequires, message)
	}
}
