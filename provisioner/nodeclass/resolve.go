// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Reasons of conditions, Karpenter's where it has one.
const (
	reasonSubnetsNotFound  = "SubnetsNotFound"
	reasonGroupsNotFound   = "SecurityGroupsNotFound"
	reasonImageNotFound    = "AMINotFound"
	reasonAlias            = "UnsupportedAlias"
	reasonProfileNotFound  = "InstanceProfileNotFound"
	reasonPlacementGroup   = "PlacementGroupResolutionFailed"
	reasonCluster          = "ClusterCIDRResolutionFailed"
	reasonTags             = "TagValidationFailed"
	reasonUserData         = "UserDataSizeLimitExceeded"
	reasonInvalid          = "NodeClassValidationFailed"
	reasonResolutionFailed = "ResolutionFailed"
)

// part is one thing a class resolves to.
type part struct {
	condition string
	every     time.Duration
	// find asks EC2, without touching the class; the function it returns writes what was found into the class's status.
	find func(context.Context, *v1.EC2NodeClass) (found, error)
}

// found writes an answer into the status. A verdict that is not nil makes the condition False.
type found struct {
	write   func(*v1.EC2NodeClassStatus)
	verdict *verdict
}

type verdict struct{ reason, message string }

func (r *ClassReconciler) parts() []part {
	return []part{
		{v1.ConditionTypeSubnetsReady, refreshEvery / 2, r.findSubnets},
		{v1.ConditionTypeSecurityGroupsReady, resolveEvery, r.findGroups},
		{v1.ConditionTypeAMIsReady, resolveEvery, r.findImages},
		{v1.ConditionTypeInstanceProfileReady, resolveEvery, r.findProfile},
		{v1.ConditionTypeValidationSucceeded, 0, r.validate},
		{v1.ConditionTypePlacementGroupReady, 0, findPlacementGroup},
	}
}

// resolve looks up everything that is due, side by side, and sets the class's status and conditions. The error is
// about what has to be tried again soon.
func (r *ClassReconciler) resolve(ctx context.Context, class *v1.EC2NodeClass) error {
	parts := r.parts()
	answers := make([]found, len(parts))
	errs := make([]error, len(parts))
	now := moment{generation: class.Generation, at: r.Clock.Now()}
	conditions := class.StatusConditions(status.WithClock(r.Clock))
	var asking sync.WaitGroup
	for i, p := range parts {
		if p.every > 0 && conditions.Get(p.condition).IsTrue() && r.resolved.fresh(class.UID, p.condition, now, p.every) {
			continue
		}
		asking.Go(func() { answers[i], errs[i] = p.find(ctx, class) })
	}
	asking.Wait()
	for i, p := range parts {
		switch a := answers[i]; {
		case errs[i] != nil:
			r.failed(conditions, p.condition, class.Generation, errs[i])
		case a.write == nil && a.verdict == nil:
			continue // not due
		default:
			if a.write != nil {
				a.write(&class.Status)
			}
			if a.verdict != nil {
				conditions.SetFalse(p.condition, a.verdict.reason, a.verdict.message)
				continue
			}
			conditions.SetTrue(p.condition)
			r.resolved.done(class.UID, p.condition, now)
		}
	}
	return errors.Join(errs...)
}

// failed says that a lookup went wrong. What was found earlier for the same spec stays in use, and its condition with it.
func (r *ClassReconciler) failed(conditions status.ConditionSet, condition string, generation int64, err error) {
	if c := conditions.Get(condition); c.IsTrue() && c.ObservedGeneration == generation {
		return
	}
	conditions.SetUnknownWithReason(condition, reasonResolutionFailed, describe(err))
}

// describe is the error without what differs from one try to the next (request ids), which would make every try a write.
func describe(err error) string {
	var e *capacity.Error
	if !errors.As(err, &e) {
		return err.Error()
	}
	if e.Code == "" {
		return fmt.Sprintf("asking AWS failed (%s)", e.Kind)
	}
	return fmt.Sprintf("asking AWS failed with %s (%s)", e.Code, e.Kind)
}

