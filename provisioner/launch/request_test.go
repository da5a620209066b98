// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Types share a template unless their nodes have to be told different things.
func TestKeyOf(t *testing.T) {
	efa := []capacity.Quantity{{Name: v1.ResourceEFA, Value: 4}}
	asks := &karpv1.NodeClaim{}
	asks.Spec.Resources.Requests = corev1.ResourceList{v1.ResourceEFA: resource.MustParse("1")}
	listed := &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{NetworkInterfaces: []*v1.NetworkInterface{{InterfaceType: "interface"}}}}
	tests := []struct {
		name  string
		claim *karpv1.NodeClaim
		class *v1.EC2NodeClass
		typ   *capacity.InstanceType
		want  templateKey
	}{
		{"plain", &karpv1.NodeClaim{}, &v1.EC2NodeClass{}, &capacity.InstanceType{}, templateKey{image: "ami-1"}},
		{"pods to tell", &karpv1.NodeClaim{}, &v1.EC2NodeClass{}, &capacity.InstanceType{BootPods: 20}, templateKey{image: "ami-1", pods: 20}},
		{"EFA nobody asks for", &karpv1.NodeClaim{}, &v1.EC2NodeClass{}, &capacity.InstanceType{Capacity: capacity.Resources{Extended: efa}}, templateKey{image: "ami-1"}},
		{"EFA", asks, &v1.EC2NodeClass{}, &capacity.InstanceType{Capacity: capacity.Resources{Extended: efa}}, templateKey{image: "ami-1", efas: 4}},
		{"EFA by the class's own interfaces", asks, listed, &capacity.InstanceType{Capacity: capacity.Resources{Extended: efa}}, templateKey{image: "ami-1"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			q := &request{claim: tt.claim, class: tt.class, images: []image{{id: "ami-1"}}}
			if got := q.keyOf(tt.typ); got != tt.want {
				t.Errorf("key = %+v, want %+v", got, tt.want)
			}
			_, advertised := statusResources(tt.typ.Capacity, tt.class, tt.claim)[v1.ResourceEFA]
			if want := len(tt.typ.Capacity.Extended) > 0 && tt.name != "EFA nobody asks for"; advertised != want {
				t.Errorf("EFA advertised: %v, want %v", advertised, want)
			}
		})
	}
}

// The number of pods a node is told is in its user data.
func TestTemplateTellsPods(t *testing.T) {
	class := &v1.EC2NodeClass{Spec: v1.EC2NodeClassSpec{AMISelectorTerms: []v1.AMISelectorTerm{{Alias: "al2023@latest"}}}}
	cluster := ec2.Cluster{Name: "demo", Endpoint: "https://demo", CA: "QQ==", ServiceCIDR: "fd00::/108"}
	tmpl, err := templateOf(cluster, class, shape{Pool: "p"}, "ami-1", variant{pods: 20, efas: 2})
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(tmpl.UserData, "maxPods: 20\n") || tmpl.EFAs != 2 || !tmpl.IPv6 {
		t.Errorf("EFA interfaces %d, IPv6 %v, user data:\n%s\nwant 2, true and maxPods 20", tmpl.EFAs, tmpl.IPv6, tmpl.UserData)
	}
}
