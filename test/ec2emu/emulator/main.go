// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command emulator runs the emulated AWS account alone, for people who test
// clients of their own: it prints the environment in which an AWS SDK finds it,
// and the controls it has over HTTP. Run it through `make emulator`.
//
// With a kubeconfig its machines join that cluster as nodes, played by the fake
// kubelet of test/cluster; without, they boot and never join. It listens on
// loopback unless told otherwise and keeps nothing. Import level 6 (test).
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/go-logr/logr"
	"github.com/go-logr/logr/funcr"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

func main() {
	err := run(os.Args[1:], os.Stdout, os.Stderr)
	switch {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "emulator:", err)
		os.Exit(1)
	}
}

// settings are what the flags say.
type settings struct {
	emulator   ec2emu.Options
	kubeconfig string
	zones      string
	verbose    bool
}

func parse(args []string, stderr io.Writer) (settings, error) {
	var s settings
	o := &s.emulator
	f := flag.NewFlagSet("emulator", flag.ContinueOnError)
	f.SetOutput(stderr)
	f.Usage = func() {
		fmt.Fprint(stderr, "An AWS account on a port: EC2, SQS, SSM, EKS, IAM, STS and Pricing.\n\nFlags (make emulator ARGS='-speed=10 -throttle'):\n")
		f.PrintDefaults()
		fmt.Fprint(stderr, "\n"+ec2emu.AdminHelp)
	}
	f.StringVar(&o.Addr, "addr", "127.0.0.1:4599", "address to listen on")
	f.Uint64Var(&o.Seed, "seed", 1, "what every draw follows from: identifiers, prices, delays")
	f.StringVar(&o.Region, "region", "us-east-1", "the region")
	f.StringVar(&s.zones, "zones", "", "zones, separated by commas; by default those of the region")
	f.StringVar(&o.ClusterName, "cluster-name", "demo", "name of the EKS cluster, of its discovery tags and node role")
	f.StringVar(&o.KubernetesVersion, "kubernetes-version", "1.37", "version of the EKS cluster: its images are for sale")
	f.StringVar(&o.InterruptionQueue, "queue", "", "name of the SQS queue; by default the cluster's")
	f.StringVar(&s.kubeconfig, "kubeconfig", "", "cluster that machines join as nodes; by default they don't")
	f.Float64Var(&o.Speed, "speed", 1, "how many times faster than real boots, terminations, notices and spot prices go")
	f.Float64Var(&o.LaunchLatency, "launch-latency", 0, "multiple of measured latency that launching calls take; 0 is none")
	f.Float64Var(&o.NeverRegisters, "never-registers", 0, "share of machines that boot but never join, 0..1")
	f.BoolVar(&o.InstantBoot, "instant-boot", false, "machines boot and end at once")
	f.BoolVar(&o.Throttle, "throttle", false, "apply EC2's published request rates")
	f.BoolVar(&s.verbose, "v", false, "log each request and event")
	if err := f.Parse(args); err != nil {
		return s, err
	}
	if f.NArg() > 0 {
		return s, fmt.Errorf("reading flags: unexpected argument %q", f.Arg(0))
	}
	if s.zones != "" {
		o.Zones = strings.Split(s.zones, ",")
	}
	return s, nil
}

func run(args []string, stdout, stderr io.Writer) error {
	s, err := parse(args, stderr)
	if err != nil {
		return err
	}
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if s.verbose {
		ctx = logr.NewContext(ctx, funcr.New(func(_, line string) { fmt.Fprintln(stderr, line) }, funcr.Options{Verbosity: 1, LogTimestamp: true}))
	}
	emu, err := start(ctx, &s)
	if err != nil {
		return err
	}
	defer emu.Close()
	fmt.Fprint(stdout, greeting(emu))
	<-ctx.Done()
	return nil
}

// start starts the emulator and, if there is a cluster, the kubelet of its nodes.
func start(ctx context.Context, s *settings) (*ec2emu.Emulator, error) {
	var config *rest.Config
	if s.kubeconfig != "" {
		var err error
		if config, err = clientcmd.BuildConfigFromFlags("", s.kubeconfig); err != nil {
			return nil, fmt.Errorf("reading kubeconfig: %w", err)
		}
		if err := rest.LoadTLSFiles(config); err != nil {
			return nil, fmt.Errorf("reading kubeconfig: %w", err)
		}
		s.emulator.ClusterEndpoint, s.emulator.ClusterCA = config.Host, config.CAData
	}
	emu, err := ec2emu.Start(ctx, s.emulator)
	if err != nil || config == nil {
		return emu, err
	}
	kubelet, err := cluster.NewKubelet(ctx, config, cluster.KubeletOptions{})
	if err != nil {
		emu.Close()
		return nil, err
	}
	context.AfterFunc(ctx, kubelet.Stop)
	emu.SetKubelet(kubelet)
	return emu, nil
}

// greeting tells how to use it.
func greeting(emu *ec2emu.Emulator) string {
	return fmt.Sprintf(`An AWS account is at %s. Clients find it by their environment:

export AWS_ENDPOINT_URL=%[1]s AWS_REGION=%s AWS_ACCESS_KEY_ID=any AWS_SECRET_ACCESS_KEY=any

%s`, emu.URL(), emu.Region(), ec2emu.AdminHelp)
}
