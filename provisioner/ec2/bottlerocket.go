// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// bottlerocketUserData writes the image's settings (Bottlerocket documentation,
// settings.kubernetes) in TOML, over those of the user: what describes the cluster
// and what spec.kubelet sets is ours, labels are joined (ours win), taints are
// replaced, everything else is kept as the user wrote it.
func bottlerocketUserData(b Bootstrap) (string, error) {
	if err := b.Cluster.check(); err != nil {
		return "", err
	}
	doc, err := parseTOML(b.Custom)
	if err != nil {
		return "", invalid("spec.userData: reading the TOML: %w", err)
	}
	kubernetes, err := doc.descend([]string{"settings", "kubernetes"})
	if err != nil {
		return "", invalid("spec.userData: %w", err)
	}
	kubernetes["api-server"] = b.Cluster.Endpoint
	kubernetes["cluster-certificate"] = b.Cluster.CA
	kubernetes["cluster-name"] = b.Cluster.Name
	if dns := b.dns(); dns != "" {
		kubernetes["cluster-dns-ip"] = dns
	}
	// What the node takes has to be what the catalogue says, which does not look into user data.
	delete(kubernetes, "max-pods")
	if n := b.maxPods(); n != nil {
		kubernetes["max-pods"] = tomlInt(*n)
	}
	if b.Kubelet != nil {
		kubernetes.kubelet(b.Kubelet)
	}
	labels, err := kubernetes.descend([]string{"node-labels"})
	if err != nil {
		return "", invalid("spec.userData: settings.kubernetes: %w", err)
	}
	for k, v := range b.Labels {
		labels[k] = v
	}
	taints := tomlTable{}
	for _, t := range b.Taints {
		list, _ := taints[t.Key].([]any)
		taints[t.Key] = append(list, t.Value+":"+string(t.Effect))
	}
	kubernetes["node-taints"] = taints
	if len(b.Images) > 0 {
		pods, err := kubernetes.descend([]string{"static-pods"})
		if err != nil {
			return "", invalid("spec.userData: settings.kubernetes: %w", err)
		}
		manifest, err := pullPod(b.Images)
		if err != nil {
			return "", err
		}
		pods[pullUnit] = tomlTable{"enabled": tomlRaw("true"), "manifest": manifest}
	}
	if b.RAID0 {
		commands, err := doc.descend([]string{"settings", "bootstrap-commands"})
		if err != nil {
			return "", invalid("spec.userData: %w", err)
		}
		commands["000-mount-instance-storage"] = mountInstanceStorage()
	}
	return doc.String(), nil
}

// mountInstanceStorage is the bootstrap command that joins the instance store disks and puts pods' files on them. The
// directories are named because releases before 1.46 insist on it.
func mountInstanceStorage() tomlTable {
	words := func(list ...string) []any {
		out := make([]any, 0, len(list))
		for _, w := range list {
			out = append(out, w)
		}
		return out
	}
	return tomlTable{
		"commands": []any{
			words("apiclient", "ephemeral-storage", "init"),
			words("apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"),
		},
		"essential": tomlRaw("true"),
		"mode":      "always",
	}
}

func (b Bootstrap) maxPods() *int32 {
	if b.MaxPods == nil && b.Kubelet != nil {
		return b.Kubelet.MaxPods
	}
	return b.MaxPods
}

func tomlInt(n int32) tomlRaw { return tomlRaw(strconv.Itoa(int(n))) }

// kubelet sets what the class's kubelet configuration says.
func (t tomlTable) kubelet(k *v1.KubeletConfiguration) {
	if k.EvictionMaxPodGracePeriod != nil {
		t["eviction-max-pod-grace-period"] = tomlInt(*k.EvictionMaxPodGracePeriod)
	}
	// The settings model has these two as strings.
	if k.ImageGCHighThresholdPercent != nil {
		t["image-gc-high-threshold-percent"] = strconv.Itoa(int(*k.ImageGCHighThresholdPercent))
	}
	if k.ImageGCLowThresholdPercent != nil {
		t["image-gc-low-threshold-percent"] = strconv.Itoa(int(*k.ImageGCLowThresholdPercent))
	}
	if k.CPUCFSQuota != nil {
		t["cpu-cfs-quota-enforced"] = tomlRaw(strconv.FormatBool(*k.CPUCFSQuota))
	}
	grace := make(map[string]string, len(k.EvictionSoftGracePeriod))
	for signal, d := range k.EvictionSoftGracePeriod {
		grace[signal] = d.Duration.String()
	}
	for key, values := range map[string]map[string]string{
		"kube-reserved": k.KubeReserved, "system-reserved": k.SystemReserved,
		"eviction-hard": k.EvictionHard, "eviction-soft": k.EvictionSoft, "eviction-soft-grace-period": grace,
	} {
		if len(values) == 0 {
			continue
		}
		table := tomlTable{}
		for k, v := range values {
			table[k] = v
		}
		t[key] = table
	}
}

// kubernetesSettings are the names Bottlerocket knows under settings.kubernetes, over all its releases
// (bottlerocket-settings-sdk, settings-extensions/kubernetes).
func kubernetesSettings() []string {
	return strings.Fields(`
		allowed-unsafe-sysctls api-server authentication-mode bootstrap-token cloud-provider cluster-certificate cluster-dns-ip
		cluster-domain cluster-name container-log-max-files container-log-max-size container-log-max-workers
		container-log-monitor-interval cpu-cfs-quota-enforced cpu-manager-policy cpu-manager-policy-options
		cpu-manager-reconcile-period credential-providers device-ownership-from-security-context event-burst event-qps
		eviction-hard eviction-max-pod-grace-period eviction-soft eviction-soft-grace-period fail-cgroup-v1 fail-cgroupv1
		hostname-override hostname-override-source ids-per-pod image-gc-high-threshold-percent image-gc-low-threshold-percent
		image-maximum-gc-age image-minimum-gc-age kube-api-burst kube-api-qps kube-reserved kubelet-extra-config log-level
		max-parallel-image-pulls max-pods memory-manager-policy memory-manager-reserved-memory memory-swap-behavior node-ip
		node-labels node-taints pod-infra-container-image pod-pids-limit provider-id registry-burst registry-qps reserved-cpus
		seccomp-default server-certificate server-key server-tls-bootstrap shutdown-grace-period
		shutdown-grace-period-for-critical-pods single-process-oom-kill standalone-mode static-pods static-pods-enabled
		system-reserved topology-manager-policy topology-manager-policy-options topology-manager-scope
`)
}

// UnknownSettings returns the names under settings.kubernetes in a Bottlerocket class's user data that Bottlerocket does not
// know, in order: it refuses the whole of such user data and never joins (bottlerocket issue 1346). Errors are of kind Invalid.
func UnknownSettings(class *v1.EC2NodeClass) ([]string, error) {
	family, err := Family(class)
	if err != nil || family != v1.AMIFamilyBottlerocket {
		return nil, err
	}
	doc, err := parseTOML(deref(class.Spec.UserData))
	if err != nil {
		return nil, invalid("spec.userData: reading the TOML: %w", err)
	}
	kubernetes, err := doc.descend([]string{"settings", "kubernetes"})
	if err != nil {
		return nil, invalid("spec.userData: %w", err)
	}
	known := kubernetesSettings()
	return slices.DeleteFunc(slices.Sorted(maps.Keys(kubernetes)), func(n string) bool { return slices.Contains(known, n) }), nil
}
