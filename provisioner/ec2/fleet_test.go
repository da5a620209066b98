// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func fleetRequest() FleetRequest {
	return FleetRequest{
		Token: "t", Count: 2, CapacityType: "spot", Tags: map[string]string{"a": "b"},
		Overrides: []FleetOverride{
			{TemplateName: "x", InstanceType: "m5.large", SubnetID: "subnet-a", Zone: "us-east-1a", ImageID: "ami-1", Priority: 0.1},
			{TemplateName: "y", InstanceType: "m6g.large", SubnetID: "subnet-a", Zone: "us-east-1a", ImageID: "ami-2", Priority: 0.2},
			{TemplateName: "x", InstanceType: "m5.large", SubnetID: "subnet-b", Zone: "us-east-1b", ImageID: "ami-1", Priority: 0.3},
		},
	}
}

func TestFleetInput(t *testing.T) {
	in, err := fleetInput(fleetRequest())
	if err != nil {
		t.Fatal(err)
	}
	if in.Type != ec2types.FleetTypeInstant || aws.ToString(in.ClientToken) != "t" || aws.ToInt32(in.TargetCapacitySpecification.TotalTargetCapacity) != 2 {
		t.Errorf("type %q, token %q, capacity %d; want instant, t, 2", in.Type, aws.ToString(in.ClientToken), aws.ToInt32(in.TargetCapacitySpecification.TotalTargetCapacity))
	}
	if in.SpotOptions == nil || in.SpotOptions.AllocationStrategy != ec2types.SpotAllocationStrategyPriceCapacityOptimized || in.OnDemandOptions != nil {
		t.Errorf("options %+v, %+v; want price-capacity-optimized spot only", in.SpotOptions, in.OnDemandOptions)
	}
	type override struct{ template, typ, subnet string }
	var got []override
	for _, c := range in.LaunchTemplateConfigs {
		for _, o := range c.Overrides {
			got = append(got, override{*c.LaunchTemplateSpecification.LaunchTemplateName, string(o.InstanceType), *o.SubnetId})
		}
	}
	want := []override{{"x", "m5.large", "subnet-a"}, {"x", "m5.large", "subnet-b"}, {"y", "m6g.large", "subnet-a"}}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(override{})); diff != "" {
		t.Errorf("overrides (-want +got):\n%s", diff)
	}
	var tagged []ec2types.ResourceType
	for _, s := range in.TagSpecifications {
		tagged = append(tagged, s.ResourceType)
	}
	if diff := cmp.Diff([]ec2types.ResourceType{"instance", "volume", "fleet"}, tagged); diff != "" {
		t.Errorf("tagged (-want +got):\n%s", diff)
	}
}

func TestFleetMarkets(t *testing.T) {
	tests := []struct {
		name   string
		change func(*FleetRequest)
		market ec2types.DefaultTargetCapacityType
		how    string
	}{
		{"spot", nil, "spot", "price-capacity-optimized"},
		{"on-demand", func(r *FleetRequest) { r.CapacityType = "on-demand" }, "on-demand", "lowest-price"},
		{"spot by priority", func(r *FleetRequest) { r.Prioritized = true }, "spot", "capacity-optimized-prioritized"},
		{"on-demand by priority", func(r *FleetRequest) { r.CapacityType, r.Prioritized = "on-demand", true }, "on-demand", "prioritized"},
		{"reserved", func(r *FleetRequest) { r.CapacityType = "reserved" }, "on-demand", "lowest-price"},
		{"capacity block", func(r *FleetRequest) { r.CapacityType, r.Block = "reserved", true }, "capacity-block", ""},
		{"interruptible", func(r *FleetRequest) { r.CapacityType, r.Interruptible = "reserved", true }, "reserved-capacity", "interruptible-capacity-reservation"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			r := fleetRequest()
			if tt.change != nil {
				tt.change(&r)
			}
			in, err := fleetInput(r)
			if err != nil {
				t.Fatal(err)
			}
			how := ""
			if in.SpotOptions != nil {
				how += string(in.SpotOptions.AllocationStrategy)
			}
			if in.OnDemandOptions != nil {
				how += string(in.OnDemandOptions.AllocationStrategy)
			}
			if in.ReservedCapacityOptions != nil {
				how += string(in.ReservedCapacityOptions.ReservationTypes[0])
			}
			if got := in.TargetCapacitySpecification.DefaultTargetCapacityType; got != tt.market || how != tt.how {
				t.Errorf("buys in market %q by %q, want %q by %q", got, how, tt.market, tt.how)
			}
		})
	}
}

func TestFleetResultNamesTheReservation(t *testing.T) {
	r := fleetRequest()
	r.CapacityType = "reserved"
	for i := range r.Overrides {
		r.Overrides[i].ReservationID = "cr-" + r.Overrides[i].TemplateName
	}
	from := func(template string) *ec2types.LaunchTemplateAndOverridesResponse {
		return &ec2types.LaunchTemplateAndOverridesResponse{
			LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecification{LaunchTemplateName: &template},
			Overrides:                   &ec2types.FleetLaunchTemplateOverrides{InstanceType: "m5.large", SubnetId: aws.String("subnet-a")},
		}
	}
	got := newFleetResult(r, &ec2.CreateFleetOutput{
		Instances: []ec2types.CreateFleetInstance{{InstanceType: "m5.large", InstanceIds: []string{"i-1"}, LaunchTemplateAndOverrides: from("x")}},
		Errors:    []ec2types.CreateFleetError{{ErrorCode: aws.String("ReservationCapacityExceeded"), LaunchTemplateAndOverrides: from("y")}},
	})
	if len(got.Instances) != 1 || got.Instances[0].ReservationID != "cr-x" {
		t.Errorf("instances = %+v, want one of reservation cr-x", got.Instances)
	}
	if len(got.Errors) != 1 || got.Errors[0].Offerings[0].ReservationID != "cr-y" {
		t.Errorf("errors = %+v, want one about reservation cr-y", got.Errors)
	}
}

