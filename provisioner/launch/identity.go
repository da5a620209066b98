// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"maps"
	"strconv"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// maxToken is EC2's limit for client tokens, in characters; maxID leaves room for "-" and an attempt number.
const (
	maxToken = 64
	maxID    = maxToken - 8
)

// launchID is what the claim's instance is tagged with and its client tokens begin with. A group id that is too long
// for a token is replaced by its digest.
func launchID(c *karpv1.NodeClaim) string {
	id := cmp.Or(c.Annotations[LaunchGroupAnnotation], string(c.UID))
	if len(id) > maxID {
		sum := sha256.Sum256([]byte(id))
		id = hex.EncodeToString(sum[:20])
	}
	return id
}

// token is the client token of a launch's attempt, which counts from 1.
func token(id string, attempt int) string {
	if attempt == 1 {
		return id
	}
	return id + "-" + strconv.Itoa(attempt)
}

// tags returns the tags of the instances, volumes and fleet of a launch. Karpenter's published IAM policy requires those
// for cluster and pool; they win over the class's own.
func (l *Launcher) tags(id string, c *karpv1.NodeClaim, class *v1.EC2NodeClass) map[string]string {
	out := maps.Clone(class.Spec.Tags)
	if out == nil {
		out = map[string]string{}
	}
	out[ec2.TagClusterPrefix+l.ClusterName] = "owned"
	out[ec2.TagClusterName] = l.ClusterName
	out[ec2.TagNodePool] = c.Labels[karpv1.NodePoolLabelKey]
	out[ec2.TagNodeClass] = class.Name
	out[ec2.TagLaunch] = id
	return out
}

// foreign reports whether the claim is somebody else's to launch: it is not part of a plan of the scheduler's, and another
// acts on its class. Launched by both it would have two instances.
func (l *Launcher) foreign(c *karpv1.NodeClaim) bool {
	return l.Rival != nil && c.Spec.NodeClassRef.Group != v1alpha1.Group && c.Annotations[capacity.PlannedAnnotation] == "" && l.Rival() != ""
}
