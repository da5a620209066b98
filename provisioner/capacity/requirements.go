// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Requirements is a conjunction of requirements, at most one a key, keyed by canonical label key.
// A key that is absent is unconstrained. A nil Requirements allows everything.
type Requirements map[string]Requirement

// NewRequirements builds the conjunction of all given requirements.
func NewRequirements(reqs ...Requirement) Requirements {
	out := make(Requirements, len(reqs))
	for _, r := range reqs {
		out.add(r)
	}
	return out
}

// FromLabels returns the requirement that every label has exactly its value.
func FromLabels(labels map[string]string) Requirements {
	out := make(Requirements, len(labels))
	for k, v := range labels {
		out.add(In(k, v))
	}
	return out
}

// FromSelectors converts node selector requirements. Each one that cannot be understood is an error.
func FromSelectors(sel []corev1.NodeSelectorRequirement) (Requirements, error) {
	out := make(Requirements, len(sel))
	for _, s := range sel {
		r, err := NewRequirement(s.Key, s.Operator, s.Values...)
		if err != nil {
			return nil, err
		}
		out.add(r)
	}
	return out, nil
}

func (r Requirements) add(q Requirement) {
	if have, ok := r[q.Key]; ok {
		q = have.Intersect(q)
	}
	r[q.Key] = q
}

// With returns a new conjunction that also holds more; r stays as it is.
func (r Requirements) With(more ...Requirement) Requirements {
	out := maps.Clone(r)
	if out == nil {
		out = Requirements{}
	}
	for _, q := range more {
		out.add(q)
	}
	return out
}

// And returns the conjunction of r and o; both stay as they are.
func (r Requirements) And(o Requirements) Requirements {
	out := maps.Clone(r)
	if out == nil {
		out = Requirements{}
	}
	for _, q := range o {
		out.add(q)
	}
	return out
}

// Get returns the requirement on key; if there is none, one that every value and no value satisfies.
func (r Requirements) Get(key string) Requirement {
	if q, ok := r[CanonicalKey(key)]; ok {
		return q
	}
	return Requirement{Key: CanonicalKey(key), complement: true}
}

// Keys returns the constrained keys, sorted.
func (r Requirements) Keys() []string { return slices.Sorted(maps.Keys(r)) }

// Mismatch says why two requirement sets cannot both hold.
type Mismatch struct {
	Key string
	// Wanted is what the pod side asks; Offered what the node side allows (zero Key when the node side does not define the key).
	Wanted, Offered Requirement
}

// Error describes the mismatch in one line.
func (c *Mismatch) Error() string {
	if c.Key == NodeNameField && c.Offered.Key == "" {
		return fmt.Sprintf("the pod names its node (matchFields, metadata.name in %v), a new node has another name", c.Wanted.Values())
	}
	if c.Wanted.Impossible() {
		return fmt.Sprintf("no node satisfies the pod: %s", c.Wanted)
	}
	if c.Offered.Key == "" {
		return fmt.Sprintf("label %q is not defined (wanted %s)", c.Key, c.Wanted)
	}
	return fmt.Sprintf("wanted %s, offered %s", c.Wanted, c.Offered)
}

// Compatible reports whether a node described by r can satisfy the pod-side requirements, nil if so.
// A key that r does not define is a conflict unless the pod accepts the label's absence, or wellKnown
// says the key will be defined by the instance that is bought. (Karpenter core, Requirements.Compatible.)
func (r Requirements) Compatible(pod Requirements, wellKnown func(string) bool) *Mismatch {
	for _, key := range pod.Keys() {
		want := pod[key]
		if _, ok := r[key]; ok || want.AllowsAbsent() || (wellKnown != nil && wellKnown(key)) {
			continue
		}
		return &Mismatch{Key: key, Wanted: want}
	}
	return r.Overlaps(pod)
}

// Overlaps reports whether, for every key both sides constrain, some value is allowed by both. An empty
// intersection is tolerated when both sides accept the absence of the label. (Karpenter core, Requirements.Intersects.)
func (r Requirements) Overlaps(o Requirements) *Mismatch {
	small, large := r, o
	if len(small) > len(large) {
		small, large = large, small
	}
	first := ""
	for key := range small {
		if _, ok := large[key]; !ok {
			continue
		}
		a, b := r[key], o[key]
		if a.Intersects(b) || (a.AllowsAbsent() && b.AllowsAbsent()) {
			continue
		}
		if first == "" || key < first {
			first = key
		}
	}
	if first == "" {
		return nil
	}
	return &Mismatch{Key: first, Wanted: o[first], Offered: r[first]}
}

// MatchesLabels reports whether a node with exactly these labels satisfies r, as the scheduler's NodeAffinity
// does: NotIn and DoesNotExist accept an absent label, everything else needs it.
func (r Requirements) MatchesLabels(labels map[string]string) bool {
	for key, q := range r {
		v, ok := labelValue(labels, key)
		if !ok {
			if !q.AllowsAbsent() {
				return false
			}
			continue
		}
		if !q.Has(v) {
			return false
		}
	}
	return true
}

// labelValue looks a canonical key up in a label map that may carry one of its aliases.
func labelValue(labels map[string]string, key string) (string, bool) {
	if v, ok := labels[key]; ok {
		return v, true
	}
	for _, alias := range aliasesOf(key) {
		if v, ok := labels[alias]; ok {
			return v, true
		}
	}
	return "", false
}

// String prints the requirements sorted by key.
func (r Requirements) String() string {
	parts := make([]string, 0, len(r))
	for _, k := range r.Keys() {
		parts = append(parts, r[k].String())
	}
	return strings.Join(parts, ", ")
}
