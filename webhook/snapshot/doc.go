// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package snapshot writes a catalogue into a ConfigMap and reads it back, so that
// admission, which has no rights in AWS, knows what can be bought.
//
// The scheduler's process publishes one object a node class ([Publisher]) when its
// catalogue changes and at least every half hour; [Decode] is the reader's side.
// About 1,400 types take some 150 KB, compressed. Prices are those of the time of
// writing: whoever reads them decides what can be bought, not what it costs.
//
// [Publisher] is all that talks to a cluster. Import level 5: imports capacity.
package snapshot
