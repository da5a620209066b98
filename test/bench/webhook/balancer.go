// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"sync"
	"time"
)

// balancer is what a Service is: it sends each connection to the next replica that was ready when it was looked at last, and to
// the one place there is when only is said. It knows nothing of TLS.
type balancer struct {
	listener net.Listener
	client   *http.Client

	mu       sync.Mutex
	replicas [2]backend
	fixed    string
	next     int
}

type backend struct {
	port, health string
	ready        bool
}

func newBalancer(ctx context.Context) (*balancer, error) {
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, fmt.Errorf("listening for the API server: %w", err)
	}
	b := &balancer{listener: l, client: &http.Client{Timeout: time.Second}}
	go b.serve()
	go b.follow(ctx)
	context.AfterFunc(ctx, func() { _ = l.Close() })
	return b, nil
}

func (b *balancer) port() string {
	_, port, _ := net.SplitHostPort(b.listener.Addr().String()) // of a listener
	return port
}

func (b *balancer) watch(i int, port, health string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas[i] = backend{port: port, health: health}
}

func (b *balancer) only(port string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fixed = port
}

// follow looks at the replicas as a kubelet does. A replica that was ready and does not answer in time stays in, as one does
// whose node is cut off: that is what a black hole is.
func (b *balancer) follow(ctx context.Context) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			b.look(ctx)
		}
	}
}

// look asks every replica whether it is ready, and counts.
func (b *balancer) look(ctx context.Context) (ready int) {
	b.mu.Lock()
	replicas := b.replicas
	b.mu.Unlock()
	for i, r := range replicas {
		now := b.ask(ctx, r)
		b.mu.Lock()
		if b.replicas[i].port == r.port {
			b.replicas[i].ready = now
		}
		b.mu.Unlock()
		if now {
			ready++
		}
	}
	return ready
}

func (b *balancer) ask(ctx context.Context, r backend) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://127.0.0.1:"+r.health+"/readyz", http.NoBody)
	if err != nil {
		return false
	}
	resp, err := b.client.Do(req)
	if err != nil {
		late, ok := err.(net.Error) //nolint:errorlint // url.Error is one
		return r.ready && ok && late.Timeout()
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (b *balancer) serve() {
	for {
		conn, err := b.listener.Accept()
		if err != nil {
			return
		}
		go b.pipe(conn)
	}
}

// pick is the port of the next ready replica, empty if there is none.
func (b *balancer) pick() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fixed != "" {
		return b.fixed
	}
	for range b.replicas {
		b.next = (b.next + 1) % len(b.replicas)
		if r := b.replicas[b.next]; r.ready {
			return r.port
		}
	}
	return ""
}

func (b *balancer) pipe(in net.Conn) {
	defer func() { _ = in.Close() }()
	port := b.pick()
	if port == "" {
		return // refused
	}
	out, err := net.DialTimeout("tcp", "127.0.0.1:"+port, time.Second)
	if err != nil {
		return
	}
	done := make(chan struct{}, 2)
	for _, way := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(way[0], way[1]) // either end closes
			done <- struct{}{}
		}()
	}
	<-done
	_ = out.Close()
}

func freePorts(n int) ([]string, error) {
	var out []string
	for range n {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
		if err != nil {
			return nil, fmt.Errorf("choosing a port: %w", err)
		}
		defer func() { _ = l.Close() }()
		_, port, err := net.SplitHostPort(l.Addr().String())
		if err != nil {
			return nil, err
		}
		out = append(out, port)
	}
	return out, nil
}