func TestFleetInputRefuses(t *testing.T) {
	for name, change := range map[string]func(*FleetRequest){
		"no override":        func(r *FleetRequest) { r.Overrides = nil },
		"too many overrides": func(r *FleetRequest) { r.Overrides = make([]FleetOverride, 301) },
		"nothing wanted":     func(r *FleetRequest) { r.Count = 0 },
		"no capacity type":   func(r *FleetRequest) { r.CapacityType = "" },
	} {
		r := fleetRequest()
		change(&r)
		if _, err := fleetInput(r); capacity.KindOf(err) != capacity.Invalid {
			t.Errorf("%s: err = %v, want kind Invalid", name, err)
		}
	}
}

func TestNewFleetResult(t *testing.T) {
	response := func(typ, subnet, zone string) *ec2types.LaunchTemplateAndOverridesResponse {
		o := &ec2types.FleetLaunchTemplateOverrides{InstanceType: ec2types.InstanceType(typ), SubnetId: optional(subnet), AvailabilityZone: optional(zone), ImageId: aws.String("ami-1")}
		return &ec2types.LaunchTemplateAndOverridesResponse{Overrides: o}
	}
	out := &ec2.CreateFleetOutput{
		FleetId: aws.String("fleet-1"),
		Instances: []ec2types.CreateFleetInstance{
			{InstanceType: "m5.large", InstanceIds: []string{"i-1", "i-2"}, LaunchTemplateAndOverrides: response("m5.large", "subnet-b", "")},
		},
		Errors: []ec2types.CreateFleetError{
			{ErrorCode: aws.String("InsufficientInstanceCapacity"), ErrorMessage: aws.String("none left"), LaunchTemplateAndOverrides: response("m5.large", "subnet-a", "us-east-1a")},
			{ErrorCode: aws.String("InsufficientInstanceCapacity"), ErrorMessage: aws.String("none left"), LaunchTemplateAndOverrides: response("m5.large", "subnet-a", "us-east-1a")},
			{ErrorCode: aws.String("UnauthorizedOperation"), ErrorMessage: aws.String("no")},
			{ErrorCode: aws.String(CodeTemplateNotFound), ErrorMessage: aws.String("gone"), LaunchTemplateAndOverrides: response("m6g.large", "subnet-a", "")},
		},
	}
	got := newFleetResult(fleetRequest(), out)
	offering := func(typ, zone string) []capacity.OfferingKey {
		return []capacity.OfferingKey{{InstanceType: typ, Zone: zone, CapacityType: "spot"}}
	}
	want := FleetResult{
		FleetID: "fleet-1",
		Instances: []FleetInstance{
			{ID: "i-1", InstanceType: "m5.large", Zone: "us-east-1b", CapacityType: "spot", SubnetID: "subnet-b", ImageID: "ami-1"},
			{ID: "i-2", InstanceType: "m5.large", Zone: "us-east-1b", CapacityType: "spot", SubnetID: "subnet-b", ImageID: "ami-1"},
		},
		Errors: []*capacity.Error{
			{Kind: capacity.NoCapacity, Code: "InsufficientInstanceCapacity", Offerings: offering("m5.large", "us-east-1a")},
			{Kind: capacity.Unauthorized, Code: "UnauthorizedOperation"},
			{Kind: capacity.NotReady, Code: CodeTemplateNotFound, Offerings: offering("m6g.large", "us-east-1a")},
		},
	}
	if diff := cmp.Diff(want, got, cmpopts.IgnoreFields(capacity.Error{}, "Err")); diff != "" {
		t.Errorf("result (-want +got):\n%s", diff)
	}
}

func TestTemplateData(t *testing.T) {
	yes := true
	d := templateData(Template{
		ImageID: "ami-1", UserData: "hello", InstanceProfile: "p", SecurityGroups: []string{"sg-1"}, PublicIP: &yes, Spot: true,
		BlockDevices: []BlockDevice{{DeviceName: "/dev/xvda", SizeGiB: 20, VolumeType: "gp3"}}, Tags: map[string]string{"a": "b"},
		Metadata: MetadataOptions{HTTPTokens: "required", HTTPPutResponseHopLimit: 1},
	})
	if got := aws.ToString(d.UserData); got != "aGVsbG8=" {
		t.Errorf("user data = %q, want it in base64", got)
	}
	if len(d.SecurityGroupIds) != 0 || len(d.NetworkInterfaces) != 1 || d.NetworkInterfaces[0].Groups[0] != "sg-1" || d.NetworkInterfaces[0].AssociatePublicIpAddress != &yes {
		t.Errorf("groups and public address are not on the one interface: %+v", d.NetworkInterfaces)
	}
	if e := d.BlockDeviceMappings[0].Ebs; aws.ToInt32(e.VolumeSize) != 20 || e.Iops != nil || e.KmsKeyId != nil {
		t.Errorf("volume = %+v, want 20 GiB and what is unset left out", e)
	}
	var tagged []ec2types.ResourceType
	for _, s := range d.TagSpecifications {
		tagged = append(tagged, s.ResourceType)
	}
	if diff := cmp.Diff([]ec2types.ResourceType{"network-interface", "spot-instances-request"}, tagged); diff != "" {
		t.Errorf("tagged (-want +got):\n%s", diff)
	}
}
