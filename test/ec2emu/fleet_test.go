// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// fleetBed has the template "nodes" and machines that boot at once.
func fleetBed(t *testing.T, o Options) *bed {
	t.Helper()
	o.InstantBoot = true
	b := start(t, o)
	b.profile(t)
	b.template(t, nodeConfig)
	return b
}

// summary is a fleet's answer in short: "2 m5.large@us-east-1a spot", then errors.
func summary(out *ec2.CreateFleetOutput) []string {
	var s []string
	for _, i := range out.Instances {
		s = append(s, fmt.Sprintf("%d %s@%s %s", len(i.InstanceIds), i.InstanceType, *i.AvailabilityZone, i.Lifecycle))
	}
	for _, e := range out.Errors {
		s = append(s, fmt.Sprintf("%s %s", *e.ErrorCode, e.LaunchTemplateAndOverrides.Overrides.InstanceType))
	}
	return s
}

func TestCreateFleet(t *testing.T) {
	priority := func(in *ec2.CreateFleetInput, values ...float64) *ec2.CreateFleetInput {
		for i, v := range values {
			in.LaunchTemplateConfigs[0].Overrides[i].Priority = aws.Float64(v)
		}
		return in
	}
	tests := []struct {
		name   string
		stocks map[Pool]int
		in     *ec2.CreateFleetInput
		change func(*ec2.CreateFleetInput)
		want   []string
		error  string
	}{
		{name: "cheapest", in: fleet(1, onDemandType, "m5.xlarge", "m5.large", "c5.large"), want: []string{"1 c5.large@us-east-1a on-demand"}},
		{name: "several in one pool", in: fleet(3, onDemandType, "m5.large", "m5.xlarge@b"), want: []string{"3 m5.large@us-east-1a on-demand"}},
		{name: "the subnet says where", in: fleet(1, onDemandType, "m5.large@c"), want: []string{"1 m5.large@us-east-1c on-demand"}},
		{
			name: "no stock in one zone", stocks: map[Pool]int{{InstanceType: "m5.large", Zone: "us-east-1a"}: 0},
			in:   fleet(1, onDemandType, "m5.large", "m5.large@b"),
			want: []string{"1 m5.large@us-east-1b on-demand", "InsufficientInstanceCapacity m5.large"},
		},
		{
			name: "no stock anywhere", stocks: map[Pool]int{{InstanceType: "m5.*"}: 0},
			in:   fleet(1, onDemandType, "m5.large", "m5.xlarge@b"),
			want: []string{"InsufficientInstanceCapacity m5.large", "InsufficientInstanceCapacity m5.xlarge"},
		},
		{
			name: "spot is out, on demand is not", stocks: map[Pool]int{{CapacityType: "spot"}: 0},
			in: fleet(1, spotType, "m5.large"), want: []string{"InsufficientInstanceCapacity m5.large"},
		},
		{
			name: "partly", stocks: map[Pool]int{{InstanceType: "*"}: 3}, in: fleet(5, onDemandType, "m5.large"),
			want: []string{"3 m5.large@us-east-1a on-demand", "InsufficientInstanceCapacity m5.large"},
		},
		{
			name: "one stock for several pools", stocks: map[Pool]int{{InstanceType: "*"}: 3, {InstanceType: "c5.large"}: 2},
			in:   fleet(5, onDemandType, "m5.large", "c5.large", "m5.xlarge"),
			want: []string{"2 c5.large@us-east-1a on-demand", "1 m5.large@us-east-1a on-demand", "InsufficientInstanceCapacity c5.large", "InsufficientInstanceCapacity m5.large", "InsufficientInstanceCapacity m5.xlarge"},
		},
		{
			name: "fewer than the minimum", stocks: map[Pool]int{{InstanceType: "*"}: 3}, in: fleet(5, onDemandType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) {
				in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{MinTargetCapacity: aws.Int32(5)}
			},
			want: []string{"InsufficientInstanceCapacity m5.large"},
		},
		{
			name: "on demand and spot", in: fleet(3, spotType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) { in.TargetCapacitySpecification.OnDemandTargetCapacity = aws.Int32(1) },
			want:   []string{"1 m5.large@us-east-1a on-demand", "2 m5.large@us-east-1a spot"},
		},
		{
			name: "prioritized", in: priority(fleet(1, onDemandType, "c5.large", "m5.4xlarge"), 2, 1),
			change: func(in *ec2.CreateFleetInput) {
				in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{AllocationStrategy: ec2types.FleetOnDemandAllocationStrategyPrioritized}
			},
			want: []string{"1 m5.4xlarge@us-east-1a on-demand"},
		},
		{
			name: "too dear", in: fleet(1, spotType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].MaxPrice = aws.String("0.001")
			},
			want: []string{"SpotMaxPriceTooLow m5.large"},
		},
		{name: "not offered in the zone", in: fleet(1, onDemandType, "mac1.metal", "m5.large"), want: []string{"1 m5.large@us-east-1a on-demand", "InvalidFleetConfiguration mac1.metal"}},
		{name: "wrong architecture", in: fleet(1, onDemandType, "m6g.large"), want: []string{"InvalidParameterValue m6g.large"}},
		{
			name: "unknown subnet", in: fleet(1, onDemandType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].SubnetId = aws.String("subnet-0bad")
			},
			want: []string{"InvalidSubnetID.NotFound m5.large"},
		},
		{
			name: "unknown image", in: fleet(1, onDemandType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].ImageId = aws.String("ami-0123456789abcdef0")
			},
			want: []string{"InvalidAMIID.NotFound m5.large"},
		},
		{
			name: "malformed image", in: fleet(1, onDemandType, "m5.large"),
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].ImageId = aws.String("golden")
			},
			want: []string{"InvalidAMIID.Malformed m5.large"},
		},
		{
			name: "unknown template", in: fleet(1, onDemandType, "m5.large"), error: "InvalidLaunchTemplateName.NotFoundException",
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("gone")
			},
		},
		{
			name: "zone of another subnet", in: fleet(1, onDemandType, "m5.large"), want: []string{"InvalidParameterValue m5.large"},
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].AvailabilityZone = aws.String("us-east-1b")
			},
		},
		{
			name: "weights", in: fleet(1, onDemandType, "m5.large"), error: "UnsupportedOperation",
			change: func(in *ec2.CreateFleetInput) {
				in.LaunchTemplateConfigs[0].Overrides[0].WeightedCapacity = aws.Float64(2)
			},
		},
		{name: "dry run", in: fleet(1, onDemandType, "m5.large"), error: "DryRunOperation", change: func(in *ec2.CreateFleetInput) { in.DryRun = aws.Bool(true) }},
		{name: "maintained fleet", in: fleet(1, onDemandType, "m5.large"), error: "InvalidParameterValue", change: func(in *ec2.CreateFleetInput) { in.Type = ec2types.FleetTypeMaintain }},
		{
			name: "reserved tag", in: fleet(1, onDemandType, "m5.large"), error: "InvalidParameterValue",
			change: func(in *ec2.CreateFleetInput) { in.TagSpecifications[0].Tags = tags("aws:mine", "x") },
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			b := fleetBed(t, Options{})
			for pool, n := range test.stocks {
				b.SetStock(pool, n)
			}
			if test.change != nil {
				test.change(test.in)
			}
			out, err := b.ec2.CreateFleet(t.Context(), test.in)
			wantCode(t, err, test.error)
			launched := 0
			if err == nil {
				if diff := gocmp.Diff(test.want, summary(out)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
				for _, i := range out.Instances {
					launched += len(i.InstanceIds)
				}
			}
			if got := len(b.Instances()); got != launched {
				t.Errorf("%d instances exist, %d were answered", got, launched)
			}
		})
	}
}

