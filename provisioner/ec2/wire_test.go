// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"slices"
	"strconv"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

var authority = []byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")

func start(t testing.TB) (*ec2emu.Emulator, *ec2.Client) {
	t.Helper()
	emu, err := ec2emu.Start(t.Context(), ec2emu.Options{
		Seed: 1, ClusterName: "demo", ClusterEndpoint: "https://127.0.0.1:6443", ClusterCA: authority, InstantBoot: true,
		Roles: []string{"KarpenterNodeRole-demo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	return emu, ec2.New(emu.AWSConfig(), ec2.Options{ClusterName: "demo"})
}

func discovery(name string) map[string]string {
	return map[string]string{"karpenter.sh/discovery": name}
}

// resolved is a class whose status holds what its terms select.
func resolved(t testing.TB, c *ec2.Client) *v1.EC2NodeClass {
	t.Helper()
	class := &v1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-uid", ResourceVersion: "1"},
		Spec: v1.EC2NodeClassSpec{
			AMISelectorTerms:           []v1.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []v1.SubnetSelectorTerm{{Tags: discovery("demo")}},
			SecurityGroupSelectorTerms: []v1.SecurityGroupSelectorTerm{{Tags: discovery("demo")}},
			Role:                       "KarpenterNodeRole-demo",
		},
	}
	subnets, err := c.Subnets(t.Context(), class.Spec.SubnetSelectorTerms)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range subnets {
		class.Status.Subnets = append(class.Status.Subnets, v1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	groups, err := c.SecurityGroups(t.Context(), class.Spec.SecurityGroupSelectorTerms)
	if err != nil {
		t.Fatal(err)
	}
	for _, g := range groups {
		class.Status.SecurityGroups = append(class.Status.SecurityGroups, v1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	images, err := c.Images(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range images {
		class.Status.AMIs = append(class.Status.AMIs, v1.AMI{ID: i.ID, Name: i.Name, Requirements: i.Requirements})
	}
	if len(subnets) == 0 || len(groups) == 0 || len(images) < 3 {
		t.Fatalf("resolved %d subnets, %d groups, %d images; want some of each", len(subnets), len(groups), len(images))
	}
	return class
}

func TestSelectors(t *testing.T) {
	_, c := start(t)
	all, err := c.Subnets(t.Context(), []v1.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "*"}}})
	if err != nil || len(all) < 2 {
		t.Fatalf("Subnets with any value = %d subnets, err %v; want several", len(all), err)
	}
	if !slices.IsSortedFunc(all, func(a, b ec2.Subnet) int { return int(b.FreeAddresses - a.FreeAddresses) }) {
		t.Errorf("subnets are not sorted by free addresses: %+v", all)
	}
	tests := []struct {
		name  string
		terms []v1.SubnetSelectorTerm
		want  int
	}{
		{"ids and tags are alternatives, found once", []v1.SubnetSelectorTerm{{ID: all[0].ID}, {ID: all[1].ID}, {Tags: discovery("demo")}}, len(all)},
		{"one id", []v1.SubnetSelectorTerm{{ID: all[0].ID}}, 1},
		{"tags are all required", []v1.SubnetSelectorTerm{{Tags: map[string]string{"karpenter.sh/discovery": "demo", "none": "*"}}}, 0},
		{"another value", []v1.SubnetSelectorTerm{{Tags: discovery("other")}}, 0},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := c.Subnets(t.Context(), tt.terms)
			if err != nil || len(got) != tt.want {
				t.Errorf("Subnets = %d subnets, err %v; want %d", len(got), err, tt.want)
			}
		})
	}
	byTag, err := c.SecurityGroups(t.Context(), []v1.SecurityGroupSelectorTerm{{Tags: discovery("demo")}})
	if err != nil || len(byTag) == 0 {
		t.Fatalf("SecurityGroups by tag = %v, err %v; want some", byTag, err)
	}
	byName, err := c.SecurityGroups(t.Context(), []v1.SecurityGroupSelectorTerm{{Name: byTag[0].Name}, {ID: byTag[0].ID}})
	if err != nil || len(byName) != 1 || byName[0] != byTag[0] {
		t.Errorf("SecurityGroups by name and id = %v, err %v; want %v", byName, err, byTag[:1])
	}
}

func TestImages(t *testing.T) {
	emu, c := start(t)
	latest := resolved(t, c)
	want := latest.Status.AMIs[0]
	emu.SetParameter("/mine", want.ID)
	byTerm := func(terms ...v1.AMISelectorTerm) *v1.EC2NodeClass {
		return &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{AMISelectorTerms: terms}}
	}
	for name, class := range map[string]*v1.EC2NodeClass{
		"id":        byTerm(v1.AMISelectorTerm{ID: want.ID}),
		"name":      byTerm(v1.AMISelectorTerm{Name: want.Name}),
		"parameter": byTerm(v1.AMISelectorTerm{SSMParameter: "/mine"}, v1.AMISelectorTerm{SSMParameter: "/missing"}),
	} {
		got, err := c.Images(t.Context(), class)
		if err != nil || len(got) != 1 || got[0].ID != want.ID {
			t.Errorf("by %s: %+v, err %v; want image %q", name, got, err, want.ID)
		}
	}
	if _, err := c.Images(t.Context(), byTerm(v1.AMISelectorTerm{Alias: "al2023@v19990101"})); capacity.KindOf(err) != capacity.NotFound {
		t.Errorf("a version nobody published: err = %v, want kind NotFound", err)
	}
	if got, err := c.Images(t.Context(), byTerm(v1.AMISelectorTerm{ID: "ami-0000000000000dead"})); err != nil || len(got) != 0 {
		t.Errorf("an id nobody knows: %v, err %v; want none and no error", got, err)
	}
	br, err := c.Images(t.Context(), byTerm(v1.AMISelectorTerm{Alias: "bottlerocket@latest"}))
	if err != nil || len(br) < 3 {
		t.Errorf("bottlerocket: %d images, err %v; want one for each variant", len(br), err)
	}
}

func TestCluster(t *testing.T) {
	emu, c := start(t)
	got, err := c.Cluster(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got.Version != "1.37" || got.Endpoint != "https://127.0.0.1:6443" || got.ServiceCIDR != "10.100.0.0/16" || got.CA == "" {
		t.Errorf("cluster = %+v, want what EKS says", got)
	}
	emu.Inject(ec2emu.Fault{Action: "*", Code: "InternalError"})
	if again, err := c.Cluster(t.Context()); err != nil || again != got {
		t.Errorf("while EKS is down: %+v, err %v; want the last answer", again, err)
	}
	own := ec2.Options{ClusterName: "demo", Endpoint: "https://own", CA: "QQ==", ServiceCIDR: "10.0.0.0/8", KubernetesVersion: "1.36"}
	if got, err := ec2.New(emu.AWSConfig(), own).Cluster(t.Context()); err != nil || got.Endpoint != "https://own" || got.Version != "1.36" {
		t.Errorf("with all settings given: %+v, err %v; want them without asking", got, err)
	}
}

func TestInstanceProfile(t *testing.T) {
	emu, c := start(t)
	class := resolved(t, c)
	name, err := c.EnsureInstanceProfile(t.Context(), class)
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if again, err := c.EnsureInstanceProfile(t.Context(), class); err != nil || again != name {
			t.Errorf("again: %q, err %v; want %q", again, err, name)
		}
	}
	if n := count(emu, "CreateInstanceProfile"); n != 1 {
		t.Errorf("%d profiles were made, want 1", n)
	}
	class.Spec.Role = "Missing"
	if _, err := c.EnsureInstanceProfile(t.Context(), class); capacity.KindOf(err) != capacity.NotFound {
		t.Errorf("a role that does not exist: err = %v, want kind NotFound", err)
	}
	class.Spec.Role, class.Spec.InstanceProfile = "", &name
	if got, err := c.EnsureInstanceProfile(t.Context(), class); err != nil || got != name {
		t.Errorf("own profile: %q, err %v; want it as it is", got, err)
	}
	class.Spec.InstanceProfile = new("missing")
	if _, err := c.EnsureInstanceProfile(t.Context(), class); capacity.KindOf(err) != capacity.NotFound {
		t.Errorf("own profile that does not exist: err = %v, want kind NotFound", err)
	}
	for range 2 {
		if err := c.DeleteInstanceProfiles(t.Context(), class); err != nil {
			t.Errorf("deleting: %v", err)
		}
	}
	if n := count(emu, "DeleteInstanceProfile"); n != 2 { // that of the missing role too
		t.Errorf("%d profiles were deleted, want 2", n)
	}
}

// A call that died between making the profile and giving it its role is finished by the next.
func TestInstanceProfileAfterAnInterruptedCall(t *testing.T) {
	emu, c := start(t)
	class := resolved(t, c)
	emu.Inject(ec2emu.Fault{Action: "AddRoleToInstanceProfile", Code: "AccessDenied", Count: 1})
	if _, err := c.EnsureInstanceProfile(t.Context(), class); capacity.KindOf(err) != capacity.Unauthorized {
		t.Fatalf("err = %v, want kind Unauthorized", err)
	}
	if _, err := c.EnsureInstanceProfile(t.Context(), class); err != nil {
		t.Fatal(err)
	}
	if n := count(emu, "CreateInstanceProfile"); n != 1 {
		t.Errorf("%d profiles were made, want 1", n)
	}
}

// A profile is deleted with its role, unless an instance has it.
func TestUnusedInstanceProfile(t *testing.T) {
	_, c := start(t)
	class, tmpl := launchable(t, c)
	if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
		t.Fatal(err)
	}
	fleet, err := c.Fleet(t.Context(), request(class, tmpl, "token", 1))
	if err != nil || len(fleet.Instances) != 1 {
		t.Fatalf("Fleet = %+v, err %v; want an instance", fleet, err)
	}
	found, err := c.InstanceProfiles(t.Context())
	want := []ec2.InstanceProfile{{Name: class.Status.InstanceProfile, Role: "KarpenterNodeRole-demo", Class: class.UID}}
	if d := cmp.Diff(want, found, cmpopts.IgnoreFields(ec2.InstanceProfile{}, "ARN")); err != nil || d != "" {
		t.Fatalf("InstanceProfiles, err %v (-want +got):\n%s", err, d)
	}
	if err := c.DeleteInstanceProfile(t.Context(), found[0]); capacity.KindOf(err) != capacity.Conflict {
		t.Errorf("deleting the profile of an instance: err = %v, want kind Conflict", err)
	}
	if err := c.Terminate(t.Context(), []string{fleet.Instances[0].ID}); err != nil {
		t.Fatal(err)
	}
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		err := c.DeleteInstanceProfile(ctx, found[0])
		if capacity.KindOf(err) == capacity.Conflict {
			return false, nil // still shutting down
		}
		return true, err
	})
	if err != nil {
		t.Fatalf("deleting: %v", err)
	}
	if found, err := c.InstanceProfiles(t.Context()); err != nil || len(found) != 0 {
		t.Errorf("InstanceProfiles = %+v, err %v; want none", found, err)
	}
}

