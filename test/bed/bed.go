// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"time"

	"k8s.io/client-go/kubernetes"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Namespace is where Slipway's leases are.
const Namespace = "slipway-system"

// Options configure a bed. The zero value has machines that boot in real time.
type Options struct {
	// Binaries is the folder that has slipway-scheduler and slipway-controller; it is required.
	Binaries string
	// Installation are the rendered manifests whose processes, configuration and rights the bed has; by default those with
	// two Deployments, which give each process the least rights.
	Installation []byte
	// Emulator, Cluster and Kubelet are passed on. The emulator is told of the cluster; the cluster's name is the emulator's.
	Emulator ec2emu.Options
	Cluster  cluster.Options
	Kubelet  cluster.KubeletOptions
	// SchedulerArgs and ControllerArgs are appended to the processes' flags.
	SchedulerArgs  []string
	ControllerArgs []string
	// PluginArgs are arguments of the scheduler's plugin beyond the defaults.
	PluginArgs map[string]any
	// LeaseDuration is that of the scheduler's lease; the default if 0.
	LeaseDuration time.Duration
	// NoLeases runs both processes without leader election, so that one that was killed is followed at once and not after
	// its lease has run out.
	NoLeases bool
}

// Bed is a running test bed.
type Bed struct {
	Cluster  *cluster.Cluster
	Emulator *ec2emu.Emulator
	Kubelet  *cluster.Kubelet
	Client   kubernetes.Interface

	opts         Options
	installation *Installation

	mu        sync.Mutex
	processes map[string]*cluster.Process
	ports     map[string]int
}

// Names of Slipway's processes.
const (
	Scheduler  = "slipway-scheduler"
	Controller = "slipway-controller"
	// Standby is a second slipway-scheduler, which waits for the first one's lease.
	Standby = "slipway-scheduler-standby"
)

// New starts everything but Slipway's own processes; StartSlipway starts those. ctx bounds the start only.
func New(ctx context.Context, opts Options) (_ *Bed, err error) {
	b := &Bed{opts: opts, processes: map[string]*cluster.Process{}, ports: map[string]int{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, b.Stop())
		}
	}()
	if opts.Installation == nil {
		opts.Installation = install.Split
	}
	if b.installation, err = ReadInstallation(opts.Installation); err != nil {
		return nil, err
	}
	if b.Cluster, err = cluster.New(ctx, opts.Cluster); err != nil {
		return nil, err
	}
	if err := b.Cluster.ApplyCRDs(ctx); err != nil {
		return nil, err
	}
	admin := b.Cluster.Config()
	b.opts.Emulator.ClusterEndpoint, b.opts.Emulator.ClusterCA = admin.Host, admin.CAData
	if b.Emulator, err = ec2emu.Start(context.WithoutCancel(ctx), b.opts.Emulator); err != nil {
		return nil, err
	}
	if b.Kubelet, err = cluster.NewKubelet(ctx, admin, opts.Kubelet); err != nil {
		return nil, err
	}
	b.Emulator.SetKubelet(b.Kubelet)
	if b.Client, err = kubernetes.NewForConfig(admin); err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return b, b.grant(ctx)
}

// Stop ends everything and removes the data.
func (b *Bed) Stop() error {
	var errs []error
	if b.Kubelet != nil {
		b.Kubelet.Stop()
	}
	if b.Cluster != nil {
		errs = append(errs, b.Cluster.Stop())
	}
	if b.Emulator != nil {
		b.Emulator.Close()
	}
	return errors.Join(errs...)
}

// StartSlipway starts the scheduler and the controller.
func (b *Bed) StartSlipway() error {
	return errors.Join(b.StartController(), b.StartScheduler())
}

// Env is the environment in which an AWS client talks to the emulator and to nothing else.
func (b *Bed) Env() []string {
	return []string{
		"AWS_ENDPOINT_URL=" + b.Emulator.URL(), "AWS_REGION=" + b.Emulator.Region(),
		"AWS_ACCESS_KEY_ID=test", "AWS_SECRET_ACCESS_KEY=test", "AWS_EC2_METADATA_DISABLED=true",
		"AWS_CONFIG_FILE=" + os.DevNull, "AWS_SHARED_CREDENTIALS_FILE=" + os.DevNull,
	}
}

// StartScheduler starts, or starts again, slipway-scheduler.
func (b *Bed) StartScheduler() error { return b.startScheduler(Scheduler) }

// StartStandby starts the second scheduler.
func (b *Bed) StartStandby() error { return b.startScheduler(Standby) }

func (b *Bed) startScheduler(name string) error {
	port, err := b.port(name)
	if err != nil {
		return err
	}
	file, err := b.schedulerConfig()
	if err != nil {
		return err
	}
	args := []string{
		"--config=" + file, "--authentication-kubeconfig=" + b.kubeconfig(Scheduler), "--authorization-kubeconfig=" + b.kubeconfig(Scheduler),
		"--cluster-name=" + b.clusterName(), "--bind-address=127.0.0.1", "--secure-port=" + strconv.Itoa(port), "--cert-dir=" + b.Cluster.Dir(),
	}
	return b.run(name, Scheduler, append(args, b.opts.SchedulerArgs...))
}

