// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package main

import "time"

// spent is the time of the clock where the processor's cannot be had.
func spent() time.Duration { return time.Duration(time.Now().UnixNano()) }
