// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"encoding/base64"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

// scriptImages returns the images that shell scripts of an Amazon Linux 2023 image pull beside the node's start: those of a unit
// queued by systemd-run that hands its arguments to nerdctl pull. A script that holds up the boot meanwhile, by pulling itself
// or by waiting for the unit, is none of those.
func scriptImages(userData []byte) []string {
	scripts, err := parts(userData, "text/x-shellscript")
	if err != nil {
		return nil
	}
	var out []string
	for _, script := range scripts {
		words, err := split(strings.ReplaceAll(string(script), "\\\n", " "))
		if err != nil {
			continue
		}
		run := slices.Index(words, "systemd-run")
		if run < 0 || !slices.Contains(words[run:], "--no-block") {
			continue
		}
		// bash -c <script> <name of the script> <arguments>
		words = words[run:]
		c := slices.Index(words, "-c")
		if c < 0 || c+2 >= len(words) || !strings.Contains(words[c+1], "nerdctl --namespace k8s.io pull") {
			continue
		}
		for _, word := range words[c+3:] {
			if word == "||" || word == "&&" || word == ";" {
				break
			}
			out = append(out, word)
		}
	}
	return out
}

// staticPodImages returns the images of the static pods that Bottlerocket settings define.
func staticPodImages(settings tree) []string {
	var out []string
	pods := settings.table("static-pods")
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		static := pods.table(name)
		manifest, err := base64.StdEncoding.DecodeString(static.text("manifest"))
		if on, ok := static["enabled"].(bool); err != nil || !ok || !on {
			continue
		}
		var pod corev1.Pod
		if yaml.UnmarshalStrict(manifest, &pod) != nil || pod.Kind != "Pod" {
			continue // the kubelet logs an error and goes on
		}
		for _, c := range slices.Concat(pod.Spec.InitContainers, pod.Spec.Containers) {
			out = append(out, c.Image)
		}
	}
	return out
}
