// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// kubernetesTable finds the mention of a table under settings.kubernetes, or the inline forms that could hold one.
var kubernetesTable = regexp.MustCompile(`(?m)^\s*(\[?\s*["']?settings["']?\s*\.\s*["']?kubernetes|["']?settings["']?\s*=|["']?kubernetes["']?\s*[.=])`)

// bottlerocketUserData writes the image's settings (Bottlerocket documentation,
// settings.kubernetes) in TOML. The user's own settings come first and are kept
// as they are; those under settings.kubernetes cannot be merged and are refused.
func bottlerocketUserData(b Bootstrap) (string, error) {
	if err := b.Cluster.check(); err != nil {
		return "", err
	}
	if kubernetesTable.MatchString(b.Custom) {
		return "", invalid("spec.userData: settings.kubernetes cannot be merged for Bottlerocket; use spec.kubelet and the NodePool's labels and taints")
	}
	var w tomlWriter
	if custom := strings.TrimSpace(b.Custom); custom != "" {
		w.text.WriteString(custom + "\n\n")
	}
	w.table("settings.kubernetes")
	w.text.WriteString("api-server = " + strconv.Quote(b.Cluster.Endpoint) + "\n")
	w.text.WriteString("cluster-certificate = " + strconv.Quote(b.Cluster.CA) + "\n")
	w.text.WriteString("cluster-name = " + strconv.Quote(b.Cluster.Name) + "\n")
	if b.Kubelet != nil {
		w.kubelet(b.Kubelet)
	}
	if n := b.maxPods(); n != nil {
		w.number("max-pods", n)
	}
	w.stringTable("settings.kubernetes.node-labels", b.Labels)
	taints := map[string][]string{}
	for _, t := range b.Taints {
		taints[t.Key] = append(taints[t.Key], strconv.Quote(t.Value+":"+string(t.Effect)))
	}
	if len(taints) > 0 {
		w.table("settings.kubernetes.node-taints")
		for _, k := range slices.Sorted(maps.Keys(taints)) {
			w.text.WriteString(strconv.Quote(k) + " = [" + strings.Join(taints[k], ", ") + "]\n")
		}
	}
	if b.Kubelet != nil {
		w.kubeletTables(b.Kubelet)
	}
	if b.RAID0 {
		w.table(`settings.bootstrap-commands."000-mount-instance-storage"`)
		// The directories are named because releases before 1.46 insist on it.
		w.text.WriteString(`commands = [["apiclient", "ephemeral-storage", "init"], ` +
			`["apiclient", "ephemeral-storage", "bind", "--dirs", "/var/lib/containerd", "/var/lib/kubelet", "/var/log/pods"]]` + "\n")
		w.text.WriteString("essential = true\nmode = \"always\"\n")
	}
	return w.text.String(), nil
}

func (b Bootstrap) maxPods() *int32 {
	if b.MaxPods == nil && b.Kubelet != nil {
		return b.Kubelet.MaxPods
	}
	return b.MaxPods
}

// tomlWriter writes the few forms of TOML that settings need. Go's quoting of printable strings is TOML's.
type tomlWriter struct{ text strings.Builder }

func (w *tomlWriter) table(name string) {
	if w.text.Len() > 0 && !strings.HasSuffix(w.text.String(), "\n\n") {
		w.text.WriteString("\n")
	}
	w.text.WriteString("[" + name + "]\n")
}

func (w *tomlWriter) number(key string, n *int32) {
	if n != nil {
		w.text.WriteString(key + " = " + strconv.Itoa(int(*n)) + "\n")
	}
}

func (w *tomlWriter) stringTable(name string, values map[string]string) {
	if len(values) == 0 {
		return
	}
	w.table(name)
	for _, k := range slices.Sorted(maps.Keys(values)) {
		w.text.WriteString(strconv.Quote(k) + " = " + strconv.Quote(values[k]) + "\n")
	}
}

func (w *tomlWriter) kubelet(k *v1.KubeletConfiguration) {
	if len(k.ClusterDNS) > 0 {
		w.text.WriteString("cluster-dns-ip = " + strconv.Quote(k.ClusterDNS[0]) + "\n")
	}
	w.number("eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	// The settings model has these two as strings.
	if k.ImageGCHighThresholdPercent != nil {
		w.text.WriteString("image-gc-high-threshold-percent = " + strconv.Quote(strconv.Itoa(int(*k.ImageGCHighThresholdPercent))) + "\n")
	}
	if k.ImageGCLowThresholdPercent != nil {
		w.text.WriteString("image-gc-low-threshold-percent = " + strconv.Quote(strconv.Itoa(int(*k.ImageGCLowThresholdPercent))) + "\n")
	}
	if k.CPUCFSQuota != nil {
		w.text.WriteString("cpu-cfs-quota-enforced = " + strconv.FormatBool(*k.CPUCFSQuota) + "\n")
	}
}

func (w *tomlWriter) kubeletTables(k *v1.KubeletConfiguration) {
	grace := make(map[string]string, len(k.EvictionSoftGracePeriod))
	for signal, d := range k.EvictionSoftGracePeriod {
		grace[signal] = d.Duration.String()
	}
	w.stringTable("settings.kubernetes.kube-reserved", k.KubeReserved)
	w.stringTable("settings.kubernetes.system-reserved", k.SystemReserved)
	w.stringTable("settings.kubernetes.eviction-hard", k.EvictionHard)
	w.stringTable("settings.kubernetes.eviction-soft", k.EvictionSoft)
	w.stringTable("settings.kubernetes.eviction-soft-grace-period", grace)
}
