// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// al2UserData is a MIME archive: the user's parts, then a script that calls the image's own bootstrap script
// (awslabs/amazon-eks-ami, bootstrap.sh), whose options may not be joined to their values by an equals sign.
func al2UserData(b Bootstrap) (string, error) {
	if err := b.Cluster.check(); err != nil {
		return "", err
	}
	parts, err := scriptParts(b.Custom)
	if err != nil {
		return "", err
	}
	options := []string{fmt.Sprintf("/etc/eks/bootstrap.sh '%s' --apiserver-endpoint '%s' --b64-cluster-ca '%s'", b.Cluster.Name, b.Cluster.Endpoint, b.Cluster.CA)}
	dns := b.dns()
	if strings.Contains(dns, ":") {
		options = append(options, "--ip-family ipv6")
	}
	if dns != "" {
		options = append(options, "--dns-cluster-ip '"+dns+"'")
	}
	if b.maxPods() != nil {
		options = append(options, "--use-max-pods false") // that is, do not compute it
	}
	options = append(options, "--kubelet-extra-args '"+b.kubeletArgs()+"'")
	if b.RAID0 {
		options = append(options, "--local-disks raid0")
	}
	script := "#!/bin/bash -xe\n" +
		"exec > >(tee /var/log/user-data.log|logger -t user-data -s 2>/dev/console) 2>&1\n" +
		strings.Join(options, " \\\n")
	return mimeArchive(append(parts, mimePart{header: shellHeader, body: script})), nil
}

// windowsUserData is a PowerShell script: the user's part, then the call of the image's own bootstrap script.
func windowsUserData(b Bootstrap) (string, error) {
	if err := b.Cluster.check(); err != nil {
		return "", err
	}
	var w strings.Builder
	w.WriteString("<powershell>\n")
	if b.Custom != "" {
		w.WriteString(strings.TrimSuffix(b.Custom, "\n") + "\n")
	}
	w.WriteString(`[string]$EKSBootstrapScriptFile = "$env:ProgramFiles\Amazon\EKS\Start-EKSBootstrap.ps1"` + "\n")
	fmt.Fprintf(&w, "& $EKSBootstrapScriptFile -EKSClusterName '%s' -APIServerEndpoint '%s' -Base64ClusterCA '%s' -KubeletExtraArgs '%s'",
		b.Cluster.Name, b.Cluster.Endpoint, b.Cluster.CA, b.kubeletArgs())
	if dns := b.dns(); dns != "" {
		w.WriteString(" -DNSClusterIP '" + dns + "'")
	}
	w.WriteString("\n</powershell>")
	return w.String(), nil
}

// dns is the address of the cluster's DNS server: the class's, else the tenth of the Service range, which is where EKS
// puts it; empty if the range is unknown.
func (b Bootstrap) dns() string {
	if b.Kubelet != nil && len(b.Kubelet.ClusterDNS) > 0 {
		return b.Kubelet.ClusterDNS[0]
	}
	prefix, err := netip.ParsePrefix(b.Cluster.ServiceCIDR)
	if err != nil {
		return ""
	}
	address := prefix.Masked().Addr()
	for range 10 {
		address = address.Next()
	}
	return address.String()
}

// kubeletArgs are the kubelet's flags (kubernetes.io, command-line reference), in a fixed order.
func (b Bootstrap) kubeletArgs() string {
	taints := make([]string, 0, len(b.Taints))
	for _, t := range b.Taints {
		taints = append(taints, t.ToString())
	}
	var args []string
	add := func(flag, value string) { args = append(args, flag+"="+value) }
	list := func(flag string, values map[string]string, join string) {
		var items []string
		for _, k := range slices.Sorted(maps.Keys(values)) {
			items = append(items, k+join+values[k])
		}
		if len(items) > 0 {
			add(flag, strconv.Quote(strings.Join(items, ",")))
		}
	}
	number := func(flag string, n *int32) {
		if n != nil {
			add(flag, strconv.Itoa(int(*n)))
		}
	}
	list("--node-labels", b.Labels, "=")
	add("--register-with-taints", strconv.Quote(strings.Join(taints, ",")))
	number("--max-pods", b.maxPods())
	k := b.Kubelet
	if k == nil {
		return strings.Join(args, " ")
	}
	grace := make(map[string]string, len(k.EvictionSoftGracePeriod))
	for signal, d := range k.EvictionSoftGracePeriod {
		grace[signal] = d.Duration.String()
	}
	number("--pods-per-core", k.PodsPerCore)
	list("--system-reserved", k.SystemReserved, "=")
	list("--kube-reserved", k.KubeReserved, "=")
	list("--eviction-hard", k.EvictionHard, "<")
	list("--eviction-soft", k.EvictionSoft, "<")
	list("--eviction-soft-grace-period", grace, "=")
	number("--eviction-max-pod-grace-period", k.EvictionMaxPodGracePeriod)
	number("--image-gc-high-threshold", k.ImageGCHighThresholdPercent)
	number("--image-gc-low-threshold", k.ImageGCLowThresholdPercent)
	if k.CPUCFSQuota != nil {
		add("--cpu-cfs-quota", strconv.FormatBool(*k.CPUCFSQuota))
	}
	return strings.Join(args, " ")
}
