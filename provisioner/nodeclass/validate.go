// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

const (
	// checkEvery is how long EC2's word that instances of a class may be launched is taken (Karpenter's interval), checkJitter
	// the share it is prolonged by at most, so that classes do not ask at once.
	checkEvery  = 25 * time.Minute
	checkJitter = 0.4
)

// validate checks what the API server's schema cannot, in this order: that the spec makes sense and a node of it can be
// told how to join; that everything it needs has been found, and goes with its NodePools; that EC2 would let us launch.
func (r *ClassReconciler) validate(ctx context.Context, class *v1.EC2NodeClass, conditions status.ConditionSet) (found, error) {
	if v := checkTags(class.Spec.Tags); v != nil {
		return found{verdict: v}, nil
	}
	if err := ec2.CheckClass(class); err != nil {
		return found{verdict: fails(reasonInvalid, "%v", err)}, nil
	}
	if v, err := r.checkStored(ctx, class); v != nil || err != nil {
		return found{verdict: v}, err
	}
	if v, err := r.checkUserData(ctx, class); v != nil || err != nil {
		return found{verdict: v}, err
	}
	if v := waiting(conditions); v != nil {
		return found{verdict: v}, nil
	}
	if v, err := r.checkArchitecture(ctx, class); v != nil || err != nil {
		return found{verdict: v}, err
	}
	return r.checkLaunch(ctx, class, conditions)
}

func (r *ClassReconciler) checkUserData(ctx context.Context, class *v1.EC2NodeClass) (*verdict, error) {
	family, err := ec2.Family(class)
	if err != nil {
		return fails(reasonInvalid, "%v", err), nil
	}
	cluster := ec2.Cluster{}
	if family != v1.AMIFamilyCustom {
		if cluster, err = r.Images.Cluster(ctx); err != nil {
			return nil, err
		}
		if family == v1.AMIFamilyAL2023 && cluster.ServiceCIDR == "" {
			return fails(reasonCluster, "the cluster's service CIDR is unknown, and AL2023 nodes need it; allow eks:DescribeCluster"), nil
		}
	}
	_, err = ec2.UserData(family, ec2.ClassBootstrap(cluster, class))
	if err == nil {
		return nil, nil //nolint:nilnil // neither a verdict nor a failure
	}
	return fails(reasonOf(err), "%v", err), nil
}

// reasonOf tells user data that is too long from all other faults.
func reasonOf(err error) string {
	if e, ok := errors.AsType[*capacity.Error](err); ok && e.Code == ec2.CodeUserDataTooLong {
		return reasonUserData
	}
	return reasonInvalid
}

// waiting is the verdict on a class of which something has not been found (False) or not been asked about yet (Unknown).
func waiting(conditions status.ConditionSet) *verdict {
	v := fails(reasonDependencies, "Awaiting AMI, Instance Profile, Security Group, and Subnet resolution")
	needed := []string{
		v1.ConditionTypeAMIsReady, v1.ConditionTypeInstanceProfileReady, v1.ConditionTypeSecurityGroupsReady, v1.ConditionTypeSubnetsReady,
	}
	if slices.ContainsFunc(needed, func(c string) bool { return conditions.Get(c).IsFalse() }) {
		return v
	}
	v.unknown = true
	if slices.ContainsFunc(needed, func(c string) bool { return conditions.Get(c).IsUnknown() }) {
		return v
	}
	return nil
}

// checkLaunch asks EC2 whether it would let us launch, unless it has said so for the same class a short while ago. A refusal
// is asked about again with every look at the class, so that it ends soon after its cause.
func (r *ClassReconciler) checkLaunch(ctx context.Context, class *v1.EC2NodeClass, conditions status.ConditionSet) (found, error) {
	switch {
	case r.LaunchesElsewhere:
		return told(class), nil
	case r.Launches == nil:
		return found{}, nil
	}
	if err := conditions.Clear(conditionAuthorized); err != nil {
		return found{}, fmt.Errorf("clearing condition %s: %w", conditionAuthorized, err)
	}
	asked := launchDigest(class)
	now := r.Clock.Now()
	if r.allowed.fresh(class.UID, asked, now) {
		return found{}, nil
	}
	answer, err := judgeLaunch(r.Launches.CheckLaunch(ctx, class))
	if answer != nil || err != nil {
		return found{verdict: answer}, err
	}
	r.allowed.until(class.UID, asked, now.Add(wait.Jitter(checkEvery, checkJitter)))
	return found{}, nil
}

// launchDigest covers what EC2's answer depends on.
func launchDigest(class *v1.EC2NodeClass) string {
	s := class.Status
	b, err := json.Marshal([]any{class.Spec, s.Subnets, s.SecurityGroups, s.AMIs, s.InstanceProfile})
	if err != nil {
		return fmt.Sprintf("%d", class.Generation)
	}
	return string(b)
}

// checkTags refuses tags that Slipway sets itself: whoever could set them could take over instances.
func checkTags(tags map[string]string) *verdict {
	var bad []string
	for k := range tags {
		restricted := slices.ContainsFunc(v1.RestrictedTagPatterns, func(p *regexp.Regexp) bool { return p.MatchString(k) })
		if restricted || k == ec2.TagLaunch || k == ec2.TagTemplate {
			bad = append(bad, k)
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return fails(reasonTags, "spec.tags: %q are set by Slipway and cannot be given; remove them", bad)
}
