// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// Settings of the VPC CNI that decide how many pods a node of the class has addresses for. They are the cluster's, and a
// class says which it has, because clusters may run several configurations.
const (
	// AnnotationPrefixDelegation on an EC2NodeClass says, if "true", that the CNI hands out prefixes (ENABLE_PREFIX_DELEGATION).
	AnnotationPrefixDelegation = "slipway.sh/prefix-delegation"
	// AnnotationReservedENIs on an EC2NodeClass is how many interfaces pods cannot use, for instance 1 with custom networking
	// (AWS_VPC_K8S_CNI_CUSTOM_NETWORK_CFG). It goes before the setting of the installation (--reserved-enis).
	AnnotationReservedENIs = "slipway.sh/reserved-enis"
)

const (
	// defaultMaxPods is kubelet's own default.
	defaultMaxPods = 110
	// prefixAddresses is how many addresses a prefix (/28) has.
	prefixAddresses = 16
	// smallNode is up to how many vCPUs AWS recommends at most defaultMaxPods pods on a node with prefixes, and largeMaxPods on
	// larger ones (awslabs/amazon-eks-ami, max-pods-calculator.sh).
	smallNode    = 30
	largeMaxPods = 250
)

// readPods reads what the class says of the number of pods outside spec.kubelet.
func (s *nodeShape) readPods(class *v1.EC2NodeClass) error {
	if v, ok := class.Annotations[AnnotationPrefixDelegation]; ok {
		on, err := strconv.ParseBool(v)
		if err != nil {
			return invalid("metadata.annotations[%s]: %q is neither true nor false", AnnotationPrefixDelegation, v)
		}
		s.prefixes = on
	}
	if v, ok := class.Annotations[AnnotationReservedENIs]; ok {
		n, err := strconv.ParseUint(v, 10, 16)
		if err != nil {
			return invalid("metadata.annotations[%s]: %q is not a number of interfaces", AnnotationReservedENIs, v)
		}
		reserved := int64(n)
		s.reservedENI = &reserved
	}
	// A NodeConfig or kubelet flags of the user's own.
	text := deref(class.Spec.UserData)
	s.tellsPods = strings.Contains(text, "maxPods") || strings.Contains(text, "max-pods")
	return nil
}

// pods is how many pods a node takes.
func (z sizing) pods(t *typeFacts, s *nodeShape) int64 {
	n := int64(defaultMaxPods)
	if s.maxPods != nil {
		n = int64(*s.maxPods)
	} else if s.family.podsByENI && len(t.cards) > 0 {
		n = eniPods(t, s, z.reserved(s), s.prefixes)
	}
	if s.podsPerCore > 0 && s.family.podsPerCore {
		n = min(n, s.podsPerCore*t.vcpus)
	}
	return n
}

func (z sizing) reserved(s *nodeShape) int64 {
	if s.reservedENI != nil {
		return *s.reservedENI
	}
	return z.reservedENIs
}

// bootPods is the number of pods to tell the node; 0 if the class's kubelet configuration has it, or the image comes to the
// same by itself: then one launch template serves all types.
func (z sizing) bootPods(t *typeFacts, s *nodeShape) int32 {
	switch {
	case s.maxPods != nil, s.family.name == v1.AMIFamilyCustom:
		return 0
	case s.family.windows != "", z.reserved(s) > 0, s.prefixes, s.tellsPods, s.efaOnly(onFirstCard) > 0:
		return int32(z.pods(t, s))
	}
	return 0
}

func onFirstCard(n v1.NetworkInterface) bool { return n.NetworkCardIndex == 0 }

// eniPods is the number of pods the VPC CNI has addresses for: every interface of the default network card but the
// reserved and the EFA-only ones gives its secondary addresses, or as many prefixes, and two pods use the host's network
// (awslabs/amazon-eks-ami, eni-max-pods.txt and max-pods-calculator.sh).
func eniPods(t *typeFacts, s *nodeShape, reserved int64, prefixes bool) int64 {
	if len(t.cards) == 0 {
		return 0
	}
	usable := t.cards[t.primary].interfaces - reserved - s.efaOnly(onFirstCard)
	if usable <= 0 {
		return 0
	}
	slots := usable * (t.ipv4 - 1)
	if !prefixes || !t.prefixes {
		return slots + 2
	}
	most := int64(defaultMaxPods)
	if t.vcpus > smallNode {
		most = largeMaxPods
	}
	return min(slots*prefixAddresses+2, most)
}
