// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"fmt"
	"os"
	"sync"
)

// TB is what Start needs of testing.TB. It is an interface of its own so that programs that use New do not link
// package testing.
type TB interface {
	Helper()
	Context() context.Context
	Cleanup(func())
	Errorf(format string, args ...any)
	Fatalf(format string, args ...any)
}

// Start starts a cluster that ends with the test. It fails the test if it can't.
func Start(t TB, opts Options) *Cluster {
	t.Helper()
	c, err := New(t.Context(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(func() {
		if err := c.Stop(); err != nil {
			t.Errorf("stopping cluster: %v", err)
		}
	})
	return c
}

// Shared is one cluster for all tests of a package. It starts when the first test asks for it, so that running
// only unit tests costs nothing:
//
//	var shared = cluster.Shared{}
//
//	func TestMain(m *testing.M) { os.Exit(shared.Run(m)) }
//
//	func TestSomething(t *testing.T) { c := shared.Get(t); … }
//
// Tests that share a cluster must keep apart, by namespaces and names of their own.
type Shared struct {
	// Options of the cluster. Not to be changed after the first Get.
	Options Options

	once    sync.Once
	cluster *Cluster
	err     error
}

// Get returns the cluster, starting it on the first call. It fails the test if the start failed, now or earlier.
func (s *Shared) Get(t TB) *Cluster {
	t.Helper()
	// Not the test's context: the cluster outlives the test that happens to be first, and a start that is cut short
	// with it would fail all others.
	s.once.Do(func() { s.cluster, s.err = New(context.Background(), s.Options) })
	if s.err != nil {
		t.Fatalf("%v", s.err)
	}
	return s.cluster
}

// Run runs the tests, stops the cluster and returns the exit code.
func (s *Shared) Run(m interface{ Run() int }) int {
	code := m.Run()
	if s.cluster == nil {
		return code
	}
	if err := s.cluster.Stop(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return max(code, 1)
	}
	return code
}
