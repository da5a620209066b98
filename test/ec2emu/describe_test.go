// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestMatchPattern(t *testing.T) {
	tests := []struct {
		pattern, value string
		want           bool
	}{
		{"m5.large", "m5.large", true},
		{"m5.large", "M5.large", false},
		{"m5.*", "m5.large", true},
		{"*", "", true},
		{"", "", true},
		{"", "a", false},
		{"m?.large", "m5.large", true},
		{"m?.large", "m.large", false},
		{"*-al2023-*-standard-*", "amazon-eks-node-al2023-arm64-standard-1.37-v1", true},
		{"*-al2023-*-nvidia-*", "amazon-eks-node-al2023-arm64-standard-1.37-v1", false},
		{`a\*b`, "a*b", true},
		{`a\*b`, "axb", false},
		{`a\?`, "a?", true},
		{"*a*b", "xaybzb", true},
		{"a*", "b", false},
		{"ab", "a", false},
	}
	for _, test := range tests {
		if got := matchPattern(test.pattern, test.value); got != test.want {
			t.Errorf("matchPattern(%q, %q) = %v, want %v", test.pattern, test.value, got, test.want)
		}
	}
}

// The catalogue arrives in pages of 100 as a stock paginator asks for it.
func TestDescribeInstanceTypesPages(t *testing.T) {
	b := start(t, Options{})
	in := &ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(100), Filters: []ec2types.Filter{
		filter("supported-virtualization-type", "hvm"), filter("processor-info.supported-architecture", "x86_64", "arm64"),
	}}
	var names []string
	for pages := ec2.NewDescribeInstanceTypesPaginator(b.ec2, in); pages.HasMorePages(); {
		out := must[*ec2.DescribeInstanceTypesOutput](t)(pages.NextPage(t.Context()))
		for _, info := range out.InstanceTypes {
			names = append(names, string(info.InstanceType))
		}
	}
	if len(names) < 1300 {
		t.Errorf("%d types, want the catalogue of the region", len(names))
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Error("a type is missing its place or listed twice")
	}
	if want := (len(names) + 99) / 100; len(b.Requests()) != want {
		t.Errorf("%d requests, want %d", len(b.Requests()), want)
	}
}

