// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

var update = flag.Bool("update", false, "rewrite the golden files")

func bootstrap(change func(*Bootstrap)) Bootstrap {
	b := Bootstrap{
		Cluster: Cluster{Name: "demo", Endpoint: "https://demo", CA: "Y2EtYnVuZGxlCg==", ServiceCIDR: "10.100.0.0/16"},
		Labels:  map[string]string{"karpenter.sh/nodepool": "default", "team": "a"},
		Taints: []corev1.Taint{
			{Key: "dedicated", Value: "gpu", Effect: corev1.TaintEffectNoSchedule},
			{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute},
		},
	}
	if change != nil {
		change(&b)
	}
	return b
}

func kubelet() *v1.KubeletConfiguration {
	pods, perCore, high, low, grace := int32(50), int32(10), int32(85), int32(80), int32(60)
	quota := false
	return &v1.KubeletConfiguration{
		MaxPods: &pods, PodsPerCore: &perCore, EvictionMaxPodGracePeriod: &grace, ClusterDNS: []string{"10.100.0.10"},
		KubeReserved: map[string]string{"cpu": "100m"}, SystemReserved: map[string]string{"memory": "200Mi"},
		EvictionHard: map[string]string{"memory.available": "5%"}, EvictionSoft: map[string]string{"memory.available": "10%"},
		EvictionSoftGracePeriod:     map[string]metav1.Duration{"memory.available": {Duration: time.Minute}},
		ImageGCHighThresholdPercent: &high, ImageGCLowThresholdPercent: &low, CPUCFSQuota: &quota,
	}
}

