// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	smithy "github.com/aws/smithy-go"
	"github.com/awslabs/operatorpkg/status"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

func TestClassBecomesReady(t *testing.T) {
	b := newClassBench(t, class(nil))
	got, result, err := b.run(t)
	if err != nil {
		t.Fatal(err)
	}
	want := v1.EC2NodeClassStatus{
		Subnets:         []v1.Subnet{{ID: "subnet-1", Zone: "a", ZoneID: "az1"}, {ID: "subnet-2", Zone: "b", ZoneID: "az2"}},
		SecurityGroups:  []v1.SecurityGroup{{ID: "sg-1", Name: "nodes"}},
		InstanceProfile: "demo_1",
		AMIs: []v1.AMI{{ID: "ami-1", Name: "image", Requirements: []corev1.NodeSelectorRequirement{
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
			{Key: v1.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpDoesNotExist},
		}}},
	}
	conditions := got.Status.Conditions
	got.Status.Conditions = nil
	if diff := cmp.Diff(want, got.Status); diff != "" {
		t.Errorf("status (-want +got):\n%s", diff)
	}
	var names []string
	for _, c := range conditions {
		names = append(names, c.Type+"="+string(c.Status))
	}
	slices.Sort(names)
	if diff := cmp.Diff([]string{
		"AMIsReady=True", "CapacityReservationsReady=True", "InstanceProfileReady=True", "PlacementGroupReady=True", "Ready=True",
		"SecurityGroupsReady=True", "SubnetsReady=True", "ValidationSucceeded=True",
	}, names); diff != "" {
		t.Errorf("conditions (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]string{v1.TerminationFinalizer}, got.Finalizers); diff != "" {
		t.Errorf("finalizers (-want +got):\n%s", diff)
	}
	if h := got.Annotations[v1.AnnotationEC2NodeClassHash]; h != class(nil).Hash(nil) || got.Annotations[v1.AnnotationEC2NodeClassHashVersion] != v1.EC2NodeClassHashVersion {
		t.Errorf("hash %q, version %q; want the API package's", h, got.Annotations[v1.AnnotationEC2NodeClassHashVersion])
	}
	if diff := cmp.Diff(writes{metadata: 1, status: 1}, b.writes, cmp.AllowUnexported(writes{})); diff != "" {
		t.Errorf("writes (-want +got):\n%s", diff)
	}
	if lo, hi := refreshEvery, refreshEvery+refreshEvery/10; result.RequeueAfter < lo || result.RequeueAfter > hi {
		t.Errorf("looked at again after %s, want %s to %s", result.RequeueAfter, lo, hi)
	}
}

func TestClassIsRefreshedOnSchedule(t *testing.T) {
	b := newClassBench(t, class(nil))
	asked := func() [4]int64 {
		return [4]int64{b.cloud.subnetCalls.Load(), b.cloud.groupCalls.Load(), b.cloud.imageCalls.Load(), b.cloud.profileCalls.Load()}
	}
	steps := []struct {
		name string
		wait time.Duration
		edit bool
		want [4]int64 // subnets, groups, images, profile
	}{
		{"at first everything", 0, false, [4]int64{1, 1, 1, 1}},
		{"at once again nothing", 0, false, [4]int64{1, 1, 1, 1}},
		{"after a minute the subnets", time.Minute, false, [4]int64{2, 1, 1, 1}},
		{"after five minutes everything", 4 * time.Minute, false, [4]int64{3, 2, 2, 2}},
		{"for a new spec everything", 0, true, [4]int64{4, 3, 3, 3}},
	}
	for _, s := range steps {
		b.clock.Step(s.wait)
		if s.edit {
			c, _, _ := b.run(t)
			c.Generation++
			if err := b.Kube.Update(t.Context(), c); err != nil {
				t.Fatal(err)
			}
		}
		if _, _, err := b.run(t); err != nil {
			t.Fatal(err)
		}
		if got := asked(); got != s.want {
			t.Errorf("%s: asked %v times, want %v", s.name, got, s.want)
		}
	}
	if b.writes.status > 2 {
		t.Errorf("%d status writes, want one a generation", b.writes.status)
	}
}

// denied is IAM's refusal of an EC2 call, as package ec2 hands it on.
func denied(operation string) error {
	return &capacity.Error{Kind: capacity.Unauthorized, Code: "UnauthorizedOperation", Err: &smithy.OperationError{
		ServiceID: "EC2", OperationName: operation, Err: &smithy.GenericAPIError{Code: "UnauthorizedOperation", Message: "request 1234: no"},
	}}
}

func placed(c *v1.EC2NodeClass) {
	c.Spec.PlacementGroupSelector = &v1.PlacementGroupSelector{Name: new("rack")}
}

func TestClassConditions(t *testing.T) {
	kind := func(k capacity.Kind, code string) error {
		return &capacity.Error{Kind: k, Code: code, Err: errors.New("request id 1234: went wrong")}
	}
	tests := []struct {
		name      string
		class     func(*v1.EC2NodeClass)
		cloud     func(*cloud)
		condition string
		status    metav1.ConditionStatus
		reason    string
		message   string
		wantErr   bool
	}{
		{
			"no subnets", nil, func(c *cloud) { c.subnets = nil },
			"SubnetsReady", metav1.ConditionFalse, "SubnetsNotFound", "spec.subnetSelectorTerms", false,
		},
		{
			"no groups", nil, func(c *cloud) { c.groups = nil },
			"SecurityGroupsReady", metav1.ConditionFalse, "SecurityGroupsNotFound", "spec.securityGroupSelectorTerms", false,
		},
		{
			"no images", nil, func(c *cloud) { c.images = nil },
			"AMIsReady", metav1.ConditionFalse, "AMINotFound", "spec.amiSelectorTerms", false,
		},
		{
			"alias never published", nil, func(c *cloud) { c.imageErr = kind(capacity.NotFound, "") },
			"AMIsReady", metav1.ConditionFalse, "AMINotFound", "Kubernetes version", false,
		},
		{
			"alias not supported", nil, func(c *cloud) {
				c.imageErr = &capacity.Error{Kind: capacity.Invalid, Err: errors.New("spec.amiSelectorTerms: no")}
			},
			"AMIsReady", metav1.ConditionFalse, "UnsupportedAlias", "spec.amiSelectorTerms: no", false,
		},
		{
			"no such role", nil, func(c *cloud) { c.profileErr = kind(capacity.NotFound, "NoSuchEntity") },
			"InstanceProfileReady", metav1.ConditionFalse, "InstanceProfileNotFound", `no role "role"`, false,
		},
		{
			"no such profile", func(c *v1.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", new("mine") }, func(c *cloud) { c.profileErr = kind(capacity.NotFound, "NoSuchEntity") },
			"InstanceProfileReady", metav1.ConditionFalse, "InstanceProfileNotFound", `no instance profile "mine"`, false,
		},
		{
			"a role IAM refuses", nil, func(c *cloud) { c.profileErr = kind(capacity.Invalid, "ValidationError") },
			"InstanceProfileReady", metav1.ConditionFalse, "InstanceProfileNotFound", "spec.role: asking AWS failed with ValidationError", false,
		},
		{
			"not allowed", nil, func(c *cloud) { c.subnetErr = kind(capacity.Unauthorized, "UnauthorizedOperation") },
			"SubnetsReady", metav1.ConditionUnknown, "ResolutionFailed", "UnauthorizedOperation (Unauthorized)", true,
		},
		{
			"AWS is down", nil, func(c *cloud) { c.imageErr = kind(capacity.Unavailable, "") },
			"AMIsReady", metav1.ConditionUnknown, "ResolutionFailed", "(Unavailable)", true,
		},
		{
			"cluster unknown", nil, func(c *cloud) { c.clusterErr = kind(capacity.Unavailable, "") },
			"ValidationSucceeded", metav1.ConditionUnknown, "ResolutionFailed", "(Unavailable)", true,
		},
		{
			"service range unknown", nil, func(c *cloud) { c.cluster.ServiceCIDR = "" },
			"ValidationSucceeded", metav1.ConditionFalse, "ClusterCIDRResolutionFailed", "service CIDR", false,
		},
		{
			"tags of ours", func(c *v1.EC2NodeClass) { c.Spec.Tags = map[string]string{"karpenter.sh/nodepool": "x", "team": "a"} }, nil,
			"ValidationSucceeded", metav1.ConditionFalse, "TagValidationFailed", `["karpenter.sh/nodepool"]`, false,
		},
		{
			"the tag a launch is known by", func(c *v1.EC2NodeClass) { c.Spec.Tags = map[string]string{"slipway.sh/launch": "x", "Name": "a"} }, nil,
			"ValidationSucceeded", metav1.ConditionFalse, "TagValidationFailed", `["slipway.sh/launch"]`, false,
		},
		{
			"unsupported family", func(c *v1.EC2NodeClass) { c.Spec.AMIFamily = new("Ubuntu") }, nil,
			"ValidationSucceeded", metav1.ConditionFalse, "NodeClassValidationFailed", "spec.amiFamily", false,
		},
		{
			"alias that cannot be read", func(c *v1.EC2NodeClass) { c.Spec.AMISelectorTerms[0].Alias = "latest" }, nil,
			"ValidationSucceeded", metav1.ConditionFalse, "NodeClassValidationFailed", "spec.amiSelectorTerms", false,
		},
		{
			"user data too long", func(c *v1.EC2NodeClass) { s := "#!" + strings.Repeat("x", 20000); c.Spec.UserData = &s }, nil,
			"ValidationSucceeded", metav1.ConditionFalse, "UserDataSizeLimitExceeded", "spec.userData", false,
		},
		{
			"no such placement group", placed, func(c *cloud) { c.placedErr = kind(capacity.NotFound, "InvalidPlacementGroup.Unknown") },
			"PlacementGroupReady", metav1.ConditionFalse, "PlacementGroupNotFound", `spec.placementGroupSelector: placement group "rack" not found`, false,
		},
		{
			"a placement group EC2 refuses", placed, func(c *cloud) { c.placedErr = kind(capacity.Invalid, "InvalidParameterValue") },
			"PlacementGroupReady", metav1.ConditionFalse, "PlacementGroupResolutionFailed", "spec.placementGroupSelector", false,
		},
		{
			"reservations cannot be listed", func(c *v1.EC2NodeClass) {
				c.Spec.CapacityReservationSelectorTerms = []v1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
			}, func(c *cloud) { c.reservedErr = kind(capacity.Unavailable, "") },
			"CapacityReservationsReady", metav1.ConditionUnknown, "ResolutionFailed", "(Unavailable)", true,
		},
		{
			"something is missing", nil, func(c *cloud) { c.subnets = nil },
			"ValidationSucceeded", metav1.ConditionFalse, "DependenciesNotReady", "Awaiting AMI", false,
		},
		{
			"something is not known yet", nil, func(c *cloud) { c.imageErr = kind(capacity.Unavailable, "") },
			"ValidationSucceeded", metav1.ConditionUnknown, "DependenciesNotReady", "Awaiting AMI", true,
		},
		{
			"not allowed to make templates", nil, func(c *cloud) { c.launchErr = denied("CreateLaunchTemplate") },
			"ValidationSucceeded", metav1.ConditionFalse, "CreateLaunchTemplateAuthCheckFailed", "Controller isn't authorized to call ec2:CreateLaunchTemplate", false,
		},
		{
			"not allowed to make fleets", nil, func(c *cloud) { c.launchErr = denied("CreateFleet") },
			"ValidationSucceeded", metav1.ConditionFalse, "CreateFleetAuthCheckFailed", "ec2:CreateFleet: User is not authorized", false,
		},
		{
			"not allowed to run instances", nil, func(c *cloud) { c.launchErr = denied("RunInstances") },
			"ValidationSucceeded", metav1.ConditionFalse, "RunInstancesAuthCheckFailed", "ec2:RunInstances: User is not authorized", false,
		},
		{
			"EC2 finds the user data too long", nil, func(c *cloud) { c.launchErr = kind(capacity.Invalid, ec2.CodeUserDataTooLong) },
			"ValidationSucceeded", metav1.ConditionFalse, "UserDataSizeLimitExceeded", "UserDataSizeLimitExceeded", false,
		},
		{
			"EC2 cannot be asked", nil, func(c *cloud) { c.launchErr = kind(capacity.Throttled, "RequestLimitExceeded") },
			"ValidationSucceeded", metav1.ConditionUnknown, "ResolutionFailed", "RequestLimitExceeded", true,
		},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			b := newClassBench(t, class(tt.class))
			if tt.cloud != nil {
				tt.cloud(b.cloud)
			}
			got, _, err := b.run(t)
			if (err != nil) != tt.wantErr {
				t.Errorf("err = %v, want one: %v", err, tt.wantErr)
			}
			c := condition(got.Status.Conditions, tt.condition)
			if c.Status != tt.status || c.Reason != tt.reason || !strings.Contains(c.Message, tt.message) {
				t.Errorf("%s = %s, %s, %q; want %s, %s and a message with %q", tt.condition, c.Status, c.Reason, c.Message, tt.status, tt.reason, tt.message)
			}
			if strings.Contains(c.Message, "1234") {
				t.Errorf("message %q has a request id, so every try would be a write", c.Message)
			}
			if ready := condition(got.Status.Conditions, "Ready"); ready.Status == metav1.ConditionTrue {
				t.Error("the class is ready in spite of it")
			}
			before := b.writes
			if _, _, err := b.run(t); (err != nil) != tt.wantErr {
				t.Errorf("again: err = %v, want one: %v", err, tt.wantErr)
			}
			if b.writes != before {
				t.Errorf("the same answer again was written again: %+v, then %+v", before, b.writes)
			}
		})
	}
}

