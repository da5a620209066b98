// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/test/ec2emu/data"
)

// Emulator is a running emulator. All methods may be called at any time from any
// goroutine.
type Emulator struct {
	opts    Options
	log     logr.Logger
	clock   clock.Clock
	start   time.Time // the epoch of spot prices, depth and delays
	rand    seeded
	catalog *catalog
	rec     *recorder
	agenda  *agenda
	actions map[string]map[string]handler // by service and action
	admin   http.Handler

	ctx      context.Context //nolint:containedctx // the emulator's own life: ends with Close
	cancel   context.CancelFunc
	tasks    sync.WaitGroup
	server   *http.Server
	listener net.Listener
	// transport is that of the clients AWSConfig makes.
	transport *http.Transport

	mu      sync.Mutex // guards everything below
	world   world
	queue   *queue
	kubelet Kubelet
	hook    Hook
	faults  []*activeFault
	stocks  []*stock
	// latencies are those that were set, by action.
	latencies map[string]quantiles
	// partialFleets is the share of fleets that fall short.
	partialFleets float64
	buckets       map[string]*bucket
	requests      int // counts request ids
	closed        bool
}

// Start starts an emulator. It ends with Close or with ctx; its logger is the
// one in ctx. The error is that of a bad option or of listening.
func Start(ctx context.Context, opts Options) (*Emulator, error) {
	facts, err := data.Load()
	if err != nil {
		return nil, err
	}
	if err := opts.complete(facts); err != nil {
		return nil, err
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", opts.Addr)
	if err != nil {
		return nil, fmt.Errorf("listening on %q: %w", opts.Addr, err)
	}
	e := &Emulator{
		opts:     opts,
		log:      logr.FromContextOrDiscard(ctx),
		clock:    opts.Clock,
		start:    opts.Clock.Now(),
		rand:     seeded(opts.Seed),
		catalog:  newCatalog(facts, &opts),
		rec:      newRecorder(opts.RequestLog),
		agenda:   newAgenda(opts.Clock),
		hook:     opts.Hook,
		listener: listener,

		latencies: map[string]quantiles{},

		transport: &http.Transport{MaxIdleConnsPerHost: 100},
	}
	e.world = newWorld(e.rand, &e.opts, e.start)
	e.queue = newQueue(opts.InterruptionQueue, e.start)
	e.actions, e.admin = e.handlers(), e.adminRoutes()
	if opts.Throttle {
		e.buckets = newBuckets(PublishedRates())
	}
	e.ctx, e.cancel = context.WithCancel(ctx)
	e.server = &http.Server{Handler: e, ReadHeaderTimeout: 10 * time.Second}
	e.tasks.Go(func() { e.agenda.run(e.ctx) })
	e.tasks.Go(func() {
		if err := e.server.Serve(listener); !errors.Is(err, http.ErrServerClosed) {
			e.log.Error(err, "Emulator stopped serving")
		}
	})
	e.tasks.Go(func() {
		<-e.ctx.Done()
		_ = e.server.Close()
	})
	return e, nil
}

// Close stops serving, and waits for everything the emulator has started.
// Nodes are not told: machines that ran stay as they were.
func (e *Emulator) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
	e.cancel()
	_ = e.server.Close()
	e.transport.CloseIdleConnections()
	e.tasks.Wait()
}

// URL is the endpoint of all services.
func (e *Emulator) URL() string { return "http://" + e.listener.Addr().String() }

// Region is the emulated region.
func (e *Emulator) Region() string { return e.opts.Region }

// SetKubelet says where machines join that boot from now on; nil is nowhere.
func (e *Emulator) SetKubelet(k Kubelet) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.kubelet = k
}

// SetCluster sets the endpoint and CA (PEM) that EKS answers and that user data
// must name, for clusters that start after the emulator.
func (e *Emulator) SetCluster(endpoint string, ca []byte) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.opts.ClusterEndpoint, e.opts.ClusterCA = endpoint, ca
}
