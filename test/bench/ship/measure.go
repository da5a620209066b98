// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/manifests/install"
	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// limit bounds each part; reaching it is a failure, not a figure.
const limit = 2 * time.Minute

type workload struct{ cpu, memory string }

// workloads are what the pods of the plan ask for, one Deployment each.
func workloads() []workload {
	return []workload{
		{"100m", "128Mi"},
		{"250m", "512Mi"},
		{"250m", "2Gi"},
		{"500m", "512Mi"},
		{"500m", "4Gi"},
		{"1", "1Gi"},
		{"1", "8Gi"},
		{"2", "2Gi"},
		{"2", "14Gi"},
		{"4", "8Gi"},
	}
}

// plan runs the CLI over the samples' class and pools and the workloads, as a user would.
func plan(ctx context.Context, o options) (time.Duration, error) {
	dir, err := os.MkdirTemp("", "slipway-ship-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(dir)
	for _, name := range []string{"ec2nodeclass.yaml", "nodepools.yaml"} {
		raw, err := samples.Files.ReadFile("general/" + name)
		if err != nil {
			return 0, err
		}
		if err := os.WriteFile(filepath.Join(dir, name), raw, 0o600); err != nil {
			return 0, err
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "pods.yaml"), deployments(o.pods), 0o600); err != nil {
		return 0, err
	}
	var took []time.Duration
	for range o.runs {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, filepath.Join(o.binaries, "slipway"), "plan", "-f", dir)
		cmd.Stdout, cmd.Stderr = &out, &out
		began := time.Now()
		if err := cmd.Run(); err != nil {
			return 0, fmt.Errorf("%w: %s", err, strings.TrimSpace(out.String()))
		}
		took = append(took, time.Since(began))
	}
	return bed.Quantile(took, 0.5), nil
}

// deployments are the manifests of n pods.
func deployments(n int) []byte {
	var out bytes.Buffer
	all := workloads()
	for i, w := range all {
		replicas := n / len(all)
		if i == 0 {
			replicas += n % len(all)
		}
		fmt.Fprintf(&out, `---
apiVersion: apps/v1
kind: Deployment
metadata: {name: workload-%d, namespace: default}
spec:
  replicas: %d
  selector: {matchLabels: {app: workload-%d}}
  template:
    metadata: {labels: {app: workload-%d}}
    spec:
      schedulerName: slipway
      containers:
      - {name: c, image: "registry.example/c:1", resources: {requests: {cpu: %q, memory: %q}}}
`, i, replicas, i, i, w.cpu, w.memory)
	}
	return out.Bytes()
}

// site is a control plane, without Slipway yet, and a client to it. Machines boot at once.
func site(ctx context.Context, opts bed.Options) (*bed.Bed, client.Client, error) {
	opts.Emulator = ec2emu.Options{Seed: 1, InstantBoot: true}
	b, err := bed.New(ctx, opts)
	if err != nil {
		return nil, nil, err
	}
	kube, err := client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, nil, errors.Join(err, b.Stop())
	}
	return b, kube, nil
}

// firstPod installs Slipway from its rendered manifests and waits for a pod.
func firstPod(ctx context.Context, o options) (took time.Duration, err error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	b, kube, err := site(ctx, bed.Options{Binaries: o.binaries, Installation: install.Joint})
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	began := time.Now()
	if err := b.Cluster.Apply(ctx, install.Joint); err != nil {
		return 0, err
	}
	if err := b.StartSlipway(); err != nil { // what the kubelet of a node would do next
		return 0, err
	}
	for _, name := range []string{"ec2nodeclass.yaml", "nodepools.yaml"} {
		raw, err := samples.Files.ReadFile("general/" + name)
		if err != nil {
			return 0, err
		}
		if err := b.Cluster.Apply(ctx, raw); err != nil {
			return 0, err
		}
	}
	pod := builder.Pod("first").CPU("500m").Memory("512Mi").Obj()
	pod.Spec.SchedulerName = "slipway"
	if err := kube.Create(ctx, pod); err != nil {
		return 0, err
	}
	err = bed.Eventually(ctx, "the first pod to run", func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKeyFromObject(pod), pod)
		return pod.Status.Phase == corev1.PodRunning, err
	})
	return time.Since(began), err
}

// start starts the processes beside nodes that are there, after slipway top was watched beside them.
func start(ctx context.Context, o options) (took time.Duration, top float64, err error) {
	b, kube, err := site(ctx, bed.Options{Binaries: o.binaries, NoLeases: true})
	if err != nil {
		return 0, 0, err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	if err := each(o.nodes, func(i int) error { return existing(ctx, kube, i) }); err != nil {
		return 0, 0, err
	}
	if top, err = topCPU(ctx, b, kube, o); err != nil {
		return 0, 0, fmt.Errorf("watching slipway top: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	began := time.Now()
	if err := b.StartSlipway(); err != nil {
		return 0, 0, err
	}
	err = b.AwaitReady(ctx)
	return time.Since(began), top, err
}

// existing writes a node with its claim.
func existing(ctx context.Context, kube client.Client, i int) error {
	name, providerID := fmt.Sprintf("node-%d", i), fmt.Sprintf("aws:///us-east-1a/i-%017d", i)
	claim := builder.NodeClaim(fmt.Sprintf("default-%d", i)).Pool("default").Launched(providerID, "m5.xlarge", "us-east-1a", "on-demand").Registered(name).Initialized().Obj()
	node := builder.Node(name).ProviderID(providerID).CPU("4").Memory("16Gi").Label("karpenter.sh/nodepool", "default").Obj()
	for _, object := range []client.Object{claim, node} {
		full := object.DeepCopyObject().(client.Object)
		if err := kube.Create(ctx, object); err != nil {
			return fmt.Errorf("writing %s: %w", object.GetName(), err)
		}
		full.SetResourceVersion(object.GetResourceVersion())
		if err := kube.Status().Patch(ctx, full, client.MergeFrom(object)); err != nil {
			return fmt.Errorf("writing the status of %s: %w", object.GetName(), err)
		}
	}
	return nil
}
