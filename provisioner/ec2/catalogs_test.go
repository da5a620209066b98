// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// stocked returns catalogues that know m5.large, c6g.large and g4dn.8xlarge in zones a and b.
func stocked(t testing.TB, c *clocktesting.FakePassiveClock) *Catalogs {
	t.Helper()
	cs, err := NewCatalogs(New(aws.Config{Region: "us-east-1"}, Options{ClusterName: "demo", Clock: c}))
	if err != nil {
		t.Fatal(err)
	}
	cs.update(func(m *market) {
		m.types = []*typeFacts{facts(t, info("a1.large", "arm64", 2, 4096, 3, 10)), facts(t, info("c6g.large", "arm64", 2, 4096, 3, 10)), facts(t, g4dn()), facts(t, m5Large())}
		m.zones = map[string][]string{"a1.large": {"a"}, "c6g.large": {"a", "b"}, "g4dn.8xlarge": {"a"}, "m5.large": {"a", "b", "c"}}
		m.onDemand = map[string]float64{"a1.large": 0.05, "c6g.large": 0.068, "g4dn.8xlarge": 2.176, "m5.large": 0.096}
		m.spot = map[string]map[string]float64{"m5.large": {"a": 0.04, "c": 0.03}, "c6g.large": {"b": 0.02}}
		m.pricedOnDemand, m.pricedSpot = true, true
	})
	return cs
}

func readyClass() *v1.EC2NodeClass {
	c := al2023Class()
	c.Name, c.UID, c.ResourceVersion, c.Generation = "default", "u-1", "1", 1
	c.Status.Subnets = []v1.Subnet{{ID: "subnet-a", Zone: "a", ZoneID: "use1-az1"}, {ID: "subnet-b", Zone: "b", ZoneID: "use1-az2"}}
	standard := []corev1.NodeSelectorRequirement{
		{Key: v1.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpDoesNotExist},
		{Key: v1.LabelInstanceAcceleratorCount, Operator: corev1.NodeSelectorOpDoesNotExist},
	}
	arch := func(a string) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{a}}
	}
	c.Status.AMIs = []v1.AMI{
		{ID: "ami-x86", Requirements: append([]corev1.NodeSelectorRequirement{arch("amd64")}, standard...)},
		{ID: "ami-arm", Requirements: append([]corev1.NodeSelectorRequirement{arch("arm64")}, standard...)},
	}
	return c
}

func offered(c *capacity.Catalog) []string {
	var out []string
	for _, o := range c.Offerings {
		out = append(out, o.Type.Name+"/"+o.Zone+"/"+o.ZoneID+"/"+o.CapacityType)
	}
	return out
}

