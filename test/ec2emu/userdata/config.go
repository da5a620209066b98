// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeletapis "k8s.io/kubelet/pkg/apis"
)

// Config is what user data asks of the node.
type Config struct {
	// ClusterName, Endpoint, CA (PEM) and CIDR (of Services) name the cluster.
	ClusterName, Endpoint, CIDR string
	CA                          []byte
	// Labels and Taints are those the kubelet registers with.
	Labels map[string]string
	Taints []corev1.Taint
	// MaxPods is zero when user data does not say, and so is PodsPerCore.
	MaxPods, PodsPerCore int
	// KubeReserved, SystemReserved and EvictionHard hold the keys user data sets.
	KubeReserved, SystemReserved, EvictionHard map[string]string
	// RAID0 says that the instance store becomes the node's ephemeral storage.
	RAID0 bool
	// Images are pulled while the machine boots, beside everything else.
	Images []string
}

// validate reports what keeps nodeadm or the kubelet from starting.
func (c *Config) validate() error {
	switch {
	case c.ClusterName == "":
		return fmt.Errorf("validating node config: name is missing in cluster configuration")
	case c.Endpoint == "":
		return fmt.Errorf("validating node config: apiServerEndpoint is missing in cluster configuration")
	case len(c.CA) == 0:
		return fmt.Errorf("validating node config: certificateAuthority is missing in cluster configuration")
	}
	for key, value := range c.Labels {
		if err := validateLabel(key, value); err != nil {
			return err
		}
	}
	for _, taint := range c.Taints {
		if err := validateTaint(taint); err != nil {
			return err
		}
	}
	return nil
}

// validateLabel is the kubelet's check of --node-labels: it refuses to start
// with a label in a Kubernetes namespace that kubelets may not set.
func validateLabel(key, value string) error {
	if problems := validation.IsQualifiedName(key); len(problems) > 0 {
		return fmt.Errorf("validating kubelet flags: label key %q: %s", key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
		return fmt.Errorf("validating kubelet flags: value of label %q: %s", key, strings.Join(problems, "; "))
	}
	namespace, _, ok := strings.Cut(key, "/")
	if !ok {
		return nil
	}
	kubernetes := namespace == "kubernetes.io" || strings.HasSuffix(namespace, ".kubernetes.io") ||
		namespace == "k8s.io" || strings.HasSuffix(namespace, ".k8s.io")
	if kubernetes && !kubeletapis.IsKubeletLabel(key) {
		return fmt.Errorf("validating kubelet flags: unknown 'kubernetes.io' or 'k8s.io' label %q specified with --node-labels", key)
	}
	return nil
}

func validateTaint(t corev1.Taint) error {
	if problems := validation.IsQualifiedName(t.Key); len(problems) > 0 {
		return fmt.Errorf("validating kubelet config: taint key %q: %s", t.Key, strings.Join(problems, "; "))
	}
	if problems := validation.IsValidLabelValue(t.Value); len(problems) > 0 {
		return fmt.Errorf("validating kubelet config: value of taint %q: %s", t.Key, strings.Join(problems, "; "))
	}
	effects := []corev1.TaintEffect{corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule, corev1.TaintEffectNoExecute}
	if !slices.Contains(effects, t.Effect) {
		return fmt.Errorf("validating kubelet config: taint %q has unknown effect %q", t.Key, t.Effect)
	}
	return nil
}

// applyFlags reads the kubelet flags that say something about the node; flags
// win over the configuration file, as in the kubelet.
func (c *Config) applyFlags(flags []string) error {
	for _, flag := range flags {
		name, value, _ := strings.Cut(strings.TrimSpace(flag), "=")
		value = strings.Trim(value, `"'`)
		switch strings.TrimLeft(name, "-") {
		case "node-labels":
			for pair := range strings.SplitSeq(value, ",") {
				if pair = strings.TrimSpace(pair); pair == "" {
					continue
				}
				key, val, ok := strings.Cut(pair, "=")
				if !ok {
					return fmt.Errorf("parsing kubelet flags: label %q has no value", pair)
				}
				c.setLabel(key, val)
			}
		case "register-with-taints":
			taints, err := parseTaints(value)
			if err != nil {
				return err
			}
			c.Taints = append(c.Taints, taints...)
		case "max-pods":
			n, err := strconv.Atoi(value)
			if err != nil || n < 1 {
				return fmt.Errorf("parsing kubelet flags: max-pods %q is no positive number", value)
			}
			c.MaxPods = n
		case "pods-per-core":
			n, err := strconv.Atoi(value)
			if err != nil || n < 0 {
				return fmt.Errorf("parsing kubelet flags: pods-per-core %q is no number", value)
			}
			c.PodsPerCore = n
		case "kube-reserved":
			c.KubeReserved = pairs(value, "=")
		case "system-reserved":
			c.SystemReserved = pairs(value, "=")
		case "eviction-hard":
			c.EvictionHard = pairs(value, "<")
		}
	}
	return nil
}

func (c *Config) setLabel(key, value string) {
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	c.Labels[key] = value
}

// parseTaints reads the form key=value:effect,key:effect of kubelet flags.
func parseTaints(text string) ([]corev1.Taint, error) {
	var taints []corev1.Taint
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part == "" {
			continue
		}
		pair, effect, ok := strings.Cut(part, ":")
		if !ok {
			return nil, fmt.Errorf("parsing kubelet flags: taint %q has no effect", part)
		}
		key, value, _ := strings.Cut(pair, "=")
		taints = append(taints, corev1.Taint{Key: key, Value: value, Effect: corev1.TaintEffect(effect)})
	}
	return taints, nil
}
