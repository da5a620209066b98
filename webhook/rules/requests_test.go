// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/webhook/rules"
)

const (
	bare    = "  containers: [{name: api}]\n"
	full    = "  containers: [{name: api, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {memory: 1Gi}}}]\n"
	limited = "  containers: [{name: api, resources: {limits: {cpu: 1, memory: 1Gi}}}]\n"
)

func TestR001(t *testing.T) {
	check(t, "R001", map[string]tc{
		"missing":             {kind: rules.Pod, object: pod("", bare), want: []string{"spec.containers[api]: no cpu request"}},
		"set":                 {kind: rules.Pod, object: pod("", full)},
		"a limit counts":      {kind: rules.Pod, object: pod("", limited)},
		"pod-level resources": {kind: rules.Pod, object: pod("", "  resources: {requests: {cpu: 1}}\n"+bare)},
		"mirror pod":          {kind: rules.Pod, object: pod(annotated("kubernetes.io/config.mirror", "x"), bare)},
		"update":              {kind: rules.Pod, object: pod("", bare), old: pod("", bare)},
		"sidecar counts, init does not": {
			kind: rules.Pod, object: pod("", "  initContainers: [{name: setup}, {name: proxy, restartPolicy: Always}]\n"+full),
			want: []string{"spec.initContainers[proxy]: no cpu request"},
		},
		"an active autoscaler": {kind: rules.Pod, object: pod(ownedBy("ReplicaSet", "web"), bare), facts: vpa(true)},
		"one that recommends": {
			kind: rules.Pod, object: pod(ownedBy("ReplicaSet", "web"), bare), facts: vpa(false),
			want: []string{"spec.containers[api]: no cpu request"},
		},
	})
}

func vpa(active bool) func(*rules.Facts) {
	return func(f *rules.Facts) {
		f.Recommended = func(string, metav1.OwnerReference) (rules.Recommendation, bool) {
			return rules.Recommendation{Name: "web", Active: active, Target: map[string]corev1.ResourceList{}}, true
		}
	}
}

func TestR002(t *testing.T) {
	check(t, "R002", map[string]tc{
		"missing": {kind: rules.Pod, object: pod("", bare), want: []string{"spec.containers[api]: no memory request"}},
		"set":     {kind: rules.Pod, object: pod("", full)},
	})
}

func TestR003(t *testing.T) {
	volume := "  volumes: [{name: cache, emptyDir: {}}, {name: ram, emptyDir: {medium: Memory}}]\n"
	check(t, "R003", map[string]tc{
		"no bound":        {kind: rules.Pod, object: pod("", full+volume), want: []string{"spec.volumes[cache]: emptyDir has no sizeLimit and no container requests ephemeral-storage"}},
		"size limit":      {kind: rules.Pod, object: pod("", full+"  volumes: [{name: cache, emptyDir: {sizeLimit: 1Gi}}]\n")},
		"storage request": {kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {ephemeral-storage: 1Gi}}}]\n"+volume)},
	})
}

func TestR004(t *testing.T) {
	check(t, "R004", map[string]tc{
		"differ": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {memory: 1Gi}, limits: {memory: 2Gi}}}]\n"),
			want: []string{"spec.containers[api]: memory request 1Gi and limit 2Gi differ"},
		},
		"no limit": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {memory: 1Gi}}}]\n"),
			want: []string{"spec.containers[api]: memory request 1Gi has no limit"},
		},
		"equal in other words": {kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {memory: 1Gi}, limits: {memory: 1024Mi}}}]\n")},
	})
}

func TestR005(t *testing.T) {
	check(t, "R005", map[string]tc{
		"memory": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {memory: 1Gi}, limits: {memory: 8Gi}}}]\n"),
			want: []string{"spec.containers[api]: memory limit 8Gi is 8.0 times the request 1Gi, above the ratio 2"},
		},
		"at the ratio":   {kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {cpu: 100m, memory: 1Gi}, limits: {cpu: 1, memory: 2Gi}}}]\n")},
		"no request yet": {kind: rules.Pod, object: pod("", limited)},
		"absurd quantities": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {cpu: 1}, limits: {cpu: 9E}}}]\n"),
			want: []string{"spec.containers[api]: cpu limit 9E is 9000000000000000000.0 times the request 1, above the ratio 10"},
		},
	})
}

