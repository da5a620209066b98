// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"

	"github.com/awslabs/operatorpkg/status"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Reasons of the Launched condition. Where Karpenter has a name for the cause it is used (its pkg/errors and
// pkg/cloudprovider); the others are its LaunchFailed.
const (
	reasonNoCapacity   = "InsufficientCapacity"
	reasonUnauthorized = "Unauthorized"
	reasonThrottled    = "RequestLimitExceeded"
	reasonUnavailable  = "InternalError"
	reasonNotReady     = "NodeClassNotReady"
	reasonTemplate     = "LaunchTemplateNotFound"
	reasonProfile      = "InstanceProfileNameInvalid"
	reasonFailed       = "LaunchFailed"
)

// reasonOf is the condition reason for an error.
func reasonOf(err error) string {
	switch capacity.KindOf(err) {
	case capacity.NoCapacity:
		return reasonNoCapacity
	case capacity.Unauthorized:
		return reasonUnauthorized
	case capacity.Throttled:
		return reasonThrottled
	case capacity.Unavailable:
		return reasonUnavailable
	case capacity.NotReady, capacity.NotFound:
		switch codeOf(err) {
		case ec2.CodeTemplateNotFound:
			return reasonTemplate
		case ec2.CodeProfileUnknown:
			return reasonProfile
		}
		return reasonNotReady
	default:
		return reasonFailed
	}
}

// eventReason is the reason of the event for an error, with Karpenter's name for a lack of capacity.
func eventReason(err error) string {
	if capacity.KindOf(err) == capacity.NoCapacity {
		return "InsufficientCapacityError"
	}
	return reasonOf(err)
}

// short cuts a message to the length Karpenter allows in conditions and events.
func short(message string) string {
	const limit = 300
	if len(message) <= limit {
		return message
	}
	return message[:limit] + "..."
}

// writeFailure sets the Launched condition to Unknown while the launch goes on and to False when it was given up. A claim
// that has got its instance in the meantime stays as it is. It returns the claim as it is then.
func (l *Launcher) writeFailure(ctx context.Context, claim *karpv1.NodeClaim, cause error, retrying bool) *karpv1.NodeClaim {
	written, err := l.write(ctx, claim, nil, func(c *karpv1.NodeClaim) {
		if c.Status.ProviderID != "" {
			return
		}
		conditions := c.StatusConditions(status.WithClock(l.Clock))
		if retrying {
			conditions.SetUnknownWithReason(karpv1.ConditionTypeLaunched, reasonOf(cause), short(cause.Error()))
		} else {
			conditions.SetFalse(karpv1.ConditionTypeLaunched, reasonOf(cause), short(cause.Error()))
		}
	})
	if err != nil {
		log.FromContext(ctx).V(1).Info("launch failure could not be written to its claim", "nodeClaim", claim.Name, "reason", err.Error())
		return claim
	}
	return written
}
