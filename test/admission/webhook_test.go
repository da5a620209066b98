// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/manifests/install"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/webhook/snapshot"
)

// run applies the installation with admission and starts its slipway-webhook, as the service account and with the arguments
// it is installed with. The API server is on loopback and reaches it by URL instead of by Service.
func (a *apiserver) run(t *testing.T) *cluster.Process {
	t.Helper()
	in, err := bed.ReadInstallation(install.Admission)
	if err != nil {
		t.Fatal(err)
	}
	port := freePort(t)
	manifests := install.Admission
	for _, path := range []string{"mutate", "validate"} {
		from := []byte("service: {name: slipway-webhook, namespace: slipway-system, path: /" + path + ", port: 443}")
		to := fmt.Sprintf("url: \"https://localhost:%d/%s\"", port, path)
		if !bytes.Contains(manifests, from) {
			t.Fatalf("the installation has no hook at /%s", path)
		}
		manifests = bytes.ReplaceAll(manifests, from, []byte(to))
	}
	a.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: slipway-system}\n")
	if err := a.Apply(t.Context(), manifests); err != nil {
		t.Fatal(err)
	}
	account, args, env := in.Process("slipway-webhook")
	kubeconfig := filepath.Join(t.TempDir(), "kubeconfig")
	if err := a.WriteKubeconfig(kubeconfig, "system:serviceaccount:slipway-system:"+account, "system:serviceaccounts", "system:serviceaccounts:slipway-system"); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(t.TempDir(), "slipway-webhook")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, "../../cmd/slipway-webhook").CombinedOutput(); err != nil {
		t.Fatalf("building slipway-webhook: %v\n%s", err, out)
	}
	p, err := a.Run(cluster.Command{
		Name: "slipway-webhook", Path: binary, Env: env,
		Args: append(args, // the last of two values counts
			"--kubeconfig="+kubeconfig, "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", port), fmt.Sprintf("--metrics-port=%d", freePort(t)),
			fmt.Sprintf("--health-probe-port=%d", freePort(t)), "--lame-duck=1s", "--log-level=debug"),
	})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // at once
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = l.Close() }()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// The whole way: the binary with its rights, its certificate, the configurations, real objects.
func TestWebhook(t *testing.T) {
	a := start(t)
	a.apply(t, team)
	if err := a.AwaitNamespace(t.Context(), "team"); err != nil {
		t.Fatal(err)
	}
	a.apply(t, defaultPolicy)
	p := a.run(t)
	t.Cleanup(func() {
		if t.Failed() {
			log, err := os.ReadFile(filepath.Join(a.Dir(), "slipway-webhook.log"))
			t.Logf("slipway-webhook (%v):\n%s", err, log)
		}
	})
	if err := a.AwaitNamespace(t.Context(), "slipway-canary"); err != nil {
		t.Fatal(err)
	}
	barePod := `{apiVersion: v1, kind: Pod, metadata: {name: bare, namespace: team}, spec: {containers: [{name: api, image: x}]}}`
	a.eventually(t, "requests are filled in", func(ctx context.Context) (bool, string) {
		got, warnings, err := a.create(ctx, parse(t, barePod), true)
		if err != nil {
			return false, err.Error()
		}
		given := got.GetAnnotations()[v1alpha1.DefaultedAnnotation]
		return given == "api/cpu=100m:fallback,api/memory=256Mi:fallback" && slices.Equal(rulesIn(warnings...), []string{"R001", "R002"}), given
	})

	t.Run("limit range", func(t *testing.T) {
		a.apply(t, `{apiVersion: v1, kind: LimitRange, metadata: {name: base, namespace: team}, spec: {limits: [{type: Container, max: {memory: 128Mi}, default: {memory: 128Mi}, defaultRequest: {memory: 64Mi}}]}}`)
		a.eventually(t, "what the API server's LimitRanger fills in stays", func(ctx context.Context) (bool, string) {
			got, _, err := a.create(ctx, parse(t, barePod), true)
			if err != nil {
				return false, err.Error()
			}
			return got.GetAnnotations()[v1alpha1.DefaultedAnnotation] == "api/cpu=100m:fallback", fmt.Sprint(got.GetAnnotations())
		})
		if err := a.client.Resource(schema.GroupVersionResource{Version: "v1", Resource: "limitranges"}).Namespace("team").Delete(t.Context(), "base", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
	})
	t.Run("priority", func(t *testing.T) {
		a.apply(t, `
apiVersion: scheduling.k8s.io/v1
kind: PriorityClass
metadata: {name: high}
value: 1000
---
apiVersion: slipway.sh/v1alpha1
kind: WorkloadPolicy
metadata: {name: default}
spec: {latencyClasses: [{name: interactive, priorityClassName: high}]}
`)
		object := parse(t, strings.Replace(barePod, "namespace: team", "namespace: team, annotations: {slipway.sh/latency-class: interactive}", 1))
		a.eventually(t, "the latency class gives a priority", func(ctx context.Context) (bool, string) {
			got, _, err := a.create(ctx, object, true)
			if err != nil {
				return false, err.Error()
			}
			spec, ok := got.Object["spec"].(map[string]any)
			return ok && spec["priorityClassName"] == "high" && spec["priority"] == int64(1000), fmt.Sprint(spec["priorityClassName"], spec["priority"])
		})
	})
	t.Run("nodepools", func(t *testing.T) {
		broken := strings.Replace(poolOf("", whole), "requirements: [", "requirements: [{key: kubernetes.io/arch, operator: In, values: [arm64]}, ", 1)
		a.eventually(t, "a contradiction is refused", func(ctx context.Context) (bool, string) {
			_, _, err := a.create(ctx, parse(t, broken), true)
			return err != nil && slices.Contains(rulesIn(err.Error()), "N003"), fmt.Sprint(err)
		})
		a.eventually(t, "a class that does not exist is warned of", func(ctx context.Context) (bool, string) {
			_, warnings, err := a.create(ctx, parse(t, poolOf("", whole)), true)
			return err == nil && slices.Contains(rulesIn(warnings...), "N001"), fmt.Sprint(warnings, err)
		})
	})
	t.Run("budgets", func(t *testing.T) {
		a.apply(t, `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: team}, spec: {replicas: 5, selector: {matchLabels: {app: web}}, template: {metadata: {labels: {app: web}}, spec: {containers: [{name: a, image: x}]}}}}`)
		a.eventually(t, "a budget that rounds up to all is warned of", func(ctx context.Context) (bool, string) {
			_, warnings, err := a.create(ctx, parse(t, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: team}, spec: {minAvailable: 90%, selector: {matchLabels: {app: web}}}}`), true)
			return err == nil && slices.Contains(rulesIn(warnings...), "B002"), fmt.Sprint(warnings, err)
		})
	})
	t.Run("feasibility", func(t *testing.T) { a.testFeasibility(t) })
	t.Run("status", func(t *testing.T) { a.testStatus(t) })
	t.Run("rights", func(t *testing.T) { a.testRights(t) })
	t.Run("choice", func(t *testing.T) { a.testChoice(t) })
	t.Run("gone", func(t *testing.T) {
		if err := p.Kill(); err != nil {
			t.Fatal(err)
		}
		if _, _, err := a.create(t.Context(), parse(t, barePod), true); err != nil {
			t.Errorf("without slipway-webhook a pod cannot be created: %v", err)
		}
	})
}

// eventually polls until ok, for caches that have to hear of what was done a moment ago; it fails with what was last.
func (a *apiserver) eventually(t *testing.T, what string, ok func(context.Context) (bool, string)) {
	t.Helper()
	var last string
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, time.Minute, true, func(ctx context.Context) (bool, error) {
		var done bool
		done, last = ok(ctx)
		return done, nil
	})
	if err != nil {
		t.Errorf("%s: does not happen; last seen: %s", what, last)
	}
}

// A pod that no pool can run is told so, once the scheduler has published what can be bought.
func (a *apiserver) testFeasibility(t *testing.T) {
	kube, err := kubernetes.NewForConfig(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	catalogue := builder.Catalog(builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a", "b").Spot(0.05, "a"))
	m, err := snapshot.Encode("slipway-system", "default", catalogue, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := kube.CoreV1().ConfigMaps("slipway-system").Create(t.Context(), m, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	class := parse(t, `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]}}`)
	made, _, err := a.create(t.Context(), class, false)
	if err != nil {
		t.Fatal(err)
	}
	made.Object["status"] = map[string]any{"conditions": []any{map[string]any{
		"type": "Ready", "status": "True", "reason": "Ready", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
	}}}
	if _, err := a.client.Resource(resource(made)).UpdateStatus(t.Context(), made, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if _, _, err := a.create(t.Context(), parse(t, poolOf("", whole)), false); err != nil {
		t.Fatal(err)
	}
	large := `{apiVersion: v1, kind: Pod, metadata: {name: large, namespace: team}, spec: {containers: [{name: api, image: x, resources: {requests: {cpu: 100m, memory: 410Gi}}}]}}`
	a.eventually(t, "a pod that is too large is told", func(ctx context.Context) (bool, string) {
		_, warnings, err := a.create(ctx, parse(t, large), true)
		return err == nil && slices.Contains(rulesIn(warnings...), "S005"), fmt.Sprint(warnings, err)
	})
	_, warnings, err := a.create(t.Context(), parse(t, strings.Replace(large, "410Gi", "1Gi", 1)), true)
	if err != nil || slices.Contains(rulesIn(warnings...), "S005") {
		t.Errorf("a pod that fits: %v, %v", warnings, err)
	}
	a.eventually(t, "a label nobody has is told", func(ctx context.Context) (bool, string) {
		_, warnings, err := a.create(ctx, parse(t, podOf("", ", nodeSelector: {karpenter.sh/capacity-type: sopt}")), true)
		return err == nil && slices.Contains(rulesIn(warnings...), "S006"), fmt.Sprint(warnings, err)
	})
}

// Policies say what they do, the lease says that admission works.
func (a *apiserver) testStatus(t *testing.T) {
	a.apply(t, `
apiVersion: slipway.sh/v1alpha1
kind: WorkloadPolicy
metadata: {name: rival}
spec: {priority: 0, rules: {R999: Warn}}
`)
	policies := v1alpha1.GroupVersion().WithResource("workloadpolicies")
	a.eventually(t, "conflicting policies say so", func(ctx context.Context) (bool, string) {
		o, err := a.client.Resource(policies).Get(ctx, "rival", metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		text := fmt.Sprint(o.Object["status"])
		return strings.Contains(text, `policy "default" selects some of the same namespaces with the same priority 0; there "default" holds`) &&
			strings.Contains(text, "spec.rules[R999]: there is no such rule"), text
	})
	kube, err := kubernetes.NewForConfig(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "the lease is renewed", func(ctx context.Context) (bool, string) {
		lease, err := kube.CoordinationV1().Leases("slipway-system").Get(ctx, v1alpha1.AdmissionLease, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return v1alpha1.AdmissionHealthy(lease, time.Now()), fmt.Sprint(lease.Spec.RenewTime)
	})
}
