// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// What a pod gets, as the difference of its YAML in JSON.
func TestMutate(t *testing.T) {
	tests := map[string]struct {
		policy   func(*v1alpha1.WorkloadPolicySpec)
		inputs   func(*webhook.Inputs)
		options  func(*webhook.Options)
		request  request
		want     string // the pod as YAML; empty for no change
		warnings []string
	}{
		"nothing at all is there": {
			request: request{object: "spec: {containers: [{name: api}]}"},
			want: `
metadata: {annotations: {slipway.sh/defaulted: "api/cpu=100m:fallback,api/memory=256Mi:fallback"}}
spec: {containers: [{name: api, resources: {requests: {cpu: 100m, memory: 256Mi}}}]}`,
			warnings: []string{
				"slipway R001: spec.containers[api]: no cpu request; using 100m from fallback. Set resources.requests.cpu to keep control. [policy default]",
				"slipway R002: spec.containers[api]: no memory request; using 256Mi from fallback. Set resources.requests.memory to keep control. [policy default]",
			},
		},
		"one of two, and fields this binary does not know": {
			request: request{object: `
metadata: {annotations: {"a/b~c": x}}
spec: {containers: [{name: api, resources: {requests: {cpu: 0.1}, dreams: {electric: sheep}}, novel: true}]}`},
			want: `
metadata: {annotations: {"a/b~c": x, slipway.sh/defaulted: "api/memory=256Mi:fallback"}}
spec: {containers: [{name: api, resources: {requests: {cpu: 0.1, memory: 256Mi}, dreams: {electric: sheep}}, novel: true}]}`,
			warnings: []string{"slipway R002: spec.containers[api]: no memory request; using 256Mi from fallback. Set resources.requests.memory to keep control. [policy default]"},
		},
		"a sidecar that came with another hook": {
			request: request{object: `
metadata: {annotations: {slipway.sh/defaulted: "api/cpu=100m:fallback"}}
spec: {initContainers: [{name: proxy, restartPolicy: Always, resources: {limits: {memory: 1Gi}}}], containers: [{name: api, resources: {requests: {cpu: 100m, memory: 1Gi}}}]}`},
			want: `
metadata: {annotations: {slipway.sh/defaulted: "api/cpu=100m:fallback,proxy/cpu=100m:fallback"}}
spec: {initContainers: [{name: proxy, restartPolicy: Always, resources: {limits: {memory: 1Gi}, requests: {cpu: 100m}}}], containers: [{name: api, resources: {requests: {cpu: 100m, memory: 1Gi}}}]}`,
			warnings: []string{"slipway R001: spec.initContainers[proxy]: no cpu request; using 100m from fallback. Set resources.requests.cpu to keep control. [policy default]"},
		},
		"only memory": {
			policy:  func(s *v1alpha1.WorkloadPolicySpec) { s.Rules = map[string]v1alpha1.RuleMode{"R001": v1alpha1.Warn} },
			request: request{object: "spec: {containers: [{name: api, resources: {}}]}"},
			want: `
metadata: {annotations: {slipway.sh/defaulted: "api/memory=256Mi:fallback"}}
spec: {containers: [{name: api, resources: {requests: {memory: 256Mi}}}]}`,
			warnings: []string{
				"slipway R002: spec.containers[api]: no memory request; using 256Mi from fallback. Set resources.requests.memory to keep control. [policy default]",
				"slipway R001: spec.containers[api]: no cpu request. Set resources.requests.cpu. [policy default]",
			},
		},
		"an exception": {
			request: request{object: `
metadata: {annotations: {slipway.sh/except: "R001=batch;until=2026-07-10,R002=batch;until=2026-07-10"}}
spec: {containers: [{name: api}]}`},
		},
		"a latency class with a priority class": {
			policy: func(s *v1alpha1.WorkloadPolicySpec) {
				s.LatencyClasses = []v1alpha1.LatencyClass{{Name: "interactive", PriorityClassName: "high"}}
			},
			request: request{object: `
metadata: {annotations: {slipway.sh/latency-class: interactive}}
spec: {priority: 0, preemptionPolicy: PreemptLowerPriority, containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`},
			want: `
metadata: {annotations: {slipway.sh/latency-class: interactive}}
spec: {priorityClassName: high, containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`,
		},
		"a priority class of its own": {
			policy: func(s *v1alpha1.WorkloadPolicySpec) {
				s.LatencyClasses = []v1alpha1.LatencyClass{{Name: "interactive", PriorityClassName: "high"}}
			},
			request: request{object: `
metadata: {annotations: {slipway.sh/latency-class: interactive}}
spec: {priorityClassName: low, containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`},
		},
		"placement, where the pod says nothing": {
			policy: func(s *v1alpha1.WorkloadPolicySpec) {
				s.Rules = map[string]v1alpha1.RuleMode{"S004": v1alpha1.Default}
				s.Placement = &v1alpha1.Placement{
					NodeSelector: map[string]string{"kubernetes.io/arch": "amd64", "tier": "web"},
					Tolerations:  []corev1.Toleration{{Key: "tier", Operator: corev1.TolerationOpExists}, {Key: "a", Operator: corev1.TolerationOpExists}},
				}
			},
			request: request{object: `
spec: {nodeSelector: {kubernetes.io/arch: arm64}, tolerations: [{key: a, operator: Exists}], containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`},
			want: `
spec: {nodeSelector: {kubernetes.io/arch: arm64, tier: web}, tolerations: [{key: a, operator: Exists}, {key: tier, operator: Exists}], containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`,
		},
		"a protection without end is capped": {
			policy: func(s *v1alpha1.WorkloadPolicySpec) { s.Disruption.Indefinite = v1alpha1.IndefiniteCap },
			request: request{object: `
metadata: {annotations: {karpenter.sh/do-not-disrupt: "true"}}
spec: {containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`},
			want: `
metadata: {annotations: {karpenter.sh/do-not-disrupt: 24h0m0s}}
spec: {containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}`,
		},
		"the scheduler, where no native policy does it": {
			options: func(o *webhook.Options) { o.InjectScheduler = true },
			request: request{object: "spec: {schedulerName: default-scheduler, containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}"},
			want:    "spec: {schedulerName: slipway, containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}]}",
		},
		"a namespace that is off": {request: request{namespace: "quiet", object: "spec: {containers: [{name: api}]}"}},
		"a system namespace":      {request: request{namespace: "kube-system", object: "spec: {containers: [{name: api}]}"}},
		"our own pods":            {request: request{object: "metadata: {labels: {slipway.sh/component: webhook}}\nspec: {containers: [{name: api}]}"}},
		"a mirror pod":            {request: request{object: "metadata: {annotations: {kubernetes.io/config.mirror: x}}\nspec: {containers: [{name: api}]}"}},
		"an update":               {request: request{op: admissionv1.Update, object: "spec: {containers: [{name: api}]}"}},
		"a template":              {request: request{kind: "Deployment", object: "spec: {template: {spec: {containers: [{name: api}]}}}"}},
		"without a policy": {
			inputs: func(in *webhook.Inputs) { in.Policies = nil }, request: request{object: "spec: {containers: [{name: api}]}"},
			warnings: []string{
				"slipway R001: spec.containers[api]: no cpu request. Set resources.requests.cpu.",
				"slipway R002: spec.containers[api]: no memory request. Set resources.requests.memory.",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			in := managed(tt.policy)
			if tt.inputs != nil {
				tt.inputs(&in)
			}
			b := newBench(t, in, tt.options)
			resp := b.ask(t, "mutate", tt.request)
			if !resp.Allowed {
				t.Fatalf("the pod was refused: %+v", resp.Result)
			}
			raw := toJSON(t, tt.request.object)
			got := apply(t, raw, resp)
			want := raw
			if tt.want != "" {
				want = toJSON(t, tt.want)
			}
			if diff := cmp.Diff(object(t, want), object(t, got)); diff != "" {
				t.Errorf("pod (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(tt.warnings, resp.Warnings); diff != "" {
				t.Errorf("warnings (-want +got):\n%s", diff)
			}
			again := tt.request
			again.object = string(got)
			if second := b.ask(t, "mutate", again); second.Patch != nil {
				t.Errorf("the second pass changes more: %s", second.Patch)
			}
		})
	}
}

func object(t *testing.T, raw []byte) (out map[string]any) {
	t.Helper()
	if err := json.Unmarshal(raw, &out); err != nil {
		t.Fatal(err)
	}
	return out
}

// All pods of one owner get what the first got, although a source says something else meanwhile.
func TestReplicasGetEqualRequests(t *testing.T) {
	owned := request{object: `
metadata: {ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-5d4f, uid: rs1, controller: true}]}
spec: {containers: [{name: api, resources: {requests: {memory: 1Gi}}}]}`}
	b := newBench(t, managed(nil), nil)
	dry := owned
	dry.dryRun = true
	b.Index.Remember(rules.Owner{UID: "rs1"}, nil, now())
	b.ask(t, "mutate", dry)
	if _, ok := b.Index.Sticky(rules.Owner{UID: "rs1"}, "api", corev1.ResourceCPU, time.Hour, now()); ok {
		t.Error("a dry run was remembered")
	}
	b.ask(t, "mutate", owned)
	in := managed(func(s *v1alpha1.WorkloadPolicySpec) { s.Requests.Fallback.CPU.Set(2) })
	state := webhook.NewState(in)
	later := newBench(t, in, func(o *webhook.Options) {
		o.State, o.Index = func() *webhook.State { return state }, b.Index
	})
	got := string(later.ask(t, "mutate", owned).Patch)
	if !strings.Contains(got, `"100m"`) {
		t.Errorf("the second replica's patch is %s, want 100m as the first had", got)
	}
}

// A new revision that forgets its requests gets those of the revision before.
func TestHistory(t *testing.T) {
	b := newBench(t, managed(nil), nil)
	old := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
		UID: types.UID("p1"), Namespace: "team", Name: "web-1", Labels: map[string]string{"pod-template-hash": "5d4f"},
		OwnerReferences: []metav1.OwnerReference{{Kind: "ReplicaSet", Name: "web-5d4f", UID: "rs1", Controller: new(true)}},
	}, Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "api"}}}}
	old.Spec.Containers[0].Resources.Requests = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m")}
	b.index.Pods(now).OnAdd(old, true)
	got := string(b.ask(t, "mutate", request{object: `
metadata: {labels: {pod-template-hash: "777"}, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web-777, uid: rs2, controller: true}]}
spec: {containers: [{name: api, resources: {requests: {memory: 1Gi}}}]}`}).Patch)
	if !strings.Contains(got, "api/cpu=700m:history web") {
		t.Errorf("patch is %s, want 700m from history", got)
	}
}
