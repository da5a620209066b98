// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

func launchable(t *testing.T, c *ec2.Client) (*v1.EC2NodeClass, ec2.Template) {
	t.Helper()
	class := resolved(t, c)
	profile, err := c.EnsureInstanceProfile(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	class.Status.InstanceProfile = profile
	tmpl, err := ec2.ClassTemplate(class)
	if err != nil {
		t.Fatal(err)
	}
	cluster, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if tmpl.UserData, err = ec2.UserData(v1.AMIFamilyAL2023, ec2.Bootstrap{Cluster: cluster}); err != nil {
		t.Fatal(err)
	}
	tmpl.ImageID = image(class, "amd64")
	tmpl.Tags = map[string]string{ec2.TagClusterPrefix + "demo": "owned", ec2.TagNodePool: "p"}
	tmpl.Name = ec2.TemplateName(tmpl)
	return class, tmpl
}

// image is the class's image for an architecture without accelerators.
func image(class *v1.EC2NodeClass, arch string) string {
	for _, a := range class.Status.AMIs {
		for _, r := range a.Requirements {
			if slices.Contains(r.Values, arch) && strings.Contains(a.Name, "standard") {
				return a.ID
			}
		}
	}
	return ""
}

func request(class *v1.EC2NodeClass, tmpl ec2.Template, token string, count int32) ec2.FleetRequest {
	r := ec2.FleetRequest{Token: token, Count: count, CapacityType: "on-demand", Tags: map[string]string{
		ec2.TagClusterPrefix + "demo": "owned", ec2.TagNodePool: "p", ec2.TagLaunch: token,
	}}
	for _, typ := range []string{"m5.large", "c5.large"} {
		for _, s := range class.Status.Subnets {
			r.Overrides = append(r.Overrides, ec2.FleetOverride{
				TemplateName: tmpl.Name, InstanceType: typ, SubnetID: s.ID, Zone: s.Zone, ImageID: tmpl.ImageID, Priority: 0.1,
			})
		}
	}
	return r
}

func TestLaunch(t *testing.T) {
	_, c := start(t)
	class, tmpl := launchable(t, c)
	for range 2 { // the second finds it there
		if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
			t.Fatal(err)
		}
	}
	stored, err := c.Templates(t.Context())
	if err != nil || len(stored) != 1 || stored[0].Name != tmpl.Name || stored[0].Tags[ec2.TagNodePool] != "p" {
		t.Fatalf("Templates = %+v, err %v; want the one made", stored, err)
	}
	req := request(class, tmpl, "token-1", 2)
	first, err := c.Fleet(t.Context(), req)
	if err != nil || len(first.Instances) != 2 || len(first.Errors) != 0 {
		t.Fatalf("Fleet = %+v, err %v; want two instances", first, err)
	}
	again, err := c.Fleet(t.Context(), req)
	if diff := cmp.Diff(first, again); err != nil || diff != "" {
		t.Errorf("the same request again (err %v, -first +again):\n%s", err, diff)
	}
	req.Count = 3
	if _, err := c.Fleet(t.Context(), req); capacity.KindOf(err) != capacity.Conflict {
		t.Errorf("the same token with other parameters: err = %v, want kind Conflict", err)
	}
	ids := []string{first.Instances[0].ID, first.Instances[1].ID}
	described, err := c.Describe(t.Context(), ids)
	if err != nil || len(described) != 2 {
		t.Fatalf("Describe = %+v, err %v; want both", described, err)
	}
	for _, i := range described {
		if i.Zone == "" || i.PrivateDNSName == "" || i.CapacityType != "on-demand" || i.Tags[ec2.TagLaunch] != "token-1" || i.ImageID != tmpl.ImageID {
			t.Errorf("instance %+v lacks something of its request", i)
		}
	}
	tagged, err := c.DescribeByTag(t.Context(), ec2.TagLaunch, []string{"token-1", "token-2"})
	if err != nil || len(tagged) != 2 {
		t.Errorf("DescribeByTag = %d instances, err %v; want 2", len(tagged), err)
	}
	if err := c.Tag(t.Context(), ids[0], map[string]string{ec2.TagName: "node-1"}); err != nil {
		t.Error(err)
	}
	ours, err := c.ClusterInstances(t.Context())
	if err != nil || len(ours) != 2 {
		t.Errorf("ClusterInstances = %d instances, err %v; want 2", len(ours), err)
	}
	if err := c.Terminate(t.Context(), append(ids, "i-0000000000000dead")); err != nil {
		t.Errorf("terminating with an id nobody knows among them: %v", err)
	}
	gone, err := c.Describe(t.Context(), ids)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range gone {
		if i.State != "shutting-down" && i.State != "terminated" {
			t.Errorf("instance %q is %q after Terminate", i.ID, i.State)
		}
	}
	for range 2 {
		if err := c.DeleteTemplate(t.Context(), tmpl.Name); err != nil {
			t.Errorf("deleting the template: %v", err)
		}
	}
}

func TestDescribeMissing(t *testing.T) {
	_, c := start(t)
	class, tmpl := launchable(t, c)
	if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
		t.Fatal(err)
	}
	f, err := c.Fleet(t.Context(), request(class, tmpl, "t", 1))
	if err != nil {
		t.Fatal(err)
	}
	const unknown = "i-0000000000000dead"
	for _, ids := range [][]string{{unknown}, {f.Instances[0].ID, unknown}} {
		got, err := c.Describe(t.Context(), ids)
		if capacity.KindOf(err) != capacity.NotFound || !strings.Contains(err.Error(), unknown) || len(got) != len(ids)-1 {
			t.Errorf("Describe(%q) = %d instances, err %v; want the known ones and kind NotFound", ids, len(got), err)
		}
	}
}

