// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package admission_test

import (
	"context"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/manifests/crds"
	"github.com/slipway-sh/slipway/manifests/policies"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/native"
)

// apiserver is a real API server with our kinds, and a client that keeps the warnings it gets.
type apiserver struct {
	*cluster.Cluster

	client   dynamic.Interface
	warnings *heard
}

// heard collects warnings.
type heard struct {
	mu   sync.Mutex
	list []string
}

// HandleWarningHeader implements rest.WarningHandler.
func (h *heard) HandleWarningHeader(_ int, _ string, text string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.list = append(h.list, text)
}

// take returns what was heard since the last time.
func (h *heard) take() []string {
	h.mu.Lock()
	defer h.mu.Unlock()
	out := h.list
	h.list = nil
	return out
}

func start(t *testing.T) apiserver {
	t.Helper()
	a := apiserver{Cluster: cluster.Start(t, cluster.Options{}), warnings: &heard{}}
	if err := a.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	a.applyAll(t, crds.Files)
	config := rest.CopyConfig(a.Config())
	config.WarningHandler = a.warnings
	var err error
	if a.client, err = dynamic.NewForConfig(config); err != nil {
		t.Fatal(err)
	}
	a.eventually(t, "WorkloadPolicies are served", func(ctx context.Context) (bool, string) {
		_, err := a.client.Resource(v1alpha1.GroupVersion().WithResource("workloadpolicies")).List(ctx, metav1.ListOptions{})
		return err == nil, fmt.Sprint(err)
	})
	return a
}

func (a *apiserver) applyAll(t *testing.T, files fs.FS) {
	t.Helper()
	names, err := fs.Glob(files, "*.yaml")
	if err != nil || len(names) == 0 {
		t.Fatalf("no manifests: %v", err)
	}
	for _, name := range names {
		text, err := fs.ReadFile(files, name)
		if err != nil {
			t.Fatal(err)
		}
		if err := a.Apply(t.Context(), text); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
	}
}

func (a *apiserver) apply(t *testing.T, text string) {
	t.Helper()
	if err := a.Apply(t.Context(), []byte(text)); err != nil {
		t.Fatal(err)
	}
}

func resource(o *unstructured.Unstructured) schema.GroupVersionResource {
	gvk := o.GroupVersionKind()
	plural := strings.ToLower(gvk.Kind) + "s"
	if strings.HasSuffix(plural, "ss") {
		plural = strings.TrimSuffix(plural, "s") + "es"
	}
	if stem, ok := strings.CutSuffix(plural, "ys"); ok {
		plural = stem + "ies"
	}
	return gvk.GroupVersion().WithResource(plural)
}

func parse(t *testing.T, text string) *unstructured.Unstructured {
	t.Helper()
	o := &unstructured.Unstructured{}
	if err := yaml.Unmarshal([]byte(text), &o.Object); err != nil {
		t.Fatalf("%v\n%s", err, text)
	}
	return o
}

// create sends the object and returns what came back, with the warnings.
func (a *apiserver) create(ctx context.Context, o *unstructured.Unstructured, dryRun bool) (*unstructured.Unstructured, []string, error) {
	opts := metav1.CreateOptions{}
	if dryRun {
		opts.DryRun = []string{metav1.DryRunAll}
	}
	a.warnings.take()
	var got *unstructured.Unstructured
	var err error
	if ns := o.GetNamespace(); ns != "" {
		got, err = a.client.Resource(resource(o)).Namespace(ns).Create(ctx, o, opts)
	} else {
		got, err = a.client.Resource(resource(o)).Create(ctx, o, opts)
	}
	return got, a.warnings.take(), err
}

