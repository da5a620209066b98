// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/binary"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"time"
)

// seeded makes every random choice of an emulator from its seed and from labels
// that say what is drawn, so that a draw does not depend on how many others
// there were before it.
type seeded uint64

// draw returns the generator for what labels describe.
func (s seeded) draw(labels ...string) *rand.Rand {
	h := fnv.New64a()
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], uint64(s))
	_, _ = h.Write(seed[:])
	for _, l := range labels {
		_, _ = h.Write([]byte(l))
		_, _ = h.Write([]byte{0})
	}
	return rand.New(rand.NewPCG(h.Sum64(), uint64(s)))
}

// id returns the nth identifier of a kind in EC2's long form, such as i-0 and 16
// more hexadecimal digits.
func (s seeded) id(kind string, n int) string {
	return fmt.Sprintf("%s-0%016x", kind, s.draw("id", kind, fmt.Sprint(n)).Uint64())
}

// uuid returns the nth identifier of a kind in UUID form, for request ids and fleets.
func (s seeded) uuid(kind string, n int) string {
	r := s.draw("uuid", kind, fmt.Sprint(n))
	a, b := r.Uint64(), r.Uint64()
	return fmt.Sprintf("%08x-%04x-4%03x-%04x-%012x", a>>32, a>>16&0xffff, a&0xfff, 0x8000|b>>48&0x3fff, b&0xffffffffffff)
}

func scaled(seconds, scale float64) time.Duration {
	return time.Duration(seconds * scale * float64(time.Second))
}