// A stock that a failed minimum held is there for the next fleet.
func TestMinTargetGivesBack(t *testing.T) {
	b := fleetBed(t, Options{Subnets: []Subnet{{ID: "subnet-0c0ffee0000000001", Zone: "us-east-1a", CIDR: "10.0.0.0/24", FreeAddresses: 2}}})
	in := fleet(5, onDemandType, "m5.large")
	in.OnDemandOptions = &ec2types.OnDemandOptionsRequest{MinTargetCapacity: aws.Int32(5)}
	b.SetStock(Pool{}, 4)
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	if len(out.Instances) != 0 {
		t.Fatalf("launched %v", summary(out))
	}
	out = must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(3, onDemandType, "m5.large")))
	want := []string{"2 m5.large@us-east-1a on-demand", "InsufficientFreeAddressesInSubnet m5.large"}
	if diff := gocmp.Diff(want, summary(out)); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestSpotStrategies(t *testing.T) {
	b := fleetBed(t, Options{Seed: 3})
	pools := []string{"m5.large", "m5a.large", "c5.large", "c6i.large", "r5.large", "m6i.large", "t3.large", "c5a.large@b", "m5.large@b", "r5.large@c"}
	price := func(k *candidate) float64 {
		p, _ := b.catalog.spotPrice(k.spec.offer, k.spec.subnet.Zone, b.start)
		return p
	}
	depth := func(k *candidate) float64 { return b.catalog.depth(k.spec.offer, k.spec.subnet.Zone, b.start) }
	order := func(s ec2types.SpotAllocationStrategy) []*candidate {
		in := fleet(1, spotType, pools...)
		in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: s}
		for i := range in.LaunchTemplateConfigs[0].Overrides {
			in.LaunchTemplateConfigs[0].Overrides[i].Priority = aws.Float64(float64(len(pools) - i))
		}
		candidates, _, err := b.candidates(in)
		if err != nil {
			t.Fatal(err)
		}
		return b.order(&call{at: b.start}, in, spot, candidates)
	}
	if got := order(ec2types.SpotAllocationStrategyLowestPrice); !slices.IsSortedFunc(got, func(x, y *candidate) int { return cmp.Compare(price(x), price(y)) }) {
		t.Error("lowest-price is not in the order of prices")
	}
	byDepth := order(ec2types.SpotAllocationStrategyCapacityOptimized)
	if !slices.IsSortedFunc(byDepth, func(x, y *candidate) int { return cmp.Compare(depth(y), depth(x)) }) {
		t.Error("capacity-optimized is not in the order of depth")
	}
	limit := deepEnough * depth(byDepth[0])
	cheapest := order(ec2types.SpotAllocationStrategyPriceCapacityOptimized)[0]
	preferred := order(ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized)[0]
	for _, k := range byDepth {
		if depth(k) >= limit && price(k) < price(cheapest) {
			t.Errorf("price-capacity-optimized took %v in %v, there is a cheaper deep pool", cheapest.spec.offer.name, cheapest.spec.subnet.Zone)
		}
		if depth(k) >= limit && *k.override.Priority < *preferred.override.Priority {
			t.Errorf("capacity-optimized-prioritized took priority %v, there is a deep pool of %v", *preferred.override.Priority, *k.override.Priority)
		}
	}
	if depth(cheapest) < limit || depth(preferred) < limit {
		t.Error("a shallow pool was taken")
	}
}

