// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// AnnotationObserved is on an EC2NodeClass: what its nodes turned out to have, by instance type, as JSON of [Observations].
// It replaces what is computed. The controller writes it, so it outlives every process and every node; removing it makes
// Slipway compute again until a node reports.
const AnnotationObserved = "slipway.sh/observed-capacity"

// maxObserved bounds how many types are remembered for a class, and so the annotation, at some 25 KB.
const maxObserved = 300

// Observations are what nodes of a class reported, for as long as the class makes nodes of the same image and settings.
type Observations struct {
	// Of identifies the images and settings.
	Of    string              `json:"of"`
	Types map[string]Observed `json:"types"`
}

// Observed is what nodes of a type reported at the least: capacity and allocatable, memory in MiB and ephemeral storage in
// MiB, and pods.
type Observed struct {
	Memory    [2]int64 `json:"m"`
	Ephemeral [2]int64 `json:"e"`
	Pods      int64    `json:"p"`
}

// ObservedOf returns what nodes like those the class makes now reported.
func ObservedOf(class *v1.EC2NodeClass) Observations {
	fresh := Observations{Of: observationKey(class), Types: map[string]Observed{}}
	var o Observations
	if err := json.Unmarshal([]byte(class.Annotations[AnnotationObserved]), &o); err != nil || o.Of != fresh.Of || o.Types == nil {
		return fresh
	}
	return o
}

// Add takes in what a node of the type reports; less than before wins, because nodes of a type differ by a few MiB.
func (o Observations) Add(instanceType string, node *corev1.Node) {
	pair := func(name corev1.ResourceName) [2]int64 {
		total, allocatable := node.Status.Capacity[name], node.Status.Allocatable[name]
		return [2]int64{total.Value() / mib, allocatable.Value() / mib}
	}
	pods := node.Status.Allocatable[corev1.ResourcePods]
	seen := Observed{Memory: pair(corev1.ResourceMemory), Ephemeral: pair(corev1.ResourceEphemeralStorage), Pods: pods.Value()}
	if seen.Memory[1] <= 0 || seen.Ephemeral[1] <= 0 || seen.Pods <= 0 {
		return // the kubelet has not reported everything
	}
	old, known := o.Types[instanceType]
	switch {
	case known:
		seen = Observed{
			Memory:    [2]int64{min(old.Memory[0], seen.Memory[0]), min(old.Memory[1], seen.Memory[1])},
			Ephemeral: [2]int64{min(old.Ephemeral[0], seen.Ephemeral[0]), min(old.Ephemeral[1], seen.Ephemeral[1])},
			Pods:      min(old.Pods, seen.Pods),
		}
	case len(o.Types) >= maxObserved:
		return
	}
	o.Types[instanceType] = seen
}

// String is the annotation's value; empty if there is nothing to say.
func (o Observations) String() string {
	if len(o.Types) == 0 {
		return ""
	}
	b, err := json.Marshal(o)
	if err != nil {
		return "" // numbers and strings always marshal
	}
	return string(b)
}

// observationKey covers everything the size of a node depends on beside its type.
func observationKey(class *v1.EC2NodeClass) string {
	var images []string
	for _, a := range class.Status.AMIs {
		images = append(images, a.ID)
	}
	slices.Sort(images)
	s := class.Spec
	b, err := json.Marshal([]any{
		images, s.AMIFamily, s.Kubelet, s.BlockDeviceMappings, s.InstanceStorePolicy, s.NetworkInterfaces, s.UserData,
		class.Annotations[AnnotationPrefixDelegation], class.Annotations[AnnotationReservedENIs],
	})
	if err != nil {
		return fmt.Sprintf("%s/%d", class.UID, class.Generation)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// apply replaces what was computed for a node by what nodes of the type reported.
func (o Observed) apply(total, allocatable *capacity.Resources) {
	total.Memory, allocatable.Memory = o.Memory[0]*mib, o.Memory[1]*mib
	total.Ephemeral, allocatable.Ephemeral = o.Ephemeral[0]*mib, o.Ephemeral[1]*mib
	total.Pods = min(total.Pods, o.Pods)
	allocatable.Pods = min(allocatable.Pods, o.Pods)
}
