// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// Operators beyond Kubernetes' own NodeSelectorOperator that Karpenter v1 NodePools accept.
const (
	OpGte corev1.NodeSelectorOperator = "Gte"
	OpLte corev1.NodeSelectorOperator = "Lte"
)

// Requirement is the set of values one label key may have. It is either a finite
// set of values or the complement of one, in both cases cut down to integers
// within optional inclusive bounds. The empty finite set means the label must not
// exist, or, when it came from operators that want the label, that nothing
// satisfies the requirement. The semantics are Karpenter v1's
// (pkg/scheduling/requirement.go): Gt N is stored as ≥ N+1, Lt N as ≤ N−1, and a
// bounded requirement admits integers only. Unlike Karpenter, a requirement
// remembers that it wants the label to be there: Exists and NotIn together do not
// accept its absence, nor does In [a] and In [b] mean DoesNotExist. That is how
// the scheduler reads them, and a node bought on the other reading stays empty.
type Requirement struct {
	Key        string
	complement bool
	present    bool     // the label has to be there: In, Exists or a bound is part of the requirement
	values     []string // sorted, unique
	gte, lte   *int64
	// MinValues is how many distinct values must stay available (Karpenter's minValues); 0 if unset.
	MinValues int
}

// CanonicalKey returns the label key that key is a deprecated or provider-specific alias of, or key itself. The aliases
// are Karpenter's NormalizedLabels and the EBS CSI driver's zone key, which its AWS provider adds.
func CanonicalKey(key string) string {
	switch key {
	case corev1.LabelFailureDomainBetaZone, ebsZoneLabel:
		return corev1.LabelTopologyZone
	case corev1.LabelFailureDomainBetaRegion:
		return corev1.LabelTopologyRegion
	case betaArchLabel:
		return corev1.LabelArchStable
	case betaOSLabel:
		return corev1.LabelOSStable
	case corev1.LabelInstanceType:
		return corev1.LabelInstanceTypeStable
	}
	return key
}

const (
	ebsZoneLabel  = "topology.ebs.csi.aws.com/zone"
	betaArchLabel = "beta.kubernetes.io/arch"
	betaOSLabel   = "beta.kubernetes.io/os"
)

// aliasesOf lists the keys that CanonicalKey turns into key, the one to be trusted most first.
func aliasesOf(key string) []string {
	switch key {
	case corev1.LabelTopologyZone:
		return []string{ebsZoneLabel, corev1.LabelFailureDomainBetaZone}
	case corev1.LabelTopologyRegion:
		return []string{corev1.LabelFailureDomainBetaRegion}
	case corev1.LabelArchStable:
		return []string{betaArchLabel}
	case corev1.LabelOSStable:
		return []string{betaOSLabel}
	case corev1.LabelInstanceTypeStable:
		return []string{corev1.LabelInstanceType}
	}
	return nil
}

// NewRequirement builds a requirement. Gt, Lt, Gte and Lte take exactly one integer.
// An operator or value that cannot be understood gives an error naming both.
func NewRequirement(key string, op corev1.NodeSelectorOperator, values ...string) (Requirement, error) {
	r := Requirement{Key: CanonicalKey(key)}
	switch op {
	case corev1.NodeSelectorOpIn:
		r.present, r.values = true, sortedUnique(values)
	case corev1.NodeSelectorOpNotIn:
		r.complement, r.values = true, sortedUnique(values)
	case corev1.NodeSelectorOpExists:
		r.complement, r.present = true, true
	case corev1.NodeSelectorOpDoesNotExist:
	case corev1.NodeSelectorOpGt, corev1.NodeSelectorOpLt, OpGte, OpLte:
		if len(values) != 1 {
			return Requirement{}, fmt.Errorf("requirement on %q: operator %q takes exactly one integer, got %d values", key, op, len(values))
		}
		n, err := strconv.ParseInt(values[0], 10, 64)
		if err != nil {
			return Requirement{}, fmt.Errorf("requirement on %q: operator %q needs an integer, got %q", key, op, values[0])
		}
		r.bound(op, n)
	default:
		return Requirement{}, fmt.Errorf("requirement on %q: unknown operator %q (use In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte or Lte)", key, op)
	}
	return r, nil
}

