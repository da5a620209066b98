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
	reasonNoPlacementGroup = "PlacementGroupNotFound"
	reasonDependencies     = "DependenciesNotReady"
	reasonNoTemplate       = "CreateLaunchTemplateAuthCheckFailed"
	reasonNoFleet          = "CreateFleetAuthCheckFailed"
	reasonNoRun            = "RunInstancesAuthCheckFailed"
	reasonKubelet          = "InvalidKubeletConfiguration"
	reasonKubeletElsewhere = "UnsupportedKubeletConfiguration"
	reasonArchitecture     = "ArchitectureMismatch" // Slipway's own
)

// part is one thing a class resolves to.
type part struct {
	condition string
	// field of the class it is about.
	field string
	every time.Duration
	// find asks EC2, without touching the class; the function it returns writes what was found into the class's status.
	find func(context.Context, *v1.EC2NodeClass) (found, error)
}

// found writes an answer into the class's status (or, where the status has no place for it, its annotations). A verdict that
// is not nil makes the condition False, or Unknown if it says so.
type found struct {
	write   func(*v1.EC2NodeClass)
	verdict *verdict
}

type verdict struct {
	reason, message string
	unknown         bool
}

func fails(reason, format string, args ...any) *verdict {
	return &verdict{reason: reason, message: fmt.Sprintf(format, args...)}
}

func (r *ClassReconciler) parts() []part {
	return []part{
		{v1.ConditionTypeSubnetsReady, "spec.subnetSelectorTerms", refreshEvery / 2, r.findSubnets},
		{v1.ConditionTypeSecurityGroupsReady, "spec.securityGroupSelectorTerms", resolveEvery, r.findGroups},
		{v1.ConditionTypeAMIsReady, "spec.amiSelectorTerms", resolveEvery, r.findImages},
		{v1.ConditionTypeInstanceProfileReady, "spec.role", resolveEvery, r.findProfile},
		{v1.ConditionTypePlacementGroupReady, "spec.placementGroupSelector", resolveEvery, r.findPlacementGroup},
		{v1.ConditionTypeCapacityReservationsReady, "spec.capacityReservationSelectorTerms", refreshEvery / 2, r.findReservations},
	}
}

// resolve looks up everything that is due, side by side, then validates the class with what was found, and sets the
// class's status, conditions and annotations. The error is about what has to be tried again soon.
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
		if answers[i].write == nil && answers[i].verdict == nil && errs[i] == nil {
			continue // not due
		}
		if r.settle(class, conditions, p, answers[i], errs[i]) {
			r.resolved.done(class.UID, p.condition, now)
		}
	}
	answer, err := r.validate(ctx, class, conditions)
	r.settle(class, conditions, part{condition: v1.ConditionTypeValidationSucceeded}, answer, err)
	return errors.Join(errors.Join(errs...), err)
}

// settle turns an answer into status and condition; it reports whether the condition is True now because of it.
func (r *ClassReconciler) settle(class *v1.EC2NodeClass, conditions status.ConditionSet, p part, a found, err error) bool {
	if err != nil {
		r.failed(conditions, p, class.Generation, err)
		return false
	}
	if a.write != nil {
		a.write(class)
	}
	switch {
	case a.verdict == nil:
		conditions.SetTrue(p.condition)
		return true
	case a.verdict.unknown:
		conditions.SetUnknownWithReason(p.condition, a.verdict.reason, a.verdict.message)
	default:
		conditions.SetFalse(p.condition, a.verdict.reason, a.verdict.message)
	}
	return false
}

// failed says that a lookup went wrong. What was found earlier for the same spec stays in use, and its condition with it.
func (r *ClassReconciler) failed(conditions status.ConditionSet, p part, generation int64, err error) {
	if c := conditions.Get(p.condition); c.IsTrue() && c.ObservedGeneration == generation {
		return
	}
	message := describe(err)
	if p.field != "" {
		message = p.field + ": " + message
	}
	conditions.SetUnknownWithReason(p.condition, reasonResolutionFailed, message)
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
	if e.Code == ec2.CodeProfileUnknown {
		return "EC2 does not know the instance profile yet, which takes it up to a minute after it was made; if this stays, look in IAM whether status.instanceProfile exists and holds a role"
	}
	if action := ec2.Action(err); e.Kind == capacity.Unauthorized && action != "" {
		return fmt.Sprintf("asking AWS failed with %s (%s): allow %s in the policy of Slipway's role", e.Code, e.Kind, action)
	}
	return fmt.Sprintf("asking AWS failed with %s (%s)", e.Code, e.Kind)
}