func condition(list []status.Condition, kind string) status.Condition {
	for _, c := range list {
		if c.Type == kind {
			return c
		}
	}
	return status.Condition{}
}

// What the class selects of the account goes into status and annotations; the next look is when a reservation changes.
func TestReservationsAndPlacement(t *testing.T) {
	b := newClassBench(t, class(func(c *v1.EC2NodeClass) {
		placed(c)
		c.Spec.CapacityReservationSelectorTerms = []v1.CapacityReservationSelectorTerm{{ID: "cr-1"}}
	}))
	end := metav1.NewTime(b.clock.Now().Add(20 * time.Second))
	reservation := v1.CapacityReservation{ID: "cr-1", InstanceType: "m5.large", AvailabilityZone: "a", EndTime: &end, State: v1.CapacityReservationStateActive}
	b.cloud.reservations = []ec2.Reservation{{CapacityReservation: reservation, Free: 1}}
	b.cloud.group = ec2.PlacementGroup{ID: "pg-1", Strategy: "partition", Partitions: 3}
	got, result, err := b.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if len(got.Status.CapacityReservations) != 1 || got.Status.CapacityReservations[0].ID != "cr-1" {
		t.Errorf("reservations = %+v, want cr-1", got.Status.CapacityReservations)
	}
	if g := ec2.PlacementGroupOf(got); g == nil || *g != b.cloud.group {
		t.Errorf("placement group = %+v, want %+v", g, b.cloud.group)
	}
	if result.RequeueAfter != 20*time.Second {
		t.Errorf("looked at again after %s, want when the reservation ends, in 20s", result.RequeueAfter)
	}
	if c := condition(got.Status.Conditions, "Ready"); !c.IsTrue() {
		t.Errorf("Ready = %s, %q; want True", c.Status, c.Message)
	}
	if want := (writes{metadata: 2, status: 1}); b.writes != want {
		t.Errorf("writes = %+v, want %+v", b.writes, want)
	}
	// Both terms taken out again: nothing of them is left.
	got.Spec.PlacementGroupSelector, got.Spec.CapacityReservationSelectorTerms, got.Generation = nil, nil, 2
	if err := b.Kube.Update(t.Context(), got); err != nil {
		t.Fatal(err)
	}
	if got, _, err = b.run(t); err != nil || len(got.Status.CapacityReservations) > 0 || got.Annotations[ec2.AnnotationPlacementGroup] != "" {
		t.Errorf("err %v, reservations %v, annotations %v; want nothing left", err, got.Status.CapacityReservations, got.Annotations)
	}
}