func TestClientTokens(t *testing.T) {
	b := fleetBed(t, Options{})
	in := fleet(2, onDemandType, "m5.large")
	in.ClientToken = aws.String("claim-uid")
	first := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	again := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	if diff := gocmp.Diff(first.Instances[0].InstanceIds, again.Instances[0].InstanceIds); diff != "" || *first.FleetId != *again.FleetId {
		t.Errorf("the same token answers otherwise:\n%s", diff)
	}
	in.TargetCapacitySpecification.TotalTargetCapacity = aws.Int32(3)
	_, err := b.ec2.CreateFleet(t.Context(), in)
	wantCode(t, err, "IdempotentParameterMismatch")
	if got := len(b.Instances()); got != 2 {
		t.Errorf("%d instances, want 2", got)
	}
	// A request that failed as a whole has used nothing up.
	other := fleet(1, onDemandType, "m5.large")
	other.ClientToken = aws.String("other")
	b.Inject(Fault{Action: "CreateFleet", Code: "InternalError", Count: 1})
	_, err = b.ec2.CreateFleet(t.Context(), other)
	wantCode(t, err, "InternalError")
	must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), other))
	if got := len(b.Instances()); got != 3 {
		t.Errorf("%d instances, want 3", got)
	}
}

// Many equal requests at once, as after a client's time-out, launch once.
func TestClientTokenConcurrently(t *testing.T) {
	b := fleetBed(t, Options{})
	in := fleet(1, onDemandType, "m5.large")
	in.ClientToken = aws.String("claim-uid")
	var wg sync.WaitGroup
	for range 16 {
		wg.Go(func() {
			if _, err := b.ec2.CreateFleet(t.Context(), in); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if got := len(b.Instances()); got != 1 {
		t.Errorf("%d instances, want 1", got)
	}
}

func TestLaunchedInstance(t *testing.T) {
	b := fleetBed(t, Options{})
	in := fleet(1, spotType, "m5.large@b")
	in.ClientToken = aws.String("claim-uid")
	in.TagSpecifications = append(in.TagSpecifications, ec2types.TagSpecification{ResourceType: ec2types.ResourceTypeVolume, Tags: tags("disk", "root")})
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	id := out.Instances[0].InstanceIds[0]
	described := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}}))
	i := described.Reservations[0].Instances[0]
	lt := b.world.templateList[0].id
	want := map[string]string{
		"karpenter.sh/nodepool": "default", "aws:ec2:fleet-id": *out.FleetId,
		"aws:ec2launchtemplate:id": lt, "aws:ec2launchtemplate:version": "1",
	}
	if diff := gocmp.Diff(want, tagMap(i.Tags)); diff != "" {
		t.Errorf("tags (-want +got):\n%s", diff)
	}
	if i.InstanceLifecycle != ec2types.InstanceLifecycleTypeSpot || *i.Placement.AvailabilityZone != "us-east-1b" || *i.SubnetId != "subnet-0c0ffee0000000002" ||
		*i.PrivateIpAddress != "10.0.32.4" || *i.PrivateDnsName != "ip-10-0-32-4.ec2.internal" || *i.ClientToken != "claim-uid" || len(i.SecurityGroups) != 1 {
		t.Errorf("instance %+v", i)
	}
	volumes := must[*ec2.DescribeTagsOutput](t)(b.ec2.DescribeTags(t.Context(), &ec2.DescribeTagsInput{Filters: []ec2types.Filter{filter("resource-type", "volume")}}))
	if len(volumes.Tags) != 1 || *volumes.Tags[0].Value != "root" {
		t.Errorf("volume tags %+v", volumes.Tags)
	}
	view := b.Instances()[0]
	if od := b.catalog.byName["m5.large"].price; view.Price <= 0 || view.Price >= od || view.CapacityType != "spot" || view.LaunchTemplateName != "nodes" {
		t.Errorf("view %+v", view)
	}
}

