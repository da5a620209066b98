// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
)

const (
	// al2Gone is the first Kubernetes minor without Amazon Linux 2 images, windows2025Since the first with images of
	// Windows Server 2025 (EKS user guide).
	al2Gone          = 33
	windows2025Since = 35
)

// checkAlias refuses aliases of families that AWS publishes no images of for the Kubernetes version, in Karpenter's words.
func checkAlias(family, version, kubernetes string) error {
	_, minorText, _ := strings.Cut(kubernetes, ".")
	minor, err := strconv.Atoi(minorText)
	known := err == nil
	switch {
	case family == v1.AMIFamilyAL2 && known && minor >= al2Gone:
		return invalid("spec.amiSelectorTerms: AL2 aliases are no longer supported on EKS 1.33+ (see https://docs.aws.amazon.com/eks/latest/userguide/kubernetes-versions-standard.html#kubernetes-1-33); use al2023")
	case family == v1.AMIFamilyWindows2025 && known && minor < windows2025Since:
		return invalid("spec.amiSelectorTerms: Windows Server 2025 requires EKS version 1.35 or higher, current version: %s", kubernetes)
	case strings.HasPrefix(family, "Windows") && version != latestAlias:
		return invalid("spec.amiSelectorTerms: Windows images have no versions to pin; use %s@latest", strings.ToLower(family))
	}
	return nil
}

type aliasPath struct {
	path     string
	variants [][]corev1.NodeSelectorRequirement
}

// aliasPaths are the public SSM parameters of an alias (EKS user guide, "Retrieve recommended AMI IDs"; Bottlerocket
// documentation, "Finding an AMI"). kubernetes is the minor, for instance 1.37.
func aliasPaths(family, version, kubernetes string) ([]aliasPath, error) {
	does := func(key string, op corev1.NodeSelectorOperator) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: key, Operator: op}
	}
	standard := []corev1.NodeSelectorRequirement{
		does(v1.LabelInstanceGPUCount, corev1.NodeSelectorOpDoesNotExist),
		does(v1.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpDoesNotExist),
	}
	nvidia := []corev1.NodeSelectorRequirement{does(v1.LabelInstanceGPUCount, corev1.NodeSelectorOpExists)}
	neuron := []corev1.NodeSelectorRequirement{does(v1.LabelInstanceAcceleratorCount, corev1.NodeSelectorOpExists)}
	var out []aliasPath
	switch family {
	case v1.AMIFamilyAL2:
		add := func(folder, prefix string, variants ...[]corev1.NodeSelectorRequirement) {
			release := "recommended"
			if version != latestAlias {
				release = fmt.Sprintf("amazon-eks-%snode-%s-%s", prefix, kubernetes, version)
			}
			out = append(out, aliasPath{
				path:     fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2%s/%s/image_id", kubernetes, folder, release),
				variants: variants,
			})
		}
		add("", "", standard)
		add("-arm64", "arm64-", standard)
		add("-gpu", "gpu-", neuron, nvidia)
	case v1.AMIFamilyWindows2019, v1.AMIFamilyWindows2022, v1.AMIFamilyWindows2025:
		f, err := familyOf(family)
		if err != nil {
			return nil, err
		}
		out = append(out, aliasPath{
			path: fmt.Sprintf("/aws/service/ami-windows-latest/Windows_Server-%s-English-Core-EKS_Optimized-%s/image_id", strings.TrimPrefix(family, "Windows"), kubernetes),
			variants: [][]corev1.NodeSelectorRequirement{{
				{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpIn, Values: []string{string(corev1.Windows)}},
				{Key: corev1.LabelWindowsBuild, Operator: corev1.NodeSelectorOpIn, Values: []string{f.windows}},
			}},
		})
	case v1.AMIFamilyAL2023:
		add := func(arch, variant string, reqs []corev1.NodeSelectorRequirement) {
			release := "recommended"
			if version != latestAlias {
				release = fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-%s", arch, variant, kubernetes, version)
			}
			out = append(out, aliasPath{
				path:     fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/%s/image_id", kubernetes, arch, variant, release),
				variants: [][]corev1.NodeSelectorRequirement{reqs},
			})
		}
		add("x86_64", "standard", standard)
		add("arm64", "standard", standard)
		add("x86_64", "nvidia", nvidia)
		add("arm64", "nvidia", nvidia)
		add("x86_64", "neuron", neuron)
	case v1.AMIFamilyBottlerocket:
		add := func(flavour, arch string, variants ...[]corev1.NodeSelectorRequirement) {
			out = append(out, aliasPath{
				path:     fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/%s/image_id", kubernetes, flavour, arch, strings.TrimPrefix(version, "v")),
				variants: variants,
			})
		}
		add("", "x86_64", standard, neuron)
		add("", "arm64", standard)
		add("-nvidia", "x86_64", nvidia)
		add("-nvidia", "arm64", nvidia)
	default:
		return nil, invalid("spec.amiSelectorTerms: alias family %q is not supported; use al2023, al2, bottlerocket, windows2019, windows2022 or windows2025", strings.ToLower(family))
	}
	return out, nil
}
