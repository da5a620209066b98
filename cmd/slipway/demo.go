// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/demo"
)

func demoCommand() *cobra.Command {
	o := demo.Options{}
	quiet, report := false, ""
	cmd := &cobra.Command{
		Use:   "demo",
		Short: "Show Slipway at work on this machine, without a cloud account",
		Long: "Starts a real control plane and an emulated AWS account on loopback, applies the sample manifests, scales two\n" +
			"Deployments up and prints where the time went and what was bought. Removes everything at the end.",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.Speed <= 0 {
				return fmt.Errorf("--speed is %g, it has to be positive (1 is real time)", o.Speed)
			}
			if o.Replicas < 1 {
				return fmt.Errorf("--replicas is %d, it has to be at least 1", o.Replicas)
			}
			if o.Binaries == "" {
				self, err := os.Executable()
				if err != nil {
					return fmt.Errorf("finding Slipway's binaries: %w", err)
				}
				o.Binaries = filepath.Dir(self)
			}
			o.Out, o.Log = cmd.OutOrStdout(), cmd.ErrOrStderr()
			if !o.JSON {
				o.Log = o.Out
			}
			if quiet {
				o.Log = io.Discard
			}
			if report != "" {
				file, err := htmlreport.Open(report)
				if err != nil {
					return err
				}
				defer file.Discard()
				o.Page = file
			}
			return demo.Run(cmd.Context(), o)
		},
	}
	f := cmd.Flags()
	f.BoolVar(&o.Keep, "keep", false, "leave everything running at the end, until Ctrl-C")
	f.BoolVar(&o.JSON, "json", false, "print the final table as JSON on standard output, the narration on standard error")
	f.BoolVar(&quiet, "quiet", false, "print the final table only")
	f.StringVar(&report, "report", "", "write a page about the run to this file (HTML, complete in itself): every pod's way, nodes, cost over time")
	f.Uint64Var(&o.Seed, "seed", 1, "decides boot times and prices")
	f.Float64Var(&o.Speed, "speed", 10, "how much faster than measured EC2 machines boot; 1 is real time")
	f.Int32Var(&o.Replicas, "replicas", 100, "replicas of the second Deployment")
	f.StringVar(&o.Binaries, "binaries", "", "folder of slipway-scheduler and slipway-controller (default: that of this binary)")
	return cmd
}

func clusterCommand() *cobra.Command {
	var o cluster.Options
	kwok := false
	cmd := &cobra.Command{
		Use:   "cluster",
		Short: "Run a control plane on loopback (etcd, kube-apiserver, kube-controller-manager) until Ctrl-C",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) (err error) {
			ctx := cmd.Context()
			if kwok {
				o.Kubelet = cluster.Kwok
			}
			c, err := cluster.New(ctx, o)
			if err != nil {
				return err
			}
			defer func() {
				if e := c.Stop(); err == nil {
					err = e
				}
			}()
			if err := c.ApplyCRDs(ctx); err != nil {
				return err
			}
			fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nexport KUBECONFIG=%s\nCtrl-C ends it and removes everything.\n", c, c.Kubeconfig())
			if err := c.Wait(ctx); ctx.Err() == nil {
				return err
			}
			return nil
		},
	}
	cmd.Flags().BoolVar(&kwok, "kwok", false, "let kwok play nodes annotated kwok.x-k8s.io/node=fake")
	cmd.Flags().BoolVar(&o.Fsync, "fsync", false, "let etcd sync to disk as in production")
	return cmd
}
