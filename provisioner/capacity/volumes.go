// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"math"
	"math/bits"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
)

// VolumeLimit is how many volumes of the CSI driver a node or type with these resources can attach; ok is false if there is
// no limit.
func (r Resources) VolumeLimit(driver string) (limit int64, ok bool) {
	for _, q := range r.Volumes {
		if string(q.Name) == driver {
			return q.Value, true
		}
	}
	return 0, false
}

// WithVolumes returns r with n volumes of the driver: a limit for what a node has, a number for what a pod asks for.
func (r Resources) WithVolumes(driver string, n int64) Resources {
	out := slices.DeleteFunc(slices.Clone(r.Volumes), func(q Quantity) bool { return string(q.Name) == driver })
	out = append(out, Quantity{Name: corev1.ResourceName(driver), Value: n})
	slices.SortFunc(out, func(a, b Quantity) int { return strings.Compare(string(a.Name), string(b.Name)) })
	r.Volumes = out
	return r
}

func (r Resources) volumesFit(free Resources) bool {
	for _, q := range r.Volumes {
		if limit, ok := free.VolumeLimit(string(q.Name)); ok && q.Value > 0 && q.Value > limit {
			return false
		}
	}
	return true
}

// mergeVolumes returns a + n·b. What is taken (n < 0) out of no limit leaves no limit, and a limit that is used up stays, as
// zero.
func mergeVolumes(a, b []Quantity, n int64) []Quantity {
	if n < 0 {
		b = slices.DeleteFunc(slices.Clone(b), func(q Quantity) bool {
			return !slices.ContainsFunc(a, func(have Quantity) bool { return have.Name == q.Name })
		})
	}
	return merge(a, b, n)
}

// minLimits is the minimum by name of two sets of limits, a missing name being no limit.
func minLimits(a, b []Quantity) []Quantity {
	if len(a) == 0 {
		return b
	}
	if len(b) == 0 {
		return a
	}
	out := slices.Clone(a)
	for _, q := range b {
		i, found := slices.BinarySearchFunc(out, q.Name, func(e Quantity, n corev1.ResourceName) int { return strings.Compare(string(e.Name), string(n)) })
		if found {
			out[i].Value = min(out[i].Value, q.Value)
		} else {
			out = slices.Insert(out, i, q)
		}
	}
	return out
}

// plus is a + b, at the ends of int64 where it would wrap around.
func plus(a, b int64) int64 {
	s := a + b
	if (a^s)&(b^s) < 0 { // both have one sign and the sum the other
		if a < 0 {
			return math.MinInt64
		}
		return math.MaxInt64
	}
	return s
}

// times is n · v, at the ends of int64 where it would wrap around.
func times(n, v int64) int64 {
	if n == 1 {
		return v
	}
	hi, lo := bits.Mul64(magnitude(n), magnitude(v))
	switch {
	case hi == 0 && lo <= math.MaxInt64:
		return n * v
	case (n < 0) != (v < 0):
		return math.MinInt64
	default:
		return math.MaxInt64
	}
}

// magnitude is |v|, also of the smallest value.
func magnitude(v int64) uint64 {
	if v < 0 {
		return -uint64(v)
	}
	return uint64(v)
}
