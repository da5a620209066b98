// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// Label marks the ConfigMaps, ClassAnnotation names the class of one, TimeAnnotation says when it was written (RFC 3339).
	Label           = "slipway.sh/catalog"
	ClassAnnotation = "slipway.sh/node-class"
	TimeAnnotation  = "slipway.sh/catalog-at"
	// key is the entry of the ConfigMap.
	key = "catalog.json.gz"
	// format is refused if it is another.
	format = 1
	// maxSize bounds what is read, decompressed, in bytes.
	maxSize = 64 << 20
)

type document struct {
	Format int            `json:"format"`
	Types  []instanceType `json:"types"`
	// Choices are requirements as node selectors spell them.
	Choices []corev1.NodeSelectorRequirement `json:"choices,omitempty"`
}

type instanceType struct {
	Name        string              `json:"name"`
	Labels      map[string]string   `json:"labels"`
	Absent      []string            `json:"absent,omitempty"`
	Capacity    capacity.Resources  `json:"capacity"`
	Allocatable capacity.Resources  `json:"allocatable"`
	BootPods    int32               `json:"bootPods,omitempty"`
	Offerings   []capacity.Offering `json:"offerings"`
}

// Name is the name of a class's ConfigMap.
func Name(class string) string { return "slipway-catalog-" + class }

// Encode makes the ConfigMap of a class's catalogue.
func Encode(namespace, class string, c *capacity.Catalog, now time.Time) (*corev1.ConfigMap, error) {
	d := document{Format: format}
	for _, t := range c.Types {
		d.Types = append(d.Types, instanceType{t.Name, t.Labels, t.Absent, t.Capacity, t.Allocatable, t.BootPods, t.Offerings})
	}
	for _, k := range c.Choices.Keys() {
		d.Choices = append(d.Choices, c.Choices[k].Selectors()...)
	}
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(d); err != nil {
		return nil, fmt.Errorf("writing the catalogue of class %q: %w", class, err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("writing the catalogue of class %q: %w", class, err)
	}
	return &corev1.ConfigMap{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace, Name: Name(class), Labels: map[string]string{Label: "true"},
			Annotations: map[string]string{ClassAnnotation: class, TimeAnnotation: now.UTC().Format(time.RFC3339)},
		},
		BinaryData: map[string][]byte{key: b.Bytes()},
	}, nil
}

// Decode reads a ConfigMap that Encode made.
func Decode(m *corev1.ConfigMap) (class string, c *capacity.Catalog, written time.Time, err error) {
	class = m.Annotations[ClassAnnotation]
	if class == "" {
		return "", nil, written, fmt.Errorf("ConfigMap %q: annotation %s is missing", m.Name, ClassAnnotation)
	}
	if written, err = time.Parse(time.RFC3339, m.Annotations[TimeAnnotation]); err != nil {
		return "", nil, written, fmt.Errorf("ConfigMap %q: annotation %s: %w", m.Name, TimeAnnotation, err)
	}
	z, err := gzip.NewReader(bytes.NewReader(m.BinaryData[key]))
	if err != nil {
		return "", nil, written, fmt.Errorf("ConfigMap %q: binaryData[%s]: %w", m.Name, key, err)
	}
	var d document
	if err := json.NewDecoder(io.LimitReader(z, maxSize)).Decode(&d); err != nil {
		return "", nil, written, fmt.Errorf("ConfigMap %q: binaryData[%s]: %w", m.Name, key, err)
	}
	if d.Format != format {
		return "", nil, written, fmt.Errorf("ConfigMap %q: format %d is not %d; update slipway-webhook and slipway-scheduler together", m.Name, d.Format, format)
	}
	types := make([]*capacity.InstanceType, len(d.Types))
	for i, t := range d.Types {
		types[i] = &capacity.InstanceType{Name: t.Name, Labels: t.Labels, Absent: t.Absent, Capacity: t.Capacity, Allocatable: t.Allocatable, BootPods: t.BootPods, Offerings: t.Offerings}
	}
	c = capacity.NewCatalog(types)
	if len(d.Choices) > 0 {
		if c.Choices, err = capacity.FromSelectors(d.Choices); err != nil {
			return "", nil, written, fmt.Errorf("ConfigMap %q: choices: %w", m.Name, err)
		}
	}
	return class, c, written, nil
}