func TestCatalogOffersWhatTheClassCanLaunch(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	tests := []struct {
		name   string
		change func(*v1.EC2NodeClass)
		want   []string // cheapest first
	}{
		{"zones with a subnet and a price, types an image boots on", nil, []string{
			"c6g.large/b/use1-az2/spot", "m5.large/a/use1-az1/spot", "c6g.large/a/use1-az1/on-demand", "c6g.large/b/use1-az2/on-demand",
			"m5.large/a/use1-az1/on-demand", "m5.large/b/use1-az2/on-demand",
		}},
		{"one zone", func(c *v1.EC2NodeClass) { c.Status.Subnets = c.Status.Subnets[1:] }, []string{
			"c6g.large/b/use1-az2/spot", "c6g.large/b/use1-az2/on-demand", "m5.large/b/use1-az2/on-demand",
		}},
		{"an image for GPUs", func(c *v1.EC2NodeClass) {
			c.Status.AMIs = []v1.AMI{{ID: "ami-gpu", Requirements: []corev1.NodeSelectorRequirement{{Key: v1.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpExists}}}}
		}, []string{"g4dn.8xlarge/a/use1-az1/on-demand"}},
		{"a custom image on Graviton 1", func(c *v1.EC2NodeClass) {
			c.Spec.AMIFamily = aws.String("Custom")
			c.Status.AMIs = c.Status.AMIs[1:]
			c.Status.Subnets = c.Status.Subnets[:1]
		}, []string{"a1.large/a/use1-az1/on-demand", "c6g.large/a/use1-az1/on-demand"}},
		{"Windows", func(c *v1.EC2NodeClass) {
			c.Spec.AMISelectorTerms = []v1.AMISelectorTerm{{Alias: "windows2022@latest"}}
			c.Status.AMIs = []v1.AMI{{ID: "ami-win", Requirements: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"windows"}},
				{Key: corev1.LabelWindowsBuild, Operator: corev1.NodeSelectorOpIn, Values: []string{"10.0.20348"}},
			}}}
			c.Status.Subnets = c.Status.Subnets[:1]
		}, []string{"m5.large/a/use1-az1/spot", "m5.large/a/use1-az1/on-demand", "g4dn.8xlarge/a/use1-az1/on-demand"}},
		{"two EFA devices", func(c *v1.EC2NodeClass) {
			c.Spec.NetworkInterfaces = []*v1.NetworkInterface{{InterfaceType: "interface"}, {DeviceIndex: 1, InterfaceType: "efa-only"}}
		}, nil},
		{"nested virtualisation", func(c *v1.EC2NodeClass) {
			c.Spec.CPUOptions = &v1.CPUOptions{NestedVirtualization: aws.String("enabled")}
		}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c := readyClass()
			c.UID = types.UID(tt.name)
			if tt.change != nil {
				tt.change(c)
			}
			if diff := cmp.Diff(tt.want, offered(cs.For(c))); diff != "" {
				t.Errorf("offerings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestCatalogTypeHasAllLabels(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	it := cs.For(readyClass()).Type("m5.large")
	for k, want := range map[string]string{corev1.LabelOSStable: "linux", v1.LabelNodeClass: "default", corev1.LabelArchStable: "amd64"} {
		if got := it.Labels[k]; got != want {
			t.Errorf("label %q = %q, want %q", k, got, want)
		}
	}
	if id, ok := ImageFor(readyClass(), it); !ok || id != "ami-x86" {
		t.Errorf("ImageFor = %q, %v; want ami-x86", id, ok)
	}
}

// Every label Karpenter knows for AWS is one the catalogue decides, or lets the launch choose.
func TestCatalogKnowsAllLabels(t *testing.T) {
	cat := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))).For(readyClass())
	n := 0
	for key := range karpv1.WellKnownLabels {
		if !strings.HasPrefix(key, "karpenter.k8s.aws/") {
			continue
		}
		n++
		if _, chosen := cat.Choices[key]; !chosen && !cat.Defines(key) {
			t.Errorf("nobody decides label %q", key)
		}
	}
	if n < 27 {
		t.Errorf("%d labels looked at, want all of Karpenter's", n)
	}
}

func TestCatalogIsNilUntilItCanBeBuilt(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	empty, err := NewCatalogs(cs.client)
	if err != nil {
		t.Fatal(err)
	}
	if got := empty.For(readyClass()); got != nil || empty.Complete() {
		t.Errorf("For without facts = %v (complete %v), want nil", got, empty.Complete())
	}
	for name, change := range map[string]func(*v1.EC2NodeClass){
		"no subnets":   func(c *v1.EC2NodeClass) { c.Status.Subnets = nil },
		"no images":    func(c *v1.EC2NodeClass) { c.Status.AMIs = nil },
		"invalid spec": func(c *v1.EC2NodeClass) { c.Spec.AMIFamily = aws.String("Ubuntu") },
	} {
		c := readyClass()
		change(c)
		if got := cs.For(c); got != nil {
			t.Errorf("%s: For = %v, want nil", name, got)
		}
	}
}

