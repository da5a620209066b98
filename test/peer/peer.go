// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"cmp"
	"context"
	"debug/buildinfo"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
)

// Options say what is run and how. The zero value of what is not a binary is what Karpenter and kube-scheduler are installed
// with.
type Options struct {
	// Karpenter and Scheduler are the binaries; they are required.
	Karpenter, Scheduler string
	// ClusterName is what Karpenter takes for the cluster's name, "demo" by default.
	ClusterName string
	// Election has Karpenter take its leader lease. Without, it works at once.
	Election bool
	// Settings are Karpenter's, as environment variables NAME=value. The last of two for one name counts.
	Settings []string
	// Unlimited lifts the limit of kube-scheduler's requests to the API server, 50 a second by default.
	Unlimited bool
}

// Resolve makes the binaries' paths absolute, as processes run in the cluster's folder, and says if one is missing.
func (o *Options) Resolve() error {
	for _, path := range []*string{&o.Karpenter, &o.Scheduler} {
		absolute, err := filepath.Abs(*path)
		if err != nil {
			return fmt.Errorf("locating the stock binaries: %w", err)
		}
		if _, err := os.Stat(absolute); err != nil {
			return fmt.Errorf("locating the stock binaries: %w; build them with \"make compare-build\"", err)
		}
		*path = absolute
	}
	return nil
}

// Version is that of the main module in the binary at path, as Go's build information says.
func Version(path string) (string, error) {
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return "", fmt.Errorf("reading the version of %s: %w", path, err)
	}
	return info.Main.Version, nil
}

// Peer is Karpenter at work.
type Peer struct {
	// Process is Karpenter's.
	Process *cluster.Process

	bed    *bed.Bed
	health string
}

// Start starts both programs. They end with the bed.
func Start(b *bed.Bed, o Options) (*Peer, error) {
	var ports [3]string
	for i := range ports {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		ports[i] = port
	}
	if err := startScheduler(b.Cluster, o, ports[0]); err != nil {
		return nil, err
	}
	p := &Peer{bed: b, health: "http://127.0.0.1:" + ports[1] + "/readyz"}
	env := append(b.Env(),
		"KUBECONFIG="+b.Cluster.Kubeconfig(), "SYSTEM_NAMESPACE="+bed.Namespace, "LEADER_ELECTION_NAMESPACE="+bed.Namespace,
		"CLUSTER_NAME="+cmp.Or(o.ClusterName, "demo"), "CLUSTER_ENDPOINT="+b.Cluster.Config().Host,
		"DISABLE_LEADER_ELECTION="+strconv.FormatBool(!o.Election), "HEALTH_PROBE_PORT="+ports[1], "METRICS_PORT="+ports[2], "LOG_LEVEL=debug",
	)
	var err error
	p.Process, err = b.Cluster.Run(cluster.Command{Name: "karpenter", Path: o.Karpenter, Env: slices.Concat(env, o.Settings)})
	return p, err
}

func startScheduler(c *cluster.Cluster, o Options, port string) error {
	args := []string{
		"--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig(),
		"--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + c.Dir(),
	}
	if !o.Unlimited {
		args = append(args, "--kubeconfig="+c.Kubeconfig(), "--leader-elect=false")
	} else {
		path := filepath.Join(c.Dir(), "kube-scheduler.yaml")
		config := fmt.Sprintf("apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\nleaderElection: {leaderElect: false}\nclientConnection: {kubeconfig: %q, qps: -1}\n", c.Kubeconfig())
		if err := os.WriteFile(path, []byte(config), 0o600); err != nil {
			return fmt.Errorf("writing the configuration of kube-scheduler: %w", err)
		}
		args = append(args, "--config="+path)
	}
	_, err := c.Run(cluster.Command{Name: "kube-scheduler", Path: o.Scheduler, Args: args})
	return err
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}

// Until polls, and fails at once if Karpenter has ended by itself.
func (p *Peer) Until(ctx context.Context, what string, ok func(context.Context) (bool, error)) error {
	return bed.Eventually(ctx, what, func(ctx context.Context) (bool, error) {
		select {
		case <-p.Process.Done():
			return false, p.Process.Err()
		default:
			return ok(ctx)
		}
	})
}

// AwaitReady waits until Karpenter says that it is ready.
func (p *Peer) AwaitReady(ctx context.Context) error {
	return p.Until(ctx, "Karpenter to be ready", func(ctx context.Context) (bool, error) {
		r, err := http.NewRequestWithContext(ctx, http.MethodGet, p.health, http.NoBody)
		if err != nil {
			return false, err
		}
		answer, err := http.DefaultClient.Do(r)
		if err != nil {
			return false, nil // it does not listen yet
		}
		defer answer.Body.Close()
		return answer.StatusCode == http.StatusOK, nil
	})
}
