// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/json"
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

const (
	nodeConfigHeader = "Content-Type: application/node.eks.aws\n"
	shellHeader      = "Content-Type: text/x-shellscript; charset=\"us-ascii\"\n"
	// mimeBoundary is the one of the EKS user guide's examples.
	mimeBoundary = "//"
)

// mimePart is one part of a multipart archive: its header lines and its body as they stand.
type mimePart struct {
	header string
	body   string
}

func mimeArchive(parts []mimePart) string {
	var b strings.Builder
	b.WriteString("MIME-Version: 1.0\nContent-Type: multipart/mixed; boundary=\"" + mimeBoundary + "\"\n\n")
	for _, p := range parts {
		b.WriteString("--" + mimeBoundary + "\n" + p.header + "\n" + p.body + "\n")
	}
	b.WriteString("--" + mimeBoundary + "--\n")
	return b.String()
}

// scriptParts reads a class's user data for AL2: a MIME archive as it is, anything else as a shell script.
func scriptParts(text string) ([]mimePart, error) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return nil, nil
	case isArchive(trimmed):
		return readArchive(trimmed + "\n")
	}
	return []mimePart{{header: shellHeader, body: text}}, nil
}

func isArchive(text string) bool {
	return strings.HasPrefix(text, "MIME-Version:") || strings.HasPrefix(text, "Content-Type:")
}

// userParts reads a class's user data for AL2023: a MIME archive as it is, YAML as a NodeConfig, anything else as a
// shell script (EC2NodeClass reference, spec.userData).
func userParts(text string) ([]mimePart, error) {
	trimmed := strings.TrimSpace(text)
	switch {
	case trimmed == "":
		return nil, nil
	case isArchive(trimmed):
		return readArchive(trimmed + "\n")
	case strings.HasPrefix(trimmed, "#!"):
		return []mimePart{{header: shellHeader, body: text}}, nil
	}
	if err := yaml.Unmarshal([]byte(text), &map[string]any{}); err == nil {
		return []mimePart{{header: nodeConfigHeader, body: text}}, nil
	}
	return []mimePart{{header: shellHeader, body: text}}, nil
}

func readArchive(text string) ([]mimePart, error) {
	message, err := mail.ReadMessage(strings.NewReader(text))
	if err != nil {
		return nil, invalid("spec.userData: reading the MIME header: %w", err)
	}
	kind, params, err := mime.ParseMediaType(message.Header.Get("Content-Type"))
	if err != nil || !strings.HasPrefix(kind, "multipart/") || params["boundary"] == "" {
		return nil, invalid("spec.userData: a MIME archive needs Content-Type multipart/mixed with a boundary")
	}
	var out []mimePart
	reader := multipart.NewReader(message.Body, params["boundary"])
	for {
		p, err := reader.NextRawPart()
		if errors.Is(err, io.EOF) {
			return out, nil
		}
		if err != nil {
			return nil, invalid("spec.userData: reading MIME part %d: %w", len(out)+1, err)
		}
		body, err := io.ReadAll(p)
		if err != nil {
			return nil, invalid("spec.userData: reading MIME part %d: %w", len(out)+1, err)
		}
		var header strings.Builder
		for _, k := range slices.Sorted(maps.Keys(p.Header)) {
			for _, v := range p.Header[k] {
				header.WriteString(k + ": " + v + "\n")
			}
		}
		out = append(out, mimePart{header: header.String(), body: string(body)})
	}
}

// NodeConfigKubelet returns the settings that the user data of an AL2023 class gives the kubelet itself, by name: those of
// spec.kubelet.config of the NodeConfigs in it. Errors are of kind Invalid.
func NodeConfigKubelet(class *v1.EC2NodeClass) (map[string]json.RawMessage, error) {
	family, err := Family(class)
	if err != nil || family != v1.AMIFamilyAL2023 {
		return nil, err
	}
	parts, err := userParts(deref(class.Spec.UserData))
	if err != nil {
		return nil, err
	}
	out := map[string]json.RawMessage{}
	for _, p := range parts {
		if !strings.Contains(p.header, "application/node.eks.aws") {
			continue
		}
		var config struct {
			Spec struct {
				Kubelet struct {
					Config map[string]json.RawMessage `json:"config"`
				} `json:"kubelet"`
			} `json:"spec"`
		}
		if err := yaml.Unmarshal([]byte(p.body), &config); err != nil {
			return nil, invalid("spec.userData: reading the NodeConfig: %w", err)
		}
		maps.Copy(out, config.Spec.Kubelet.Config)
	}
	return out, nil
}