// bound turns r, the empty finite set, into the integers op allows.
func (r *Requirement) bound(op corev1.NodeSelectorOperator, n int64) {
	r.present = true
	switch {
	case op == corev1.NodeSelectorOpGt && n == math.MaxInt64, op == corev1.NodeSelectorOpLt && n == math.MinInt64:
		return // no integer is beyond the last one: stays the empty set, which nothing satisfies
	case op == corev1.NodeSelectorOpGt:
		n++
		r.gte = &n
	case op == OpGte:
		r.gte = &n
	case op == corev1.NodeSelectorOpLt:
		n--
		r.lte = &n
	default:
		r.lte = &n
	}
	r.complement = true
}

// In returns the requirement that key has one of values.
func In(key string, values ...string) Requirement {
	return Requirement{Key: CanonicalKey(key), present: true, values: sortedUnique(values)}
}

// Exists returns the requirement that key has any value.
func Exists(key string) Requirement {
	return Requirement{Key: CanonicalKey(key), complement: true, present: true}
}

// DoesNotExist returns the requirement that key is absent.
func DoesNotExist(key string) Requirement { return Requirement{Key: CanonicalKey(key)} }

func sortedUnique(values []string) []string {
	if len(values) == 0 {
		return nil
	}
	out := slices.Clone(values)
	slices.Sort(out)
	return slices.Compact(out)
}

// Operator is the operator that describes the set: In, DoesNotExist, NotIn, or Exists (also for bounded sets).
func (r Requirement) Operator() corev1.NodeSelectorOperator {
	switch {
	case r.complement && len(r.values) > 0:
		return corev1.NodeSelectorOpNotIn
	case r.complement:
		return corev1.NodeSelectorOpExists
	case len(r.values) > 0:
		return corev1.NodeSelectorOpIn
	default:
		return corev1.NodeSelectorOpDoesNotExist
	}
}

// Values returns the listed values, sorted: the allowed ones for In, the excluded ones for NotIn. Not to be modified.
func (r Requirement) Values() []string { return r.values }

// Finite reports whether the allowed values are an explicit list (In or DoesNotExist).
func (r Requirement) Finite() bool { return !r.complement }

// Has reports whether the value is allowed.
func (r Requirement) Has(value string) bool {
	_, listed := slices.BinarySearch(r.values, value)
	return listed != r.complement && r.withinBounds(value)
}

func (r Requirement) withinBounds(value string) bool {
	if r.gte == nil && r.lte == nil {
		return true
	}
	n, err := strconv.ParseInt(value, 10, 64)
	return err == nil && (r.gte == nil || n >= *r.gte) && (r.lte == nil || n <= *r.lte)
}

// Any returns one value the requirement allows, always the same one: the first of a list, else the smallest integer that is
// not negative, as Karpenter draws them (any other could not be a label). False if there is none.
func (r Requirement) Any() (string, bool) {
	if !r.complement {
		for _, v := range r.values {
			if r.withinBounds(v) {
				return v, true
			}
		}
		return "", false
	}
	n := int64(0)
	if r.gte != nil {
		n = max(n, *r.gte)
	}
	for range len(r.values) + 1 { // each value that is left out excludes one integer
		v := strconv.FormatInt(n, 10)
		if r.Has(v) {
			return v, true
		}
		if n == math.MaxInt64 {
			break
		}
		n++
	}
	return "", false
}

// AllowsAbsent reports whether a node without the label satisfies the requirement.
func (r Requirement) AllowsAbsent() bool { return !r.present }

// Impossible reports whether no node satisfies the requirement, with the label or without it.
func (r Requirement) Impossible() bool { return r.present && !r.complement && len(r.values) == 0 }

