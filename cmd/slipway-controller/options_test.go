// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

func TestParse(t *testing.T) {
	tests := []struct {
		name    string
		args    string
		env     map[string]string
		want    func(*options)
		wantErr []string // each is in the error
	}{
		{name: "defaults are Karpenter's", args: "--cluster-name=demo", want: func(*options) {}},
		{name: "environment", env: map[string]string{"CLUSTER_NAME": "demo", "METRICS_PORT": "9000", "ISOLATED_VPC": "true", "INTERRUPTION_QUEUE": "demo"}, want: func(o *options) {
			o.MetricsPort, o.IsolatedVPC, o.InterruptionQueue = 9000, true, "demo"
		}},
		{name: "flags win over the environment", args: "--metrics-port 9100", env: map[string]string{"CLUSTER_NAME": "demo", "METRICS_PORT": "9000"}, want: func(o *options) {
			o.MetricsPort = 9100
		}},
		{name: "cluster name missing", wantErr: []string{"--cluster-name (CLUSTER_NAME) is required"}},
		{name: "unreadable environment", env: map[string]string{"CLUSTER_NAME": "demo", "METRICS_PORT": "many"}, wantErr: []string{"METRICS_PORT (flag --metrics-port)", `"many"`}},
		{
			name:    "everything wrong is named at once",
			args:    "--cluster-name=demo --cluster-endpoint=api --vm-memory-overhead-percent=7 --health-probe-port=70000 --kube-client-qps=0 --log-level=loud --leader-election-name=",
			wantErr: []string{"--cluster-endpoint", "--vm-memory-overhead-percent", "--health-probe-port", "--kube-client-qps", "--log-level", "--leader-election-name"},
		},
		{name: "two listeners on one port", args: "--cluster-name=demo --metrics-port=8081", wantErr: []string{"--metrics-port and --health-probe-port are both 8081"}},
		{name: "unknown flag", args: "--cluster=demo", wantErr: []string{"-cluster"}},
		{name: "stray argument", args: "--cluster-name=demo now", wantErr: []string{`unexpected argument "now"`}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(strings.Fields(tc.args), func(k string) string { return tc.env[k] }, io.Discard)
			if tc.want == nil {
				for _, part := range tc.wantErr {
					if err == nil || !strings.Contains(err.Error(), part) {
						t.Errorf("error %v does not say %q", err, part)
					}
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			want := options{
				ClusterName: "demo", VMMemoryOverheadPercent: 0.075, MetricsPort: 8080, HealthProbePort: 8081, KubeClientQPS: 200,
				KubeClientBurst: 300, LeaderElectionName: "karpenter-leader-election", LogLevel: "info", StartupTimeout: 30 * time.Second,
			}
			tc.want(&want)
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("options (-want +got):\n%s", d)
			}
		})
	}
}

func TestAddress(t *testing.T) {
	for _, tc := range []struct {
		host string
		port int
		want string
	}{{"", 8080, ":8080"}, {"127.0.0.1", 8080, "127.0.0.1:8080"}, {"::1", 80, "[::1]:80"}, {"127.0.0.1", 0, "0"}} {
		if got := address(tc.host, tc.port); got != tc.want {
			t.Errorf("address(%q, %d) is %q, want %q", tc.host, tc.port, got, tc.want)
		}
	}
}

func TestStripPodKeepsWhatADrainReads(t *testing.T) {
	p := builder.Pod("web").On("node").CPU("1").Tolerate(corev1.Toleration{Key: "x"}).Annotation("karpenter.sh/do-not-disrupt", "true").
		OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "ds", "uid").Label("app", "web").Volume("data").Obj()
	p.Spec.PriorityClassName = "system-node-critical"
	p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "config", VolumeSource: corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}})
	p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodScheduled, Status: corev1.ConditionTrue}, {Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	out, err := stripPod(p.DeepCopy())
	got, ok := out.(*corev1.Pod)
	if err != nil || !ok {
		t.Fatalf("got %T, error %v", out, err)
	}
	want := p.DeepCopy()
	want.Spec = corev1.PodSpec{
		NodeName: p.Spec.NodeName, Tolerations: p.Spec.Tolerations, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
		Containers:     []corev1.Container{{Name: p.Spec.Containers[0].Name, Resources: p.Spec.Containers[0].Resources}},
		InitContainers: []corev1.Container{}, PriorityClassName: p.Spec.PriorityClassName, Volumes: p.Spec.Volumes[:1],
	}
	want.Status = corev1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime, Conditions: p.Status.Conditions[1:]}
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("pod (-want +got):\n%s", d)
	}
	if other, err := stripPod("tombstone"); err != nil || other != "tombstone" {
		t.Errorf("other objects become %v, error %v", other, err)
	}
}
