// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log"
	"net"
	"net/http"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Certificates are where a server's certificate is from.
type Certificates interface {
	Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error)
	Ready() bool
}

// Server serves a handler over HTTPS and ends slowly: first it says that it is not ready, then it goes on answering until
// everybody has heard, then it closes. Its life is not that of the requests in flight.
type Server struct {
	Handler      http.Handler
	Certificates Certificates
	// Synced reports whether the caches are warm.
	Synced func() bool
	// LameDuck is how long requests are served after the end of Run's context.
	LameDuck time.Duration
	Clock    clock.WithTicker

	ending atomic.Bool
}

// Ready reports whether requests should be sent here; if not, why.
func (s *Server) Ready() error {
	switch {
	case s.ending.Load():
		return errors.New("ending")
	case !s.Certificates.Ready():
		return errors.New("no serving certificate")
	case !s.Synced():
		return errors.New("caches are not synced")
	}
	return nil
}

// ServeReady answers a readiness probe.
func (s *Server) ServeReady(w http.ResponseWriter, _ *http.Request) {
	if err := s.Ready(); err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	_, _ = w.Write([]byte("ok"))
}

// Run serves on the listener until ctx ends and the lame-duck time is over.
func (s *Server) Run(ctx context.Context, l net.Listener) error {
	server := &http.Server{
		Handler: s.Handler,
		// TLS 1.3 is what every API server since 1.19 speaks; HTTP/2 is not asked for by those that call webhooks in the cluster.
		TLSConfig: &tls.Config{MinVersion: tls.VersionTLS13, NextProtos: []string{"http/1.1"}, GetCertificate: s.Certificates.Certificate},
		// Time-outs of the API server are a few seconds; idle connections are kept, a handshake costs more than an answer.
		ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second, WriteTimeout: 10 * time.Second, IdleTimeout: 2 * time.Minute,
		ErrorLog: log.New(quiet{}, "", 0),
	}
	done := make(chan error, 1)
	go func() { done <- server.ServeTLS(l, "", "") }()
	select {
	case err := <-done:
		return fmt.Errorf("serving admission: %w", err)
	case <-ctx.Done():
	}
	s.ending.Store(true)
	select {
	case err := <-done:
		return fmt.Errorf("serving admission: %w", err)
	case <-s.Clock.After(s.LameDuck):
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	if err := server.Shutdown(ctx); err != nil {
		return fmt.Errorf("ending the server: %w", err)
	}
	return nil
}

// quiet drops the server's chatter about handshakes that clients gave up.
type quiet struct{}

// Write implements io.Writer.
func (quiet) Write(p []byte) (int, error) { return len(p), nil }
