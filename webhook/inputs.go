// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/webhook/rules"
	"github.com/slipway-sh/slipway/webhook/snapshot"
)

func onlyCatalogs(o *metav1.ListOptions) { o.LabelSelector = snapshot.Label }

// inputs reads the caches.
func (w *Watcher) inputs(ctx context.Context) (Inputs, error) {
	in := Inputs{Catalog: w.made.catalog, Oracle: w.oracle}
	var err error
	core, apps := w.core.Core().V1(), w.core.Apps().V1()
	if in.Namespaces, err = core.Namespaces().Lister().List(everything()); err != nil {
		return in, err
	}
	if in.LimitRanges, err = core.LimitRanges().Lister().List(everything()); err != nil {
		return in, err
	}
	if in.Budgets, err = w.core.Policy().V1().PodDisruptionBudgets().Lister().List(everything()); err != nil {
		return in, err
	}
	if in.Scalers, err = w.core.Autoscaling().V2().HorizontalPodAutoscalers().Lister().List(everything()); err != nil {
		return in, err
	}
	deployments, err := apps.Deployments().Lister().List(everything())
	if err != nil {
		return in, err
	}
	for _, d := range deployments {
		in.Workloads = append(in.Workloads, workload("Deployment", &d.ObjectMeta, d.Spec.Replicas, d.Spec.Template.Labels))
	}
	sets, err := apps.StatefulSets().Lister().List(everything())
	if err != nil {
		return in, err
	}
	for _, s := range sets {
		in.Workloads = append(in.Workloads, workload("StatefulSet", &s.ObjectMeta, s.Spec.Replicas, s.Spec.Template.Labels))
	}
	replicaSets, err := apps.ReplicaSets().Lister().List(everything())
	if err != nil {
		return in, err
	}
	for _, r := range replicaSets {
		if metav1.GetControllerOf(r) == nil {
			in.Workloads = append(in.Workloads, workload("ReplicaSet", &r.ObjectMeta, r.Spec.Replicas, r.Spec.Template.Labels))
		}
	}
	return in, w.custom(ctx, &in)
}

// custom reads what is not part of Kubernetes' own API.
func (w *Watcher) custom(ctx context.Context, in *Inputs) error {
	var pools karpv1.NodePoolList
	var claims karpv1.NodeClaimList
	var classes v1.EC2NodeClassList
	var policies v1alpha1.WorkloadPolicyList
	for _, l := range []client.ObjectList{&pools, &claims, &classes, &policies} {
		if err := w.objects.List(ctx, l, client.UnsafeDisableDeepCopy); err != nil {
			return fmt.Errorf("listing %T: %w", l, err)
		}
	}
	in.Pools, in.Claims = pointers(pools.Items), pointers(claims.Items)
	in.Classes, in.Policies = pointers(classes.Items), pointers(policies.Items)
	in.Recommenders = w.autoscalers(ctx)
	return nil
}

// autoscalers reads VerticalPodAutoscalers, if the cluster has them. It does not wait for their first list.
func (w *Watcher) autoscalers(ctx context.Context) []*unstructured.Unstructured {
	if w.recommenders == nil {
		return nil
	}
	return w.recommenders(ctx)
}

// AutoscalerKind is the kind of VerticalPodAutoscalers.
func AutoscalerKind() schema.GroupVersionKind {
	return schema.GroupVersionKind{Group: "autoscaling.k8s.io", Version: "v1", Kind: "VerticalPodAutoscaler"}
}

func pointers[T any](list []T) []*T {
	out := make([]*T, len(list))
	for i := range list {
		out[i] = &list[i]
	}
	return out
}

func workload(kind string, meta *metav1.ObjectMeta, replicas *int32, labels map[string]string) Workload {
	n := int32(1)
	if replicas != nil {
		n = *replicas
	}
	return Workload{Namespace: meta.Namespace, Workload: rules.Workload{Kind: kind, Name: meta.Name, Labels: labels, Replicas: n, Least: n}}
}

