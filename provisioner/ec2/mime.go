// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"errors"
	"io"
	"maps"
	"mime"
	"mime/multipart"
	"net/mail"
	"slices"
	"strings"

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