func TestRunInstances(t *testing.T) {
	b := fleetBed(t, Options{})
	run := func(change func(*ec2.RunInstancesInput)) (*ec2.RunInstancesOutput, error) {
		in := &ec2.RunInstancesInput{
			MinCount: aws.Int32(1), MaxCount: aws.Int32(1), InstanceType: "m5.large", SubnetId: aws.String("subnet-0c0ffee0000000001"),
			LaunchTemplate: &ec2types.LaunchTemplateSpecification{LaunchTemplateName: aws.String("nodes")},
		}
		change(in)
		return b.ec2.RunInstances(t.Context(), in)
	}
	tests := []struct {
		name   string
		change func(*ec2.RunInstancesInput)
		error  string
	}{
		{"dry run", func(in *ec2.RunInstancesInput) { in.DryRun = aws.Bool(true) }, "DryRunOperation"},
		{"launch", func(*ec2.RunInstancesInput) {}, ""},
		{"own image", func(in *ec2.RunInstancesInput) { in.ImageId = aws.String("ami-0123456789abcdef0") }, "InvalidAMIID.NotFound"},
		{"unsupported zone", func(in *ec2.RunInstancesInput) { in.InstanceType = "mac1.metal" }, "Unsupported"},
		{"no such profile", func(in *ec2.RunInstancesInput) {
			in.IamInstanceProfile = &ec2types.IamInstanceProfileSpecification{Name: aws.String("none")}
		}, "InvalidParameterValue"},
		{"user data too long", func(in *ec2.RunInstancesInput) { in.UserData = aws.String(string(slices.Repeat([]byte("QUFB"), 6000))) }, "InvalidUserData.Malformed"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := run(test.change)
			wantCode(t, err, test.error)
		})
	}
	if got := len(b.Instances()); got != 1 {
		t.Errorf("%d instances, want 1", got)
	}
	b.SetStock(Pool{InstanceType: "m5.large"}, 0)
	_, err := run(func(*ec2.RunInstancesInput) {})
	wantCode(t, err, "InsufficientInstanceCapacity")
}

