// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

// Broken is a state whose use panics.
func (*State) Broken() *State { return &State{namespaces: map[string]*namespace{"team": nil}} }