func TestCatalogIsBuiltOnceAndRenewed(t *testing.T) {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	cs := stocked(t, clk)
	class := readyClass()
	first := cs.For(class)
	class.ResourceVersion = "2" // a label or condition changed
	if cs.For(class) != first {
		t.Error("a change that does not matter built the catalogue again")
	}
	if e := (*cs.entries.Load())[class.UID]; e.resourceVersion != "2" {
		t.Errorf("the new version %q is not remembered", e.resourceVersion)
	}
	class.ResourceVersion, class.Spec.Kubelet = "3", &v1.KubeletConfiguration{MaxPods: aws.Int32(5)}
	second := cs.For(class)
	if second == first || second.Type("m5.large").Allocatable.Pods != 5 {
		t.Error("a change that matters did not build the catalogue again")
	}
	cs.update(func(m *market) { m.spot = map[string]map[string]float64{"m5.large": {"a": 0.01}} })
	renewed := (*cs.entries.Load())[class.UID].catalog
	if renewed == second || renewed.Offerings[0].Price != 0.01 {
		t.Error("new prices did not renew the catalogue in use")
	}
	if cs.For(class) != renewed {
		t.Error("For built again what the refresh had built")
	}
	clk.SetTime(clk.Now().Add(classRetention + time.Second))
	cs.update(func(*market) {})
	if n := len(*cs.entries.Load()); n != 0 {
		t.Errorf("%d catalogues nobody asked for are kept, want none", n)
	}
}

// Readers, refreshes and reports at the same time; the race detector is the judge, and no reader may see nothing.
func TestConcurrentUse(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	shortages := NewShortages(clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	var all sync.WaitGroup
	for i := range 8 {
		all.Go(func() {
			class := readyClass()
			class.UID = types.UID(strconv.Itoa(i % 3))
			for n := range 50 {
				class.ResourceVersion = strconv.Itoa(n)
				cat := cs.For(class)
				if cat == nil || shortages.Available(cat) == nil {
					t.Error("a reader found no catalogue")
					return
				}
				switch i {
				case 0:
					cs.update(func(m *market) { m.onDemand = map[string]float64{"m5.large": float64(n + 1)} })
				case 1:
					shortages.Mark(key("m5.large", strconv.Itoa(n)))
				}
			}
		})
	}
	all.Wait()
	class := readyClass()
	class.UID = "0"
	if got := cs.For(class).WithValue(karpv1.CapacityTypeLabelKey, karpv1.CapacityTypeOnDemand).First(); cs.For(class).Offerings[got].Price != 50 {
		t.Errorf("on-demand price = %v, want that of the last refresh, 50", cs.For(class).Offerings[got].Price)
	}
}

func TestParseProduct(t *testing.T) {
	tests := []struct {
		name, text string
		wantType   string
		wantPrice  float64
		wantOK     bool
	}{
		{"a price", `{"product":{"attributes":{"instanceType":"m5.large"}},"terms":{"OnDemand":{"x":{"priceDimensions":{"y":{"pricePerUnit":{"USD":"0.0960000000"}}}}}}}`, "m5.large", 0.096, true},
		{"free", `{"product":{"attributes":{"instanceType":"m5.large"}},"terms":{"OnDemand":{"x":{"priceDimensions":{"y":{"pricePerUnit":{"USD":"0.0000000000"}}}}}}}`, "", 0, false},
		{"another currency", `{"product":{"attributes":{"instanceType":"m5.large"}},"terms":{"OnDemand":{"x":{"priceDimensions":{"y":{"pricePerUnit":{"CNY":"1"}}}}}}}`, "", 0, false},
		{"not an instance", `{"product":{"attributes":{}}}`, "", 0, false},
		{"not JSON", `{`, "", 0, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			typ, price, ok := parseProduct(tt.text, "USD")
			if typ != tt.wantType || price != tt.wantPrice || ok != tt.wantOK {
				t.Errorf("parseProduct = %q, %v, %v; want %q, %v, %v", typ, price, ok, tt.wantType, tt.wantPrice, tt.wantOK)
			}
		})
	}
}
