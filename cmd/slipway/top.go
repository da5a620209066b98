// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/cmd/slipway/top"
)

func topCommand() *cobra.Command {
	at := target{}
	once := false
	cmd := &cobra.Command{
		Use:   "top",
		Short: "Watch pools, nodes, use, price an hour, waiting pods and what is on its way",
		Long: "Shows NodePools with what their nodes have, hold and cost, nodes on their way in and out, pods that wait, and all nodes.\n" +
			"Prices are those the nodes were planned at; a + says that some are not known. With --once, or if the output is no\n" +
			"terminal, it prints everything once and ends. Only the API server is asked.",
		Example: "  slipway top\n  slipway top --once --context prod | grep 'not ready'",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			config, err := at.config()
			if err != nil {
				return err
			}
			ctx, cancel := context.WithCancel(cmd.Context())
			defer cancel()
			world, err := top.Watch(ctx, config)
			if err != nil {
				return at.explainError(err)
			}
			title, err := at.name()
			if err != nil {
				return err
			}
			if width, terminal := screen(cmd.OutOrStdout()); once || !terminal {
				now := clock.RealClock{}.Now()
				s := world.Snapshot(now, top.ByName)
				text, _ := top.Frame(&s, top.Look{Width: width, Title: title, By: top.ByName})
				_, err := fmt.Fprintln(cmd.OutOrStdout(), text)
				return err
			}
			ui := &top.UI{World: world, Clock: clock.RealClock{}, Title: title, In: cmd.InOrStdin(), Out: cmd.OutOrStdout()}
			return ui.Run(ctx)
		},
	}
	at.addFlags(cmd)
	cmd.Flags().BoolVar(&once, "once", false, "print one frame with everything and end")
	return cmd
}

// usualWidth is that of an output that is no terminal.
const usualWidth = 100

// screen is the width of an output and whether it is a terminal.
func screen(w io.Writer) (width int, terminal bool) {
	f, ok := w.(*os.File)
	if !ok || !term.IsTerminal(int(f.Fd())) {
		return usualWidth, false
	}
	width, _, err := term.GetSize(int(f.Fd()))
	return cmp.Or(width, usualWidth), err == nil
}

// name is the context's, or the address of a cluster without one.
func (c *target) name() (string, error) {
	raw, err := c.deferred().RawConfig()
	if err != nil {
		return "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return cmp.Or(c.overrides.CurrentContext, raw.CurrentContext, c.host), nil
}
