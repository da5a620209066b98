// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"time"

	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// rivalEvery is how often it is asked who owns classes of karpenter.k8s.aws.
const rivalEvery = 5 * time.Second

// askRival asks whether somebody else owns the classes of karpenter.k8s.aws. While there is no answer the last one counts, and
// before the first nothing of theirs is touched.
func (c *Controller) askRival(ctx context.Context) {
	now := c.Clock.Now()
	if c.Rival == nil || c.asksRival && now.Sub(c.rivalAsked) < rivalEvery {
		return
	}
	holder, err := c.Rival.Holder(ctx)
	switch {
	case err != nil && c.asksRival:
		log.FromContext(ctx).Error(err, "who owns the node classes of karpenter.k8s.aws is not known; the last answer counts")
		return
	case err != nil:
		c.rival = err.Error()
		log.FromContext(ctx).Error(err, "who owns the node classes of karpenter.k8s.aws is not known; their nodes are left alone")
	default:
		if holder != c.rival || !c.asksRival {
			if holder != "" {
				log.FromContext(ctx).Info("nodes with classes of karpenter.k8s.aws are left alone: somebody else owns them", "reason", holder)
			} else if c.rival != "" {
				log.FromContext(ctx).Info("nodes with classes of karpenter.k8s.aws are Slipway's again")
			}
		}
		c.rival, c.rivalAsked, c.asksRival = holder, now, true
	}
	yields := 0.0
	if c.rival != "" {
		yields = 1
	}
	c.Metrics.Yields.Set(yields)
}

// managed reports whether nodes with the class are Slipway's to disrupt.
func (c *Controller) managed(ref *karpv1.NodeClassReference) bool {
	return capacity.Managed(ref) && (c.rival == "" || ref.Group == v1alpha1.Group)
}
