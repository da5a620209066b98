// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import "math/bits"

// Set is a fixed-size bit set over the offerings of one [Catalog], bit i standing
// for Catalog.Offerings[i]. Because offerings are sorted by price, the first
// element of a set is its cheapest. Methods never modify their receiver.
type Set []uint64

// NewSet returns an empty set that can hold n elements.
func NewSet(n int) Set { return make(Set, (n+63)/64) }

// FullSet returns the set of 0 … n-1.
func FullSet(n int) Set {
	s := NewSet(n)
	for i := range s {
		s[i] = ^uint64(0)
	}
	if r := n % 64; r != 0 {
		s[len(s)-1] = 1<<r - 1
	}
	return s
}

// Add puts i into s in place; for building a set before it is shared.
func (s Set) Add(i int) { s[i/64] |= 1 << (i % 64) }

// Remove takes i out of s in place; for building a set before it is shared.
func (s Set) Remove(i int) { s[i/64] &^= 1 << (i % 64) }

// Has reports whether i is in s.
func (s Set) Has(i int) bool { return s[i/64]&(1<<(i%64)) != 0 }

// And returns the intersection as a new set.
func (s Set) And(o Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i] & o[i]
	}
	return out
}

// AndNot returns s without the elements of o as a new set.
func (s Set) AndNot(o Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i] &^ o[i]
	}
	return out
}

// Or returns the union as a new set.
func (s Set) Or(o Set) Set {
	out := make(Set, len(s))
	for i := range s {
		out[i] = s[i] | o[i]
	}
	return out
}

// Intersects reports whether the intersection is not empty.
func (s Set) Intersects(o Set) bool {
	for i := range s {
		if s[i]&o[i] != 0 {
			return true
		}
	}
	return false
}

// Empty reports whether s has no element.
func (s Set) Empty() bool {
	for _, w := range s {
		if w != 0 {
			return false
		}
	}
	return true
}

// Len counts the elements.
func (s Set) Len() int {
	n := 0
	for _, w := range s {
		n += bits.OnesCount64(w)
	}
	return n
}

// First returns the smallest element, -1 if there is none.
func (s Set) First() int {
	for i, w := range s {
		if w != 0 {
			return i*64 + bits.TrailingZeros64(w)
		}
	}
	return -1
}

// All iterates over the elements in ascending order.
func (s Set) All(yield func(int) bool) {
	for i, w := range s {
		for w != 0 {
			if !yield(i*64 + bits.TrailingZeros64(w)) {
				return
			}
			w &= w - 1
		}
	}
}