func TestLaunchTemplates(t *testing.T) {
	b := fleetBed(t, Options{})
	ctx := t.Context()
	out := must[*ec2.DescribeLaunchTemplatesOutput](t)(b.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{Filters: []ec2types.Filter{filter("tag:karpenter.k8s.aws/cluster", "demo")}}))
	if len(out.LaunchTemplates) != 1 || *out.LaunchTemplates[0].LaunchTemplateName != "nodes" {
		t.Fatalf("templates %+v", out.LaunchTemplates)
	}
	versions := must[*ec2.DescribeLaunchTemplateVersionsOutput](t)(b.ec2.DescribeLaunchTemplateVersions(ctx, &ec2.DescribeLaunchTemplateVersionsInput{
		LaunchTemplateName: aws.String("nodes"), Versions: []string{"$Latest"},
	}))
	data := versions.LaunchTemplateVersions[0].LaunchTemplateData
	if *data.IamInstanceProfile.Name != "nodes" || *data.BlockDeviceMappings[0].Ebs.VolumeSize != 100 || data.NetworkInterfaces[0].Groups[0] != "sg-0c0ffee0000000002" {
		t.Errorf("data %+v", data)
	}
	_, err := b.ec2.DescribeLaunchTemplates(ctx, &ec2.DescribeLaunchTemplatesInput{LaunchTemplateNames: []string{"gone"}})
	wantCode(t, err, "InvalidLaunchTemplateName.NotFoundException")
	_, err = b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("nodes"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String("ami-00000000000000aaa")}})
	wantCode(t, err, "InvalidLaunchTemplateName.AlreadyExistsException")
	_, err = b.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{LaunchTemplateName: aws.String("bad name"), LaunchTemplateData: &ec2types.RequestLaunchTemplateData{ImageId: aws.String("ami-00000000000000aaa")}})
	wantCode(t, err, "InvalidLaunchTemplateName.MalformedException")
	must[*ec2.DeleteLaunchTemplateOutput](t)(b.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("nodes")}))
	_, err = b.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String("nodes")})
	wantCode(t, err, "InvalidLaunchTemplateName.NotFoundException")
}

// The same seed and requests give the same answers, another seed gives others.
func TestDeterminism(t *testing.T) {
	play := func(seed uint64) string {
		clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
		b := start(t, Options{Seed: seed, Clock: clock})
		b.profile(t)
		b.template(t, nodeConfig)
		var log []any
		for range 5 {
			in := fleet(2, spotType, "m5.large", "c5.large@b", "r5.large@c", "m6i.large", "c6i.large@b")
			in.SpotOptions = &ec2types.SpotOptionsRequest{AllocationStrategy: ec2types.SpotAllocationStrategyPriceCapacityOptimized}
			in.ClientToken = aws.String(fmt.Sprint(len(log)))
			out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
			log = append(log, out.FleetId, out.Instances)
		}
		prices := must[*ec2.DescribeSpotPriceHistoryOutput](t)(b.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
			InstanceTypes: []ec2types.InstanceType{"m5.large", "c5.large"}, StartTime: aws.Time(clock.Now().Add(-24 * time.Hour)),
		}))
		for _, i := range b.world.instanceList {
			log = append(log, fmt.Sprint(b.drawDelays(i)))
		}
		raw, err := json.Marshal(append(log, prices.SpotPriceHistory, b.Instances()))
		if err != nil {
			t.Fatal(err)
		}
		return string(raw)
	}
	if diff := gocmp.Diff(play(42), play(42)); diff != "" {
		t.Errorf("the same seed differs:\n%s", diff)
	}
	if play(42) == play(43) {
		t.Error("another seed does not differ")
	}
}