// StartController starts, or starts again, slipway-controller.
func (b *Bed) StartController() error {
	metrics, err := b.port(Controller)
	if err != nil {
		return err
	}
	health, err := b.port(Controller + "-health")
	if err != nil {
		return err
	}
	args := []string{
		"--kubeconfig=" + b.kubeconfig(Controller), "--cluster-name=" + b.clusterName(), "--leader-election-namespace=" + Namespace,
		"--metrics-port=" + strconv.Itoa(metrics), "--health-probe-port=" + strconv.Itoa(health),
		"--bind-address=127.0.0.1", "--interruption-queue=" + b.Emulator.QueueName(),
	}
	if b.opts.NoLeases {
		args = append(args, "--disable-leader-election")
	}
	return b.run(Controller, Controller, append(args, b.opts.ControllerArgs...))
}

// schedulerConfig writes the installed configuration with the bed's kubeconfig and, if asked for, without leases.
func (b *Bed) schedulerConfig() (string, error) {
	var c map[string]any
	if err := yaml.Unmarshal(b.installation.SchedulerConfig, &c); err != nil {
		return "", fmt.Errorf("reading the scheduler's configuration: %w", err)
	}
	c["clientConnection"].(map[string]any)["kubeconfig"] = b.kubeconfig(Scheduler)
	if b.opts.PluginArgs != nil {
		profile := c["profiles"].([]any)[0].(map[string]any)
		profile["pluginConfig"] = []any{map[string]any{"name": "Slipway", "args": b.opts.PluginArgs}}
	}
	election := c["leaderElection"].(map[string]any)
	election["leaderElect"] = !b.opts.NoLeases
	if b.opts.LeaseDuration > 0 {
		election["leaseDuration"] = b.opts.LeaseDuration.String()
		election["renewDeadline"] = (b.opts.LeaseDuration * 2 / 3).String()
		election["retryPeriod"] = (b.opts.LeaseDuration / 7).String()
	}
	raw, err := yaml.Marshal(c)
	if err != nil {
		return "", fmt.Errorf("writing the scheduler's configuration: %w", err)
	}
	path := filepath.Join(b.Cluster.Dir(), "scheduler.yaml")
	return path, os.WriteFile(path, raw, 0o600)
}

func (b *Bed) clusterName() string {
	if b.opts.Emulator.ClusterName != "" {
		return b.opts.Emulator.ClusterName
	}
	return "demo"
}

func (b *Bed) run(name, binary string, args []string) error {
	path, err := filepath.Abs(filepath.Join(b.opts.Binaries, binary)) // processes run in the cluster's folder
	if err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("starting %s: %s does not exist; build it with \"make build\"", name, path)
	}
	if err := b.ended(name); err != nil {
		return err
	}
	p, err := b.Cluster.Run(b.installation.command(name, binary, path, args, b.Env()))
	if err != nil {
		return err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.processes[name] = p
	return nil
}

// endsWithin is how long a process that was killed may take to be gone, its port with it.
const endsWithin = 10 * time.Second

// ended waits for the end of the process that had the name before.
func (b *Bed) ended(name string) error {
	p := b.Process(name)
	if p == nil {
		return nil
	}
	select {
	case <-p.Done():
		return nil
	case <-time.After(endsWithin):
		return fmt.Errorf("starting %s: the one started before still runs; kill it first", name)
	}
}

// Options returns the options, for changes that the next start of a process takes up.
func (b *Bed) Options() *Options { return &b.opts }

// Process returns a process of Slipway's by name.
func (b *Bed) Process(name string) *cluster.Process {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.processes[name]
}

// Port is the port on 127.0.0.1 that serves the process's metrics.
func (b *Bed) Port(name string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ports[name]
}

// port chooses a free port for the process and keeps it over restarts.
func (b *Bed) port(name string) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if p, ok := b.ports[name]; ok {
		return p, nil
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("choosing a port for %s: %w", name, err)
	}
	defer l.Close()
	b.ports[name] = l.Addr().(*net.TCPAddr).Port
	return b.ports[name], nil
}

// Wait returns when a process of the bed ends on its own, with an error that quotes its log, or when ctx ends.
func (b *Bed) Wait(ctx context.Context) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	for _, name := range []string{Scheduler, Controller} {
		if p := b.Process(name); p != nil {
			go func() {
				select {
				case <-p.Done():
					if b.Process(name) == p { // not restarted on purpose
						cancel(p.Err())
					}
				case <-ctx.Done():
				}
			}()
		}
	}
	return b.Cluster.Wait(ctx)
}

// Eventually calls ok until it returns true, an error or ctx ends; for waiting on things outside this process.
func Eventually(ctx context.Context, what string, ok func(context.Context) (bool, error)) error {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for {
		done, err := ok(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("waiting for %s: %w", what, err)
		case done:
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, context.Cause(ctx))
		case <-tick.C:
		}
	}
}