func (r *ClassReconciler) findSubnets(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	subnets, err := r.Network.Subnets(ctx, class.Spec.SubnetSelectorTerms)
	if err != nil {
		return found{}, err
	}
	// By id and not by free addresses, which change all the time: the launcher asks for those itself.
	slices.SortFunc(subnets, func(a, b ec2.Subnet) int { return strings.Compare(a.ID, b.ID) })
	var out []v1.Subnet
	for _, s := range subnets {
		out = append(out, v1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	f := found{write: func(s *v1.EC2NodeClassStatus) { s.Subnets = out }}
	if len(out) == 0 {
		f.verdict = &verdict{reasonSubnetsNotFound, "spec.subnetSelectorTerms did not match any subnets"}
	}
	return f, nil
}

func (r *ClassReconciler) findGroups(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	groups, err := r.Network.SecurityGroups(ctx, class.Spec.SecurityGroupSelectorTerms)
	if err != nil {
		return found{}, err
	}
	var out []v1.SecurityGroup
	for _, g := range groups {
		out = append(out, v1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	f := found{write: func(s *v1.EC2NodeClassStatus) { s.SecurityGroups = out }}
	if len(out) == 0 {
		f.verdict = &verdict{reasonGroupsNotFound, "spec.securityGroupSelectorTerms did not match any security groups"}
	}
	return f, nil
}

func (r *ClassReconciler) findImages(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	none := func(s *v1.EC2NodeClassStatus) { s.AMIs = nil }
	images, err := r.Images.Images(ctx, class)
	switch capacity.KindOf(err) {
	case capacity.Invalid:
		return found{write: none, verdict: &verdict{reasonAlias, err.Error()}}, nil
	case capacity.NotFound:
		return found{write: none, verdict: &verdict{reasonImageNotFound, "spec.amiSelectorTerms did not match any images for the cluster's Kubernetes version"}}, nil
	default: // no verdict on the class: success, or a failure to be retried
	}
	if err != nil {
		return found{}, err
	}
	if len(images) == 0 {
		return found{write: none, verdict: &verdict{reasonImageNotFound, "spec.amiSelectorTerms did not match any images"}}, nil
	}
	out := make([]v1.AMI, 0, len(images))
	for _, i := range images {
		reqs := slices.Clone(i.Requirements)
		// Karpenter's order.
		slices.SortFunc(reqs, func(a, b corev1.NodeSelectorRequirement) int {
			if d := len(a.Key) - len(b.Key); d != 0 {
				return d
			}
			return strings.Compare(a.Key, b.Key)
		})
		out = append(out, v1.AMI{ID: i.ID, Name: i.Name, Deprecated: i.Deprecated, Requirements: reqs})
	}
	return found{write: func(s *v1.EC2NodeClassStatus) { s.AMIs = out }}, nil
}

func (r *ClassReconciler) findProfile(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	name, err := r.Profiles.EnsureInstanceProfile(ctx, class)
	switch capacity.KindOf(err) {
	case capacity.NotFound:
		message := fmt.Sprintf("spec.role: there is no role %q", class.Spec.Role)
		if class.Spec.InstanceProfile != nil {
			message = fmt.Sprintf("spec.instanceProfile: there is no instance profile %q", *class.Spec.InstanceProfile)
		}
		return found{verdict: &verdict{reasonProfileNotFound, message}}, nil
	case capacity.Invalid:
		return found{verdict: &verdict{reasonProfileNotFound, describeInvalid("spec.role", err)}}, nil
	default: // no verdict on the class: success, or a failure to be retried
	}
	if err != nil {
		return found{}, err
	}
	return found{write: func(s *v1.EC2NodeClassStatus) { s.InstanceProfile = name }}, nil
}

// describeInvalid is an error of our own as it stands, one of AWS by its code.
func describeInvalid(field string, err error) string {
	var e *capacity.Error
	if errors.As(err, &e) && e.Code == "" {
		return err.Error()
	}
	return field + ": " + describe(err)
}

func findPlacementGroup(_ context.Context, class *v1.EC2NodeClass) (found, error) {
	if class.Spec.PlacementGroupSelector != nil {
		return found{verdict: &verdict{reasonPlacementGroup, "spec.placementGroupSelector: placement groups are not supported"}}, nil
	}
	return found{write: func(*v1.EC2NodeClassStatus) {}}, nil
}

// validate checks what the API server's schema cannot: that a node can be described and told how to join.
func (r *ClassReconciler) validate(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	if v := checkTags(class.Spec.Tags); v != nil {
		return found{verdict: v}, nil
	}
	if err := ec2.CheckClass(class); err != nil {
		return found{verdict: &verdict{reasonInvalid, err.Error()}}, nil //nolint:nilerr // the error is the verdict
	}
	family, err := ec2.Family(class)
	if err != nil {
		return found{verdict: &verdict{reasonInvalid, err.Error()}}, nil //nolint:nilerr // the error is the verdict
	}
	cluster := ec2.Cluster{}
	if family != v1.AMIFamilyCustom {
		if cluster, err = r.Images.Cluster(ctx); err != nil {
			return found{}, err
		}
		if cluster.ServiceCIDR == "" {
			return found{verdict: &verdict{reasonCluster, "the cluster's service CIDR is unknown"}}, nil
		}
	}
	userData := ""
	if class.Spec.UserData != nil {
		userData = *class.Spec.UserData
	}
	_, err = ec2.UserData(family, ec2.Bootstrap{Cluster: cluster, Kubelet: class.Spec.Kubelet, Custom: userData})
	if err != nil {
		reason := reasonInvalid
		var e *capacity.Error
		if errors.As(err, &e) && e.Code == ec2.CodeUserDataTooLong {
			reason = reasonUserData
		}
		return found{verdict: &verdict{reason, err.Error()}}, nil
	}
	return found{write: func(*v1.EC2NodeClassStatus) {}}, nil
}

// checkTags refuses tags that Slipway sets itself: whoever could set them could take over instances.
func checkTags(tags map[string]string) *verdict {
	var bad []string
	for k := range tags {
		for _, p := range v1.RestrictedTagPatterns {
			if p.MatchString(k) {
				bad = append(bad, k)
				break
			}
		}
	}
	if len(bad) == 0 {
		return nil
	}
	slices.Sort(bad)
	return &verdict{reasonTags, fmt.Sprintf("spec.tags: %q are set by Slipway and cannot be given", bad)}
}
