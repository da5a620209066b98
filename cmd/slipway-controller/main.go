// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	"k8s.io/klog/v2"
	ctrl "sigs.k8s.io/controller-runtime"

	"github.com/slipway-sh/slipway/provisioner/claim"
)

func main() {
	os.Exit(run(ctrl.SetupSignalHandler(), os.Args[1:]))
}

// run returns the exit code: 0 when stopped by a signal, 1 when something failed, 2 for wrong arguments.
func run(ctx context.Context, args []string) int {
	opts, err := parse(args, os.Getenv, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return 0
	case err != nil:
		fmt.Fprintf(os.Stderr, "slipway-controller: %v\n", err)
		return 2
	}
	log := logr.FromSlogHandler(slog.NewJSONHandler(os.Stdout, &slog.HandlerOptions{Level: opts.level()}))
	ctrl.SetLogger(log)
	klog.SetLogger(log)
	// Karpenter's feature gate ReservedCapacity, which is on by default: classes are ready when their reservations are known.
	v1.CapacityReservationsEnabled = true
	m, err := newManager(ctx, opts, claim.Options{})
	if err == nil {
		log.Info("starting", "cluster", opts.ClusterName, "lease", opts.LeaderElectionName)
		err = m.Start(ctrl.LoggerInto(ctx, log))
	}
	if err != nil && ctx.Err() == nil {
		log.Error(err, "slipway-controller ends")
		return 1
	}
	return 0
}