// Permission is asked for once and taken for a while; a refusal is asked about with every look, so that it ends by itself.
func TestLaunchIsCheckedOnSchedule(t *testing.T) {
	b := newClassBench(t, class(nil))
	b.cloud.launchErr = denied("RunInstances")
	step := func(name string, wait time.Duration, calls int64, want metav1.ConditionStatus) {
		t.Helper()
		b.clock.Step(wait)
		got, _, err := b.run(t)
		if err != nil {
			t.Fatal(err)
		}
		if n := b.cloud.launchCalls.Load(); n != calls {
			t.Errorf("%s: asked %d times, want %d", name, n, calls)
		}
		if c := condition(got.Status.Conditions, "Ready"); c.Status != want {
			t.Errorf("%s: Ready = %s (%s), want %s", name, c.Status, c.Message, want)
		}
	}
	step("refused", 0, 1, metav1.ConditionFalse)
	step("still refused", time.Minute, 2, metav1.ConditionFalse)
	b.cloud.launchErr = nil
	step("granted", time.Minute, 3, metav1.ConditionTrue)
	step("a while later", checkEvery-time.Second, 3, metav1.ConditionTrue)
	step("long after", time.Duration(float64(checkEvery)*checkJitter)+time.Second, 4, metav1.ConditionTrue)
	b.Launches = nil
	step("dry runs disabled", 2*checkEvery, 4, metav1.ConditionTrue)
}