// strip keeps of an object what is read here: a webhook of a large cluster holds thousands of pods and ReplicaSets.
func strip(o any) (any, error) {
	switch x := o.(type) {
	case *corev1.Pod:
		return note(x), nil
	case *appsv1.ReplicaSet:
		r := &appsv1.ReplicaSet{ObjectMeta: bare(&x.ObjectMeta)}
		if metav1.GetControllerOf(x) == nil {
			r.Spec.Replicas, r.Spec.Template.Labels = x.Spec.Replicas, x.Spec.Template.Labels
		}
		return r, nil
	case *appsv1.Deployment:
		d := &appsv1.Deployment{ObjectMeta: bare(&x.ObjectMeta)}
		d.Spec.Replicas, d.Spec.Template.Labels = x.Spec.Replicas, x.Spec.Template.Labels
		return d, nil
	case *appsv1.StatefulSet:
		s := &appsv1.StatefulSet{ObjectMeta: bare(&x.ObjectMeta)}
		s.Spec.Replicas, s.Spec.Template.Labels = x.Spec.Replicas, x.Spec.Template.Labels
		return s, nil
	case *batchv1.Job:
		return &batchv1.Job{ObjectMeta: bare(&x.ObjectMeta)}, nil
	case metav1.Object:
		x.SetManagedFields(nil)
	}
	return o, nil
}

func bare(m *metav1.ObjectMeta) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Namespace: m.Namespace, Name: m.Name, UID: m.UID, ResourceVersion: m.ResourceVersion, CreationTimestamp: m.CreationTimestamp,
		OwnerReferences: m.OwnerReferences, DeletionTimestamp: m.DeletionTimestamp,
	}
}

func only(m map[string]string, keys ...string) map[string]string {
	var out map[string]string
	for _, k := range keys {
		if v, ok := m[k]; ok {
			if out == nil {
				out = map[string]string{}
			}
			out[k] = strings.Clone(v)
		}
	}
	return out
}

// published are the catalogues the scheduler's process has published.
type published struct {
	clock clock.PassiveClock
	log   logr.Logger

	mu      sync.RWMutex
	classes map[string]publication
}

type publication struct {
	catalog *capacity.Catalog
	written time.Time
	data    string // to tell a new catalogue from one that was only confirmed
}

func newPublished(c clock.PassiveClock, log logr.Logger) *published {
	return &published{clock: c, log: log, classes: map[string]publication{}}
}

// put reads a ConfigMap and reports whether anything is new. One that cannot be read leaves what was known before.
func (p *published) put(m *corev1.ConfigMap) bool {
	class := m.Annotations[snapshot.ClassAnnotation]
	data := string(slices.Concat(sortedData(m)...))
	p.mu.RLock()
	have, known := p.classes[class]
	p.mu.RUnlock()
	if written, err := time.Parse(time.RFC3339, m.Annotations[snapshot.TimeAnnotation]); known && err == nil && have.data == data {
		p.mu.Lock()
		have.written = written
		p.classes[class] = have
		p.mu.Unlock()
		return false
	}
	class, c, written, err := snapshot.Decode(m)
	if err != nil {
		p.log.Error(err, "reading a published catalogue")
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.classes[class] = publication{c, written, data}
	return true
}

func sortedData(m *corev1.ConfigMap) [][]byte {
	var out [][]byte
	for _, k := range sorted(m.BinaryData) {
		out = append(out, m.BinaryData[k])
	}
	return out
}

func (p *published) drop(m *corev1.ConfigMap) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.classes, m.Annotations[snapshot.ClassAnnotation])
}

// catalog is what the class can buy, nil if it is not known or too old.
func (p *published) catalog(class string) *capacity.Catalog {
	p.mu.RLock()
	defer p.mu.RUnlock()
	c, ok := p.classes[class]
	if !ok || p.clock.Since(c.written) > staleAfter {
		return nil
	}
	return c.catalog
}

// age is that of the oldest catalogue; known is false if there is none.
func (p *published) age() (age time.Duration, known bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, c := range p.classes {
		age = max(age, p.clock.Since(c.written))
	}
	return age, len(p.classes) > 0
}