// Intersect returns the requirement both r and o allow. Crossing bounds collapse to the empty set;
// bounds are dropped once the result is a finite set; MinValues is the greater of the two.
func (r Requirement) Intersect(o Requirement) Requirement {
	out := Requirement{Key: r.Key, MinValues: max(r.MinValues, o.MinValues), present: r.present || o.present}
	gte, lte := maxBound(r.gte, o.gte), minBound(r.lte, o.lte)
	if gte != nil && lte != nil && *gte > *lte {
		return out
	}
	switch {
	case r.complement && o.complement:
		out.complement, out.gte, out.lte = true, gte, lte
		for _, v := range sortedUnique(append(slices.Clone(r.values), o.values...)) {
			if out.withinBounds(v) {
				out.values = append(out.values, v)
			}
		}
		return out
	case r.complement:
		r, o = o, r
	}
	for _, v := range r.values {
		if r.withinBounds(v) && o.Has(v) {
			out.values = append(out.values, v)
		}
	}
	return out
}

// Intersects reports whether some value is allowed by both.
func (r Requirement) Intersects(o Requirement) bool {
	if r.complement && o.complement {
		gte, lte := maxBound(r.gte, o.gte), minBound(r.lte, o.lte)
		return gte == nil || lte == nil || *gte <= *lte
	}
	if r.complement {
		r, o = o, r
	}
	for _, v := range r.values {
		if r.withinBounds(v) && o.Has(v) {
			return true
		}
	}
	return false
}

func maxBound(a, b *int64) *int64 {
	if a == nil || (b != nil && *b > *a) {
		return b
	}
	return a
}

func minBound(a, b *int64) *int64 {
	if a == nil || (b != nil && *b < *a) {
		return b
	}
	return a
}

// Selectors returns the node selector requirements that spell r out, in the form NodeClaims carry
// them; several where one operator can express only a part, for instance one of two bounds. NewRequirement and Intersect
// bring them back together.
func (r Requirement) Selectors() []corev1.NodeSelectorRequirement {
	bounded := func(op corev1.NodeSelectorOperator, n int64) corev1.NodeSelectorRequirement {
		return corev1.NodeSelectorRequirement{Key: r.Key, Operator: op, Values: []string{strconv.FormatInt(n, 10)}}
	}
	var out []corev1.NodeSelectorRequirement
	if r.gte != nil {
		out = append(out, bounded(OpGte, *r.gte))
	}
	if r.lte != nil {
		out = append(out, bounded(OpLte, *r.lte))
	}
	if r.present && (r.Operator() == corev1.NodeSelectorOpNotIn || r.Operator() == corev1.NodeSelectorOpDoesNotExist) && len(out) == 0 {
		out = append(out, corev1.NodeSelectorRequirement{Key: r.Key, Operator: corev1.NodeSelectorOpExists})
	}
	if len(r.values) > 0 || r.Impossible() || len(out) == 0 {
		out = append(out, corev1.NodeSelectorRequirement{Key: r.Key, Operator: r.Operator(), Values: slices.Clone(r.values)})
	}
	return out
}

// String prints the requirement as people write it, at most five values.
func (r Requirement) String() string {
	if r.Impossible() {
		return r.Key + " with no possible value"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", r.Key, r.Operator())
	if n := len(r.values); n > 5 {
		fmt.Fprintf(&b, " [%s and %d others]", strings.Join(r.values[:5], " "), n-5)
	} else if n > 0 {
		fmt.Fprintf(&b, " [%s]", strings.Join(r.values, " "))
	}
	if r.gte != nil {
		fmt.Fprintf(&b, " >=%d", *r.gte)
	}
	if r.lte != nil {
		fmt.Fprintf(&b, " <=%d", *r.lte)
	}
	if r.MinValues > 0 {
		fmt.Fprintf(&b, " minValues %d", r.MinValues)
	}
	return b.String()
}