// rulesIn are the ids of rules that texts name, sorted.
func rulesIn(texts ...string) []string {
	var out []string
	for _, text := range texts {
		for _, part := range strings.Split(text, "slipway ")[1:] {
			if id, _, ok := strings.Cut(part, ":"); ok && len(id) == 4 {
				out = append(out, id)
			}
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

const team = `
apiVersion: v1
kind: Namespace
metadata: {name: team, labels: {slipway.sh/managed: "true"}}
---
apiVersion: v1
kind: Namespace
metadata: {name: elsewhere}
`

const defaultPolicy = `
apiVersion: slipway.sh/v1alpha1
kind: WorkloadPolicy
metadata: {name: default}
spec: {schedulerName: slipway}
`

// podOf is a pod with its requests in order; meta and spec are flow YAML.
func podOf(meta, spec string) string {
	return "apiVersion: v1\nkind: Pod\nmetadata: {name: web, namespace: team" + meta + "}\nspec: {containers: [{name: api, image: x, resources: {requests: {cpu: 100m, memory: 1Gi}}}]" + spec + "}\n"
}

func poolOf(meta, spec string) string {
	return "apiVersion: karpenter.sh/v1\nkind: NodePool\nmetadata: {name: general" + meta + "}\nspec: {limits: {cpu: 10}, template: {spec: {expireAfter: Never, nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, " + spec + "}}}\n"
}

const (
	whole     = `requirements: [{key: kubernetes.io/os, operator: In, values: [linux]}, {key: kubernetes.io/arch, operator: In, values: [amd64]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}]`
	owner     = `, ownerReferences: [{apiVersion: apps/v1, kind: ReplicaSet, name: web, uid: u, controller: true}]`
	daemon    = `, ownerReferences: [{apiVersion: apps/v1, kind: DaemonSet, name: web, uid: u, controller: true}]`
	protected = `, annotations: {karpenter.sh/do-not-disrupt: `
)

// What the API server says without any process of ours.
func TestNativePolicies(t *testing.T) {
	a := start(t)
	a.apply(t, team)
	for _, ns := range []string{"team", "elsewhere"} {
		if err := a.AwaitNamespace(t.Context(), ns); err != nil {
			t.Fatal(err)
		}
	}
	a.apply(t, "apiVersion: v1\nkind: Namespace\nmetadata: {name: "+native.Namespace+"}\n")
	a.applyAll(t, policies.Files)
	t.Run("before slipway-webhook has run", func(t *testing.T) { a.testUntold(t) })
	a.govern(t, defaultPolicy)
	a.await(t)

	tests := map[string]struct {
		object string
		warns  []string
		denies []string
	}{
		"a pod in order":                  {object: podOf("", "")},
		"R003":                            {object: podOf("", ", volumes: [{name: v, emptyDir: {}}]"), warns: []string{"R003"}},
		"R005":                            {object: strings.Replace(podOf("", ""), "memory: 1Gi}}", "memory: 1Gi}, limits: {memory: 3Gi}}", 1), warns: []string{"R005"}},
		"R007":                            {object: strings.Replace(podOf("", ""), "cpu: 100m", "cpu: 1m", 1), warns: []string{"R007"}},
		"R008":                            {object: podOf("", ", tolerations: [{key: nvidia.com/gpu, operator: Exists}]"), warns: []string{"R008"}},
		"D001 of a bare pod":              {object: podOf(protected+`"yes"}`, ""), denies: []string{"D001"}},
		"D001 of a controller's pod":      {object: podOf(protected+`"yes"}`+owner, ""), warns: []string{"D001"}},
		"D001, a duration":                {object: podOf(protected+`"1h30m"}`, "")},
		"D001, a duration of nothing":     {object: podOf(protected+`"0s"}`, ""), denies: []string{"D001"}},
		"D002":                            {object: podOf(`, annotations: {karpenter.sh/do-not-evict: "true"}`, ""), warns: []string{"D002"}},
		"D003":                            {object: podOf(protected+`"true"}`+owner, ""), warns: []string{"D003"}},
		"D004":                            {object: podOf(protected+`"240h"}`, ""), warns: []string{"D004"}},
		"D006":                            {object: podOf(protected+`"true"}`, ""), warns: []string{"D006"}},
		"S007":                            {object: podOf("", ", nodeName: n1"), warns: []string{"S007"}},
		"S009":                            {object: podOf("", ", tolerations: [{operator: Exists}]"), warns: []string{"S009"}},
		"S009 of a daemonset":             {object: podOf(daemon, ", tolerations: [{operator: Exists}]")},
		"G002":                            {object: podOf(`, annotations: {slipway.sh/except: "R005=later"}`, ""), denies: []string{"G002"}},
		"an exception":                    {object: podOf(`, annotations: {karpenter.sh/do-not-evict: "true", slipway.sh/except: "D002=old tool;until=`+time.Now().UTC().AddDate(0, 0, 7).Format(time.DateOnly)+`"}`, "")},
		"an exception that is over":       {object: podOf(`, annotations: {karpenter.sh/do-not-evict: "true", slipway.sh/except: "D002=old tool;until=2026-01-01"}`, ""), warns: []string{"D002"}},
		"a namespace that is not managed": {object: strings.Replace(podOf(protected+`"yes"}`, ""), "namespace: team", "namespace: elsewhere", 1)},
		"R010, R005 and D001 of a deployment": {
			object: `{apiVersion: apps/v1, kind: Deployment, metadata: {name: web, namespace: team}, spec: {selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {karpenter.sh/do-not-disrupt: "no"}}, spec: {containers: [{name: a, image: x}]}}}}`,
			denies: []string{"D001"}, warns: []string{"R010"},
		},
		"R010 of a cronjob": {
			object: `{apiVersion: batch/v1, kind: CronJob, metadata: {name: web, namespace: team}, spec: {schedule: "@daily", jobTemplate: {spec: {template: {spec: {restartPolicy: Never, initContainers: [{name: i, image: x}], containers: [{name: a, image: x}]}}}}}}`,
			warns:  []string{"R010"},
		},
		"B001":              {object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: team}, spec: {maxUnavailable: 0, selector: {matchLabels: {a: b}}}}`, warns: []string{"B001"}},
		"a budget in order": {object: `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: team}, spec: {maxUnavailable: 1, selector: {matchLabels: {a: b}}}}`},
		"a pool in order":   {object: poolOf("", whole)},
		"N004, all":         {object: poolOf("", strings.Replace(whole, "[spot]", "[on_demand]", 1)), denies: []string{"N004"}},
		"N004, some":        {object: poolOf("", strings.Replace(whole, "[amd64]", "[amd64, x86]", 1)), warns: []string{"N004"}},
		"N006":              {object: strings.Replace(poolOf("", whole), "limits: {cpu: 10}, ", "", 1), warns: []string{"N006"}},
		"N008":              {object: strings.Replace(poolOf("", whole), "Never", "720h", 1), warns: []string{"N008"}},
		"N009":              {object: poolOf("", "requirements: []"), warns: []string{"N009"}},
		"N013":              {object: poolOf("", whole+", taints: [{key: a, value: x, effect: NoSchedule}, {key: a, value: z, effect: NoSchedule}]"), denies: []string{"N013"}},
		"D008":              {object: strings.Replace(poolOf("", whole), "template: {", `template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: 4h}}, `, 1), warns: []string{"D008"}},
		"C001, C002 and C007": {
			object: `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}, {id: subnet-12345678, tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}], metadataOptions: {httpPutResponseHopLimit: 2}}}`,
			warns:  []string{"C001", "C002", "C007"},
		},
		"K002": {
			object: `{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: mine}, spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}`,
			warns:  []string{"K002"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			_, warnings, err := a.create(t.Context(), parse(t, tt.object), true)
			var denied []string
			if err != nil {
				denied = rulesIn(err.Error())
			}
			if !slices.Equal(denied, tt.denies) || (err != nil && len(tt.denies) == 0) {
				t.Errorf("refused for %v, want %v: %v", denied, tt.denies, err)
			}
			if warned := rulesIn(warnings...); !slices.Equal(warned, tt.warns) {
				t.Errorf("warned of %v, want %v: %q", warned, tt.warns, warnings)
			}
		})
	}
	t.Run("schedulerName", func(t *testing.T) { a.testSchedulerName(t) })
	t.Run("modes", func(t *testing.T) { a.testModes(t) })
	t.Run("deletions", func(t *testing.T) { a.testDeletions(t) })
	t.Run("updates", func(t *testing.T) { a.testUpdates(t) })
}

// govern applies policies and namespaces and writes what native policies read of them, as slipway-webhook does.
func (a *apiserver) govern(t *testing.T, text string) {
	t.Helper()
	a.apply(t, text)
	var in webhook.Inputs
	for resource, add := range map[schema.GroupVersionResource]func(map[string]any) error{
		v1alpha1.GroupVersion().WithResource("workloadpolicies"): func(o map[string]any) error {
			p := &v1alpha1.WorkloadPolicy{}
			in.Policies = append(in.Policies, p)
			return runtime.DefaultUnstructuredConverter.FromUnstructured(o, p)
		},
		{Version: "v1", Resource: "namespaces"}: func(o map[string]any) error {
			n := &corev1.Namespace{}
			in.Namespaces = append(in.Namespaces, n)
			return runtime.DefaultUnstructuredConverter.FromUnstructured(o, n)
		},
	} {
		list, err := a.client.Resource(resource).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			t.Fatal(err)
		}
		for i := range list.Items {
			if err := add(list.Items[i].Object); err != nil {
				t.Fatal(err)
			}
		}
	}
	kube, err := kubernetes.NewForConfig(a.Config())
	if err != nil {
		t.Fatal(err)
	}
	parameter := webhook.Parameter{Kube: kube, Namespace: native.Namespace, Clock: clock.RealClock{}}
	if err := parameter.Write(t.Context(), webhook.NewState(in)); err != nil {
		t.Fatal(err)
	}
}

// Native policies that have been told of no policy warn, and refuse only what can never work.
func (a *apiserver) testUntold(t *testing.T) {
	a.eventually(t, "a pod is warned about", func(ctx context.Context) (bool, string) {
		got, warnings, err := a.create(ctx, parse(t, podOf(protected+`"yes"}`, "")), true)
		return err == nil && scheduler(got) == "default-scheduler" && slices.Equal(rulesIn(warnings...), []string{"D001"}), fmt.Sprint(warnings, err)
	})
	a.eventually(t, "a pool that can never work is refused", func(ctx context.Context) (bool, string) {
		_, warnings, err := a.create(ctx, parse(t, poolOf("", strings.Replace(whole, "[spot]", "[on_demand]", 1))), true)
		return err != nil && slices.Equal(rulesIn(err.Error()), []string{"N004"}), fmt.Sprint(warnings, err)
	})
}

// await waits until the API server has compiled the policies and seen the namespace's labels.
func (a *apiserver) await(t *testing.T) {
	t.Helper()
	probes := map[string]func() bool{
		"pods": func() bool {
			_, _, err := a.create(t.Context(), parse(t, podOf(protected+`"yes"}`, "")), true)
			return err != nil
		},
		"schedulerName": func() bool {
			got, _, err := a.create(t.Context(), parse(t, podOf("", "")), true)
			return err == nil && scheduler(got) == "slipway"
		},
		"pools": func() bool {
			_, _, err := a.create(t.Context(), parse(t, poolOf("", strings.Replace(whole, "[spot]", "[on_demand]", 1))), true)
			return err != nil && len(rulesIn(err.Error())) > 0
		},
		"classes": func() bool {
			_, w, _ := a.create(t.Context(), parse(t, `{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, amiSelectorTerms: [{alias: al2023@latest}], subnetSelectorTerms: [{tags: {a: b}}], securityGroupSelectorTerms: [{tags: {a: b}}]}}`), true)
			return len(rulesIn(w...)) > 0
		},
		"claims": func() bool {
			_, w, _ := a.create(t.Context(), parse(t, `{apiVersion: karpenter.sh/v1, kind: NodeClaim, metadata: {name: mine}, spec: {requirements: [], nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}}}`), true)
			return len(rulesIn(w...)) > 0
		},
		"templates": func() bool {
			_, w, _ := a.create(t.Context(), parse(t, strings.Replace(poolOf("", whole), "template: {", `template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: 4h}}, `, 1)), true)
			return len(rulesIn(w...)) > 0
		},
		"budgets": func() bool {
			_, w, _ := a.create(t.Context(), parse(t, `{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web, namespace: team}, spec: {maxUnavailable: 0, selector: {matchLabels: {a: b}}}}`), true)
			return len(rulesIn(w...)) > 0
		},
	}
	for name, ok := range probes {
		err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 30*time.Second, true, func(context.Context) (bool, error) { return ok(), nil })
		if err != nil {
			t.Fatalf("the native policies about %s do not act: %v", name, err)
		}
	}
}

func scheduler(o *unstructured.Unstructured) string {
	s, _, _ := unstructured.NestedString(o.Object, "spec", "schedulerName")
	return s
}

func (a *apiserver) testSchedulerName(t *testing.T) {
	tests := map[string]struct{ object, want string }{
		"unset":                {podOf("", ""), "slipway"},
		"another":              {podOf("", ", schedulerName: volcano"), "volcano"},
		"of a daemonset":       {podOf(daemon, ""), "default-scheduler"},
		"opted out":            {podOf(", labels: {slipway.sh/scheduler: default}", ""), "default-scheduler"},
		"our own":              {podOf(", labels: {slipway.sh/component: webhook}", ""), "default-scheduler"},
		"elsewhere":            {strings.Replace(podOf("", ""), "namespace: team", "namespace: elsewhere", 1), "default-scheduler"},
		"of a replicaset":      {podOf(owner, ""), "slipway"},
		"the mirror of a file": {podOf(`, annotations: {kubernetes.io/config.mirror: x}`, ", nodeName: n1"), "default-scheduler"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got, _, err := a.create(t.Context(), parse(t, tt.object), true)
			if err != nil {
				t.Fatal(err)
			}
			if scheduler(got) != tt.want {
				t.Errorf("schedulerName is %q, want %q", scheduler(got), tt.want)
			}
		})
	}
}

// Modes follow the policy and the namespace's label.
func (a *apiserver) testModes(t *testing.T) {
	bad := podOf(protected+`"yes"}`, "")
	tests := map[string]struct {
		policy, label string
		object        string
		warns, denies []string
		annotation    string // of do-not-disrupt, in what comes back
	}{
		"migration":        {policy: "compatibility: Karpenter", object: bad, warns: []string{"D001"}},
		"off":              {policy: "rules: {D001: 'Off'}", object: bad},
		"the label warns":  {label: "warn", object: bad, warns: []string{"D001"}},
		"the label audits": {label: "audit", object: bad},
		"raised":           {policy: "allowNamespaceEscalation: true", label: "enforce", object: podOf(protected+`"240h"}`, ""), denies: []string{"D004"}},
		"not raised":       {label: "enforce", object: podOf(protected+`"240h"}`, ""), warns: []string{"D004"}},
		"a class":          {policy: "latencyClasses: [{name: batch}]", object: podOf(`, annotations: {slipway.sh/latency-class: bach}`, ""), denies: []string{"S003"}},
		"a ratio":          {policy: "requests: {maxRatio: {memory: 4}}", object: strings.Replace(podOf("", ""), "memory: 1Gi}}", "memory: 1Gi}, limits: {memory: 3Gi}}", 1)},
		"capped":           {policy: "disruption: {indefinite: Cap, maxDoNotDisrupt: 6h}", object: podOf(protected+`"true"}`+owner, ""), annotation: "6h0m0s"},
		"refused":          {policy: "disruption: {indefinite: Deny}", object: `{apiVersion: batch/v1, kind: Job, metadata: {name: web, namespace: team}, spec: {template: {metadata: {annotations: {karpenter.sh/do-not-disrupt: "true"}}, spec: {restartPolicy: Never, containers: [{name: a, image: x, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}}}`, denies: []string{"D003"}},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			policy := "apiVersion: slipway.sh/v1alpha1\nkind: WorkloadPolicy\nmetadata: {name: default}\nspec: {" + tt.policy + "}\n"
			labels := `slipway.sh/managed: "true"`
			if tt.label != "" {
				labels += ", slipway.sh/admission: " + tt.label
			}
			a.govern(t, policy+"---\napiVersion: v1\nkind: Namespace\nmetadata: {name: team, labels: {"+labels+"}}\n")
			var last string
			err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
				got, warnings, err := a.create(ctx, parse(t, tt.object), true)
				var denied []string
				if err != nil {
					denied = rulesIn(err.Error())
				}
				last = strings.Join(append(warnings, strings.Join(denied, " ")), "\n")
				ok := slices.Equal(denied, tt.denies) && slices.Equal(rulesIn(warnings...), tt.warns)
				if tt.annotation != "" && err == nil {
					ok = ok && got.GetAnnotations()["karpenter.sh/do-not-disrupt"] == tt.annotation
				}
				return ok, nil
			})
			if err != nil {
				t.Errorf("want refusal for %v and warnings of %v, got\n%s", tt.denies, tt.warns, last)
			}
		})
	}
	a.govern(t, defaultPolicy+"---"+team)
}

func (a *apiserver) testDeletions(t *testing.T) {
	pools := schema.GroupVersionResource{Group: "karpenter.sh", Version: "v1", Resource: "nodepools"}
	pool, _, err := a.create(t.Context(), parse(t, poolOf("", whole)), false)
	if err != nil {
		t.Fatal(err)
	}
	if err := unstructured.SetNestedField(pool.Object, int64(3), "status", "nodes"); err != nil {
		t.Fatal(err)
	}
	if pool, err = a.client.Resource(pools).UpdateStatus(t.Context(), pool, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	err = a.client.Resource(pools).Delete(t.Context(), "general", metav1.DeleteOptions{})
	if err == nil || !strings.Contains(err.Error(), `"general" has 3 nodes that would go with it`) {
		t.Errorf("deletion of a pool with nodes: %v", err)
	}
	definitions := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	err = a.client.Resource(definitions).Delete(t.Context(), "nodeclaims.karpenter.sh", metav1.DeleteOptions{})
	if err == nil || !slices.Contains(rulesIn(err.Error()), "N012") {
		t.Errorf("deletion of a definition: %v", err)
	}
	pool.SetAnnotations(map[string]string{"slipway.sh/confirm-delete": "general"})
	if _, err = a.client.Resource(pools).Update(t.Context(), pool, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	if err := a.client.Resource(pools).Delete(t.Context(), "general", metav1.DeleteOptions{}); err != nil {
		t.Errorf("confirmed deletion: %v", err)
	}
}

// An object that was wrong before can be changed; what is newly wrong is refused.
func (a *apiserver) testUpdates(t *testing.T) {
	a.govern(t, strings.Replace(defaultPolicy, "{schedulerName: slipway}", "{compatibility: Karpenter}", 1))
	object := `{apiVersion: apps/v1, kind: Deployment, metadata: {name: old, namespace: team}, spec: {replicas: 0, selector: {matchLabels: {a: b}}, template: {metadata: {labels: {a: b}, annotations: {karpenter.sh/do-not-disrupt: "yes"}}, spec: {containers: [{name: a, image: x, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}}}`
	var made *unstructured.Unstructured
	err := wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		var err error
		made, _, err = a.create(ctx, parse(t, object), false)
		return err == nil, nil
	})
	if err != nil {
		t.Fatal("a wrong deployment cannot be created under compatibility Karpenter")
	}
	a.govern(t, defaultPolicy)
	err = wait.PollUntilContextTimeout(t.Context(), 100*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		_, _, err := a.create(ctx, parse(t, strings.Replace(object, "name: old", "name: new", 1)), true)
		return err != nil, nil
	})
	if err != nil {
		t.Fatal("the policy does not refuse again")
	}
	deployments := resource(made)
	made.SetLabels(map[string]string{"touched": "yes"})
	made.SetResourceVersion("") // whatever the Deployment's controller has written since
	a.warnings.take()
	made, err = a.client.Resource(deployments).Namespace("team").Update(t.Context(), made, metav1.UpdateOptions{})
	if warned := rulesIn(a.warnings.take()...); err != nil || !slices.Equal(warned, []string{"D001"}) {
		t.Fatalf("an update that leaves the value: %v, warned of %v, want D001", err, warned)
	}
	good := made.DeepCopy()
	good.SetResourceVersion("")
	if err := unstructured.SetNestedField(good.Object, "4h", "spec", "template", "metadata", "annotations", "karpenter.sh/do-not-disrupt"); err != nil {
		t.Fatal(err)
	}
	if good, err = a.client.Resource(deployments).Namespace("team").Update(t.Context(), good, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
	good.SetResourceVersion("")
	if err := unstructured.SetNestedField(good.Object, "never", "spec", "template", "metadata", "annotations", "karpenter.sh/do-not-disrupt"); err != nil {
		t.Fatal(err)
	}
	if _, err = a.client.Resource(deployments).Namespace("team").Update(t.Context(), good, metav1.UpdateOptions{}); err == nil {
		t.Error("a value that is newly wrong was accepted")
	}
}
