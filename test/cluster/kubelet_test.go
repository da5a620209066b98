// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-sh/slipway/test/cluster"
)

// machineNamed is a small machine that is ready soon.
func machineNamed(name string) cluster.Machine {
	resources := corev1.ResourceList{
		corev1.ResourceCPU: resource.MustParse("4"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("110"),
	}
	return cluster.Machine{
		InstanceID: "i-" + name, InstanceType: "m5.xlarge", Zone: "eu-west-1a", Region: "eu-west-1", Arch: "x86_64",
		NodeName: name, InternalIP: "10.1.2.3", ProviderID: "aws:///eu-west-1a/i-" + name,
		Labels:   map[string]string{"team": "blue"},
		Taints:   []corev1.Taint{{Key: "example.com/startup", Effect: corev1.TaintEffectNoSchedule}},
		Capacity: resources, Allocatable: resources,
		ReadyAfter: 100 * time.Millisecond,
	}
}

// join joins a machine and removes its node after the test.
func join(t *testing.T, k *cluster.Kubelet, client kubernetes.Interface, m cluster.Machine) {
	t.Helper()
	if err := k.Join(t.Context(), m); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := client.CoreV1().Nodes().Delete(context.WithoutCancel(t.Context()), m.NodeName, metav1.DeleteOptions{})
		if err != nil && !apierrors.IsNotFound(err) {
			t.Error(err)
		}
	})
}

func readyStatus(t *testing.T, client kubernetes.Interface, name string) corev1.ConditionStatus {
	t.Helper()
	node, err := client.CoreV1().Nodes().Get(t.Context(), name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range node.Status.Conditions {
		if c.Type == corev1.NodeReady {
			return c.Status
		}
	}
	t.Fatalf("node %q has no Ready condition", name)
	return ""
}

func awaitReady(t *testing.T, client kubernetes.Interface, name string) {
	t.Helper()
	eventually(t, "node to be ready and free of Kubernetes' own taints", func(ctx context.Context) string {
		node, err := client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		for _, taint := range node.Spec.Taints {
			if strings.HasPrefix(taint.Key, "node.kubernetes.io/") {
				return "taint " + taint.Key
			}
		}
		if got := readyStatus(t, client, name); got != corev1.ConditionTrue {
			return "Ready is " + string(got)
		}
		return ""
	})
}

// bind creates a pod and binds it, as a scheduler does.
func bind(t *testing.T, client kubernetes.Interface, ns, node string, pod *corev1.Pod) {
	t.Helper()
	created, err := client.CoreV1().Pods(ns).Create(t.Context(), pod, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	binding := &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: created.Name, UID: created.UID},
		Target:     corev1.ObjectReference{Kind: "Node", Name: node},
	}
	if err := client.CoreV1().Pods(ns).Bind(t.Context(), binding, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
}

func podNamed(name, cpu string) *corev1.Pod {
	return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: podSpec(cpu)}
}

func awaitPod(t *testing.T, client kubernetes.Interface, ns, name, want string) *corev1.Pod {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, fmt.Sprintf("pod %q to be %s", name, want), func(ctx context.Context) string {
		var err error
		if pod, err = client.CoreV1().Pods(ns).Get(ctx, name, metav1.GetOptions{}); err != nil {
			return err.Error()
		}
		got := string(pod.Status.Phase)
		if pod.Status.Reason != "" {
			got += " " + pod.Status.Reason
		}
		if got != want {
			return got
		}
		return ""
	})
	return pod
}

