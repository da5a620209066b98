// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/cluster"
)

// shared has a short grace period so that a silent node is noticed within a test.
var shared = cluster.Shared{Options: cluster.Options{NodeMonitorGracePeriod: 2 * time.Second}}

func TestMain(m *testing.M) {
	if os.Getenv(callerEnv) != "" {
		runCaller()
	}
	os.Exit(shared.Run(m))
}

// waitLimit bounds every wait for the control plane; a loaded machine may need seconds for what takes milliseconds.
const waitLimit = 60 * time.Second

// eventually asks until the answer is empty and fails with the last answer when time is up.
func eventually(t *testing.T, what string, ask func(context.Context) string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), waitLimit)
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		answer := ask(ctx)
		if answer == "" {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("waiting for %s: %s", what, answer)
		case <-tick.C:
		}
	}
}

func clientFor(t *testing.T, config *rest.Config) *kubernetes.Clientset {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

// namespace makes a namespace of the test's own.
func namespace(t *testing.T, c *cluster.Cluster) string {
	t.Helper()
	name := strings.ToLower(strings.NewReplacer("/", "-", "_", "-").Replace(t.Name()))
	if err := c.AwaitNamespace(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	return name
}

func podSpec(cpu string) corev1.PodSpec {
	return corev1.PodSpec{
		TerminationGracePeriodSeconds: new(int64(1)),
		Containers: []corev1.Container{{
			Name: "main", Image: "example.com/app:1",
			Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu)}},
		}},
	}
}

func TestVersionIsStamped(t *testing.T) {
	c := shared.Get(t)
	got, err := clientFor(t, c.Config()).Discovery().ServerVersion()
	if err != nil {
		t.Fatal(err)
	}
	if got.GitVersion != "v1.37.2" || got.Major != "1" || got.Minor != "37" {
		t.Errorf("version is %s (major %q, minor %q), want v1.37.2", got.GitVersion, got.Major, got.Minor)
	}
}

func TestDeploymentMakesPods(t *testing.T) {
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	labels := map[string]string{"app": "web"}
	_, err := client.AppsV1().Deployments(ns).Create(t.Context(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(3)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: podSpec("100m")},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	eventually(t, "three pods", func(ctx context.Context) string {
		pods, err := client.CoreV1().Pods(ns).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err.Error()
		}
		if len(pods.Items) != 3 {
			return fmt.Sprintf("%d pods", len(pods.Items))
		}
		for _, pod := range pods.Items {
			if pod.Spec.NodeName != "" {
				t.Fatalf("pod %q is on node %q, but nothing schedules here", pod.Name, pod.Spec.NodeName)
			}
		}
		return ""
	})
}

func TestPriorityClassesAreThere(t *testing.T) {
	client := clientFor(t, shared.Get(t).Config())
	for _, name := range []string{"system-node-critical", "system-cluster-critical"} {
		if _, err := client.SchedulingV1().PriorityClasses().Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

func TestAuthorization(t *testing.T) {
	c := shared.Get(t)
	tests := map[string]struct {
		user   string
		groups []string
		want   bool
	}{
		"nobody":    {user: "mallory", want: false},
		"scheduler": {user: "system:kube-scheduler", want: true},
		"admin":     {user: "root", groups: []string{"system:masters"}, want: true},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			config, err := c.User(tc.user, tc.groups...)
			if err != nil {
				t.Fatal(err)
			}
			_, err = clientFor(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
			if tc.want && err != nil {
				t.Errorf("listing nodes: %v, want success", err)
			}
			if !tc.want && !apierrors.IsForbidden(err) {
				t.Errorf("listing nodes: %v, want forbidden", err)
			}
		})
	}
}

func TestAnonymousSeesHealthOnly(t *testing.T) {
	config := rest.AnonymousClientConfig(shared.Get(t).Config())
	client := clientFor(t, config)
	if err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(t.Context()).Error(); err != nil {
		t.Errorf("anonymous /readyz: %v, want success", err)
	}
	if _, err := client.Discovery().ServerVersion(); !apierrors.IsUnauthorized(err) {
		t.Errorf("anonymous /version: %v, want unauthorized", err)
	}
}

// TestDelegatedAuthenticationIsConfigured reads what kube-scheduler and webhooks need to know whom to trust.
func TestDelegatedAuthenticationIsConfigured(t *testing.T) {
	client := clientFor(t, shared.Get(t).Config())
	config, err := client.CoreV1().ConfigMaps("kube-system").Get(t.Context(), "extension-apiserver-authentication", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	users, proxies := config.Data["client-ca-file"], config.Data["requestheader-client-ca-file"]
	if users == "" || proxies == "" || users == proxies {
		t.Errorf("authorities of users and proxies are %q and %q, want two", users, proxies)
	}
}

// TestKubeconfig uses the file as kubectl would.
func TestKubeconfig(t *testing.T) {
	c := shared.Get(t)
	config, err := clientcmd.BuildConfigFromFlags("", c.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := clientFor(t, config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{}); err != nil {
		t.Error(err)
	}
	for _, want := range []string{config.Host, c.Kubeconfig(), "kube-controller-manager("} {
		if !strings.Contains(c.String(), want) {
			t.Errorf("summary lacks %q:\n%s", want, c)
		}
	}
}

const goodPool = `apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: %s
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: %s, operator: %s, values: ["amd64"]}
`

func TestCRDsRefuseBadInput(t *testing.T) {
	c := shared.Get(t)
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		manifest string
		want     string // part of the refusal; empty: accepted
	}{
		"good":             {manifest: fmt.Sprintf(goodPool, "good", "kubernetes.io/arch", "In")},
		"unknown operator": {manifest: fmt.Sprintf(goodPool, "bad-operator", "kubernetes.io/arch", "Equals"), want: "Unsupported value"},
		"reserved label":   {manifest: fmt.Sprintf(goodPool, "bad-label", "kubernetes.io/hostname", "In"), want: `label "kubernetes.io/hostname" is restricted`},
		"provider's label": {manifest: fmt.Sprintf(goodPool, "bad-aws-label", "karpenter.k8s.aws/no-such", "In"), want: `label domain "karpenter.k8s.aws" is restricted`},
		"empty class": {
			manifest: "apiVersion: karpenter.k8s.aws/v1\nkind: EC2NodeClass\nmetadata: {name: empty}\nspec: {}\n", want: "spec.amiSelectorTerms",
		},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := c.Apply(t.Context(), []byte(tc.manifest))
			if tc.want == "" {
				if err != nil {
					t.Fatal(err)
				}
				return
			}
			if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), tc.want) {
				t.Errorf("got %v, want a refusal with %q", err, tc.want)
			}
		})
	}
}

