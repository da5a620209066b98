// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build !unix

package cluster

import (
	"errors"
	"os"
)

// tryLock fails: without advisory locks two callers could share a folder.
func tryLock(string) (*os.File, error) {
	return nil, errors.New("a local control plane needs Linux or another Unix")
}
