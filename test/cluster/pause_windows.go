// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import "errors"

// stop and resume are never used: tryLock fails first.
func (*process) stop() error { return errors.ErrUnsupported }

func (*process) resume() error { return errors.ErrUnsupported }