// TestNodeLife follows a node and its pods from joining to silence.
func TestNodeLife(t *testing.T) {
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 300 * time.Millisecond})
	m := machineNamed("life")
	m.ReadyAfter = 500 * time.Millisecond
	join(t, k, client, m)

	node, err := client.CoreV1().Nodes().Get(t.Context(), "life", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := readyStatus(t, client, "life"); got != corev1.ConditionFalse {
		t.Errorf("just joined: Ready is %s, want False", got)
	}
	if !slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == corev1.TaintNodeNotReady }) {
		t.Errorf("just joined: taints are %v, want not-ready among them", node.Spec.Taints)
	}
	for key, want := range map[string]string{
		"kubernetes.io/hostname": "life", "kubernetes.io/arch": "amd64", "kubernetes.io/os": "linux", "team": "blue",
		"node.kubernetes.io/instance-type": "m5.xlarge", "topology.kubernetes.io/zone": "eu-west-1a", "topology.kubernetes.io/region": "eu-west-1",
	} {
		if got := node.Labels[key]; got != want {
			t.Errorf("label %s is %q, want %q", key, got, want)
		}
	}
	if node.Spec.ProviderID != m.ProviderID {
		t.Errorf("provider ID is %q, want %q", node.Spec.ProviderID, m.ProviderID)
	}

	bind(t, client, ns, "life", podNamed("early", "100m"))
	awaitReady(t, client, "life")
	pod := awaitPod(t, client, ns, "early", "Running")
	if pod.Status.PodIP == "" || len(pod.Status.ContainerStatuses) != 1 || !pod.Status.ContainerStatuses[0].Ready {
		t.Errorf("running pod has IP %q and containers %+v, want an address and one ready container", pod.Status.PodIP, pod.Status.ContainerStatuses)
	}
	node, err = client.CoreV1().Nodes().Get(t.Context(), "life", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Spec.Taints) != 1 || node.Spec.Taints[0].Key != "example.com/startup" {
		t.Errorf("ready: taints are %v, want only the user data's own", node.Spec.Taints)
	}

	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "early", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deleted pod to go", func(ctx context.Context) string {
		_, err := client.CoreV1().Pods(ns).Get(ctx, "early", metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return ""
		}
		return fmt.Sprintf("got %v", err)
	})

	// Beyond the grace period of 2 s, the heartbeat alone keeps the node ready.
	alive, stop := context.WithTimeout(t.Context(), 3*time.Second)
	defer stop()
	for ; alive.Err() == nil; time.Sleep(100 * time.Millisecond) {
		if got := readyStatus(t, client, "life"); got != corev1.ConditionTrue {
			t.Fatalf("with heartbeats: Ready is %s, want True", got)
		}
	}
	k.Leave(t.Context(), "life")
	eventually(t, "silent node to be Unknown", func(context.Context) string {
		if got := readyStatus(t, client, "life"); got != corev1.ConditionUnknown {
			return string(got)
		}
		return ""
	})
}

func TestKubeletAdmission(t *testing.T) {
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 300 * time.Millisecond})
	m := machineNamed("admission")
	m.Taints = []corev1.Taint{{Key: "example.com/gone", Effect: corev1.TaintEffectNoExecute}}
	join(t, k, client, m)
	awaitReady(t, client, "admission")

	tolerant := func(pod *corev1.Pod) *corev1.Pod {
		pod.Spec.Tolerations = []corev1.Toleration{{Key: "example.com/gone", Operator: corev1.TolerationOpExists}}
		return pod
	}
	elsewhere := tolerant(podNamed("elsewhere", "100m"))
	elsewhere.Spec.NodeSelector = map[string]string{"team": "red"}
	badDuration := tolerant(podNamed("bad-duration", "100m"))
	badDuration.Annotations = map[string]string{cluster.RunForAnnotation: "soon"}
	badDuration.Spec.RestartPolicy = corev1.RestartPolicyNever
	withInit := tolerant(podNamed("init", "100m"))
	withInit.Spec.InitContainers = []corev1.Container{{
		Name: "init", Image: "example.com/init:1",
		Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("5")}},
	}}
	for _, tc := range []struct {
		pod  *corev1.Pod
		want string
	}{
		{tolerant(podNamed("first", "3")), "Running"},
		{tolerant(podNamed("second", "1500m")), "Failed OutOfcpu"}, // 3 + 1.5 > 4
		{tolerant(podNamed("third", "1")), "Running"},              // 3 + 1: the refused pod holds nothing
		{withInit, "Failed OutOfcpu"},
		{elsewhere, "Failed NodeAffinity"},
		{podNamed("intolerant", "0"), "Failed TaintToleration"},
		{badDuration, "Failed InvalidRunFor"},
	} {
		bind(t, client, ns, "admission", tc.pod)
		awaitPod(t, client, ns, tc.pod.Name, tc.want)
	}

	// A pod that ends gives its room back.
	if err := client.CoreV1().Pods(ns).Delete(t.Context(), "first", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "pod to go", func(ctx context.Context) string {
		if _, err := client.CoreV1().Pods(ns).Get(ctx, "first", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
	bind(t, client, ns, "admission", tolerant(podNamed("fourth", "3")))
	awaitPod(t, client, ns, "fourth", "Running")
}

func TestJobSucceeds(t *testing.T) {
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 300 * time.Millisecond})
	join(t, k, client, machineNamed("jobs"))
	spec := podSpec("100m")
	spec.RestartPolicy = corev1.RestartPolicyNever
	spec.NodeName = "jobs"
	spec.Tolerations = []corev1.Toleration{{Operator: corev1.TolerationOpExists}}
	_, err := client.BatchV1().Jobs(ns).Create(t.Context(), &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "sum"},
		Spec: batchv1.JobSpec{Completions: new(int32(2)), Parallelism: new(int32(1)), Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{cluster.RunForAnnotation: "50ms"}}, Spec: spec,
		}},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "job to complete", func(ctx context.Context) string {
		job, err := client.BatchV1().Jobs(ns).Get(ctx, "sum", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		if job.Status.Succeeded != 2 || job.Status.CompletionTime == nil || job.Status.Failed != 0 {
			return fmt.Sprintf("%+v", job.Status)
		}
		return ""
	})
}

