// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/cmd/internal/settings"
)

// options are the flags. Each has an environment variable of the same name in upper case with underscores, which the flag
// overrides; names, variables and defaults are Karpenter's where it has the setting.
type options struct {
	Kubeconfig              string
	ClusterName             string
	ClusterEndpoint         string
	ClusterCABundle         string
	IsolatedVPC             bool
	InterruptionQueue       string
	VMMemoryOverheadPercent float64
	ReservedENIs            int
	DisableDryRun           bool
	DryRunByScheduler       bool
	BindAddress             string
	MetricsPort             int
	HealthProbePort         int
	KubeClientQPS           int
	KubeClientBurst         int
	DisableLeaderElection   bool
	LeaderElectionName      string
	LeaderElectionNamespace string
	StartupTimeout          time.Duration
	LogLevel                string
}

// configKind is that of the configuration file, docs/reference/configuration.md.
const configKind = "ControllerConfiguration"

// parse reads the configuration file, environment and flags. Its errors name the flag, variable or key.
func parse(args []string, getenv func(string) string, usage io.Writer) (options, error) {
	var o options
	fs := flags(&o)
	fs.SetOutput(usage)
	if err := settings.Parse(fs, configKind, args, getenv); err != nil {
		return o, err
	}
	return o, o.Validate()
}

// flags are the process's, which set o.
func flags(o *options) *flag.FlagSet {
	fs := flag.NewFlagSet("slipway-controller", flag.ContinueOnError)
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the in-cluster credentials or ~/.kube/config")
	fs.StringVar(&o.ClusterName, "cluster-name", "", "name of the EKS cluster; required")
	fs.StringVar(&o.ClusterEndpoint, "cluster-endpoint", "", "URL of the API server for new nodes; if empty, EKS is asked")
	fs.StringVar(&o.ClusterCABundle, "cluster-ca-bundle", "", "certificate authority of the API server for new nodes, PEM in base64; if empty, EKS is asked")
	fs.BoolVar(&o.IsolatedVPC, "isolated-vpc", false, "no calls to AWS services without a VPC endpoint (IAM, Pricing)")
	fs.StringVar(&o.InterruptionQueue, "interruption-queue", "", "name of the SQS queue with EC2's notices (spot interruption, health, state changes); none if empty")
	fs.Float64Var(&o.VMMemoryOverheadPercent, "vm-memory-overhead-percent", 0.075, "share of an instance's memory that its node does not see, 0 to 1")
	fs.IntVar(&o.ReservedENIs, "reserved-enis", 0, "network interfaces of each instance that pods cannot use")
	fs.BoolVar(&o.DisableDryRun, "disable-dry-run", false, "do not ask EC2 whether instances may be launched")
	fs.BoolVar(&o.DryRunByScheduler, "dry-run-by-scheduler", false, "take from slipway-scheduler (--dry-run) whether EC2 lets it launch, where this process has a role of its own that may not")
	fs.StringVar(&o.BindAddress, "bind-address", "", "address the metrics and health ports listen on; all if empty")
	fs.IntVar(&o.MetricsPort, "metrics-port", 8080, "port of /metrics; 0 for none")
	fs.IntVar(&o.HealthProbePort, "health-probe-port", 8081, "port of /healthz and /readyz; 0 for none")
	fs.IntVar(&o.KubeClientQPS, "kube-client-qps", 200, "requests a second to the API server")
	fs.IntVar(&o.KubeClientBurst, "kube-client-burst", 300, "requests to the API server at once")
	fs.BoolVar(&o.DisableLeaderElection, "disable-leader-election", false, "act without holding the lease")
	fs.StringVar(&o.LeaderElectionName, "leader-election-name", "karpenter-leader-election", "name of the lease; Karpenter's own, so that only one of the two acts")
	fs.StringVar(&o.LeaderElectionNamespace, "leader-election-namespace", "", "namespace of the lease; if empty, the pod's own")
	fs.DurationVar(&o.StartupTimeout, "startup-timeout", 30*time.Second, "how long to wait at start for missing CustomResourceDefinitions and permissions before giving up")
	fs.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	return fs
}

// Validate checks the values; the error names every flag that is wrong.
func (o options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.ClusterName != "", "--cluster-name (CLUSTER_NAME) is required")
	check(o.ClusterEndpoint == "" || strings.HasPrefix(o.ClusterEndpoint, "https://"), "--cluster-endpoint: %q is not an https URL", o.ClusterEndpoint)
	check(o.VMMemoryOverheadPercent >= 0 && o.VMMemoryOverheadPercent < 1, "--vm-memory-overhead-percent: %g is not between 0 and 1", o.VMMemoryOverheadPercent)
	check(o.ReservedENIs >= 0, "--reserved-enis: %d is negative", o.ReservedENIs)
	for name, port := range map[string]int{"metrics-port": o.MetricsPort, "health-probe-port": o.HealthProbePort} {
		err := settings.Port(port, true)
		check(err == nil, "--%s: %w", name, err)
	}
	check(o.MetricsPort == 0 || o.MetricsPort != o.HealthProbePort, "--metrics-port and --health-probe-port are both %d", o.MetricsPort)
	check(o.KubeClientQPS > 0, "--kube-client-qps: %d is not positive", o.KubeClientQPS)
	check(o.KubeClientBurst > 0, "--kube-client-burst: %d is not positive", o.KubeClientBurst)
	check(o.StartupTimeout > 0, "--startup-timeout: %v is not positive", o.StartupTimeout)
	check(o.DisableLeaderElection || o.LeaderElectionName != "", "--leader-election-name is empty")
	_, err := settings.Level(o.LogLevel)
	check(err == nil, "--log-level: %w", err)
	return errors.Join(errs...)
}

// level is the log level, which Validate has checked.
func (o options) level() slog.Level {
	level, _ := settings.Level(o.LogLevel)
	return level
}
