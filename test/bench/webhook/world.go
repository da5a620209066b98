// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"fmt"
	"runtime"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/bench/plan/mix"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

const (
	policies   = 20
	pools      = 50
	pods       = 5000
	namespaces = 20
)

// world is a handler that knows a cluster of that size.
type world struct {
	handler *webhook.Handler
	oracle  *webhook.Oracle
	types   int
	bodies  [][]byte
}

func newWorld(ctx context.Context) (*world, error) {
	cat, err := mix.EC2(ctx)
	if err != nil {
		return nil, err
	}
	w := &world{types: len(cat.Types)}
	v := &capacity.View{}
	in := webhook.Inputs{Catalog: func(string) *capacity.Catalog { return cat }}
	for i := range pools {
		name := fmt.Sprintf("pool-%d", i)
		arch := []string{"amd64", "arm64"}[i%2]
		v.Pools = append(v.Pools, builder.CapacityPool(name, cat).Require(capacity.In("team", fmt.Sprint(i%10)), capacity.In("kubernetes.io/arch", arch)).Obj())
		in.Pools = append(in.Pools, builder.NodePool(name).Obj())
	}
	w.oracle = webhook.NewOracle(v, func() webhook.Converter { return view.New(view.Source{}).Pod }, clock.RealClock{}, nil)
	in.Oracle = w.oracle
	for i := range policies {
		p := &v1alpha1.WorkloadPolicy{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("policy-%d", i)}, Spec: rules.Builtin()}
		p.Spec.Priority = int32(i)
		p.Spec.NamespaceSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"n": fmt.Sprint(i)}}
		in.Policies = append(in.Policies, p)
	}
	for i := range namespaces {
		in.Namespaces = append(in.Namespaces, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("team-%d", i), Labels: map[string]string{v1alpha1.ManagedLabel: "true", "n": fmt.Sprint(i)},
		}})
	}
	index := webhook.NewIndex()
	wall := clock.RealClock{}
	seen := index.Pods(wall.Now)
	for i := range pods {
		seen.OnAdd(pod(i), true)
	}
	state := webhook.NewState(in)
	w.handler = webhook.NewHandler(webhook.Options{
		State: func() *webhook.State { return state }, Index: index, Metrics: webhook.NewMetrics(), Clock: wall, Log: logr.Discard(), Native: true,
	})
	for i := range 200 {
		body, err := review(i)
		if err != nil {
			return nil, err
		}
		w.bodies = append(w.bodies, body)
	}
	runtime.GC()
	return w, nil
}

// pod is the i-th of the cluster: three containers of an ordinary web service, of one of 500 owners, a few protected.
func pod(i int) *corev1.Pod {
	owner := i % 500
	p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		Namespace: fmt.Sprintf("team-%d", i%namespaces), Name: fmt.Sprintf("web-%d-%d", owner, i), UID: types.UID(fmt.Sprint("pod-", i)),
		CreationTimestamp: metav1.NewTime(time.Unix(1_780_000_000, 0)), Labels: map[string]string{"app": fmt.Sprint("web-", owner), "pod-template-hash": "5d4f"},
		Annotations:     map[string]string{"prometheus.io/scrape": "true", "prometheus.io/port": "8080"},
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: "ReplicaSet", Name: fmt.Sprintf("web-%d-5d4f", owner), UID: types.UID(fmt.Sprint("rs-", owner)), Controller: new(true)}},
	}}
	if i%50 == 0 {
		p.Annotations[karpv1.DoNotDisruptAnnotationKey] = "4h"
	}
	for _, name := range []string{"app", "proxy", "log"} {
		c := corev1.Container{
			Name: name, Image: "registry.example/" + name + ":1.2.3", Args: []string{"--listen=:8080", "--upstream=http://localhost:9000", "--log-level=info"},
			Env:          []corev1.EnvVar{{Name: "POD_NAME", ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: "metadata.name"}}}, {Name: "REGION", Value: "us-east-1"}},
			VolumeMounts: []corev1.VolumeMount{{Name: "config", MountPath: "/etc/app"}, {Name: "token", MountPath: "/var/run/secrets/kubernetes.io/serviceaccount"}},
		}
		if name == "app" {
			c.Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: *resource.NewMilliQuantity(int64(100+owner), resource.DecimalSI)}
		}
		p.Spec.Containers = append(p.Spec.Containers, c)
	}
	p.Spec.NodeSelector = map[string]string{"team": fmt.Sprint(owner % 10)}
	p.Spec.Volumes = []corev1.Volume{
		{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{LocalObjectReference: corev1.LocalObjectReference{Name: "app"}}}},
		{Name: "token", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{SizeLimit: resource.NewQuantity(1<<20, resource.BinarySI)}}},
	}
	return p
}

// review is what the API server sends when the i-th pod is created.
func review(i int) ([]byte, error) {
	p := pod(i)
	p.UID = ""
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, err
	}
	r := admissionv1.AdmissionReview{TypeMeta: metav1.TypeMeta{APIVersion: "admission.k8s.io/v1", Kind: "AdmissionReview"}, Request: &admissionv1.AdmissionRequest{
		UID: types.UID(fmt.Sprint("review-", i)), Kind: metav1.GroupVersionKind{Version: "v1", Kind: "Pod"}, Operation: admissionv1.Create, Namespace: p.Namespace,
	}}
	r.Request.Object.Raw = raw
	return json.Marshal(r)
}
