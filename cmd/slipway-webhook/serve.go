// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/cmd/internal/settings"
	"github.com/slipway-sh/slipway/webhook"
)

func kubeConfig(o *options) (*rest.Config, error) {
	c, err := settings.KubeConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	c.QPS, c.Burst, c.UserAgent = 50, 100, "slipway-webhook"
	c.WarningHandler = rest.NoWarnings{} // of the dry-run pod, which is meant to lack what it lacks
	return c, nil
}

// process is everything that runs beside the server.
type process struct {
	options *options
	kube    kubernetes.Interface
	watcher *webhook.Watcher
	metrics *webhook.Metrics
	server  *webhook.Server
	log     logr.Logger
}

// serve runs admission until ctx ends and the server has ended slowly.
func serve(ctx context.Context, o *options) error {
	p, err := newProcess(ctx, o)
	if err != nil {
		return err
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort(o.BindAddress, strconv.Itoa(o.Port)))
	if err != nil {
		return fmt.Errorf("listening for admission: %w", err)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(p.metrics.Collectors()...)
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	// The caches are followed and the certificate is kept for as long as requests are served, which is longer than ctx.
	working, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	failed := make(chan error, 3)
	go func() { failed <- p.watcher.Run(working) }()
	go func() {
		failed <- listen(working, net.JoinHostPort(o.BindAddress, strconv.Itoa(o.MetricsPort)), o.MetricsPort,
			map[string]http.Handler{"/metrics": promhttp.HandlerFor(registry, promhttp.HandlerOpts{})})
	}()
	go func() {
		failed <- listen(working, net.JoinHostPort(o.BindAddress, strconv.Itoa(o.HealthProbePort)), o.HealthProbePort, map[string]http.Handler{
			"/healthz": http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok")) }),
			"/readyz":  http.HandlerFunc(p.server.ServeReady),
		})
	}()
	if err := p.background(ctx, working); err != nil {
		return err
	}
	served := make(chan error, 1)
	go func() { served <- p.server.Run(ctx, listener) }()
	for {
		select {
		case err := <-served:
			return err
		case err := <-failed:
			if err != nil {
				return err
			}
		}
	}
}

func newProcess(ctx context.Context, o *options) (*process, error) {
	cfg, err := kubeConfig(o)
	if err != nil {
		return nil, err
	}
	kube, err := kubernetes.NewForConfig(cfg)
	if err != nil {
		return nil, fmt.Errorf("making a client: %w", err)
	}
	scheme, err := webhook.NewScheme()
	if err != nil {
		return nil, err
	}
	p := &process{options: o, kube: kube, metrics: webhook.NewMetrics(), log: logr.FromContextOrDiscard(ctx)}
	p.watcher, err = webhook.NewWatcher(cfg, webhook.WatchOptions{
		Namespace: o.Namespace, Scheme: scheme, Clock: clock.RealClock{}, Log: p.log.WithName("watch"), Metrics: p.metrics,
	})
	if err != nil {
		return nil, err
	}
	p.server = &webhook.Server{
		Handler: webhook.NewHandler(webhook.Options{
			State: p.watcher.State, Index: p.watcher.Index, Metrics: p.metrics, Clock: clock.RealClock{}, Log: p.log.WithName("admission"),
			Native: o.NativePolicies, InjectScheduler: o.InjectScheduler,
		}),
		Synced: p.watcher.Synced, LameDuck: o.LameDuck, Clock: clock.RealClock{},
	}
	return p, nil
}

// background starts what keeps the certificate, the lease and the status of policies. What speaks for this replica's health
// ends with ctx, the rest with working.
func (p *process) background(ctx, working context.Context) error {
	o := p.options
	if o.CertDir != "" {
		files := &webhook.Files{Dir: o.CertDir, Clock: clock.RealClock{}, Metrics: p.metrics}
		if err := files.Load(); err != nil {
			return err
		}
		p.server.Certificates = files
	} else {
		keeper := &webhook.Keeper{
			Kube: p.kube, Namespace: o.Namespace, Secret: o.CertSecret, Configuration: o.Configuration, Names: names(o),
			Clock: clock.RealClock{}, Metrics: p.metrics, Log: p.log.WithName("certificates"),
		}
		p.server.Certificates = keeper
		go keeper.Run(working)
	}
	beat := &webhook.Heartbeat{
		Kube: p.kube, Namespace: o.Namespace, Probe: o.CanaryNamespace, Scheduler: o.CanaryScheduler, Identity: o.Identity,
		Ready: p.server.Ready, Clock: clock.RealClock{}, Metrics: p.metrics, Log: p.log.WithName("heartbeat"),
	}
	go beat.Run(ctx)
	cfg, err := kubeConfig(o)
	if err != nil {
		return err
	}
	scheme, err := webhook.NewScheme()
	if err != nil {
		return err
	}
	custom, err := client.New(cfg, client.Options{Scheme: scheme})
	if err != nil {
		return fmt.Errorf("making a client: %w", err)
	}
	status := &webhook.PolicyStatus{Kube: custom, State: p.watcher.State, Clock: clock.RealClock{}, Log: p.log.WithName("policies")}
	go status.Run(ctx)
	if o.NativePolicies || !o.InjectScheduler { // there are some to read it
		parameter := &webhook.Parameter{Kube: p.kube, Namespace: o.Namespace, State: p.watcher.State, Clock: clock.RealClock{}, Log: p.log.WithName("native")}
		go parameter.Run(ctx)
	}
	return nil
}

// names are the host names the API server may call the Service by.
func names(o *options) []string {
	base := o.Service + "." + o.Namespace
	return []string{o.Service, base, base + ".svc", base + ".svc.cluster.local", "localhost"}
}

// listen serves plain HTTP until ctx ends; port 0 means not at all.
func listen(ctx context.Context, address string, port int, handlers map[string]http.Handler) error {
	if port == 0 {
		return nil
	}
	mux := http.NewServeMux()
	for path, h := range handlers {
		mux.Handle(path, h)
	}
	server := &http.Server{Addr: address, Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() {
		<-ctx.Done()
		_ = server.Close() // it serves nobody who waits
	}()
	if err := server.ListenAndServe(); ctx.Err() == nil {
		return fmt.Errorf("listening on %s: %w", address, err)
	}
	return nil
}
