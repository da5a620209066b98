// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"fmt"
	"os"
	"time"
)

// KubeletKind says who plays the nodes of a cluster.
type KubeletKind int

const (
	// NoKubelet starts nothing for nodes; use NewKubelet for the in-process fake.
	NoKubelet KubeletKind = iota
	// Kwok runs kwok as a process of its own. It manages the nodes that carry KwokAnnotation with its stock fast
	// stages: nodes turn Ready and pods Running at once, pods of Jobs succeed at once. It makes about 20 nodes or
	// pods a second (kwok's README), so it is for soak, not for bursts.
	Kwok
)

// KwokAnnotation and KwokAnnotationValue mark the nodes that kwok manages.
const (
	KwokAnnotation      = "kwok.x-k8s.io/node"
	KwokAnnotationValue = "fake"
)

// BinDirEnv names the environment variable that overrides the folder of the control plane's binaries.
const BinDirEnv = "SLIPWAY_K8S_BIN"

// Options configure a cluster. The zero value is a usable cluster without nodes.
type Options struct {
	// BinDir is the folder of the binaries. Default: $SLIPWAY_K8S_BIN, else <module root>/bin/k8s/<version>.
	BinDir string
	// TempDir is the folder below which the cluster keeps its data. Default: os.TempDir().
	TempDir string
	// Fsync makes etcd sync its log to disk, as in production. Off, a write costs no disk flush.
	Fsync bool
	// Kubelet says who plays the nodes.
	Kubelet KubeletKind
	// ControllerQPS is the request rate of each controller of kube-controller-manager, in requests per second; the
	// burst is half as much again. Default: 1000, so that the pods of a burst arrive as fast as the API server takes them.
	// Kubernetes' own default is 20.
	ControllerQPS int
	// NodeMonitorGracePeriod is how long a node may be silent before it is marked Unknown.
	// Default: kube-controller-manager's own (50 s).
	NodeMonitorGracePeriod time.Duration
	// APIServerArgs and ControllerManagerArgs are appended to the components' flags. The last of two equal flags wins.
	APIServerArgs         []string
	ControllerManagerArgs []string
	// Progress receives one line for each step worth telling a waiting person about, from one goroutine at a time.
	// Default: standard error.
	Progress func(line string)
}

func (o Options) withDefaults() Options {
	o.TempDir = cmp.Or(o.TempDir, os.TempDir())
	o.ControllerQPS = cmp.Or(o.ControllerQPS, 1000)
	if o.Progress == nil {
		o.Progress = func(line string) { fmt.Fprintln(os.Stderr, line) }
	}
	return o
}

func (o Options) validate() error {
	if o.ControllerQPS < 0 {
		return fmt.Errorf("checking options: ControllerQPS is %d, want a positive number", o.ControllerQPS)
	}
	if o.NodeMonitorGracePeriod < 0 {
		return fmt.Errorf("checking options: NodeMonitorGracePeriod is %v, want a positive duration", o.NodeMonitorGracePeriod)
	}
	if o.Kubelet != NoKubelet && o.Kubelet != Kwok {
		return fmt.Errorf("checking options: Kubelet is %d, want NoKubelet or Kwok", o.Kubelet)
	}
	return nil
}