// One lookup that fails neither stops the others nor takes away what an earlier one found.
func TestClassKeepsWhatItHas(t *testing.T) {
	b := newClassBench(t, class(nil))
	if _, _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	b.clock.Step(resolveEvery)
	b.cloud.subnetErr = &capacity.Error{Kind: capacity.Unavailable, Err: errors.New("down")}
	b.cloud.groups = []ec2.SecurityGroup{{ID: "sg-9"}}
	got, _, err := b.run(t)
	if capacity.KindOf(err) != capacity.Unavailable {
		t.Errorf("err = %v, want kind Unavailable so that it is tried again", err)
	}
	if len(got.Status.Subnets) != 2 || got.Status.SecurityGroups[0].ID != "sg-9" {
		t.Errorf("subnets %v, groups %v; want the old subnets and the new group", got.Status.Subnets, got.Status.SecurityGroups)
	}
	if c := condition(got.Status.Conditions, "Ready"); c.Status != metav1.ConditionTrue {
		t.Errorf("Ready = %s, want True: nothing is known to have changed", c.Status)
	}
}

func TestClassDeletion(t *testing.T) {
	now := metav1.Now()
	deleted := func(c *v1.EC2NodeClass) {
		c.DeletionTimestamp, c.Finalizers = &now, []string{v1.TerminationFinalizer}
	}
	other := claim("other", "p", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Name = "other" })
	foreign := claim("foreign", "p", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Group = "karpenter.azure.com" })
	mine := claim("mine", "p", nil)
	b := newClassBench(t, class(deleted), mine, other, foreign)
	b.cloud.templates = []ec2.StoredTemplate{
		{Name: "a", Tags: map[string]string{ec2.TagNodeClass: "default"}}, {Name: "b", Tags: map[string]string{ec2.TagNodeClass: "other"}},
	}
	got, result, err := b.run(t)
	if err != nil || got == nil || result.RequeueAfter != waitingEvery {
		t.Fatalf("with a claim left: class %v, again after %s, err %v; want it kept", got, result.RequeueAfter, err)
	}
	if diff := cmp.Diff([]string{"WaitingOnNodeClaimTermination: Waiting on NodeClaim termination for mine"}, b.cloud.events); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	if b.cloud.deletedProfiles != 0 {
		t.Error("the instance profile was deleted under a live claim")
	}
	if err := b.Kube.Delete(t.Context(), mine); err != nil {
		t.Fatal(err)
	}
	b.cloud.deleteErr = errors.New("down")
	if got, _, err := b.run(t); err == nil || got == nil {
		t.Errorf("IAM down: class %v, err %v; want it kept and an error", got, err)
	}
	b.cloud.deleteErr = nil
	if got, _, err := b.run(t); err != nil || got != nil {
		t.Errorf("at last: class %v, err %v; want it gone", got, err)
	}
	if diff := cmp.Diff([]string{"a", "a"}, b.cloud.deletedTemplates); diff != "" {
		t.Errorf("templates deleted (-want +got):\n%s", diff)
	}
}

