// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/predict"
)

// What is foretold of a pod is what admission makes of it.
func TestPredictedAsAdmitted(t *testing.T) {
	const (
		bare     = "spec: {containers: [{name: api}]}"
		ofSet    = "metadata: {namespace: team, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-1, uid: rs, controller: true}]}\n"
		ofDaemon = "metadata: {namespace: team, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: agent, uid: ds, controller: true}]}\n"
	)
	sibling := func(owner types.UID, kind string, age time.Duration, provenance, cpu string) *corev1.Pod {
		p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
			Namespace: "team", Name: "sibling", UID: "sibling", CreationTimestamp: metav1.NewTime(now().Add(-age)), Annotations: map[string]string{v1alpha1.DefaultedAnnotation: provenance},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "apps/v1", Kind: kind, Name: "web-1", UID: owner, Controller: new(true)}},
		}}
		p.Spec.Containers = []corev1.Container{{Name: "api"}}
		if cpu != "" {
			p.Spec.Containers[0].Resources.Requests = quantities("cpu", cpu)
		}
		return p
	}
	narrow := &corev1.LimitRange{
		ObjectMeta: metav1.ObjectMeta{Namespace: "team", Name: "narrow"},
		Spec:       corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{{Type: corev1.LimitTypeContainer, Max: quantities("memory", "64Mi")}}},
	}
	tests := map[string]struct {
		object    string
		namespace string
		policy    func(*v1alpha1.WorkloadPolicySpec)
		ranges    []*corev1.LimitRange
		siblings  []*corev1.Pod
		changed   bool
	}{
		"a pod without requests":       {object: bare, changed: true},
		"a pod with requests":          {object: "spec: {containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}"},
		"limits and a sidecar":         {object: "spec: {initContainers: [{name: proxy, restartPolicy: Always}], containers: [{name: api, resources: {limits: {cpu: 1}}}]}", changed: true},
		"a daemonset's":                {object: ofDaemon + bare, changed: true},
		"daemonsets are left alone":    {object: ofDaemon + bare, policy: func(s *v1alpha1.WorkloadPolicySpec) { s.Requests.DaemonSets = v1alpha1.DaemonSetsIgnore }},
		"within the LimitRange":        {object: bare, ranges: []*corev1.LimitRange{narrow}, changed: true},
		"as its siblings were given":   {object: ofSet + bare, siblings: []*corev1.Pod{sibling("rs", "ReplicaSet", time.Hour, "api/cpu=300m:vpa web", "300m")}, changed: true},
		"as siblings were, long ago":   {object: ofSet + bare, siblings: []*corev1.Pod{sibling("rs", "ReplicaSet", 30*time.Hour, "api/cpu=300m:vpa web", "300m")}, changed: true},
		"as its siblings ask":          {object: ofSet + bare, siblings: []*corev1.Pod{sibling("rs", "ReplicaSet", time.Hour, "", "700m")}, changed: true},
		"a rule that only warns":       {object: bare, policy: func(s *v1alpha1.WorkloadPolicySpec) { s.Rules = map[string]v1alpha1.RuleMode{"R001": v1alpha1.Warn} }, changed: true},
		"an exception":                 {object: "metadata: {annotations: {slipway.sh/except: \"R001=batch;until=2026-07-10,R002=batch;until=2026-07-10\"}}\n" + bare},
		"our own":                      {object: "metadata: {labels: {slipway.sh/component: webhook}}\n" + bare},
		"a namespace that is off":      {object: bare, namespace: "quiet"},
		"the pod as a whole asks":      {object: "spec: {resources: {requests: {cpu: 1, memory: 1Gi}}, containers: [{name: api}]}"},
		"the mirror of a static pod's": {object: "metadata: {annotations: {kubernetes.io/config.mirror: x}}\n" + bare},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := managed(tt.policy)
			in.LimitRanges = tt.ranges
			b := newBench(t, in, nil)
			seen := b.index.Pods(now)
			for _, p := range tt.siblings {
				seen.OnAdd(p, true)
			}
			raw := toJSON(t, tt.object)
			var pod, want corev1.Pod
			if err := json.Unmarshal(raw, &pod); err != nil {
				t.Fatal(err)
			}
			namespace := tt.namespace
			if namespace == "" {
				namespace = "team"
			}
			pod.Namespace = namespace
			if err := json.Unmarshal(apply(t, raw, b.ask(t, "mutate", request{object: tt.object, namespace: namespace})), &want); err != nil {
				t.Fatal(err)
			}
			got := predictor(t, &in, tt.siblings).Replacement(&pod)
			if (got != &pod) != tt.changed {
				t.Errorf("foretold to change: %v, want %v", got != &pod, tt.changed)
			}
			if diff := cmp.Diff(want.Spec, got.Spec); diff != "" {
				t.Errorf("foretold is something else than admitted (-admitted +foretold):\n%s", diff)
			}
		})
	}
}

// What is foretold of a namespace has another version when its policy or its labels change.
func TestPredictorVersion(t *testing.T) {
	in := managed(nil)
	before := predictor(t, &in, nil).Version("team")
	in.Policies[0].ResourceVersion = "2"
	after := predictor(t, &in, nil).Version("team")
	in.Namespaces[0].Labels[v1alpha1.AdmissionLabel] = "warn"
	labelled := predictor(t, &in, nil).Version("team")
	if before == after || after == labelled || before == "" {
		t.Errorf("versions %q, after the policy changed %q, after the namespace did %q; want three", before, after, labelled)
	}
	if got := predictor(t, &in, nil).Version("quiet"); got != "" {
		t.Errorf("version of a namespace nobody looks at is %q, want none", got)
	}
}

func predictor(t *testing.T, in *webhook.Inputs, siblings []*corev1.Pod) *predict.Predictor {
	t.Helper()
	namespaces := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{})
	ranges := cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	for _, ns := range in.Namespaces {
		if err := namespaces.Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	for _, lr := range in.LimitRanges {
		if err := ranges.Add(lr); err != nil {
			t.Fatal(err)
		}
	}
	return predict.New(predict.Options{
		Policies:   func() []*v1alpha1.WorkloadPolicy { return in.Policies },
		Namespaces: corelisters.NewNamespaceLister(namespaces), LimitRanges: corelisters.NewLimitRangeLister(ranges),
		Siblings: func(owner types.UID) (out []*corev1.Pod) {
			for _, p := range siblings {
				if metav1.GetControllerOf(p).UID == owner {
					out = append(out, p)
				}
			}
			return out
		},
		Namespace: "slipway-system", Clock: clocktesting.NewFakePassiveClock(now()),
	})
}

func quantities(name corev1.ResourceName, value string) corev1.ResourceList {
	return corev1.ResourceList{name: resource.MustParse(value)}
}
