// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"github.com/spf13/cobra"
	"k8s.io/client-go/tools/clientcmd"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/lint"
)

// lookFor is how long a cluster may take to be read.
const lookFor = time.Minute

type lintOptions struct {
	output  string
	strict  bool
	context string
	// kubeconfig is its file, empty for the usual ones.
	kubeconfig string
	namespace  string
}

func lintCommand() *cobra.Command {
	o := lintOptions{}
	cmd := &cobra.Command{
		Use:   "lint FILES…",
		Short: "Say what admission would say about manifests, before they are applied",
		Long: "Runs Slipway's admission rules over YAML or JSON files, folders of them, or standard input (-). Rules about other objects\n" +
			"look at the other objects in the files and, with --context, at a cluster. Manifests of karpenter.sh/v1beta1 are\n" +
			"explained and printed as v1. docs/reference/admission.md has every rule.\n\n" +
			"Exits with 0 if there is no error, 1 if there is one (with --strict: or a warning), 2 if something cannot be read.",
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return runLint(cmd, args, &o) },
	}
	f := cmd.Flags()
	f.StringVarP(&o.output, "output", "o", "text", "text or json")
	f.BoolVar(&o.strict, "strict", false, "fail on warnings too")
	f.StringVar(&o.context, "context", "", "context of the kubeconfig whose cluster the rules look at; none if empty")
	f.StringVar(&o.kubeconfig, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	f.StringVar(&o.namespace, "slipway-namespace", "slipway-system", "Slipway's namespace in that cluster")
	return cmd
}

// exitError carries an exit code.
type exitError struct {
	code int
	error
}

// Unwrap returns the cause.
func (e exitError) Unwrap() error { return e.error }

var errFindings = errors.New("the manifests have findings")

func runLint(cmd *cobra.Command, args []string, o *lintOptions) error {
	if o.output != "text" && o.output != "json" {
		return exitError{2, fmt.Errorf("--output is %q, it has to be text or json", o.output)}
	}
	files, err := lint.Files(args)
	if err != nil {
		return exitError{2, err}
	}
	var docs []lint.Document
	var unread []error
	for _, file := range files {
		d, err := lint.ReadFile(file, cmd.InOrStdin())
		docs = append(docs, d...)
		if err != nil {
			unread = append(unread, err)
		}
	}
	world := lint.World{Now: clock.RealClock{}.Now()}
	if o.context != "" {
		stop, err := look(cmd.Context(), o, &world)
		if err != nil {
			return exitError{2, err}
		}
		defer stop()
	}
	report := lint.Run(docs, world)
	if o.output == "json" {
		e := json.NewEncoder(cmd.OutOrStdout())
		e.SetIndent("", "  ")
		err = e.Encode(report)
	} else {
		_, err = fmt.Fprint(cmd.OutOrStdout(), report.Text())
	}
	switch {
	case err != nil:
		return exitError{2, err}
	case len(unread) > 0:
		return exitError{2, errors.Join(unread...)}
	case report.Errors > 0 || (o.strict && report.Warnings > 0):
		return exitError{1, errFindings}
	}
	return nil
}

// look follows the cluster of the context for as long as the rules need it.
func look(ctx context.Context, o *lintOptions, world *lint.World) (stop func(), err error) {
	at := target{rules: *clientcmd.NewDefaultClientConfigLoadingRules()}
	at.rules.ExplicitPath, at.overrides.CurrentContext = o.kubeconfig, o.context
	config, err := at.config()
	if err != nil {
		return nil, err
	}
	if err := at.answers(ctx); err != nil {
		return nil, err
	}
	scheme, err := webhook.NewScheme()
	if err != nil {
		return nil, err
	}
	watcher, err := webhook.NewWatcher(config, webhook.WatchOptions{
		Namespace: o.namespace, Scheme: scheme, Clock: clock.RealClock{}, Log: logr.Discard(), Metrics: webhook.NewMetrics(),
	})
	if err != nil {
		return nil, err
	}
	ctx, stop = context.WithCancel(ctx)
	failed := make(chan error, 1)
	go func() { failed <- watcher.Run(ctx) }()
	bounded, cancel := context.WithTimeout(ctx, lookFor)
	defer cancel()
	ready := make(chan bool, 1)
	go func() { ready <- watcher.Settled(bounded) }()
	select {
	case err := <-failed:
		stop()
		return nil, fmt.Errorf("looking at the cluster of context %q: %w", o.context, err)
	case ok := <-ready:
		if !ok {
			stop()
			return nil, fmt.Errorf("looking at the cluster of context %q: it could not be read within %s; may you list pods, workloads and NodePools?", o.context, lookFor)
		}
	}
	state := watcher.State()
	world.Facts, world.Policies, world.Labels = state.World(watcher.Index, world.Now)
	return stop, nil
}
