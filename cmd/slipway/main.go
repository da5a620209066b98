// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slipway is Slipway's tool for people. It is also a kubectl plugin.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	root := &cobra.Command{
		Use:           "slipway",
		Short:         "Slipway buys the EC2 node when no node fits",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(demoCommand(), clusterCommand())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "slipway: %v\n", err)
		stop()
		os.Exit(1)
	}
}