func TestClaimsOfAnotherHashVersionAreStamped(t *testing.T) {
	stamped := func(version string, drifted bool) func(*karpv1.NodeClaim) {
		return func(c *karpv1.NodeClaim) {
			c.Annotations = map[string]string{v1.AnnotationEC2NodeClassHash: "old", v1.AnnotationEC2NodeClassHashVersion: version}
			if drifted {
				c.Status.Conditions = []status.Condition{{Type: karpv1.ConditionTypeDrifted, Status: metav1.ConditionTrue}}
			}
		}
	}
	b := newClassBench(t, class(nil), claim("older", "p", stamped("v1", false)), claim("newer", "p", stamped("v6", false)), claim("drifted", "p", stamped("v1", true)),
		claim("current", "p", stamped(v1.EC2NodeClassHashVersion, false)))
	if _, _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"older": class(nil).Hash(nil), "newer": class(nil).Hash(nil), "drifted": "old", "current": "old"} {
		got := &karpv1.NodeClaim{}
		if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: name}, got); err != nil {
			t.Fatal(err)
		}
		if h := got.Annotations[v1.AnnotationEC2NodeClassHash]; h != want || got.Annotations[v1.AnnotationEC2NodeClassHashVersion] != v1.EC2NodeClassHashVersion {
			t.Errorf("claim %q: hash %q of version %q, want %q of today's", name, h, got.Annotations[v1.AnnotationEC2NodeClassHashVersion], want)
		}
	}
}

