// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/manifests/crds"
	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/webhook"
)

const (
	team    = "team"
	outside = "outside" // where admission does not look
	replica = "slipway-webhook"
	// untilReady bounds what is waited for between situations.
	untilReady = 90 * time.Second
)

// site is an API server that asks two replicas of slipway-webhook, as installed, through a balancer.
type site struct {
	*cluster.Cluster

	kube     kubernetes.Interface
	balancer *balancer
	args     []string
	replicas [2]*cluster.Process
	ports    [2]string
}

func newSite(ctx context.Context, o options) (s *site, err error) {
	s = &site{}
	if s.Cluster, err = cluster.New(ctx, cluster.Options{APIServerArgs: o.apiServerArgs()}); err != nil {
		return nil, err
	}
	config := s.Config()
	config.QPS, config.WarningHandler, config.ContentType = -1, rest.NoWarnings{}, runtime.ContentTypeProtobuf // as controllers speak
	if s.kube, err = kubernetes.NewForConfig(config); err != nil {
		return s, fmt.Errorf("creating client: %w", err)
	}
	if err := s.ApplyCRDs(ctx); err != nil {
		return s, err
	}
	definition, err := crds.Files.ReadFile("slipway.sh_workloadpolicies.yaml")
	if err != nil {
		return s, err
	}
	names := fmt.Sprintf("{apiVersion: v1, kind: Namespace, metadata: {name: %s, labels: {slipway.sh/managed: \"true\"}}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n---\n{apiVersion: v1, kind: Namespace, metadata: {name: %s}}\n", team, outside, bed.Namespace)
	for _, manifests := range [][]byte{definition, []byte(names)} {
		if err := s.Apply(ctx, manifests); err != nil {
			return s, err
		}
	}
	return s, errors.Join(s.AwaitNamespace(ctx, team), s.AwaitNamespace(ctx, outside))
}

// install applies the installation with admission and starts its replicas.
func (s *site) install(ctx context.Context) error {
	var err error
	if s.balancer, err = newBalancer(ctx); err != nil {
		return err
	}
	in, err := bed.ReadInstallation(install.Admission)
	if err != nil {
		return err
	}
	manifests := install.Admission
	for _, path := range []string{"mutate", "validate"} {
		from := "service: {name: slipway-webhook, namespace: slipway-system, path: /" + path + ", port: 443}"
		manifests = bytes.ReplaceAll(manifests, []byte(from), fmt.Appendf(nil, "url: \"https://localhost:%s/%s\"", s.balancer.port(), path))
	}
	if err := s.Apply(ctx, manifests); err != nil {
		return err
	}
	text := []byte("{apiVersion: slipway.sh/v1alpha1, kind: WorkloadPolicy, metadata: {name: default}, spec: {}}\n")
	for i := range policies - 1 {
		text = fmt.Appendf(text, "---\n{apiVersion: slipway.sh/v1alpha1, kind: WorkloadPolicy, metadata: {name: policy-%[1]d}, spec: {priority: %[1]d, namespaceSelector: {matchLabels: {n: \"%[1]d\"}}}}\n", i)
	}
	if err := s.Apply(ctx, text); err != nil {
		return err
	}
	account, args, _ := in.Process(replica)
	kubeconfig := filepath.Join(s.Dir(), replica+".kubeconfig")
	if err := s.WriteKubeconfig(kubeconfig, "system:serviceaccount:"+bed.Namespace+":"+account, "system:serviceaccounts", "system:serviceaccounts:"+bed.Namespace); err != nil {
		return err
	}
	s.args = slices.Concat(args, []string{"--kubeconfig=" + kubeconfig, "--bind-address=127.0.0.1", "--metrics-port=0", "--lame-duck=2s"})
	for i := range s.replicas {
		if err := s.startReplica(i); err != nil {
			return err
		}
	}
	return s.await(ctx, 2)
}

// startReplica starts the replica on new ports and has the balancer send it its share once it is ready.
func (s *site) startReplica(i int) error {
	ports, err := freePorts(2)
	if err != nil {
		return err
	}
	path, err := filepath.Abs(filepath.Join("bin", replica))
	if err != nil {
		return err
	}
	if _, err := os.Stat(path); err != nil {
		return fmt.Errorf("starting %s: build it with \"make build\": %w", replica, err)
	}
	s.ports[i] = ports[0]
	s.replicas[i], err = s.Run(cluster.Command{
		Name: fmt.Sprintf("%s-%d", replica, i), Path: path,
		Args: slices.Concat(s.args, []string{"--port=" + ports[0], "--health-probe-port=" + ports[1], fmt.Sprintf("--identity=replica-%d", i)}),
	})
	s.balancer.watch(i, ports[0], ports[1])
	return err
}