func count(emu *ec2emu.Emulator, action string) int {
	n := 0
	for _, r := range emu.Requests() {
		if r.Action == action {
			n++
		}
	}
	return n
}

func TestCatalogOfTheRegion(t *testing.T) {
	_, c := start(t)
	class := resolved(t, c)
	cs, err := ec2.NewCatalogs(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	cat := cs.For(class)
	if len(cat.Types) < 900 || len(cat.Offerings) < 3000 {
		t.Errorf("%d types, %d offerings; want those of a large region", len(cat.Types), len(cat.Offerings))
	}
	m5 := cat.Type("m5.large")
	if m5 == nil || m5.Allocatable.Pods != 29 || m5.Allocatable.CPU != 1930 {
		t.Errorf("m5.large = %+v, want 29 pods and 1930m", m5)
	}
	for _, o := range cat.Offerings {
		if o.Price <= 0 || o.ZoneID == "" || !slices.ContainsFunc(class.Status.Subnets, func(s v1.Subnet) bool { return s.Zone == o.Zone }) {
			t.Fatalf("offering %+v of %s lacks a price, a zone id, or a subnet", o.Offering, o.Type.Name)
		}
	}
	if gpu := cat.Type("g5.xlarge"); gpu == nil || gpu.Allocatable.Get(v1.ResourceNVIDIAGPU) != 1 {
		t.Errorf("g5.xlarge = %+v, want one GPU", gpu)
	}
	if n := testing.AllocsPerRun(100, func() { cs.For(class) }); n != 0 {
		t.Errorf("asking again allocates %v times, want 0", n)
	}
}

func TestRefreshKeepsWhatItHas(t *testing.T) {
	emu, c := start(t)
	class := resolved(t, c)
	cs, err := ec2.NewCatalogs(c)
	if err != nil {
		t.Fatal(err)
	}
	if err := cs.Refresh(t.Context()); err != nil {
		t.Fatal(err)
	}
	before := cs.For(class)
	emu.Inject(ec2emu.Fault{Action: "*", Code: "RequestLimitExceeded"})
	if err := cs.Refresh(t.Context()); capacity.KindOf(err) != capacity.Throttled {
		t.Errorf("err = %v, want kind Throttled", err)
	}
	if cs.For(class) != before {
		t.Error("a failed refresh changed the catalogue")
	}
}

// BenchmarkCatalog builds the catalogue of a class that is new each time, from all types of a large region.
func BenchmarkCatalog(b *testing.B) {
	_, c := start(b)
	class := resolved(b, c)
	cs, err := ec2.NewCatalogs(c)
	if err != nil {
		b.Fatal(err)
	}
	if err := cs.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	n := 0
	for b.Loop() {
		n++
		class.UID = types.UID(strconv.Itoa(n))
		if cs.For(class) == nil {
			b.Fatal("no catalogue")
		}
	}
}

// Run fills the catalogues in spite of a failure at first, and ends with its context.
func TestRun(t *testing.T) {
	emu, c := start(t)
	emu.Inject(ec2emu.Fault{Action: "DescribeInstanceTypeOfferings", Code: "UnauthorizedOperation", Count: 1})
	cs, err := ec2.NewCatalogs(c)
	if err != nil {
		t.Fatal(err)
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	done := make(chan error, 1)
	go func() { done <- cs.Run(ctx) }()
	if err := wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) {
		return cs.Complete(), nil
	}); err != nil {
		t.Fatalf("waiting for types, zones and prices: %v", err)
	}
	if n := count(emu, "DescribeInstanceTypeOfferings"); n < 2 {
		t.Errorf("%d requests for offerings, want the one that failed and another", n)
	}
	stop()
	if err := <-done; err != nil {
		t.Errorf("Run = %v, want no error at the end of its context", err)
	}
}
