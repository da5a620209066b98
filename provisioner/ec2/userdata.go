// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// maxUserData is EC2's limit on user data, in bytes before base64.
const maxUserData = 16384

// Bootstrap is what a booting node is told.
type Bootstrap struct {
	Cluster Cluster
	Labels  map[string]string
	Taints  []corev1.Taint
	// Kubelet is the class's spec.kubelet, nil if it has none.
	Kubelet *v1.KubeletConfiguration
	// MaxPods replaces the kubelet's maxPods. nil leaves it to Kubelet, and if that does not say either, to the image, whose
	// own rule gives the number the catalogue computes: one template then serves every instance type of a pool.
	MaxPods *int32
	// RAID0 joins the instance store disks and puts pods' files on them.
	RAID0 bool
	// Custom is the class's spec.userData, in the family's own format.
	Custom string
	// Images are pulled while the node boots, where the family can ([Prepulls]) and as far as user data has room: all of them
	// or none. Each has to be an [ImageName].
	Images []string
}

// ClassBootstrap returns what the class says of the bootstrap: all but labels, taints and a number of pods.
func ClassBootstrap(cluster Cluster, class *v1.EC2NodeClass) Bootstrap {
	return Bootstrap{
		Cluster: cluster,
		Kubelet: class.Spec.Kubelet,
		RAID0:   deref(class.Spec.InstanceStorePolicy) == v1.InstanceStorePolicyRAID0,
		Custom:  deref(class.Spec.UserData),
	}
}

// UserData returns the user data, in plain text, that makes an image of the
// family join the cluster. Errors are of kind Invalid: the family is not
// supported, something required is missing, or the user's part cannot be merged.
func UserData(family string, b Bootstrap) (string, error) {
	text, err := familyUserData(family, b)
	if err != nil {
		return "", err
	}
	if len(text) > maxUserData && len(b.Images) > 0 {
		b.Images = nil // they are a help, and no reason to refuse a class
		return UserData(family, b)
	}
	if len(text) > maxUserData {
		return "", &capacity.Error{Kind: capacity.Invalid, Code: CodeUserDataTooLong, Err: fmt.Errorf(
			"spec.userData: %d bytes with what Slipway adds are more than EC2's limit of %d; fetch the rest at boot", len(text), maxUserData)}
	}
	return text, nil
}

func familyUserData(family string, b Bootstrap) (text string, err error) {
	switch family {
	case v1.AMIFamilyAL2023:
		text, err = nodeadmUserData(b)
	case v1.AMIFamilyBottlerocket:
		text, err = bottlerocketUserData(b)
	case v1.AMIFamilyAL2:
		text, err = al2UserData(b)
	case v1.AMIFamilyWindows2019, v1.AMIFamilyWindows2022, v1.AMIFamilyWindows2025:
		text, err = windowsUserData(b)
	case v1.AMIFamilyCustom:
		text = b.Custom // whoever brings an image brings everything
	default:
		_, err = familyOf(family)
	}
	return text, err
}

func (c Cluster) check() error {
	for _, f := range [...]struct{ name, value string }{{"name", c.Name}, {"endpoint", c.Endpoint}, {"certificate authority", c.CA}} {
		if f.value == "" {
			return invalid("writing user data: the cluster's %s is unknown", f.name)
		}
	}
	if _, err := base64.StdEncoding.DecodeString(c.CA); err != nil {
		return invalid("writing user data: the cluster's certificate authority is not base64: %w", err)
	}
	return nil
}

// nodeConfig is the part of nodeadm's NodeConfig (node.eks.aws/v1alpha1) that is set; nodeadm merges all that it finds.
type nodeConfig struct {
	metav1.TypeMeta `json:",inline"`
	Spec            nodeConfigSpec `json:"spec"`
}

type nodeConfigSpec struct {
	Cluster  nodeConfigCluster   `json:"cluster"`
	Instance *nodeConfigInstance `json:"instance,omitempty"`
	Kubelet  nodeConfigKubelet   `json:"kubelet"`
}

type nodeConfigCluster struct {
	Name     string `json:"name"`
	Endpoint string `json:"apiServerEndpoint"`
	CA       string `json:"certificateAuthority"`
	CIDR     string `json:"cidr"`
}

type nodeConfigInstance struct {
	LocalStorage struct {
		Strategy string `json:"strategy"`
	} `json:"localStorage"`
}

type nodeConfigKubelet struct {
	Config map[string]json.RawMessage `json:"config"`
	Flags  []string                   `json:"flags,omitempty"`
}

// nodeadmUserData is a MIME archive: the user's parts first, ours last, so that ours wins where both speak.
func nodeadmUserData(b Bootstrap) (string, error) {
	if err := b.Cluster.check(); err != nil {
		return "", err
	}
	if b.Cluster.ServiceCIDR == "" {
		return "", invalid("writing user data: the cluster's service CIDR is unknown")
	}
	parts, err := userParts(b.Custom)
	if err != nil {
		return "", err
	}
	config, err := kubeletConfig(b)
	if err != nil {
		return "", err
	}
	n := nodeConfig{
		TypeMeta: metav1.TypeMeta{APIVersion: "node.eks.aws/v1alpha1", Kind: "NodeConfig"},
		Spec: nodeConfigSpec{
			Cluster: nodeConfigCluster{Name: b.Cluster.Name, Endpoint: b.Cluster.Endpoint, CA: b.Cluster.CA, CIDR: b.Cluster.ServiceCIDR},
			Kubelet: nodeConfigKubelet{Config: config},
		},
	}
	if b.RAID0 {
		n.Spec.Instance = &nodeConfigInstance{}
		n.Spec.Instance.LocalStorage.Strategy = string(v1.InstanceStorePolicyRAID0)
	}
	if len(b.Labels) > 0 {
		n.Spec.Kubelet.Flags = []string{`--node-labels="` + labelList(b.Labels) + `"`}
	}
	text, err := yaml.Marshal(n)
	if err != nil {
		return "", invalid("writing the NodeConfig: %w", err)
	}
	if len(b.Images) > 0 {
		parts = append(parts, mimePart{header: shellHeader, body: pullScript(b.Images)})
	}
	return mimeArchive(append(parts, mimePart{header: nodeConfigHeader, body: string(text)})), nil
}

// kubeletConfig is the class's kubelet configuration with ours laid over it.
func kubeletConfig(b Bootstrap) (map[string]json.RawMessage, error) {
	out := map[string]json.RawMessage{}
	if b.Kubelet != nil {
		raw, err := json.Marshal(b.Kubelet)
		if err != nil {
			return nil, invalid("spec.kubelet: %w", err)
		}
		if err := json.Unmarshal(raw, &out); err != nil {
			return nil, invalid("spec.kubelet: %w", err)
		}
	}
	taints, err := json.Marshal(b.Taints)
	if err != nil {
		return nil, invalid("writing taints: %w", err)
	}
	out["registerWithTaints"] = taints
	if b.MaxPods != nil {
		n, err := json.Marshal(*b.MaxPods)
		if err != nil {
			return nil, invalid("writing maxPods: %w", err)
		}
		out["maxPods"] = n
	}
	return out, nil
}

// labelList is the value of the kubelet's flag, sorted, so that equal labels make equal templates.
func labelList(labels map[string]string) string {
	list := make([]string, 0, len(labels))
	for _, k := range slices.Sorted(maps.Keys(labels)) {
		list = append(list, k+"="+labels[k])
	}
	return strings.Join(list, ",")
}