func TestUserDataGolden(t *testing.T) {
	const archive = `MIME-Version: 1.0
Content-Type: multipart/mixed; boundary="BOUNDARY"

--BOUNDARY
Content-Type: text/x-shellscript; charset="us-ascii"

#!/bin/bash
echo "first part"
--BOUNDARY
Content-Transfer-Encoding: base64
Content-Type: application/node.eks.aws

YXBpVmVyc2lvbjogbm9kZS5la3MuYXdzL3YxYWxwaGExCg==
--BOUNDARY--
`
	images := []string{"111122223333.dkr.ecr.eu-west-1.amazonaws.com/web:1", "nginx@sha256:" + strings.Repeat("0a", 32)}
	tests := []struct {
		golden string
		family string
		b      Bootstrap
	}{
		{"al2023.txt", v1.AMIFamilyAL2023, bootstrap(nil)},
		{"al2023_kubelet_raid0.txt", v1.AMIFamilyAL2023, bootstrap(func(b *Bootstrap) { b.Kubelet, b.RAID0 = kubelet(), true })},
		{"al2023_script.txt", v1.AMIFamilyAL2023, bootstrap(func(b *Bootstrap) { b.Custom = "#!/bin/bash\necho hello\n" })},
		{"al2023_yaml.txt", v1.AMIFamilyAL2023, bootstrap(func(b *Bootstrap) {
			b.Custom = "apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec:\n  featureGates:\n    FastImagePull: true\n"
		})},
		{"al2023_mime.txt", v1.AMIFamilyAL2023, bootstrap(func(b *Bootstrap) { b.Custom = "\n" + archive })},
		{"al2023_images.txt", v1.AMIFamilyAL2023, bootstrap(func(b *Bootstrap) {
			b.Images = images
			b.Custom = "#!/bin/bash\necho hello\n"
		})},
		{"bottlerocket_images.toml", v1.AMIFamilyBottlerocket, bootstrap(func(b *Bootstrap) {
			b.Images = images
			b.Custom = "[settings.kubernetes.static-pods.theirs]\nenabled = true\nmanifest = \"e30=\"\n"
		})},
		{"bottlerocket.toml", v1.AMIFamilyBottlerocket, bootstrap(nil)},
		{"bottlerocket_full.toml", v1.AMIFamilyBottlerocket, bootstrap(func(b *Bootstrap) {
			b.Kubelet, b.RAID0 = kubelet(), true
			b.Custom = "[settings.ntp]\ntime-servers = [\"169.254.169.123\"]\n"
		})},
		{"bottlerocket_merged.toml", v1.AMIFamilyBottlerocket, bootstrap(func(b *Bootstrap) {
			b.Kubelet = &v1.KubeletConfiguration{EvictionHard: map[string]string{"memory.available": "5%"}}
			b.Custom = `# what people write
settings.motd = "hello"
[settings.kubernetes]
api-server = "https://theirs"
max-pods = 30
registry-qps = 10
node-labels = { mine = "1", team = "theirs" }
[settings.kubernetes.node-taints]
theirs = ["x:NoSchedule"]
[settings.kubernetes.eviction-hard]
"memory.available" = "15%"
"nodefs.available" = "10%"
[settings.bootstrap-containers.setup]
source = "example.com/setup:v1"
mode = "once"
essential = false
`
		})},
		{"al2.txt", v1.AMIFamilyAL2, bootstrap(nil)},
		{"al2_full.txt", v1.AMIFamilyAL2, bootstrap(func(b *Bootstrap) {
			b.Kubelet, b.RAID0 = kubelet(), true
			b.Custom = "#!/bin/bash\necho hello\n"
		})},
		{"al2_mime_ipv6.txt", v1.AMIFamilyAL2, bootstrap(func(b *Bootstrap) {
			b.Custom = archive
			b.Cluster.ServiceCIDR = "fd30:1c53:5f8a::/108"
		})},
		{"windows.txt", v1.AMIFamilyWindows2022, bootstrap(nil)},
		{"windows_full.txt", v1.AMIFamilyWindows2025, bootstrap(func(b *Bootstrap) {
			b.Kubelet = kubelet()
			b.Custom = "Write-Host \"hello\"\n"
		})},
		{"custom.txt", v1.AMIFamilyCustom, bootstrap(func(b *Bootstrap) { b.Custom = "#!/bin/sh\nexec /join\n" })},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			got, err := UserData(tt.family, tt.b)
			if err != nil {
				t.Fatal(err)
			}
			path := filepath.Join("testdata", tt.golden)
			if *update {
				if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Errorf("user data (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMaxPodsReplacesTheClassesOwn(t *testing.T) {
	n := int32(17)
	b := bootstrap(func(b *Bootstrap) { b.Kubelet, b.MaxPods = kubelet(), &n })
	for family, want := range map[string]string{v1.AMIFamilyAL2023: "maxPods: 17\n", v1.AMIFamilyBottlerocket: "max-pods = 17\n"} {
		got, err := UserData(family, b)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(got, want) {
			t.Errorf("%s: user data lacks %q:\n%s", family, want, got)
		}
	}
}

func TestUserDataRefuses(t *testing.T) {
	tests := []struct {
		name   string
		family string
		change func(*Bootstrap)
		want   string
	}{
		{"a family nobody boots", v1.AMIFamilyUbuntu, nil, "Ubuntu"},
		{"no endpoint", v1.AMIFamilyAL2023, func(b *Bootstrap) { b.Cluster.Endpoint = "" }, "endpoint"},
		{"no authority", v1.AMIFamilyBottlerocket, func(b *Bootstrap) { b.Cluster.CA = "" }, "certificate authority"},
		{"authority not base64", v1.AMIFamilyAL2023, func(b *Bootstrap) { b.Cluster.CA = "-----BEGIN" }, "not base64"},
		{"no service range", v1.AMIFamilyAL2023, func(b *Bootstrap) { b.Cluster.ServiceCIDR = "" }, "service CIDR"},
		{"too long", v1.AMIFamilyCustom, func(b *Bootstrap) { b.Custom = strings.Repeat("x", maxUserData+1) }, "16385 bytes"},
		{"archive without boundary", v1.AMIFamilyAL2023, func(b *Bootstrap) { b.Custom = "Content-Type: multipart/mixed\n\nx" }, "boundary"},
		{"archive cut short", v1.AMIFamilyAL2023, func(b *Bootstrap) {
			b.Custom = "Content-Type: multipart/mixed; boundary=\"b\"\n\n--b\nContent-Type: text/x-shellscript\n\n#!/bin/sh"
		}, "MIME part 1"},
		{"not TOML", v1.AMIFamilyBottlerocket, func(b *Bootstrap) { b.Custom = "[settings]\nmotd = hello" }, "spec.userData: reading the TOML: line 2"},
		{"settings that are no table", v1.AMIFamilyBottlerocket, func(b *Bootstrap) { b.Custom = "settings = 3" }, `"settings" is not a table`},
		{"labels that are no table", v1.AMIFamilyBottlerocket, func(b *Bootstrap) { b.Custom = "[settings.kubernetes]\nnode-labels = 3" }, "node-labels"},
		{"no endpoint, AL2", v1.AMIFamilyAL2, func(b *Bootstrap) { b.Cluster.Endpoint = "" }, "endpoint"},
		{"no endpoint, Windows", v1.AMIFamilyWindows2019, func(b *Bootstrap) { b.Cluster.Endpoint = "" }, "endpoint"},
		{"archive without boundary, AL2", v1.AMIFamilyAL2, func(b *Bootstrap) { b.Custom = "Content-Type: multipart/mixed\n\nx" }, "boundary"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := UserData(tt.family, bootstrap(tt.change))
			if capacity.KindOf(err) != capacity.Invalid || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("err = %v, want one of kind Invalid that says %q", err, tt.want)
			}
		})
	}
}

func TestUnknownSettings(t *testing.T) {
	class := func(alias, text string) *v1.EC2NodeClass {
		return &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{AMISelectorTerms: []v1.AMISelectorTerm{{Alias: alias}}, UserData: &text}}
	}
	full, err := os.ReadFile("testdata/bottlerocket_full.toml")
	if err != nil {
		t.Fatal(err)
	}
	const bad = "[settings.kubernetes]\nmaxPods = 5\nmax-pod = 5\n"
	for name, tt := range map[string]struct {
		class   *v1.EC2NodeClass
		want    []string
		invalid bool
	}{
		"none":                {class: class("bottlerocket@latest", "")},
		"what we write":       {class: class("bottlerocket@latest", string(full))},
		"two":                 {class: class("bottlerocket@latest", bad), want: []string{"max-pod", "maxPods"}},
		"of another table":    {class: class("bottlerocket@latest", "[settings.kernel]\nmax-pod = 5\n")},
		"another family":      {class: class("al2023@latest", bad)},
		"not TOML":            {class: class("bottlerocket@latest", "[settings"), invalid: true},
		"kubernetes no table": {class: class("bottlerocket@latest", "settings.kubernetes = 3"), invalid: true},
		"unreadable alias":    {class: class("bottlerocket", bad), invalid: true},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := UnknownSettings(tt.class)
			if diff := cmp.Diff(tt.want, got, cmpopts.EquateEmpty()); diff != "" {
				t.Errorf("unknown settings (-want +got):\n%s", diff)
			}
			if (capacity.KindOf(err) == capacity.Invalid) != tt.invalid {
				t.Errorf("err = %v, want one of kind Invalid: %v", err, tt.invalid)
			}
		})
	}
}
