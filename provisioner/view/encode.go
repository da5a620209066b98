// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"slices"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// encoder writes a signature down so that two signatures are written alike if and only if they are equal: every list and
// string begins with its length, maps are in the order of their keys. Every pod of a burst is encoded once, which is why
// this is not left to a general marshaller.
type encoder struct {
	out  []byte
	keys []string
}

// id digests the signature; 128 bits, so that equal IDs are equal signatures for all practical purposes.
func (e *encoder) id(s *signature) string {
	e.out = e.out[:0]
	e.text(s.Namespace)
	e.labels(s.Labels)
	e.resources(s.Requests)
	e.labels(s.Selector)
	e.present(s.Affinity != nil)
	if s.Affinity != nil {
		each(e, s.Affinity.NodeSelectorTerms, e.nodeTerm)
	}
	each(e, s.Preferred, func(p corev1.PreferredSchedulingTerm) {
		e.number(int64(p.Weight))
		e.nodeTerm(p.Preference)
	})
	e.present(s.Volumes != nil)
	each(e, s.Volumes, func(v []corev1.NodeSelectorRequirement) { each(e, v, e.nodeRequirement) })
	each(e, s.Attach, e.quantity)
	each(e, s.Tolerations, func(t corev1.Toleration) { // how long a pod stays (tolerationSeconds) decides nothing here
		e.text(t.Key, string(t.Operator), t.Value, string(t.Effect))
	})
	each(e, s.Ports, func(p capacity.HostPort) {
		e.text(p.IP, string(p.Protocol))
		e.number(int64(p.Port))
	})
	each(e, s.Spread, e.spread)
	for _, terms := range [][]term{s.PodAffinity, s.PodAnti, s.PreferredAffinity, s.PreferredAnti} {
		each(e, terms, e.podTerm)
	}
	e.text(s.Unsupported)
	sum := sha256.Sum256(e.out)
	return hex.EncodeToString(sum[:16])
}

func each[T any](e *encoder, list []T, write func(T)) {
	e.number(int64(len(list)))
	for _, v := range list {
		write(v)
	}
}

func (e *encoder) number(n int64) { e.out = binary.AppendVarint(e.out, n) }

func (e *encoder) present(yes bool) {
	if yes {
		e.out = append(e.out, 1)
	} else {
		e.out = append(e.out, 0)
	}
}

func (e *encoder) text(list ...string) {
	for _, s := range list {
		e.number(int64(len(s)))
		e.out = append(e.out, s...)
	}
}

func (e *encoder) texts(list []string) {
	e.number(int64(len(list)))
	e.text(list...)
}

func (e *encoder) labels(m map[string]string) {
	e.keys = e.keys[:0]
	for k := range m {
		e.keys = append(e.keys, k)
	}
	slices.Sort(e.keys)
	e.number(int64(len(m)))
	for _, k := range e.keys {
		e.text(k, m[k])
	}
}

func (e *encoder) resources(r capacity.Resources) {
	for _, n := range [...]int64{r.CPU, r.Memory, r.Ephemeral, r.Pods} {
		e.number(n)
	}
	each(e, r.Extended, e.quantity)
}

func (e *encoder) quantity(q capacity.Quantity) {
	e.text(string(q.Name))
	e.number(q.Value)
}

func (e *encoder) nodeTerm(t corev1.NodeSelectorTerm) {
	each(e, t.MatchExpressions, e.nodeRequirement)
	each(e, t.MatchFields, e.nodeRequirement)
}

func (e *encoder) nodeRequirement(r corev1.NodeSelectorRequirement) {
	e.text(r.Key, string(r.Operator))
	e.texts(r.Values)
}

func (e *encoder) selector(s *metav1.LabelSelector) {
	e.present(s != nil)
	if s == nil {
		return
	}
	e.labels(s.MatchLabels)
	each(e, s.MatchExpressions, func(r metav1.LabelSelectorRequirement) {
		e.text(r.Key, string(r.Operator))
		e.texts(r.Values)
	})
}

func (e *encoder) podTerm(t term) {
	e.text(t.Key)
	e.selector(t.Selector)
	e.texts(t.Namespaces)
	e.number(int64(t.Weight))
}

func (e *encoder) spread(c corev1.TopologySpreadConstraint) {
	e.text(c.TopologyKey, string(c.WhenUnsatisfiable))
	e.number(int64(c.MaxSkew))
	e.selector(c.LabelSelector)
	e.texts(c.MatchLabelKeys)
	e.present(c.MinDomains != nil)
	if c.MinDomains != nil {
		e.number(int64(*c.MinDomains))
	}
	for _, p := range [...]*corev1.NodeInclusionPolicy{c.NodeAffinityPolicy, c.NodeTaintsPolicy} {
		e.present(p != nil)
		if p != nil {
			e.text(string(*p))
		}
	}
}