func (r *ClassReconciler) findSubnets(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	subnets, err := r.Network.Subnets(ctx, class.Spec.SubnetSelectorTerms)
	if capacity.KindOf(err) == capacity.Invalid {
		return found{verdict: refused(reasonSubnetsNotFound, "spec.subnetSelectorTerms", err)}, nil
	}
	if err != nil {
		return found{}, err
	}
	// By id and not by free addresses, which change all the time: the launcher asks for those itself.
	slices.SortFunc(subnets, func(a, b ec2.Subnet) int { return strings.Compare(a.ID, b.ID) })
	var out []v1.Subnet
	for _, s := range subnets {
		out = append(out, v1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	f := found{write: func(c *v1.EC2NodeClass) { c.Status.Subnets = out }}
	if len(out) == 0 {
		f.verdict = fails(reasonSubnetsNotFound, "spec.subnetSelectorTerms did not match any subnets; check ids and tags against those of the region's subnets")
	}
	return f, nil
}

func (r *ClassReconciler) findGroups(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	groups, err := r.Network.SecurityGroups(ctx, class.Spec.SecurityGroupSelectorTerms)
	if capacity.KindOf(err) == capacity.Invalid {
		return found{verdict: refused(reasonGroupsNotFound, "spec.securityGroupSelectorTerms", err)}, nil
	}
	if err != nil {
		return found{}, err
	}
	var out []v1.SecurityGroup
	for _, g := range groups {
		out = append(out, v1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	f := found{write: func(c *v1.EC2NodeClass) { c.Status.SecurityGroups = out }}
	if len(out) == 0 {
		f.verdict = fails(reasonGroupsNotFound, "spec.securityGroupSelectorTerms did not match any security groups; check ids, names and tags against those of the region's groups")
	}
	return f, nil
}

func (r *ClassReconciler) findImages(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	none := func(c *v1.EC2NodeClass) { c.Status.AMIs = nil }
	images, err := r.Images.Images(ctx, class)
	switch capacity.KindOf(err) {
	case capacity.Invalid:
		if codeOf(err) != "" {
			return found{write: none, verdict: refused(reasonImageNotFound, "spec.amiSelectorTerms", err)}, nil
		}
		return found{write: none, verdict: fails(reasonAlias, "%v", err)}, nil
	case capacity.NotFound:
		return found{write: none, verdict: fails(reasonImageNotFound, "spec.amiSelectorTerms did not match any images for the cluster's Kubernetes version; check the alias's release")}, nil
	default: // no verdict on the class: success, or a failure to be retried
	}
	if err != nil {
		return found{}, err
	}
	if len(images) == 0 {
		return found{write: none, verdict: fails(reasonImageNotFound, "spec.amiSelectorTerms did not match any images; check ids, names, owners and tags (a name is looked for among own and Amazon's images unless owner is set)")}, nil
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
	return found{write: func(c *v1.EC2NodeClass) { c.Status.AMIs = out }}, nil
}

func (r *ClassReconciler) findProfile(ctx context.Context, class *v1.EC2NodeClass) (found, error) {
	name, err := r.Profiles.EnsureInstanceProfile(ctx, class)
	switch capacity.KindOf(err) {
	case capacity.NotFound:
		message := fmt.Sprintf("spec.role: there is no role %q", class.Spec.Role)
		if class.Spec.InstanceProfile != nil {
			message = fmt.Sprintf("spec.instanceProfile: there is no instance profile %q", *class.Spec.InstanceProfile)
		}
		return found{verdict: fails(reasonProfileNotFound, "%s; create it or name another", message)}, nil
	case capacity.Invalid:
		return found{verdict: fails(reasonProfileNotFound, "%s", describeInvalid("spec.role", err))}, nil
	default: // no verdict on the class: success, or a failure to be retried
	}
	if err != nil {
		return found{}, err
	}
	return found{write: func(c *v1.EC2NodeClass) { c.Status.InstanceProfile = name }}, nil
}

// refused is the verdict on terms that AWS does not take.
func refused(reason, field string, err error) *verdict {
	return fails(reason, "%s; correct the ids, names and tags in it", describeInvalid(field, err))
}

// codeOf is AWS's error code, empty if there is none.
func codeOf(err error) string {
	if e, ok := errors.AsType[*capacity.Error](err); ok {
		return e.Code
	}
	return ""
}

// describeInvalid is an error of our own as it stands, one of AWS by its code.
func describeInvalid(field string, err error) string {
	var e *capacity.Error
	if errors.As(err, &e) && e.Code == "" {
		return err.Error()
	}
	return field + ": " + describe(err)
}
