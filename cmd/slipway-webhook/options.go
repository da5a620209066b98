// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"time"

	"github.com/slipway-sh/slipway/cmd/internal/settings"
)

// options are the flags. Each has an environment variable of the same name in upper case with underscores, which the flag
// overrides.
type options struct {
	Kubeconfig      string
	Namespace       string
	Service         string
	Configuration   string
	BindAddress     string
	Port            int
	MetricsPort     int
	HealthProbePort int
	CertDir         string
	CertSecret      string
	NativePolicies  bool
	InjectScheduler bool
	CanaryNamespace string
	CanaryScheduler string
	Identity        string
	LameDuck        time.Duration
	LogLevel        string
}

// configKind is that of the configuration file, docs/reference/configuration.md.
const configKind = "WebhookConfiguration"

// parse reads the configuration file, environment and flags. Its errors name the flag, variable or key.
func parse(args []string, getenv func(string) string, usage io.Writer) (options, error) {
	var o options
	fs := flags(&o)
	fs.SetOutput(usage)
	if err := settings.Parse(fs, configKind, args, getenv); err != nil {
		return o, err
	}
	if o.Identity == "" {
		o.Identity, _ = os.Hostname() // a lease without a holder is as good
	}
	return o, o.Validate()
}

// flags are the process's, which set o.
func flags(o *options) *flag.FlagSet {
	fs := flag.NewFlagSet("slipway-webhook", flag.ContinueOnError)
	fs.StringVar(&o.Kubeconfig, "kubeconfig", "", "kubeconfig file; if empty, the in-cluster credentials or ~/.kube/config")
	fs.StringVar(&o.Namespace, "namespace", "slipway-system", "Slipway's own namespace")
	fs.StringVar(&o.Service, "service", "slipway-webhook", "name of the Service in front of the replicas; the certificate is for it")
	fs.StringVar(&o.Configuration, "configuration", "slipway", "name of the mutating and the validating webhook configuration whose caBundle is kept")
	fs.StringVar(&o.BindAddress, "bind-address", "", "address the ports listen on; all if empty")
	fs.IntVar(&o.Port, "port", 9443, "port of admission, HTTPS")
	fs.IntVar(&o.MetricsPort, "metrics-port", 8080, "port of /metrics; 0 for none")
	fs.IntVar(&o.HealthProbePort, "health-probe-port", 8081, "port of /healthz and /readyz; 0 for none")
	fs.StringVar(&o.CertDir, "cert-dir", "", "folder with tls.crt and tls.key kept by somebody else, for instance cert-manager; if empty, certificates are made here")
	fs.StringVar(&o.CertSecret, "cert-secret", "slipway-webhook-ca", "Secret of the certificate authority that is made here")
	fs.BoolVar(&o.NativePolicies, "native-policies", true, "the policies of manifests/policies are installed, so their rules are not evaluated here")
	fs.BoolVar(&o.InjectScheduler, "inject-scheduler-name", false, "set schedulerName here; for API servers without MutatingAdmissionPolicy (before 1.36)")
	fs.StringVar(&o.CanaryNamespace, "canary-namespace", "", "managed namespace in which a dry-run pod is created every 30 s; none if empty")
	fs.StringVar(&o.CanaryScheduler, "canary-scheduler-name", "", "schedulerName the dry-run pod should come back with; not looked at if empty")
	fs.StringVar(&o.Identity, "identity", "", "name of this replica in the lease; the host's name if empty")
	fs.DurationVar(&o.LameDuck, "lame-duck", 15*time.Second, "how long requests are served after the signal to end")
	fs.StringVar(&o.LogLevel, "log-level", "info", "debug, info or error")
	return fs
}

// Validate checks the values; the error names every flag that is wrong.
func (o *options) Validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	for _, f := range []struct{ name, value string }{{"namespace", o.Namespace}, {"service", o.Service}, {"configuration", o.Configuration}} {
		check(f.value != "", "--%s is empty", f.name)
	}
	check(o.CertDir != "" || o.CertSecret != "", "--cert-secret is empty and there is no --cert-dir")
	err := settings.Port(o.Port, false)
	check(err == nil, "--port: %w", err)
	for _, f := range []struct {
		name string
		port int
	}{{"metrics-port", o.MetricsPort}, {"health-probe-port", o.HealthProbePort}} {
		err := settings.Port(f.port, true)
		check(err == nil, "--%s: %w", f.name, err)
		check(f.port == 0 || f.port != o.Port, "--%s and --port are both %d", f.name, f.port)
	}
	check(o.MetricsPort == 0 || o.MetricsPort != o.HealthProbePort, "--metrics-port and --health-probe-port are both %d", o.MetricsPort)
	check(o.LameDuck >= 0, "--lame-duck: %s is negative", o.LameDuck)
	_, err = settings.Level(o.LogLevel)
	check(err == nil, "--log-level: %w", err)
	return errors.Join(errs...)
}

// level is the log level, which Validate has checked.
func (o *options) level() slog.Level {
	level, _ := settings.Level(o.LogLevel)
	return level
}
