// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"slices"
	"sync"
	"time"

	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

const (
	// batchWindow is how long the first question waits for others to join it. Hundreds of claims end at once when a
	// cluster scales in; EC2 answers 20 calls a second.
	batchWindow = 50 * time.Millisecond
	// batchTimeout bounds one joined call, which no single caller's context may cut short.
	batchTimeout = 30 * time.Second
)

// batched is a [Cloud] that joins calls about one instance each into calls about many.
type batched struct {
	cloud     Cloud
	describe  gather[ec2.Instance]
	terminate gather[struct{}]
	mu        sync.Mutex
	byTag     map[string]*gather[[]ec2.Instance] // by tag key
	clock     clock.Clock
}

// Batch returns a Cloud that joins calls of many callers about one instance, or one tag value, each.
func Batch(cloud Cloud, clk clock.Clock) Cloud {
	b := &batched{cloud: cloud, clock: clk, byTag: map[string]*gather[[]ec2.Instance]{}}
	b.describe = gather[ec2.Instance]{clock: clk, call: func(ctx context.Context, ids []string) (map[string]ec2.Instance, error) {
		found, err := cloud.Describe(ctx, ids)
		if err != nil && capacity.KindOf(err) != capacity.NotFound {
			return nil, err
		}
		out := make(map[string]ec2.Instance, len(found))
		for _, i := range found {
			out[i.ID] = i
		}
		return out, nil
	}}
	b.terminate = gather[struct{}]{clock: clk, call: func(ctx context.Context, ids []string) (map[string]struct{}, error) {
		return nil, cloud.Terminate(ctx, ids)
	}}
	return b
}

// Describe implements [Cloud].
func (b *batched) Describe(ctx context.Context, ids []string) ([]ec2.Instance, error) {
	if len(ids) != 1 {
		return b.cloud.Describe(ctx, ids)
	}
	i, ok, err := b.describe.do(ctx, ids[0])
	switch {
	case err != nil:
		return nil, err
	case !ok:
		return nil, nil
	}
	return []ec2.Instance{i}, nil
}

// Terminate implements [Cloud].
func (b *batched) Terminate(ctx context.Context, ids []string) error {
	if len(ids) != 1 {
		return b.cloud.Terminate(ctx, ids)
	}
	_, _, err := b.terminate.do(ctx, ids[0])
	return err
}

// DescribeByTag implements [Cloud].
func (b *batched) DescribeByTag(ctx context.Context, key string, values []string) ([]ec2.Instance, error) {
	if len(values) != 1 {
		return b.cloud.DescribeByTag(ctx, key, values)
	}
	b.mu.Lock()
	g := b.byTag[key]
	if g == nil {
		g = &gather[[]ec2.Instance]{clock: b.clock, call: func(ctx context.Context, values []string) (map[string][]ec2.Instance, error) {
			found, err := b.cloud.DescribeByTag(ctx, key, values)
			out := map[string][]ec2.Instance{}
			for _, i := range found {
				out[i.Tags[key]] = append(out[i.Tags[key]], i)
			}
			return out, err
		}}
		b.byTag[key] = g
	}
	b.mu.Unlock()
	found, _, err := g.do(ctx, values[0])
	return found, err
}

// gather joins calls that come within [batchWindow] of the first.
type gather[V any] struct {
	clock clock.Clock
	call  func(ctx context.Context, keys []string) (map[string]V, error)

	mu   sync.Mutex
	next *round[V]
}

// round is one joined call.
type round[V any] struct {
	keys []string
	done chan struct{}
	out  map[string]V
	err  error
}

// do asks about one key; ok is false if the answer has nothing about it.
func (g *gather[V]) do(ctx context.Context, key string) (v V, ok bool, err error) {
	g.mu.Lock()
	r := g.next
	if r == nil {
		r = &round[V]{done: make(chan struct{})}
		g.next = r
		go g.run(context.WithoutCancel(ctx), r)
	}
	r.keys = append(r.keys, key)
	g.mu.Unlock()
	select {
	case <-r.done:
		v, ok = r.out[key]
		return v, ok, r.err
	case <-ctx.Done():
		return v, false, ctx.Err()
	}
}

func (g *gather[V]) run(ctx context.Context, r *round[V]) {
	<-g.clock.After(batchWindow)
	g.mu.Lock()
	g.next = nil
	g.mu.Unlock()
	slices.Sort(r.keys)
	ctx, cancel := context.WithTimeout(ctx, batchTimeout)
	defer cancel()
	r.out, r.err = g.call(ctx, slices.Compact(r.keys))
	close(r.done)
}
