// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"time"
)

// Protection is what karpenter.sh/do-not-disrupt says on a pod.
type Protection struct {
	// Set says that the pod is protected; For is how long after its start, 0 for without end.
	Set bool
	For time.Duration
}

// ParseProtection reads the annotation's value: "true" protects without end, "false" and "" do not protect, a positive Go
// duration protects that long from the pod's start. Karpenter ignores everything else (and reads "false" as such), so
// that is an error.
func ParseProtection(value string) (Protection, error) {
	switch value {
	case "true":
		return Protection{Set: true}, nil
	case "false", "":
		return Protection{}, nil
	}
	d, err := time.ParseDuration(value)
	if err != nil || d <= 0 {
		return Protection{}, fmt.Errorf("%q is not \"true\" or a duration such as 4h; it would be ignored", value)
	}
	return Protection{Set: true, For: d}, nil
}
