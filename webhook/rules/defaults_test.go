// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// list is a resource list of name, quantity pairs.
func list(pairs ...string) corev1.ResourceList {
	out := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		out[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return out
}

func limitRange(items ...corev1.LimitRangeItem) func(string) []*corev1.LimitRange {
	return func(string) []*corev1.LimitRange {
		return []*corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "base"}, Spec: corev1.LimitRangeSpec{Limits: items}}}
	}
}

func ofContainers(item corev1.LimitRangeItem) corev1.LimitRangeItem {
	item.Type = corev1.LimitTypeContainer
	return item
}

func TestDefaults(t *testing.T) {
	recommends := func(target corev1.ResourceList) func(*rules.Facts) {
		return func(f *rules.Facts) {
			f.Recommended = func(string, metav1.OwnerReference) (rules.Recommendation, bool) {
				return rules.Recommendation{Name: "web", Target: map[string]corev1.ResourceList{"api": target}}, true
			}
		}
	}
	tests := map[string]struct {
		kind   rules.Kind
		object string
		facts  func(*rules.Facts)
		want   []string // container/resource=value:source
	}{
		"fallback":       {object: pod("", bare), want: []string{"api/cpu=100m:fallback", "api/memory=256Mi:fallback"}},
		"nothing to do":  {object: pod("", full)},
		"limits count":   {object: pod("", limited)},
		"pod level":      {object: pod("", "  resources: {limits: {memory: 1Gi}}\n"+bare), want: []string{"api/cpu=100m:fallback"}},
		"mirror pod":     {object: pod(annotated("kubernetes.io/config.mirror", "x"), bare)},
		"daemonset pods": {object: pod(ownedBy("DaemonSet", "log"), bare), want: []string{"api/cpu=100m:fallback", "api/memory=256Mi:fallback"}},
		"daemonset pods that are left alone": {
			object: pod(ownedBy("DaemonSet", "log"), bare),
			facts:  func(f *rules.Facts) { f.Policy.Requests.DaemonSets = v1alpha1.DaemonSetsIgnore },
		},
		"limit range first": {
			object: pod("", bare),
			facts: func(f *rules.Facts) {
				f.LimitRanges = limitRange(ofContainers(corev1.LimitRangeItem{DefaultRequest: list("cpu", "50m"), Default: list("cpu", "2", "memory", "1Gi")}))
			},
			want: []string{"api/cpu=50m:limitRange base", "api/memory=1Gi:limitRange base"},
		},
		"clamped to the bounds of containers": {
			object: pod("", bare),
			facts: func(f *rules.Facts) {
				f.LimitRanges = limitRange(ofContainers(corev1.LimitRangeItem{Min: list("cpu", "200m"), Max: list("memory", "128Mi")}))
			},
			want: []string{"api/cpu=200m:fallback", "api/memory=128Mi:fallback"},
		},
		"clamped to what the pod may have": {
			object: pod("", "  containers: [{name: a, resources: {requests: {cpu: 900m, memory: 1Gi}}}, {name: b, resources: {requests: {memory: 1Gi}}}]\n"),
			facts: func(f *rules.Facts) {
				f.LimitRanges = limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "950m")})
			},
			want: []string{"b/cpu=50m:fallback"},
		},
		"no room at all": {
			object: pod("", "  containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}, {name: b, resources: {requests: {memory: 1Gi}}}]\n"),
			facts: func(f *rules.Facts) {
				f.LimitRanges = limitRange(corev1.LimitRangeItem{Type: corev1.LimitTypePod, Max: list("cpu", "1")})
			},
		},
		"bounds that contradict each other": {
			object: pod("", bare),
			facts: func(f *rules.Facts) {
				f.LimitRanges = limitRange(ofContainers(corev1.LimitRangeItem{Min: list("cpu", "2")}), ofContainers(corev1.LimitRangeItem{Max: list("cpu", "1")}))
			},
			want: []string{"api/memory=256Mi:fallback"},
		},
		"recommendation, raised to the floor": {
			object: pod("", bare), facts: recommends(list("cpu", "1m", "memory", "700Mi")),
			want: []string{"api/cpu=10m:vpa web", "api/memory=700Mi:vpa web"},
		},
		"an active autoscaler": {object: pod("", bare), facts: vpa(true)},
		"history before fallback": {
			object: pod(ownedBy("ReplicaSet", "web-5d4f")+"  labels: {pod-template-hash: 5d4f}\n", bare),
			facts: func(f *rules.Facts) {
				f.History = func(o rules.Owner, c string, name corev1.ResourceName) (rules.Known, bool) {
					return rules.Known{Value: "300m", Source: o.Workload + " " + c}, name == corev1.ResourceCPU
				}
			},
			want: []string{"api/cpu=300m:history web api", "api/memory=256Mi:fallback"},
		},
		"what the owner's pods got stays": {
			object: pod(ownedBy("ReplicaSet", "web"), bare),
			facts: func(f *rules.Facts) {
				recommends(list("cpu", "3", "memory", "3Gi"))(f)
				f.Sticky = func(o rules.Owner, _ string, name corev1.ResourceName) (rules.Known, bool) {
					return rules.Known{Value: "2", Source: "vpa web"}, o.UID == "u1" && name == corev1.ResourceCPU
				}
			},
			want: []string{"api/cpu=2:vpa web", "api/memory=3Gi:vpa web"},
		},
		"a sidecar like a container, an init container not": {
			object: pod("", "  initContainers: [{name: setup}, {name: proxy, restartPolicy: Always}]\n"+full),
			want:   []string{"proxy/cpu=100m:fallback", "proxy/memory=256Mi:fallback"},
		},
		"an init container that is known to need most": {
			object: pod("", "  initContainers: [{name: setup}]\n"+full),
			facts: func(f *rules.Facts) {
				f.History = func(_ rules.Owner, c string, name corev1.ResourceName) (rules.Known, bool) {
					return rules.Known{Value: "2Gi", Source: "setup"}, c == "setup" && name == corev1.ResourceMemory
				}
			},
			want: []string{"setup/memory=2Gi:history setup"},
		},
		"an init container that would change nothing": {
			object: pod("", "  initContainers: [{name: setup}]\n"+full),
			facts: func(f *rules.Facts) {
				f.History = func(rules.Owner, string, corev1.ResourceName) (rules.Known, bool) {
					return rules.Known{Value: "50m"}, true
				}
			},
		},
		"a template is read like its pods": {
			kind: rules.Deployment, object: deployment("", "      containers: [{name: api}]\n"),
			want: []string{"api/cpu=100m:fallback", "api/memory=256Mi:fallback"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			kind := tt.kind
			if kind == "" {
				kind = rules.Pod
			}
			s := decode(t, kind, tt.object)
			f := facts(tt.facts)
			set, _ := rules.Defaults(s, f)
			var got []string
			for _, d := range set {
				got = append(got, fmt.Sprintf("%s/%s=%s:%s", d.Container, d.Resource, d.Value.String(), d.Source))
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Fatalf("defaults (-want +got):\n%s", diff)
			}
			rules.Apply(&s.Template.Spec, set)
			if again, _ := rules.Defaults(s, f); len(again) > 0 {
				t.Errorf("a second pass sets more: %+v", again)
			}
		})
	}
}

