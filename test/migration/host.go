// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
)

const (
	// hostName is the node that Karpenter's and Slipway's pods are on.
	hostName = "host"
	// look is how often the host looks at its pods, and beat how often it says that it is there.
	look, beat = 200 * time.Millisecond, 10 * time.Second
	// endsWithin is how long a process may take to end when it is asked to.
	endsWithin = 30 * time.Second
	nameLabel  = "app.kubernetes.io/name"
	karpenter  = "karpenter"
	slipway    = "slipway"
	serve      = "--serve-schedulers=default-scheduler"
	// clusterName is the bed's default.
	clusterName = "demo"
)

// host is the kubelet of a node whose pods are Karpenter and Slipway: their containers are processes.
type host struct {
	bed  *bed.Bed
	kube client.Client
	opts options

	running map[string][]*cluster.Process // by what runs
	beaten  time.Time
}

// run plays the node until ctx ends. It returns an error if a process ends by itself.
func (h *host) run(ctx context.Context) error {
	h.running = map[string][]*cluster.Process{}
	node := &corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: hostName}, Spec: corev1.NodeSpec{Unschedulable: true},
	}
	if err := h.kube.Create(ctx, node); err != nil {
		return fmt.Errorf("creating node %q: %w", hostName, err)
	}
	for ctx.Err() == nil {
		if err := h.pass(ctx); err != nil && ctx.Err() == nil {
			return err
		}
		select {
		case <-ctx.Done():
		case <-time.After(look):
		}
	}
	return nil
}

// pass makes processes what the pods say.
func (h *host) pass(ctx context.Context) error {
	if time.Since(h.beaten) > beat {
		if err := h.ready(ctx); err != nil {
			return err
		}
		h.beaten = time.Now()
	}
	var pods corev1.PodList
	if err := h.kube.List(ctx, &pods, client.MatchingFields{"spec.nodeName": hostName}); err != nil {
		return fmt.Errorf("listing the host's pods: %w", err)
	}
	wanted := map[string]bool{}
	for i := range pods.Items {
		if pods.Items[i].DeletionTimestamp == nil {
			wanted[pods.Items[i].Labels[nameLabel]] = true
		}
	}
	for _, name := range []string{karpenter, slipway} {
		if err := h.keep(ctx, name, wanted[name]); err != nil {
			return err
		}
	}
	for i := range pods.Items {
		if err := h.settle(ctx, &pods.Items[i]); err != nil {
			return err
		}
	}
	return nil
}

// keep starts what is wanted and does not run, and ends what runs and is not wanted.
func (h *host) keep(ctx context.Context, name string, wanted bool) error {
	running := h.running[name]
	switch {
	case wanted && len(running) == 0:
		started, err := h.start(name)
		if err != nil {
			return err
		}
		h.running[name] = started
	case wanted:
		for _, p := range running {
			select {
			case <-p.Done():
				return fmt.Errorf("a process of %s ended by itself: %w", name, p.Err())
			default:
			}
		}
	case len(running) > 0:
		var errs []error
		for _, p := range running {
			errs = append(errs, p.Terminate())
		}
		for _, p := range running {
			select {
			case <-p.Done():
			case <-time.After(endsWithin):
				errs = append(errs, p.Kill())
			case <-ctx.Done():
			}
		}
		delete(h.running, name)
		return errors.Join(errs...)
	}
	return nil
}

func (h *host) start(name string) ([]*cluster.Process, error) {
	if name == slipway {
		if err := h.bed.StartSlipway(); err != nil {
			return nil, err
		}
		return []*cluster.Process{h.bed.Process(bed.Scheduler), h.bed.Process(bed.Controller)}, nil
	}
	metrics, err := freePort()
	if err != nil {
		return nil, err
	}
	health, err := freePort()
	if err != nil {
		return nil, err
	}
	c := h.bed.Cluster
	p, err := c.Run(cluster.Command{Name: karpenter, Path: h.opts.karpenter, Env: append(h.bed.Env(),
		"KUBECONFIG="+c.Kubeconfig(), "SYSTEM_NAMESPACE="+bed.Namespace, "LEADER_ELECTION_NAMESPACE="+bed.Namespace,
		"CLUSTER_NAME="+clusterName, "CLUSTER_ENDPOINT="+c.Config().Host, "INTERRUPTION_QUEUE="+h.bed.Emulator.QueueName(),
		"METRICS_PORT="+metrics, "HEALTH_PROBE_PORT="+health,
	)})
	return []*cluster.Process{p}, err
}

// settle says that a pod's process runs, or takes the pod away when it has ended.
func (h *host) settle(ctx context.Context, pod *corev1.Pod) error {
	running := len(h.running[pod.Labels[nameLabel]]) > 0
	if pod.DeletionTimestamp != nil {
		if running {
			return nil
		}
		return client.IgnoreNotFound(h.kube.Delete(ctx, pod, client.GracePeriodSeconds(0)))
	}
	if !running || pod.Status.Phase == corev1.PodRunning {
		return nil
	}
	stored := pod.DeepCopy()
	pod.Status.Phase = corev1.PodRunning
	pod.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()}}
	return client.IgnoreNotFound(h.kube.Status().Patch(ctx, pod, client.MergeFrom(stored)))
}

// ready renews the node's heartbeat.
func (h *host) ready(ctx context.Context) error {
	node := &corev1.Node{}
	if err := h.kube.Get(ctx, client.ObjectKey{Name: hostName}, node); err != nil {
		return fmt.Errorf("reading node %q: %w", hostName, err)
	}
	stored := node.DeepCopy()
	node.Status.Conditions = []corev1.NodeCondition{{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady", LastHeartbeatTime: metav1.Now(), LastTransitionTime: metav1.Now(),
	}}
	if err := h.kube.Status().Patch(ctx, node, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("renewing node %q: %w", hostName, err)
	}
	return nil
}

// deployment is one of the host, with what `slipway migrate` reads of it.
func deployment(name, namespace string, args ...string) *appsv1.Deployment {
	labels := map[string]string{nameLabel: name}
	env := []corev1.EnvVar{{Name: "CLUSTER_NAME", Value: clusterName}}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(1)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: corev1.PodSpec{
				NodeName: hostName, Tolerations: []corev1.Toleration{{Operator: corev1.TolerationOpExists}},
				Containers: []corev1.Container{{Name: name, Image: "registry.example/" + name + ":1", Args: args, Env: env}},
			}},
		},
	}
}

func freePort() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("choosing a port: %w", err)
	}
	defer l.Close()
	return strconv.Itoa(l.Addr().(*net.TCPAddr).Port), nil
}