func TestFleetFailures(t *testing.T) {
	emu, c := start(t)
	class, tmpl := launchable(t, c)
	noTemplate, err := c.Fleet(t.Context(), request(class, tmpl, "t0", 1))
	if kind, code := failure(noTemplate, err); kind != capacity.NotReady || code != ec2.CodeTemplateNotFound {
		t.Errorf("without a template: kind %q, code %q; want NotReady and %s", kind, code, ec2.CodeTemplateNotFound)
	}
	if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
		t.Fatal(err)
	}
	for code, want := range map[string]capacity.Kind{
		"RequestLimitExceeded": capacity.Throttled, "UnauthorizedOperation": capacity.Unauthorized, "InternalError": capacity.Unavailable,
	} {
		emu.Inject(ec2emu.Fault{Action: "CreateFleet", Code: code, Count: 1})
		before := count(emu, "CreateFleet")
		if _, err := c.Fleet(t.Context(), request(class, tmpl, "t-"+code, 1)); capacity.KindOf(err) != want {
			t.Errorf("%s: err = %v, want kind %q", code, err, want)
		}
		if n := count(emu, "CreateFleet") - before; n != 1 {
			t.Errorf("%s: %d requests were sent, want one", code, n)
		}
	}
	emu.Inject(ec2emu.Fault{Action: "CreateFleet", Cut: true, AfterEffect: true, Count: 1})
	if _, err := c.Fleet(t.Context(), request(class, tmpl, "t-cut", 1)); capacity.KindOf(err) != capacity.Unavailable {
		t.Errorf("connection cut: err = %v, want kind Unavailable", err)
	}
	if got, err := c.Fleet(t.Context(), request(class, tmpl, "t-cut", 1)); err != nil || len(got.Instances) != 1 {
		t.Errorf("repeated after the cut: %+v, err %v; want the instance", got, err)
	}
	if got, err := c.DescribeByTag(t.Context(), ec2.TagLaunch, []string{"t-cut"}); err != nil || len(got) != 1 {
		t.Errorf("%d instances of the cut request, err %v; want one", len(got), err)
	}
}

func TestFleetStockOut(t *testing.T) {
	emu, c := start(t)
	class, tmpl := launchable(t, c)
	if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
		t.Fatal(err)
	}
	emu.SetStock(ec2emu.Pool{CapacityType: "on-demand"}, 0)
	got, err := c.Fleet(t.Context(), request(class, tmpl, "t", 1))
	if err != nil || len(got.Instances) != 0 {
		t.Fatalf("Fleet = %+v, err %v; want no instance and no error", got, err)
	}
	out := map[capacity.OfferingKey]bool{}
	for _, e := range got.Errors {
		if e.Kind != capacity.NoCapacity {
			t.Errorf("error %v is of kind %q, want NoCapacity", e, e.Kind)
		}
		for _, k := range e.Offerings {
			out[k] = true
		}
	}
	if want := (capacity.OfferingKey{InstanceType: "m5.large", Zone: class.Status.Subnets[0].Zone, CapacityType: "on-demand"}); !out[want] {
		t.Errorf("offerings out = %v, want %v among them", out, want)
	}
}

// failure is the kind and code of a fleet's failure, wherever EC2 put it.
func failure(r ec2.FleetResult, err error) (capacity.Kind, string) {
	if e, ok := errors.AsType[*capacity.Error](err); ok {
		return e.Kind, e.Code
	}
	if len(r.Errors) > 0 {
		return r.Errors[0].Kind, r.Errors[0].Code
	}
	return "", ""
}

// A class that may be launched leaves nothing behind; a refused call is named.
func TestCheckLaunch(t *testing.T) {
	emu, c := start(t)
	class, _ := launchable(t, c)
	if err := c.CheckLaunch(t.Context(), class); err != nil {
		t.Fatalf("CheckLaunch = %v, want no error", err)
	}
	if stored, err := c.Templates(t.Context()); err != nil || len(stored) > 0 {
		t.Errorf("templates afterwards = %v, err %v; want none", stored, err)
	}
	if found, err := c.ClusterInstances(t.Context()); err != nil || len(found) > 0 {
		t.Errorf("instances afterwards = %v, err %v; want none", found, err)
	}
	for _, action := range []string{"CreateLaunchTemplate", "CreateFleet", "RunInstances"} {
		emu.Inject(ec2emu.Fault{Action: action, Code: "UnauthorizedOperation", Message: "You are not authorized to perform this operation."})
		err := c.CheckLaunch(t.Context(), class)
		if capacity.KindOf(err) != capacity.Unauthorized || ec2.Action(err) != "ec2:"+action {
			t.Errorf("%s refused: CheckLaunch = %v (%s), want kind Unauthorized about it", action, err, ec2.Action(err))
		}
		emu.ClearFaults()
	}
	long := strings.Repeat("x", 16384)
	class.Spec.AMIFamily, class.Spec.UserData = new("Custom"), &long
	if err := c.CheckLaunch(t.Context(), class); err != nil {
		t.Errorf("user data of exactly the limit: CheckLaunch = %v, want no error", err)
	}
}
