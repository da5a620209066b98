// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/yaml"
)

const (
	nodeConfigKind    = "NodeConfig"
	nodeConfigGroup   = "node.eks.aws/"
	nodeConfigContent = "application/node.eks.aws"
)

// nodeConfig is the part of node.eks.aws/v1alpha1 that decides about the node.
type nodeConfig struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Spec       struct {
		Cluster struct {
			Name                 string `json:"name"`
			APIServerEndpoint    string `json:"apiServerEndpoint"`
			CertificateAuthority string `json:"certificateAuthority"`
			CIDR                 string `json:"cidr"`
		} `json:"cluster"`
		Instance struct {
			LocalStorage struct {
				Strategy string `json:"strategy"`
			} `json:"localStorage"`
		} `json:"instance"`
		Kubelet struct {
			Config map[string]any `json:"config"`
			Flags  []string       `json:"flags"`
		} `json:"kubelet"`
	} `json:"spec"`
}

// kubeletConfig is the part of KubeletConfiguration that decides about the node.
type kubeletConfig struct {
	RegisterWithTaints []corev1.Taint    `json:"registerWithTaints"`
	MaxPods            int               `json:"maxPods"`
	PodsPerCore        int               `json:"podsPerCore"`
	KubeReserved       map[string]string `json:"kubeReserved"`
	SystemReserved     map[string]string `json:"systemReserved"`
	EvictionHard       map[string]string `json:"evictionHard"`
}

// ParseNodeConfig reads user data as nodeadm does: one NodeConfig document, or a
// MIME archive whose NodeConfig parts are merged, later parts over earlier ones.
// The error is the reason why nodeadm or the kubelet would not start.
func ParseNodeConfig(userData []byte) (*Config, error) {
	documents, err := parts(userData, nodeConfigContent)
	if err != nil {
		return nil, err
	}
	merged, err := mergeDocuments(documents)
	if err != nil {
		return nil, err
	}
	c, err := merged.config()
	if err != nil {
		return nil, err
	}
	c.Images = scriptImages(userData)
	return c, nil
}

// parts returns user data as it is or, of a MIME archive, its parts of one type.
func parts(userData []byte, contentType string) ([][]byte, error) {
	text := bytes.TrimSpace(userData)
	if len(text) == 0 {
		return nil, errors.New("parsing user data: it is empty")
	}
	if !bytes.HasPrefix(text, []byte("MIME-Version:")) && !bytes.HasPrefix(text, []byte("Content-Type:")) {
		return [][]byte{text}, nil
	}
	message, err := mail.ReadMessage(bytes.NewReader(text))
	if err != nil {
		return nil, fmt.Errorf("parsing MIME archive: %w", err)
	}
	_, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil {
		return nil, fmt.Errorf("parsing MIME archive: content type: %w", err)
	}
	var documents [][]byte
	archive := multipart.NewReader(message.Body, params["boundary"])
	for {
		part, err := archive.NextPart()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("parsing MIME archive: %w", err)
		}
		body, err := io.ReadAll(part)
		if err != nil {
			return nil, fmt.Errorf("parsing MIME archive: %w", err)
		}
		if content, _, _ := mime.ParseMediaType(part.Header.Get("Content-Type")); content == contentType {
			documents = append(documents, body)
		}
	}
	if len(documents) == 0 {
		return nil, fmt.Errorf("parsing user data: no part of type %s", contentType)
	}
	return documents, nil
}

func mergeDocuments(documents [][]byte) (*nodeConfig, error) {
	var merged nodeConfig
	merged.Spec.Kubelet.Config = map[string]any{}
	for _, document := range documents {
		var next nodeConfig
		if err := yaml.Unmarshal(document, &next); err != nil {
			return nil, fmt.Errorf("parsing NodeConfig: %w", err)
		}
		if next.Kind != nodeConfigKind || !strings.HasPrefix(next.APIVersion, nodeConfigGroup) {
			return nil, fmt.Errorf("parsing NodeConfig: no kind %q in version %q", next.Kind, next.APIVersion)
		}
		to, from := &merged.Spec.Cluster, next.Spec.Cluster
		override(&to.Name, from.Name)
		override(&to.APIServerEndpoint, from.APIServerEndpoint)
		override(&to.CertificateAuthority, from.CertificateAuthority)
		override(&to.CIDR, from.CIDR)
		override(&merged.Spec.Instance.LocalStorage.Strategy, next.Spec.Instance.LocalStorage.Strategy)
		mergeMaps(merged.Spec.Kubelet.Config, next.Spec.Kubelet.Config)
		merged.Spec.Kubelet.Flags = append(merged.Spec.Kubelet.Flags, next.Spec.Kubelet.Flags...)
	}
	return &merged, nil
}

func override(to *string, from string) {
	if from != "" {
		*to = from
	}
}

// mergeMaps puts from over to: maps are merged, everything else is replaced.
func mergeMaps(to, from map[string]any) {
	for key, value := range from {
		inner, isMap := value.(map[string]any)
		outer, wasMap := to[key].(map[string]any)
		if isMap && wasMap {
			outer = maps.Clone(outer)
			mergeMaps(outer, inner)
			to[key] = outer
			continue
		}
		to[key] = value
	}
}

func (n *nodeConfig) config() (*Config, error) {
	raw, err := json.Marshal(n.Spec.Kubelet.Config)
	if err != nil {
		return nil, fmt.Errorf("parsing kubelet config: %w", err)
	}
	var kubelet kubeletConfig
	if err := json.Unmarshal(raw, &kubelet); err != nil {
		return nil, fmt.Errorf("parsing kubelet config: %w", err)
	}
	ca, err := base64.StdEncoding.DecodeString(n.Spec.Cluster.CertificateAuthority)
	if err != nil {
		return nil, fmt.Errorf("parsing NodeConfig: certificateAuthority: %w", err)
	}
	if n.Spec.Cluster.CIDR == "" {
		return nil, errors.New("validating node config: cidr is missing in cluster configuration")
	}
	c := &Config{
		ClusterName:    n.Spec.Cluster.Name,
		Endpoint:       n.Spec.Cluster.APIServerEndpoint,
		CIDR:           n.Spec.Cluster.CIDR,
		CA:             ca,
		Taints:         kubelet.RegisterWithTaints,
		MaxPods:        kubelet.MaxPods,
		PodsPerCore:    kubelet.PodsPerCore,
		KubeReserved:   kubelet.KubeReserved,
		SystemReserved: kubelet.SystemReserved,
		EvictionHard:   kubelet.EvictionHard,
		RAID0:          strings.EqualFold(n.Spec.Instance.LocalStorage.Strategy, "RAID0"),
	}
	if err := c.applyFlags(n.Spec.Kubelet.Flags); err != nil {
		return nil, err
	}
	return c, c.validate()
}
