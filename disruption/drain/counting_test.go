// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"errors"

	"sigs.k8s.io/controller-runtime/pkg/client"
)

// counting is a client that stops working after a number of writes, as a process does that is killed.
type counting struct {
	client.Client
	writes *int
	stop   int
	dead   *bool
}

var errDead = errors.New("the process is dead")

// next counts a write; false if it does not happen.
func (c *counting) next() bool {
	if *c.writes >= c.stop {
		*c.dead = true
		return false
	}
	*c.writes++
	return true
}

func (c *counting) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.PatchOption) error {
	if !c.next() {
		return errDead
	}
	return c.Client.Patch(ctx, o, p, opts...)
}

func (c *counting) Status() client.SubResourceWriter { return c.SubResource("status") }

func (c *counting) SubResource(name string) client.SubResourceClient {
	return &countingSub{SubResourceClient: c.Client.SubResource(name), c: c}
}

type countingSub struct {
	client.SubResourceClient
	c *counting
}

func (s *countingSub) Update(ctx context.Context, o client.Object, opts ...client.SubResourceUpdateOption) error {
	if !s.c.next() {
		return errDead
	}
	return s.SubResourceClient.Update(ctx, o, opts...)
}

func (s *countingSub) Create(ctx context.Context, o, body client.Object, opts ...client.SubResourceCreateOption) error {
	if !s.c.next() {
		return errDead
	}
	return s.SubResourceClient.Create(ctx, o, body, opts...)
}

func (s *countingSub) Patch(ctx context.Context, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
	if !s.c.next() {
		return errDead
	}
	return s.SubResourceClient.Patch(ctx, o, p, opts...)
}
