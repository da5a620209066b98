// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/pflag"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"
	"k8s.io/kubernetes/pkg/features"
	"sigs.k8s.io/yaml"
)

// defaultConfig is used when --config is not given.
//
//go:embed config.yaml
var defaultConfig []byte

// slipwayOptions are the flags Slipway adds to kube-scheduler's. Each has an environment variable with Karpenter's name.
type slipwayOptions struct {
	clusterName      string
	clusterEndpoint  string
	vmMemoryOverhead float64
	reservedENIs     int
	isolatedVPC      bool
}

func (o *slipwayOptions) add(fs *pflag.FlagSet) {
	fs.StringVar(&o.clusterName, "cluster-name", os.Getenv("CLUSTER_NAME"), "Name of the EKS cluster to buy nodes for (CLUSTER_NAME). Required.")
	fs.StringVar(&o.clusterEndpoint, "cluster-endpoint", os.Getenv("CLUSTER_ENDPOINT"), "URL of the cluster's API server as nodes reach it (CLUSTER_ENDPOINT); asked of EKS if empty.")
	fs.Float64Var(&o.vmMemoryOverhead, "vm-memory-overhead-percent", 0.075, "Share of an instance's memory that pods cannot use, for types no node has been seen of.")
	fs.IntVar(&o.reservedENIs, "reserved-enis", 0, "Network interfaces of each node that pods cannot use.")
	fs.BoolVar(&o.isolatedVPC, "isolated-vpc", os.Getenv("ISOLATED_VPC") == "true", "The VPC has no way to the pricing API (ISOLATED_VPC).")
}

func (o *slipwayOptions) validate() error {
	var errs []error
	if o.clusterName == "" {
		errs = append(errs, errors.New("--cluster-name (or CLUSTER_NAME) is required: the name of the EKS cluster, which tags every instance"))
	}
	if o.vmMemoryOverhead < 0 || o.vmMemoryOverhead >= 1 {
		errs = append(errs, fmt.Errorf("--vm-memory-overhead-percent is %g, it has to be at least 0 and below 1", o.vmMemoryOverhead))
	}
	if o.reservedENIs < 0 {
		errs = append(errs, fmt.Errorf("--reserved-enis is %d, it must not be negative", o.reservedENIs))
	}
	return errors.Join(errs...)
}

// preferAsyncAPICalls turns the feature gate SchedulerAsyncAPICalls on by default (it stays switchable): without it every
// pod that fails costs a status write inside the scheduling loop, and a burst waits for all of them.
func preferAsyncAPICalls() error {
	return utilfeature.DefaultMutableFeatureGate.OverrideDefault(features.SchedulerAsyncAPICalls, true)
}

// useDefaultConfig writes the embedded configuration to a file of its own, with the kubeconfig flag's value in it, and
// points the options there. kube-scheduler ignores --kubeconfig once it has a configuration file.
func useDefaultConfig(opts *options.Options, kubeconfig string) (cleanup func(), err error) {
	var config map[string]any
	if err := yaml.Unmarshal(defaultConfig, &config); err != nil {
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
	opts.ConfigFile = filepath.Join(dir, "config.yaml")
	return func() { _ = os.RemoveAll(dir) }, os.WriteFile(opts.ConfigFile, raw, 0o600)
}