func TestDescribeInstanceTypes(t *testing.T) {
	b := start(t, Options{})
	tests := []struct {
		name  string
		in    ec2.DescribeInstanceTypesInput
		want  []string
		error string
	}{
		{name: "by name", in: ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.large", "c6g.large"}}, want: []string{"c6g.large", "m5.large"}},
		{name: "unknown name", in: ec2.DescribeInstanceTypesInput{InstanceTypes: []ec2types.InstanceType{"m5.huge"}}, error: "InvalidInstanceType"},
		{name: "wildcard", in: ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{filter("instance-type", "m5.*large"), filter("vcpu-info.default-vcpus", "2", "4")}}, want: []string{"m5.large", "m5.xlarge"}},
		{name: "flag", in: ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{filter("bare-metal", "true"), filter("instance-type", "m5.*")}}, want: []string{"m5.metal"}},
		{name: "unknown filter", in: ec2.DescribeInstanceTypesInput{Filters: []ec2types.Filter{filter("colour", "red")}}, error: "InvalidParameterValue"},
		{name: "page too small", in: ec2.DescribeInstanceTypesInput{MaxResults: aws.Int32(4)}, error: "InvalidParameterValue"},
		{name: "bad token", in: ec2.DescribeInstanceTypesInput{NextToken: aws.String("xx")}, error: "InvalidNextToken"},
		{name: "dry run", in: ec2.DescribeInstanceTypesInput{DryRun: aws.Bool(true)}, error: "DryRunOperation"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeInstanceTypes(t.Context(), &test.in)
			wantCode(t, err, test.error)
			var got []string
			if out != nil {
				for _, info := range out.InstanceTypes {
					got = append(got, string(info.InstanceType))
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestOfferingsFollowZones(t *testing.T) {
	b := start(t, Options{})
	count := map[string]int{}
	in := &ec2.DescribeInstanceTypeOfferingsInput{LocationType: ec2types.LocationTypeAvailabilityZone, MaxResults: aws.Int32(1000)}
	for pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(b.ec2, in); pages.HasMorePages(); {
		out := must[*ec2.DescribeInstanceTypeOfferingsOutput](t)(pages.NextPage(t.Context()))
		for _, o := range out.InstanceTypeOfferings {
			count[*o.Location]++
		}
	}
	if len(count) != 6 || count["us-east-1e"] >= 200 || count["us-east-1a"] < 1300 {
		t.Errorf("offerings by zone %v: want six zones, few types in us-east-1e", count)
	}
	out := must[*ec2.DescribeInstanceTypeOfferingsOutput](t)(b.ec2.DescribeInstanceTypeOfferings(t.Context(), &ec2.DescribeInstanceTypeOfferingsInput{
		Filters: []ec2types.Filter{filter("instance-type", "m5.large")},
	}))
	if len(out.InstanceTypeOfferings) != 1 || *out.InstanceTypeOfferings[0].Location != "us-east-1" {
		t.Errorf("by region: %+v", out.InstanceTypeOfferings)
	}
}

// Zones nobody has recorded get most types of the region, each its own gaps.
func TestUnknownZones(t *testing.T) {
	b := start(t, Options{Region: "test-1", Zones: []string{"test-1a", "test-1b"}, Subnets: []Subnet{{ID: "subnet-1", Zone: "test-1b", CIDR: "10.0.0.0/24"}}})
	gaps := map[string]int{}
	for _, o := range b.catalog.offers {
		for i, z := range b.catalog.zones {
			if !o.zones[i] {
				gaps[z.name]++
			}
		}
	}
	if gaps["test-1a"] == 0 || gaps["test-1b"] == 0 || gaps["test-1a"] > 250 {
		t.Errorf("gaps %v", gaps)
	}
	zones := must[*ec2.DescribeAvailabilityZonesOutput](t)(b.ec2.DescribeAvailabilityZones(t.Context(), &ec2.DescribeAvailabilityZonesInput{
		Filters: []ec2types.Filter{filter("zone-name", "*b")},
	})).AvailabilityZones
	if len(zones) != 1 || *zones[0].ZoneName != "test-1b" {
		t.Errorf("zones %+v", zones)
	}
}

func TestZoneID(t *testing.T) {
	for name, want := range map[[2]string]string{
		{"us-east-1", "us-east-1a"}:           "use1-az1",
		{"ap-southeast-2", "ap-southeast-2c"}: "apse2-az3",
		{"eu-central-1", "eu-central-1b"}:     "euc1-az2",
		{"us-gov-west-1", "us-gov-west-1a"}:   "usgw1-az1",
	} {
		if got := zoneID(name[0], name[1]); got != want {
			t.Errorf("zoneID(%q) = %q, want %q", name[1], got, want)
		}
	}
}

func TestDescribeSubnets(t *testing.T) {
	b := start(t, Options{})
	tests := []struct {
		name  string
		in    ec2.DescribeSubnetsInput
		zones []string
		error string
	}{
		{name: "all", zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}},
		{name: "by tag", in: ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag:karpenter.sh/discovery", "demo")}}, zones: []string{"us-east-1a", "us-east-1b", "us-east-1c"}},
		{name: "by another tag value", in: ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag:karpenter.sh/discovery", "prod")}}},
		{name: "by tag key", in: ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag-key", "karpenter.sh/*"), filter("availability-zone", "*c")}}, zones: []string{"us-east-1c"}},
		{name: "by id", in: ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0c0ffee0000000002"}}, zones: []string{"us-east-1b"}},
		{name: "by id filter", in: ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("subnet-id", "subnet-0c0ffee0000000002")}}, zones: []string{"us-east-1b"}},
		{name: "unknown id", in: ec2.DescribeSubnetsInput{SubnetIds: []string{"subnet-0"}}, error: "InvalidSubnetID.NotFound"},
		{name: "filter without values", in: ec2.DescribeSubnetsInput{Filters: []ec2types.Filter{filter("tag-key")}}, error: "MissingParameter"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeSubnets(t.Context(), &test.in)
			wantCode(t, err, test.error)
			var got []string
			if out != nil {
				for _, s := range out.Subnets {
					got = append(got, *s.AvailabilityZone)
					if *s.AvailableIpAddressCount != 8187 {
						t.Errorf("%d free addresses, want 8187", *s.AvailableIpAddressCount)
					}
				}
			}
			if diff := cmp.Diff(test.zones, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
		})
	}
}

func TestDescribeSecurityGroups(t *testing.T) {
	b := start(t, Options{})
	tests := []struct {
		name  string
		in    ec2.DescribeSecurityGroupsInput
		want  int
		error string
	}{
		{name: "by tag", in: ec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{filter("tag:karpenter.sh/discovery", "demo")}}, want: 2},
		{name: "by name", in: ec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{filter("group-name", "demo-*")}}, want: 1},
		{name: "by id", in: ec2.DescribeSecurityGroupsInput{Filters: []ec2types.Filter{filter("group-id", "sg-0c0ffee0000000001", "sg-0c0ffee0000000009")}}, want: 1},
		{name: "unknown", in: ec2.DescribeSecurityGroupsInput{GroupIds: []string{"sg-0"}}, error: "InvalidGroup.NotFound"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeSecurityGroups(t.Context(), &test.in)
			wantCode(t, err, test.error)
			if err == nil && len(out.SecurityGroups) != test.want {
				t.Errorf("%d groups, want %d", len(out.SecurityGroups), test.want)
			}
		})
	}
}

func TestDescribeImages(t *testing.T) {
	old := Image{ID: "ami-00000000000000aaa", Name: "golden-1", Tags: map[string]string{"team": "web"}, Deprecated: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
	foreign := Image{ID: "ami-00000000000000bbb", Name: "golden-2", OwnerID: "999988887777", Deprecated: time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC)}
	b := start(t, Options{Images: []Image{old, foreign}})
	tests := []struct {
		name  string
		in    ec2.DescribeImagesInput
		want  int
		error string
	}{
		{name: "own", in: ec2.DescribeImagesInput{Owners: []string{"self"}}, want: 1},
		{name: "own by tag", in: ec2.DescribeImagesInput{Filters: []ec2types.Filter{filter("tag:team", "web")}}, want: 1},
		{name: "deprecated of others are hidden", in: ec2.DescribeImagesInput{Filters: []ec2types.Filter{filter("name", "golden-*")}}, want: 1},
		{name: "unless asked for", in: ec2.DescribeImagesInput{Filters: []ec2types.Filter{filter("name", "golden-*")}, IncludeDeprecated: aws.Bool(true)}, want: 2},
		{name: "of Amazon, one version, one arch", in: ec2.DescribeImagesInput{Owners: []string{"amazon"}, Filters: []ec2types.Filter{
			filter("name", "amazon-eks-node-al2023-*-standard-1.37-*"), filter("architecture", "arm64"), filter("state", "available"),
		}}, want: 2},
		{name: "unknown", in: ec2.DescribeImagesInput{ImageIds: []string{"ami-0"}}, error: "InvalidAMIID.NotFound"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeImages(t.Context(), &test.in)
			wantCode(t, err, test.error)
			if err == nil && len(out.Images) != test.want {
				t.Errorf("%d images, want %d", len(out.Images), test.want)
			}
		})
	}
	// What SSM names, EC2 knows.
	for _, arch := range []string{"x86_64", "arm64"} {
		out := must[*ec2.DescribeImagesOutput](t)(b.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{Filters: []ec2types.Filter{filter("image-id", b.image(t, arch))}}))
		if len(out.Images) != 1 || string(out.Images[0].Architecture) != arch || !strings.Contains(*out.Images[0].Name, "v20261008") {
			t.Errorf("recommended image of %s: %+v", arch, out.Images)
		}
	}
}

func TestSpotPrices(t *testing.T) {
	now := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
	b := start(t, Options{Seed: 7, Clock: clocktesting.NewFakeClock(now)})
	in := &ec2.DescribeSpotPriceHistoryInput{ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"}, StartTime: aws.Time(now), MaxResults: aws.Int32(1000)}
	byType := map[string]map[string]float64{}
	for pages := ec2.NewDescribeSpotPriceHistoryPaginator(b.ec2, in); pages.HasMorePages(); {
		out := must[*ec2.DescribeSpotPriceHistoryOutput](t)(pages.NextPage(t.Context()))
		for _, p := range out.SpotPriceHistory {
			price, err := strconv.ParseFloat(*p.SpotPrice, 64)
			if err != nil {
				t.Fatal(err)
			}
			od := b.catalog.byName[string(p.InstanceType)].price
			// Prices have six decimals.
			if price < spotMin*od-1e-6 || price > spotMax*od+1e-6 {
				t.Errorf("%s in %s costs %v, on demand %v", p.InstanceType, *p.AvailabilityZone, price, od)
			}
			if byType[string(p.InstanceType)] == nil {
				byType[string(p.InstanceType)] = map[string]float64{}
			}
			byType[string(p.InstanceType)][*p.AvailabilityZone] = price
		}
	}
	if len(byType) < 1200 || len(byType["m5.large"]) < 4 {
		t.Errorf("%d types, m5.large in %d zones", len(byType), len(byType["m5.large"]))
	}
	if byType["m5.large"]["us-east-1a"] == byType["m5.large"]["us-east-1b"] {
		t.Error("zones don't differ")
	}
	out := must[*ec2.DescribeSpotPriceHistoryOutput](t)(b.ec2.DescribeSpotPriceHistory(t.Context(), &ec2.DescribeSpotPriceHistoryInput{
		StartTime: aws.Time(now.Add(-24 * time.Hour)), InstanceTypes: []ec2types.InstanceType{"m5.large"}, AvailabilityZone: aws.String("us-east-1a"),
	}))
	prices := map[string]bool{}
	for i, p := range out.SpotPriceHistory {
		prices[*p.SpotPrice] = true
		if i > 0 && p.Timestamp.After(*out.SpotPriceHistory[i-1].Timestamp) {
			t.Error("history is not newest first")
		}
	}
	if len(out.SpotPriceHistory) != 5 || len(prices) < 2 {
		t.Errorf("a day has %d entries with %d prices, want 5 drifting ones", len(out.SpotPriceHistory), len(prices))
	}
}