// The examples of the documentation are parts of the samples, so the API server has to take every one as it is: strictly, with
// unknown and repeated fields as errors. Nothing is stored, so no controller acts on them.
func TestSamplesAreAccepted(t *testing.T) {
	c := shared.Get(t)
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(c.Config(), client.Options{})
	if err != nil {
		t.Fatal(err)
	}
	kube = client.WithFieldValidation(client.NewDryRunClient(client.NewNamespacedClient(kube, metav1.NamespaceDefault)), metav1.FieldValidationStrict)
	err = fs.WalkDir(samples.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(samples.Files, path)
		if err != nil {
			return err
		}
		decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(text), len(text))
		for n := 1; ; n++ {
			object := &unstructured.Unstructured{}
			if err := decoder.Decode(object); errors.Is(err, io.EOF) {
				return nil
			} else if err != nil {
				return fmt.Errorf("%s, document %d: %w", path, n, err)
			}
			if err := kube.Create(t.Context(), object); err != nil && !apierrors.IsAlreadyExists(err) {
				t.Errorf("%s, document %d: %v", path, n, err)
			}
		}
	})
	if err != nil {
		t.Fatal(err)
	}
}

func TestApply(t *testing.T) {
	c := shared.Get(t)
	tests := map[string]struct {
		manifest string
		want     string // part of the error; empty: none
	}{
		"several documents, a new kind, a comment": {manifest: `# a comment
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata: {name: boats.example.com}
spec:
  group: example.com
  scope: Namespaced
  names: {kind: Boat, listKind: BoatList, plural: boats, singular: boat}
  versions:
  - {name: v1, served: true, storage: true, schema: {openAPIV3Schema: {type: object}}}
---
apiVersion: example.com/v1
kind: Boat
metadata: {name: ferry}
`},
		"list":         {manifest: "apiVersion: v1\nkind: List\nitems:\n- {apiVersion: v1, kind: ConfigMap, metadata: {name: listed}}\n"},
		"unknown kind": {manifest: "apiVersion: v1\nkind: Ship\nmetadata: {name: x}\n", want: `applying Ship "x"`},
		"no name":      {manifest: "apiVersion: v1\nkind: ConfigMap\n", want: "document 1: apiVersion, kind or metadata.name is missing"},
		"not YAML":     {manifest: "a: b\n---\n\t{", want: "document 1"},
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			err := c.Apply(t.Context(), []byte(tc.manifest))
			if tc.want == "" && err != nil {
				t.Fatal(err)
			}
			if tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
				t.Errorf("got %v, want an error with %q", err, tc.want)
			}
		})
	}
	if _, err := clientFor(t, c.Config()).CoreV1().ConfigMaps("default").Get(t.Context(), "listed", metav1.GetOptions{}); err != nil {
		t.Error(err)
	}
}
