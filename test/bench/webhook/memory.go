// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook/snapshot"
)

// owners make the pods of the cluster, equally many each.
const owners = 500

// memory fills a cluster, installs admission and prints the most memory one slipway-webhook has had while it answered reviews at
// the steady rate.
func memory(ctx context.Context, o options) (figures []figure, failures int, err error) {
	s, err := newSite(ctx, o)
	if s != nil && s.Cluster != nil {
		defer func() { err = errors.Join(err, s.Stop()) }()
	}
	if err != nil {
		return nil, 0, err
	}
	if err := s.populate(ctx); err != nil {
		return nil, 0, err
	}
	if err := s.install(ctx); err != nil {
		return nil, 0, err
	}
	o.length = min(o.length, 20*time.Second)
	if _, failures, err = hold(ctx, o, "https://127.0.0.1:"+s.ports[0]); err != nil {
		return nil, failures, err
	}
	for name, pid := range s.PIDs() {
		if name != replica+"-0" {
			continue
		}
		most, now, err := resident(pid)
		if err != nil {
			return nil, failures, err
		}
		figures = []figure{{"webhook-memory", most, "MB"}, {"webhook-memory-now", now, "MB"}}
	}
	return figures, failures, nil
}

// populate makes what the world has, as objects.
func (s *site) populate(ctx context.Context) error {
	cat, err := mix.EC2(ctx)
	if err != nil {
		return err
	}
	m, err := snapshot.Encode(bed.Namespace, builder.DefaultClass, cat, clock.RealClock{}.Now())
	if err != nil {
		return err
	}
	if _, err := s.kube.CoreV1().ConfigMaps(bed.Namespace).Create(ctx, m, metav1.CreateOptions{}); err != nil {
		return err
	}
	if err := s.populatePools(ctx); err != nil {
		return err
	}
	for i := range namespaces {
		name := fmt.Sprintf("team-%d", i)
		ns := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"slipway.sh/managed": "true", "n": fmt.Sprint(i)}}}
		if _, err := s.kube.CoreV1().Namespaces().Create(ctx, ns, metav1.CreateOptions{}); err != nil {
			return err
		}
		if err := s.AwaitNamespace(ctx, name); err != nil {
			return err
		}
	}
	for i := range owners {
		p := pod(i)
		p.Labels = map[string]string{"app": fmt.Sprint("web-", i)}
		r := &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("web-%d-5d4f", i), Namespace: p.Namespace}, Spec: appsv1.ReplicaSetSpec{
			Replicas: new(int32(pods / owners)), Selector: &metav1.LabelSelector{MatchLabels: p.Labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: p.Labels, Annotations: p.Annotations}, Spec: p.Spec},
		}}
		if _, err := s.kube.AppsV1().ReplicaSets(p.Namespace).Create(ctx, r, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	return bed.Eventually(ctx, fmt.Sprintf("%d pods", pods), func(ctx context.Context) (bool, error) {
		list, err := s.kube.CoreV1().Pods("").List(ctx, metav1.ListOptions{Limit: 1})
		if err != nil || len(list.Items) == 0 {
			return false, err
		}
		rest := int64(0)
		if list.RemainingItemCount != nil {
			rest = *list.RemainingItemCount
		}
		return rest+1 >= pods, nil
	})
}

func (s *site) populatePools(ctx context.Context) error {
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		return err
	}
	create := func(resource schema.GroupVersionResource, o any, status map[string]any) error {
		text, err := json.Marshal(o)
		if err != nil {
			return err
		}
		raw := map[string]any{}
		if err := json.Unmarshal(text, &raw); err != nil {
			return err
		}
		delete(raw, "status")
		made, err := client.Resource(resource).Create(ctx, &unstructured.Unstructured{Object: raw}, metav1.CreateOptions{})
		if err != nil || status == nil {
			return err
		}
		made.Object["status"] = status
		_, err = client.Resource(resource).UpdateStatus(ctx, made, metav1.UpdateOptions{})
		return err
	}
	ready := map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	class := builder.EC2NodeClass(builder.DefaultClass).Obj()
	if err := create(schema.GroupVersionResource{Group: "karpenter.k8s.aws", Version: "v1", Resource: "ec2nodeclasses"}, class, ready); err != nil {
		return err
	}
	for i := range pools {
		arch := []string{"amd64", "arm64"}[i%2]
		p := builder.NodePool(fmt.Sprintf("pool-%d", i)).NodeLabel("team", fmt.Sprint(i%10)).Require(capacity.In("kubernetes.io/arch", arch).Selectors()...).Obj()
		if err := create(schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}, p, nil); err != nil {
			return err
		}
	}
	return nil
}
