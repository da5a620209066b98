// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// checkKubelet checks what the CRD's rules check, too, for classes that were stored under another CRD: the kubelet would
// refuse to start, and every node of the class would be bought in vain.
func checkKubelet(k *v1.KubeletConfiguration) error {
	if k == nil {
		return nil
	}
	for field, values := range map[string]map[string]string{"kubeReserved": k.KubeReserved, "systemReserved": k.SystemReserved} {
		if err := checkReserved(field, values); err != nil {
			return err
		}
	}
	for field, values := range map[string]map[string]string{"evictionHard": k.EvictionHard, "evictionSoft": k.EvictionSoft} {
		if err := checkThresholds(field, values); err != nil {
			return err
		}
	}
	if soft, grace := slices.Sorted(maps.Keys(k.EvictionSoft)), slices.Sorted(maps.Keys(k.EvictionSoftGracePeriod)); !slices.Equal(soft, grace) {
		return invalid("spec.kubelet.evictionSoftGracePeriod: signals %q are not those of evictionSoft, %q; give each a grace period", grace, soft)
	}
	for field, n := range map[string]*int32{
		"maxPods": k.MaxPods, "podsPerCore": k.PodsPerCore, "evictionMaxPodGracePeriod": k.EvictionMaxPodGracePeriod,
		"imageGCHighThresholdPercent": k.ImageGCHighThresholdPercent, "imageGCLowThresholdPercent": k.ImageGCLowThresholdPercent,
	} {
		if n != nil && *n < 0 {
			return invalid("spec.kubelet.%s: %d is negative", field, *n)
		}
		if n != nil && *n > 100 && strings.HasSuffix(field, "Percent") {
			return invalid("spec.kubelet.%s: %d is more than 100", field, *n)
		}
	}
	if high, low := k.ImageGCHighThresholdPercent, k.ImageGCLowThresholdPercent; high != nil && low != nil && *high <= *low {
		return invalid("spec.kubelet.imageGCHighThresholdPercent: %d is not more than imageGCLowThresholdPercent, %d", *high, *low)
	}
	return nil
}

func checkReserved(field string, values map[string]string) error {
	known := []string{"cpu", "memory", "ephemeral-storage", "pid"}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, k) {
			return invalid("spec.kubelet.%s: %q is not one of %q", field, k, known)
		}
		if q, err := resource.ParseQuantity(values[k]); err != nil || q.Sign() < 0 {
			return invalid("spec.kubelet.%s: %q: %q is not a quantity of 0 or more", field, k, values[k])
		}
	}
	return nil
}

func checkThresholds(field string, values map[string]string) error {
	known := []string{"memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree", "pid.available"}
	for _, k := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(known, k) {
			return invalid("spec.kubelet.%s: signal %q is not one of %q", field, k, known)
		}
		if number, isPercent := strings.CutSuffix(values[k], "%"); isPercent {
			if p, err := strconv.ParseFloat(number, 64); err != nil || p < 0 || p > 100 {
				return invalid("spec.kubelet.%s: %q: %q is not a percentage from 0%% to 100%%", field, k, values[k])
			}
		} else if q, err := resource.ParseQuantity(values[k]); err != nil || q.Sign() < 0 {
			return invalid("spec.kubelet.%s: %q: %q is neither a quantity of 0 or more nor a percentage", field, k, values[k])
		}
	}
	return nil
}