func TestR006(t *testing.T) {
	pinned := func(f *rules.Facts) {
		f.LimitRanges = limitRange(corev1.LimitRangeItem{
			Type: corev1.LimitTypePod, Max: list("memory", "1Gi"),
		})
	}
	check(t, "R006", map[string]tc{
		"nothing left": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {cpu: 1, memory: 1Gi}}}, {name: log, resources: {requests: {cpu: 1}}}]\n"), facts: pinned,
			want: []string{`spec.containers[log].resources.requests.memory: left unset, LimitRange "base" leaves nothing for it`},
		},
		"room": {kind: rules.Pod, object: pod("", bare), facts: pinned},
	})
}

func TestR007(t *testing.T) {
	check(t, "R007", map[string]tc{
		"below": {
			kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {requests: {cpu: 1m, memory: 0}}}]\n"),
			want: []string{"spec.containers[api]: cpu request 1m is below the floor 10m", "spec.containers[api]: memory request 0 is below the floor 32Mi"},
		},
		"above": {kind: rules.Pod, object: pod("", full)},
	})
}

func TestR008(t *testing.T) {
	tolerates := "  tolerations: [{key: nvidia.com/gpu, operator: Exists}]\n"
	check(t, "R008", map[string]tc{
		"tolerates only": {kind: rules.Pod, object: pod("", full+tolerates), want: []string{"spec.tolerations: tolerates nvidia.com/gpu, but no container asks for an accelerator"}},
		"selects only": {
			kind: rules.Pod, object: pod("", full+"  nodeSelector: {karpenter.k8s.aws/instance-gpu-name: l4}\n"),
			want: []string{"spec.nodeSelector: selects by karpenter.k8s.aws/instance-gpu-name, but no container asks for an accelerator"},
		},
		"asks":            {kind: rules.Pod, object: pod("", "  containers: [{name: api, resources: {limits: {nvidia.com/gpu: 1}}}]\n"+tolerates)},
		"resource claims": {kind: rules.Pod, object: pod("", full+tolerates+"  resourceClaims: [{name: gpu, resourceClaimName: g}]\n")},
		"driver":          {kind: rules.Pod, object: pod(ownedBy("DaemonSet", "nvidia"), full+tolerates)},
	})
}

func TestR009(t *testing.T) {
	small := pod("", "  containers: [{name: api, resources: {requests: {cpu: 1m}}}]\n")
	check(t, "R009", map[string]tc{
		"resize":   {kind: rules.Pod, object: small, op: rules.Resize, want: []string{"spec.containers[api]: resize to cpu request 1m, below the floor 10m"}},
		"creation": {kind: rules.Pod, object: small},
	})
}

func TestR010(t *testing.T) {
	check(t, "R010", map[string]tc{
		"deployment": {
			kind: rules.Deployment, object: deployment("", "      containers: [{name: api}]\n"),
			want: []string{"spec.template.spec.containers[api]: no cpu request", "spec.template.spec.containers[api]: no memory request"},
		},
		"limits of a daemonset": {
			kind: rules.DaemonSet, object: deployment("", "      containers: [{name: api, resources: {limits: {cpu: 1, memory: 1Gi}}}]\n"),
			want: []string{
				"spec.template.spec.containers[api]: only a cpu limit; autoscalers that read the template count nothing",
				"spec.template.spec.containers[api]: only a memory limit; autoscalers that read the template count nothing",
			},
		},
		"limits of a deployment": {kind: rules.Deployment, object: deployment("", "      containers: [{name: api, resources: {limits: {cpu: 1, memory: 1Gi}}}]\n")},
	})
}

func TestR011(t *testing.T) {
	check(t, "R011", map[string]tc{
		"active":     {kind: rules.Pod, object: pod("", bare), facts: vpa(true), want: []string{`spec.containers[api]: requests are left to VerticalPodAutoscaler "web"`}},
		"recommends": {kind: rules.Pod, object: pod("", bare), facts: vpa(false)},
	})
}
