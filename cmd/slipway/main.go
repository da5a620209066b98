// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command slipway is Slipway's tool for people. It is also a kubectl plugin.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/cmd/internal/settings"
)

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	log.SetLogger(logr.Discard()) // what goes wrong is returned as an error; library chatter is not for people
	root := &cobra.Command{
		Use:           "slipway",
		Short:         "Slipway buys the EC2 node when no node fits",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.AddCommand(planCommand(), explainCommand(), lintCommand(), migrateCommand(), topCommand(), demoCommand(), clusterCommand())
	root.SetFlagErrorFunc(nearest)
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintf(os.Stderr, "slipway: %v\n", err)
		if errors.Is(err, errUnplaced) {
			return exitUnplaced
		}
		if e, ok := errors.AsType[exitError](err); ok {
			return e.code
		}
		return 1
	}
	return 0
}

// nearest adds the nearest flag of the command to the error about one that it does not have.
func nearest(cmd *cobra.Command, err error) error {
	missing, ok := errors.AsType[*pflag.NotExistError](err)
	if !ok {
		return err
	}
	var known []string
	cmd.Flags().VisitAll(func(f *pflag.Flag) { known = append(known, f.Name) })
	if near := settings.Nearest(missing.GetSpecifiedName(), known); near != "" {
		return fmt.Errorf("%w (did you mean --%s?)", err, near)
	}
	return fmt.Errorf("%w (see %s --help)", err, cmd.CommandPath())
}
