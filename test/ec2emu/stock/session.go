// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/peer"
)

//go:embed nodeclass.yaml
var nodeClass []byte

//go:embed nodepool.yaml
var nodePool []byte

//go:embed deployment.yaml
var workload []byte

const (
	namespace = "default"
	// rest is what is left of the Deployment after the scale-down.
	rest = 5
)

// session is one run.
type session struct {
	bed       *bed.Bed
	opts      options
	tell      peer.Teller
	karpenter *peer.Peer
}

// start starts both programs. Karpenter knows of the emulator by its environment alone.
func (s *session) start() error {
	o := s.opts.peer
	o.Settings = []string{"INTERRUPTION_QUEUE=" + s.bed.Emulator.QueueName()}
	var err error
	s.karpenter, err = peer.Start(s.bed, o)
	return err
}

// verdict reads Karpenter's log and the emulator's journal.
func (s *session) verdict() error {
	found, err := s.karpenter.Complaints()
	if err != nil {
		return err
	}
	if len(found) > 0 {
		return fmt.Errorf("real EC2 would not have caused this:\n%s", strings.Join(found, "\n"))
	}
	s.tell.Say("no error in Karpenter's log that real EC2 would not cause")
	return nil
}

// keep copies Karpenter's log and the journal for people.
func (s *session) keep(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	log, err := s.karpenter.Process.Log()
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	journal, err := json.MarshalIndent(s.bed.Emulator.Requests(), "", " ")
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "karpenter.log"), text, 0o644),
		os.WriteFile(filepath.Join(folder, "requests.json"), journal, 0o644),
	)
}

// configure applies the class first: Karpenter logs errors about a NodePool whose class has no subnets yet.
func (s *session) configure(ctx context.Context) error {
	if err := s.bed.Cluster.Apply(ctx, nodeClass); err != nil {
		return err
	}
	classes, err := client.New(s.bed.Cluster.Config(), client.Options{})
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	class := &unstructured.Unstructured{}
	class.SetAPIVersion("karpenter.k8s.aws/v1")
	class.SetKind("EC2NodeClass")
	err = s.karpenter.Until(ctx, "EC2NodeClass default to be ready", func(ctx context.Context) (bool, error) {
		if err := classes.Get(ctx, types.NamespacedName{Name: "default"}, class); err != nil {
			return false, err
		}
		conditions, _, err := unstructured.NestedSlice(class.Object, "status", "conditions")
		return slices.ContainsFunc(conditions, func(c any) bool {
			condition, ok := c.(map[string]any)
			return ok && condition["type"] == "Ready" && condition["status"] == "True"
		}), err
	})
	if err != nil {
		return fmt.Errorf("%w; its status: %v", err, class.Object["status"])
	}
	if err := s.bed.Cluster.Apply(ctx, nodePool); err != nil {
		return err
	}
	return bed.AwaitReadyPools(ctx, s.bed, "default")
}

func (s *session) provision(ctx context.Context) error {
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(workload, &d); err != nil {
		return fmt.Errorf("reading the Deployment: %w", err)
	}
	replicas := int32(s.opts.pods)
	d.Spec.Replicas = &replicas
	if _, err := s.bed.Client.AppsV1().Deployments(namespace).Create(ctx, &d, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating the Deployment: %w", err)
	}
	if err := s.awaitRunning(ctx, s.opts.pods); err != nil {
		return err
	}
	for _, i := range s.instances() {
		if i.ReservationID != "" {
			return nil
		}
	}
	return fmt.Errorf("looking for an instance on the capacity reservation: Karpenter launched none")
}

func (s *session) scale(ctx context.Context, replicas int) error {
	patch := fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
	_, err := s.bed.Client.AppsV1().Deployments(namespace).Patch(ctx, "web", types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return fmt.Errorf("scaling the Deployment to %d: %w", replicas, err)
	}
	return nil
}

// awaitRunning waits until exactly n pods exist and run.
func (s *session) awaitRunning(ctx context.Context, n int) error {
	return s.karpenter.Until(ctx, fmt.Sprintf("%d running pods", n), func(ctx context.Context) (bool, error) {
		pods, err := s.bed.Client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		running := 0
		for i := range pods.Items {
			if p := &pods.Items[i]; p.DeletionTimestamp == nil && p.Status.Phase == corev1.PodRunning {
				running++
			}
		}
		return running == n && len(pods.Items) == n, nil
	})
}

// instances are those that run or boot.
func (s *session) instances() []ec2emu.Instance {
	var out []ec2emu.Instance
	for _, i := range s.bed.Emulator.Instances() {
		if i.State == "pending" || i.State == "running" {
			out = append(out, i)
		}
	}
	return out
}

// interrupt takes one spot instance back. Its pods must run elsewhere, and its Node must be gone before EC2 ends it.
func (s *session) interrupt(ctx context.Context) error {
	var victim ec2emu.Instance
	for _, i := range s.instances() {
		if i.CapacityType == "spot" {
			victim = i
		}
	}
	if victim.ID == "" {
		return fmt.Errorf("interrupting a spot instance: Karpenter bought none")
	}
	if err := s.bed.Emulator.InterruptSpot(victim.ID); err != nil {
		return err
	}
	err := s.karpenter.Until(ctx, "node "+victim.NodeName+" to go", func(ctx context.Context) (bool, error) {
		nodes, err := s.bed.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for i := range nodes.Items {
			if nodes.Items[i].Name == victim.NodeName {
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return err
	}
	return s.awaitRunning(ctx, s.opts.pods)
}

func (s *session) consolidate(ctx context.Context) error {
	before := len(s.instances())
	if err := s.scale(ctx, rest); err != nil {
		return err
	}
	err := s.karpenter.Until(ctx, "fewer instances", func(context.Context) (bool, error) {
		return len(s.instances()) < before, nil
	})
	if err != nil {
		return err
	}
	return s.awaitRunning(ctx, rest)
}

func (s *session) terminate(ctx context.Context) error {
	if err := s.scale(ctx, 0); err != nil {
		return err
	}
	return s.karpenter.Until(ctx, "the end of all nodes and instances", func(ctx context.Context) (bool, error) {
		nodes, err := s.bed.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		for _, i := range s.bed.Emulator.Instances() {
			if i.State != "terminated" {
				return false, nil
			}
		}
		return len(nodes.Items) == 0, nil
	})
}

// census counts what the account has.
func (s *session) census() string {
	states := map[string]int{}
	for _, i := range s.bed.Emulator.Instances() {
		states[i.State]++
	}
	return fmt.Sprintf("%d requests so far, instances %v", len(s.bed.Emulator.Requests()), states)
}
