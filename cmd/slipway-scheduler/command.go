// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
	"k8s.io/apiserver/pkg/server"
	"k8s.io/client-go/tools/cache"
	cliflag "k8s.io/component-base/cli/flag"
	"k8s.io/component-base/cli/globalflag"
	basecompatibility "k8s.io/component-base/compatibility"
	"k8s.io/component-base/featuregate"
	"k8s.io/component-base/logs"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/component-base/term"
	"k8s.io/component-base/version/verflag"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/cmd/internal/preflight"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/scheduler"
)

func newCommand() *cobra.Command {
	// Before the gates become a flag: what there is and its defaults are fixed then. What is wrong with them or the environment is
	// told when the command runs: --help must work regardless.
	early := errors.Join(preferAsyncAPICalls(), addKarpenterGates(os.Getenv))
	opts := options.NewOptions()
	var own slipwayOptions
	early = errors.Join(early, own.add(opts.Flags.FlagSet("slipway"), os.Getenv))
	cmd := &cobra.Command{
		Use:   "slipway-scheduler",
		Short: "A kube-scheduler that buys the EC2 node when none fits",
		Long: "slipway-scheduler is kube-scheduler with the Slipway plugin. It takes kube-scheduler's flags and configuration file;\n" +
			"without --config it schedules pods with schedulerName \"slipway\".",
		Args: cobra.NoArgs,
		PersistentPreRunE: func(*cobra.Command, []string) error {
			return opts.ComponentGlobalsRegistry.Set()
		},
		RunE: func(cmd *cobra.Command, _ []string) error {
			verflag.PrintAndExitIfRequested()
			if err := errors.Join(early, own.validate()); err != nil {
				return err
			}
			return run(opts, own, cmd.Flags().Lookup("kubeconfig").Value.String())
		},
	}
	sets := opts.Flags
	verflag.AddFlags(sets.FlagSet("global"))
	globalflag.AddGlobalFlags(sets.FlagSet("global"), cmd.Name(), logs.SkipLoggingConfigurationFlags())
	for _, fs := range sets.FlagSets {
		cmd.Flags().AddFlagSet(fs)
	}
	width, _, _ := term.TerminalSize(cmd.OutOrStdout())
	cliflag.SetUsageAndHelpFunc(cmd, *sets, width)
	return cmd
}

// run is kube-scheduler's own start (cmd/kube-scheduler/app), with the scheduler's hooks taken between building it and
// running it.
func run(opts *options.Options, own slipwayOptions, kubeconfig string) error {
	gates := opts.ComponentGlobalsRegistry.FeatureGateFor(basecompatibility.DefaultKubeComponent)
	if err := logsapi.ValidateAndApply(opts.Logs, gates); err != nil {
		return err
	}
	forget := func() {}
	if opts.ConfigFile == "" {
		var err error
		if forget, err = useDefaultConfig(opts, kubeconfig); err != nil {
			return err
		}
	}
	if opts.InformerName == nil {
		name, err := cache.NewInformerName("slipway-scheduler")
		if err != nil {
			return err
		}
		opts.InformerName = name
	}
	// A signal ends the context once what is under way is done; see drain.
	signalled := server.SetupSignalContext()
	ctx, stop := context.WithCancel(context.WithoutCancel(signalled))
	defer stop()
	undrained := context.AfterFunc(signalled, stop)

	if err := checkConfig(ctx, opts.ConfigFile); err != nil {
		forget()
		return err
	}
	sink := &lateSink{}
	core := scheduler.Core{Sink: sink, Groups: sink, Reservations: sink, Gate: scheduler.NewGate(clock.RealClock{}, scheduler.DefaultGateDeadline)}
	var err error
	if core.Metrics, err = scheduler.NewMetrics(legacyregistry.Registerer(), core.Gate); err != nil {
		forget()
		return err
	}
	cc, sched, err := app.Setup(ctx, opts, app.WithPlugin(scheduler.Name, scheduler.NewFactory(core)))
	forget() // the file has been read, and a scheduler that stops leading exits without returning
	if err != nil {
		return err
	}
	if g, ok := gates.(featuregate.MutableFeatureGate); ok {
		g.AddMetrics()
	}
	opts.ComponentGlobalsRegistry.AddMetrics()
	warnOfLimits(ctx, cc)
	if err := preflight.Await(ctx, cc.KubeConfig, needed(cc.ComponentConfig.LeaderElection, own), own.startupTimeout); err != nil {
		return err
	}

	prov, launcher, err := startProvisioner(ctx, dependencies{config: cc, scheduler: sched, gate: core.Gate, options: own})
	if err != nil {
		return fmt.Errorf("starting the provisioner: %w", err)
	}
	sink.bind(prov)
	if err := scheduler.Hook(sched, core, prov); err != nil {
		return err
	}
	if undrained() {
		context.AfterFunc(signalled, func() {
			drain(ctx, prov, launcher)
			stop()
		})
	}
	go core.Gate.Run(ctx)
	err = app.Run(ctx, cc, sched)
	if signalled.Err() != nil {
		return nil // without leader election the end of a run is an error to kube-scheduler, also when it was asked for
	}
	return err
}

// drainTimeout bounds what is waited for after a signal, well within the 30 seconds a pod is given to end.
const drainTimeout = 10 * time.Second

// drain lets the batch being planned and the launches at work come to their end, while this process still leads: each then
// has its claim with an instance, and whoever leads next has nothing to find out.
func drain(ctx context.Context, prov *provisioner.Provisioner, launcher *launch.Launcher) {
	ctx, cancel := context.WithTimeout(ctx, drainTimeout)
	defer cancel()
	logger := klog.FromContext(ctx)
	logger.Info("Ending, once what is under way is done")
	if !prov.Drain(ctx) || !launcher.Drain(ctx) {
		logger.Info("Ending before everything under way was done; the next leader goes on with it", "after", drainTimeout)
	}
}

// warnOfLimits tells of a client limit that would make bursts slow.
func warnOfLimits(ctx context.Context, cc *schedulerconfig.CompletedConfig) {
	if qps := cc.ComponentConfig.ClientConnection.QPS; qps >= 0 {
		klog.FromContext(ctx).Info("The configuration limits the scheduler's API requests; bursts of pods will wait for it. Set clientConnection.qps to -1", "qps", qps)
	}
}