func TestFaults(t *testing.T) {
	c := shared.Get(t)
	client := clientFor(t, c.Config())
	const gpu = corev1.ResourceName("nvidia.com/gpu")
	agent := corev1.Taint{Key: "example.com/agent-not-ready", Effect: corev1.TaintEffectNoSchedule}
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{
		LeaseInterval: 300 * time.Millisecond,
		Faults: func(m cluster.Machine) cluster.Faults {
			switch m.NodeName {
			case "never":
				return cluster.Faults{NeverReady: true}
			case "late":
				return cluster.Faults{
					LateResources: map[corev1.ResourceName]time.Duration{gpu: 600 * time.Millisecond},
					AgentTaints:   []cluster.AgentTaint{{Taint: agent, After: 200 * time.Millisecond, For: 300 * time.Millisecond}},
				}
			}
			return cluster.Faults{}
		},
	})
	never, late := machineNamed("never"), machineNamed("late")
	late.Capacity = late.Capacity.DeepCopy()
	late.Capacity[gpu] = resource.MustParse("1")
	late.Allocatable = late.Capacity
	join(t, k, client, never)
	join(t, k, client, late)

	var seenTaint, seenWithoutGPU atomic.Bool
	eventually(t, "agent's taint to come and go and the GPU to appear", func(ctx context.Context) string {
		node, err := client.CoreV1().Nodes().Get(ctx, "late", metav1.GetOptions{})
		if err != nil {
			return err.Error()
		}
		tainted := slices.ContainsFunc(node.Spec.Taints, func(taint corev1.Taint) bool { return taint.Key == agent.Key })
		if tainted {
			seenTaint.Store(true)
		}
		_, hasGPU := node.Status.Allocatable[gpu]
		if !hasGPU {
			seenWithoutGPU.Store(true)
		}
		if tainted || !hasGPU || !seenTaint.Load() || !seenWithoutGPU.Load() {
			return fmt.Sprintf("taint %v (seen %v), GPU %v (missed %v)", tainted, seenTaint.Load(), hasGPU, seenWithoutGPU.Load())
		}
		return ""
	})
	awaitReady(t, client, "late")
	if got := readyStatus(t, client, "never"); got != corev1.ConditionFalse {
		t.Errorf("node that never gets ready: Ready is %s, want False", got)
	}
}

func TestJoinRefusals(t *testing.T) {
	c := shared.Get(t)
	client := clientFor(t, c.Config())
	k := cluster.StartKubelet(t, c, cluster.KubeletOptions{})
	tests := map[string]struct {
		change func(*cluster.Machine)
		want   string
	}{
		"reserved label":   {func(m *cluster.Machine) { m.Labels = map[string]string{"kubernetes.io/role": "x"} }, `label "kubernetes.io/role" may not be set by a kubelet`},
		"malformed label":  {func(m *cluster.Machine) { m.Labels = map[string]string{"team": "not valid"} }, "metadata.labels"},
		"malformed taint":  {func(m *cluster.Machine) { m.Taints = []corev1.Taint{{Key: "x", Effect: "Never"}} }, "taints"},
		"restricted label": {func(m *cluster.Machine) { m.Labels = map[string]string{"node-restriction.kubernetes.io/x": "y"} }, "may not be set"},
		"no name":          {func(m *cluster.Machine) { m.NodeName = "" }, "joining node"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			m := machineNamed("refused")
			tc.change(&m)
			err := k.Join(t.Context(), m)
			if err == nil || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
			if _, err := client.CoreV1().Nodes().Get(t.Context(), "refused", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
				t.Errorf("reading node: %v, want none", err)
			}
		})
	}
}
