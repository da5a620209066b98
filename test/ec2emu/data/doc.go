// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package data holds facts about EC2: about 1,400 instance types with every
// member DescribeInstanceTypes answers, in which zones of which region they are
// offered, and the on-demand price of those that have one.
//
// The facts are real and recorded, see gen/gen.py for their sources; spot prices
// and capacity are not facts and are not here. It never changes anything and
// talks to nobody. Import level 6 (test).
package data
