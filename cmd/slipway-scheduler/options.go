// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/yaml"

	defaults "github.com/slipway-sh/slipway/manifests/config"
)

// slipwayOptions are the flags Slipway adds to kube-scheduler's. Each has an environment variable of the same name in upper
// case with underscores, which the flag overrides; names, variables and defaults are Karpenter's.
type slipwayOptions struct {
	clusterName      string
	clusterEndpoint  string
	clusterCABundle  string
	vmMemoryOverhead float64
	reservedENIs     int
	isolatedVPC      bool
	startupTimeout   time.Duration
	// dryRun asks EC2 whether this process may launch, for a controller that has another role.
	dryRun          bool
	serveSchedulers []string
	// disableDisruption leaves all nodes where they are, drifted and expired ones too.
	disableDisruption bool
	// karpenterLease is the name of the lease whose holder owns the classes of karpenter.k8s.aws.
	karpenterLease string
	// admissionNamespace has the lease that tells whether admission works; it is not asked if this is empty.
	admissionNamespace string
	// catalogNamespace is where catalogues are published; they are not if it is empty.
	catalogNamespace string
}

// add registers the flags, with what the environment says as their defaults. Its error names each variable that cannot be
// read.
func (o *slipwayOptions) add(fs *pflag.FlagSet, getenv func(string) string) error {
	fs.StringVar(&o.clusterName, "cluster-name", "", "Name of the EKS cluster to buy nodes for. Required.")
	fs.StringVar(&o.clusterEndpoint, "cluster-endpoint", "", "URL of the cluster's API server as nodes reach it; asked of EKS if empty.")
	fs.StringVar(&o.clusterCABundle, "cluster-ca-bundle", "", "Certificate authority of the API server for new nodes, PEM in base64; asked of EKS if empty.")
	fs.Float64Var(&o.vmMemoryOverhead, "vm-memory-overhead-percent", 0.075, "Share of an instance's memory that its node does not see, 0 to 1, for types no node has been seen of.")
	fs.IntVar(&o.reservedENIs, "reserved-enis", 0, "Network interfaces of each instance that pods cannot use.")
	fs.BoolVar(&o.disableDisruption, "disable-disruption", false, "Take no node away: no consolidation, drift or expiry.")
	fs.StringVar(&o.karpenterLease, "karpenter-lease-name", "karpenter-leader-election", "Name of Karpenter's leader lease, in whatever namespace: nodes with classes of karpenter.k8s.aws are left alone while somebody but Slipway holds one. Not looked at if empty.")
	fs.StringVar(&o.catalogNamespace, "catalog-namespace", "", "Namespace in which what can be bought is published for slipway-webhook, which has no rights in AWS. Not published if empty.")
	fs.StringVar(&o.admissionNamespace, "admission-namespace", "", "Namespace of slipway-webhook, whose lease tells that admission works: while it does not, no node is taken away whose pods would have to be created again. Empty if slipway-webhook is not installed.")
	fs.BoolVar(&o.isolatedVPC, "isolated-vpc", false, "No calls to AWS services without a VPC endpoint (IAM, Pricing).")
	fs.BoolVar(&o.dryRun, "dry-run", false, "Ask EC2 by dry runs whether instances of each EC2NodeClass may be launched and write the answer into its condition LaunchAuthorized, for a slipway-controller with a role of its own (--dry-run-by-scheduler).")
	fs.DurationVar(&o.startupTimeout, "startup-timeout", 30*time.Second, "How long to wait at start for missing CustomResourceDefinitions and permissions before giving up.")
	fs.StringSliceVar(&o.serveSchedulers, "serve-schedulers", nil, "Names of other schedulers for whose unschedulable pods nodes are bought too, for example default-scheduler.")
	var errs []error
	fs.VisitAll(func(f *pflag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		f.Usage += " [" + name + "]"
		value := getenv(name)
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			errs = append(errs, fmt.Errorf("environment variable %s (flag --%s): %q: %w", name, f.Name, value, err))
		}
		f.DefValue = f.Value.String()
	})
	return errors.Join(errs...)
}

// validate checks the values; the error names every flag that is wrong.
func (o *slipwayOptions) validate() error {
	var errs []error
	check := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	check(o.clusterName != "", "--cluster-name (CLUSTER_NAME) is required: the name of the EKS cluster, which tags every instance")
	check(o.clusterEndpoint == "" || strings.HasPrefix(o.clusterEndpoint, "https://"), "--cluster-endpoint: %q is not an https URL", o.clusterEndpoint)
	check(o.vmMemoryOverhead >= 0 && o.vmMemoryOverhead < 1, "--vm-memory-overhead-percent: %g is not between 0 and 1", o.vmMemoryOverhead)
	check(!slices.Contains(o.serveSchedulers, ""), "--serve-schedulers: a name is empty")
	check(o.startupTimeout > 0, "--startup-timeout: %v is not positive", o.startupTimeout)
	check(o.reservedENIs >= 0, "--reserved-enis: %d is negative", o.reservedENIs)
	return errors.Join(errs...)
}