func TestProvenanceIsReadBack(t *testing.T) {
	set := []rules.Default{
		{Container: "api", Resource: corev1.ResourceCPU, Value: resource.MustParse("100m"), Source: "limitRange base"},
		{Container: "api", Resource: corev1.ResourceMemory, Value: resource.MustParse("256Mi"), Source: "fallback"},
	}
	text := rules.Provenance("log/cpu=10m:fallback", set)
	if want := "log/cpu=10m:fallback,api/cpu=100m:limitRange base,api/memory=256Mi:fallback"; text != want {
		t.Fatalf("provenance is %q, want %q", text, want)
	}
	got, ok := rules.Recorded(text, "api", corev1.ResourceCPU)
	if want := (rules.Known{Value: "100m", Source: "limitRange base"}); !ok || got != want {
		t.Errorf("recorded is %+v, want %+v", got, want)
	}
	if got, ok := rules.Recorded(text, "ap", corev1.ResourceCPU); ok {
		t.Errorf("a container that is not recorded has %+v", got)
	}
}

func TestOwnerOf(t *testing.T) {
	tests := map[string]struct{ meta, want string }{
		"a Deployment's pod":  {ownedBy("ReplicaSet", "web-5d4f") + "  labels: {pod-template-hash: 5d4f}\n", "web"},
		"a CronJob's pod":     {ownedBy("Job", "backup-29412345"), "backup"},
		"a StatefulSet's pod": {ownedBy("StatefulSet", "db"), "db"},
		"a bare pod":          {"", "web-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := rules.OwnerOf(decode(t, rules.Pod, pod(tt.meta, bare))).Workload; got != tt.want {
				t.Errorf("workload is %q, want %q", got, tt.want)
			}
		})
	}
}