func TestList(t *testing.T) {
	if got := list([]string{"b", "a"}); got != "a, b" {
		t.Errorf("list = %q, want it sorted", got)
	}
	if got := list([]string{"g", "f", "e", "d", "c", "b", "a"}); got != "a, b, c, d, e and 2 more" {
		t.Errorf("list = %q, want five names and a count", got)
	}
}

// A write that comes too late is no failure: the reconcile is repeated with the newer object, and asks EC2 again.
func TestConflict(t *testing.T) {
	b := newClassBench(t, class(nil))
	b.writes.conflicts = 1
	if _, result, err := b.run(t); err != nil || result.RequeueAfter != retryFirst {
		t.Errorf("result %+v, err %v; want another try after %s", result, err, retryFirst)
	}
	if got, _, err := b.run(t); err != nil || len(got.Status.Subnets) == 0 {
		t.Errorf("again: status %+v, err %v; want it written", got.Status, err)
	}
}

func TestClassOfClaim(t *testing.T) {
	want := []reconcile.Request{{NamespacedName: client.ObjectKey{Name: "default"}}}
	if diff := cmp.Diff(want, classOfClaim(t.Context(), claim("c", "p", nil))); diff != "" {
		t.Errorf("class of a claim (-want +got):\n%s", diff)
	}
	own := claim("c", "p", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Group = "slipway.sh" })
	if diff := cmp.Diff(want, classOfClaim(t.Context(), own)); diff != "" {
		t.Errorf("class of a claim that Karpenter leaves alone (-want +got):\n%s", diff)
	}
	foreign := claim("c", "p", func(c *karpv1.NodeClaim) { c.Spec.NodeClassRef.Group = "other" })
	if got := classOfClaim(t.Context(), foreign); got != nil {
		t.Errorf("class of another provider's claim = %v, want none", got)
	}
}
