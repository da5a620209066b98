// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slipway-webhook serves admission: it fills in what pods need to be
// provisioned and says of workloads, NodePools and node classes what will not
// work. See docs/reference/admission.md. Run two replicas of it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	crlog "sigs.k8s.io/controller-runtime/pkg/log"
)

func main() { os.Exit(run(os.Args[1:])) }

// run returns the exit code: 0 when stopped by a signal, 1 when something failed, 2 for wrong arguments.
func run(args []string) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	opts, err := parse(args, os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "slipway-webhook: %v\n", err)
		return 2
	}
	if os.Getenv("GOGC") == "" {
		// What is held is small, and reviews leave tens of megabytes a second behind: half the usual room for them.
		debug.SetGCPercent(50)
	}
	log := logr.FromSlogHandler(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: opts.level()}))
	crlog.SetLogger(log)
	klog.SetLogger(log)
	if err := serve(logr.NewContext(ctx, log), &opts); err != nil && ctx.Err() == nil {
		log.Error(err, "slipway-webhook ends")
		return 1
	}
	return 0
}