// await waits until that many replicas are ready, requests are filled in and native policies set the scheduler. It creates one pod
// at a time: the first one that a MutatingAdmissionPolicy changes has the API server read its own OpenAPI schema, for as many
// pods as are created meanwhile.
func (s *site) await(ctx context.Context, ready int) error {
	ctx, cancel := context.WithTimeout(ctx, untilReady)
	defer cancel()
	return bed.Eventually(ctx, fmt.Sprintf("%d replicas", ready), func(ctx context.Context) (bool, error) {
		if s.balancer.look(ctx) != ready {
			return false, nil
		}
		got, err := s.kube.CoreV1().Pods(team).Create(ctx, newPod(team, 1), metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		return err == nil && got.Annotations[v1alpha1.DefaultedAnnotation] != "" && got.Spec.SchedulerName == "slipway", nil
	})
}

// situations are what is measured after the comparison, in this order; each leaves behind what the next one begins with.
func (s *site) situations() []situation {
	return []situation{
		{name: "blackholed", change: func(context.Context) error { return s.replicas[0].Pause() }},
		{name: "rolling-update", change: func(ctx context.Context) error {
			if err := s.replicas[0].Resume(); err != nil {
				return err
			}
			return s.await(ctx, 2)
		}, meanwhile: s.roll},
		{name: "all-gone", change: func(context.Context) error {
			return errors.Join(s.replicas[0].Kill(), s.replicas[1].Kill())
		}},
		{name: "expired-certificate", change: s.expire},
	}
}

// roll replaces one replica after the other, as a Deployment does: the next one goes when the last one's successor is ready.
func (s *site) roll(ctx context.Context) error {
	for i := range s.replicas {
		if err := s.replicas[i].Terminate(); err != nil {
			return err
		}
		select {
		case <-s.replicas[i].Done():
		case <-ctx.Done():
			return ctx.Err()
		}
		if err := s.startReplica(i); err != nil {
			return err
		}
		if err := s.await(ctx, 2); err != nil {
			return err
		}
	}
	return nil
}

// expire has the balancer send everything to a server whose certificate, of an authority the API server trusts, is over.
func (s *site) expire(ctx context.Context) error {
	now := clock.RealClock{}.Now()
	authority, err := webhook.NewAuthority(nil, now)
	if err != nil {
		return err
	}
	leaf, err := authority.Leaf([]string{"localhost"}, now.Add(-30*24*time.Hour))
	if err != nil {
		return err
	}
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{Certificates: []tls.Certificate{*leaf}, MinVersion: tls.VersionTLS13})
	if err != nil {
		return err
	}
	server := &http.Server{ReadHeaderTimeout: time.Second, ErrorLog: log.New(io.Discard, "", 0)} // every handshake fails, that is the point
	go func() { _ = server.Serve(listener) }()                                                   // until the process ends
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return err
	}
	s.balancer.only(port)
	hooks := s.kube.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, "slipway", metav1.GetOptions{})
	if err != nil {
		return err
	}
	validating, err := hooks.ValidatingWebhookConfigurations().Get(ctx, "slipway", metav1.GetOptions{})
	if err != nil {
		return err
	}
	patch := func(n int) []byte {
		var steps []map[string]any
		for i := range n {
			steps = append(steps, map[string]any{"op": "add", "path": fmt.Sprintf("/webhooks/%d/clientConfig/caBundle", i), "value": authority.Bundle()})
		}
		raw, _ := json.Marshal(steps) // maps of strings and bytes
		return raw
	}
	if _, err := hooks.MutatingWebhookConfigurations().Patch(ctx, "slipway", types.JSONPatchType, patch(len(mutating.Webhooks)), metav1.PatchOptions{}); err != nil {
		return err
	}
	_, err = hooks.ValidatingWebhookConfigurations().Patch(ctx, "slipway", types.JSONPatchType, patch(len(validating.Webhooks)), metav1.PatchOptions{})
	return err
}