// preferAsyncAPICalls turns the feature gate SchedulerAsyncAPICalls on by default (it stays switchable): without it every
// pod that fails costs a status write inside the scheduling loop, and a burst waits for all of them. It has to come before
// the gates' flag is made, and does nothing the second time.
func preferAsyncAPICalls() error {
	gate := utilfeature.DefaultMutableFeatureGate
	if gate.GetAll()[features.SchedulerAsyncAPICalls].Default {
		return nil
	}
	if err := gate.OverrideDefault(features.SchedulerAsyncAPICalls, true); err != nil {
		return fmt.Errorf("choosing the defaults of feature gates: %w", err)
	}
	return nil
}

// nodeRepair is Karpenter's gate for replacing nodes whose conditions say that they are broken.
const nodeRepair featuregate.Feature = "NodeRepair"

// addKarpenterGates makes Karpenter's feature gates known, with its defaults, so that its --feature-gates and FEATURE_GATES can be
// taken over as they are. Only NodeRepair means anything here: what is behind the others is always on, or not there at all. Like
// preferAsyncAPICalls it has to come before the gates' flag is made. The flag overrides the environment.
func addKarpenterGates(getenv func(string) string) error {
	gate := utilfeature.DefaultMutableFeatureGate
	alpha := featuregate.FeatureSpec{PreRelease: featuregate.Alpha}
	beta := featuregate.FeatureSpec{PreRelease: featuregate.Beta, Default: true}
	gates := map[featuregate.Feature]featuregate.FeatureSpec{
		nodeRepair: alpha, "ReservedCapacity": beta, "SpotToSpotConsolidation": alpha, "NodeOverlay": alpha, "StaticCapacity": alpha, "CapacityBuffer": alpha,
	}
	known := gate.GetAll()
	for name := range gates {
		if _, ok := known[name]; ok {
			delete(gates, name) // the second time
		}
	}
	if len(gates) > 0 { // once they are a flag, not even none can be added
		if err := gate.Add(gates); err != nil {
			return fmt.Errorf("adding Karpenter's feature gates: %w", err)
		}
	}
	value := getenv("FEATURE_GATES")
	if value == "" {
		return nil
	}
	known = gate.GetAll()
	for part := range strings.SplitSeq(value, ",") { // a gate remembers what it does not know, and refuses everything from then on
		name, _, _ := strings.Cut(strings.TrimSpace(part), "=")
		if _, ok := known[featuregate.Feature(name)]; !ok && name != "" && name != "AllAlpha" && name != "AllBeta" {
			return fmt.Errorf("environment variable FEATURE_GATES: %q: unrecognized feature gate %q", value, name)
		}
	}
	if err := gate.Set(value); err != nil {
		return fmt.Errorf("environment variable FEATURE_GATES: %q: %w", value, err)
	}
	return nil
}

// useDefaultConfig writes the embedded configuration to a file of its own, with the kubeconfig flag's value in it, and
// points the options there. kube-scheduler ignores --kubeconfig once it has a configuration file. forget removes the file.
func useDefaultConfig(opts *options.Options, kubeconfig string) (forget func(), err error) {
	var config map[string]any
	if err := yaml.Unmarshal(defaults.Scheduler, &config); err != nil {
		return nil, fmt.Errorf("reading the embedded configuration: %w", err)
	}
	connection, ok := config["clientConnection"].(map[string]any)
	if !ok {
		return nil, errors.New("reading the embedded configuration: it has no clientConnection")
	}
	if kubeconfig != "" {
		connection["kubeconfig"] = kubeconfig
	}
	raw, err := yaml.Marshal(config)
	if err != nil {
		return nil, fmt.Errorf("writing the embedded configuration: %w", err)
	}
	dir, err := os.MkdirTemp("", "slipway-scheduler-")
	if err != nil {
		return nil, fmt.Errorf("writing the embedded configuration: %w", err)
	}
	forget = func() { _ = os.RemoveAll(dir) }
	opts.ConfigFile = filepath.Join(dir, "config.yaml")
	if err := os.WriteFile(opts.ConfigFile, raw, 0o600); err != nil {
		forget()
		return nil, fmt.Errorf("writing the embedded configuration: %w", err)
	}
	return forget, nil
}
