// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"encoding/base64"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// ParseBottlerocket reads user data as Bottlerocket does: settings.kubernetes in
// TOML. The error is the reason why the machine would not become a node.
func ParseBottlerocket(userData []byte) (*Config, error) {
	document, err := parseTOML(string(userData))
	if err != nil {
		return nil, fmt.Errorf("parsing settings: %w", err)
	}
	settings := document.table("settings").table("kubernetes")
	ca, err := base64.StdEncoding.DecodeString(settings.text("cluster-certificate"))
	if err != nil {
		return nil, fmt.Errorf("parsing settings: cluster-certificate: %w", err)
	}
	c := &Config{
		ClusterName:    settings.text("cluster-name"),
		Endpoint:       settings.text("api-server"),
		CA:             ca,
		MaxPods:        int(settings.number("max-pods")),
		KubeReserved:   settings.table("kube-reserved").texts(),
		SystemReserved: settings.table("system-reserved").texts(),
		EvictionHard:   settings.table("eviction-hard").texts(),
		Labels:         settings.table("node-labels").texts(),
		Images:         staticPodImages(settings),
	}
	taints := settings.table("node-taints")
	for _, key := range slices.Sorted(maps.Keys(taints)) {
		for _, value := range taints.list(key) {
			// "value:Effect", the value may be empty.
			i := strings.LastIndex(value, ":")
			if i < 0 {
				return nil, fmt.Errorf("parsing settings: taint %q has no effect", key)
			}
			c.Taints = append(c.Taints, corev1.Taint{Key: key, Value: value[:i], Effect: corev1.TaintEffect(value[i+1:])})
		}
	}
	return c, c.validate()
}
