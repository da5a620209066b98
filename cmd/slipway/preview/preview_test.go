// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const pool = `
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: general}
spec:
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [on-demand]}
      - {key: karpenter.k8s.aws/instance-family, operator: In, values: [m5]}
`

// workload is a Deployment of n pods that each ask for cpu.
func workload(n, cpu, more string) string {
	return `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
spec:
  replicas: ` + n + `
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
      containers: [{name: c, image: c, resources: {limits: {cpu: "` + cpu + `", memory: 1Gi}}}]
` + more
}

func write(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func TestReadFiles(t *testing.T) {
	dir := write(t, map[string]string{
		"a.yaml": pool + "---\n# nothing here\n---" + workload("3", "1", ""),
		"b.json": `{"apiVersion":"v1","kind":"List","items":[{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}},
			{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"once","namespace":"jobs"},
			 "spec":{"parallelism":5,"completions":2,"template":{"spec":{"containers":[{"name":"c"}]}}}}]}`,
		"c.yml":  "apiVersion: example.com/v1\nkind: Widget\nmetadata: {name: w}\n",
		"README": "not read",
	})
	stdin := strings.NewReader("apiVersion: v1\nkind: Pod\nmetadata: {generateName: bare-}\nspec: {containers: [{name: c}]}\n")
	in, err := ReadFiles([]string{dir, "-"}, stdin)
	if err != nil {
		t.Fatal(err)
	}
	var pods []string
	for _, p := range in.Pods {
		pods = append(pods, p.Namespace+"/"+p.Name)
	}
	if diff := cmp.Diff([]string{"default/web-0", "default/web-1", "default/web-2", "jobs/once-0", "jobs/once-1", "default/bare-0"}, pods); diff != "" {
		t.Errorf("pods (-want +got):\n%s", diff)
	}
	if got := in.Pods[0].Spec.Containers[0].Resources.Requests.Cpu().String(); got != "1" {
		t.Errorf("request for CPU is %s, want the limit, 1", got)
	}
	if diff := cmp.Diff(map[string]int{"Service": 1, "Widget": 1}, in.Ignored); diff != "" {
		t.Errorf("ignored kinds (-want +got):\n%s", diff)
	}
	if len(in.Pools) != 1 || len(in.Objects) != 2 {
		t.Errorf("%d pools and %d other objects, want 1 and the namespaces default and jobs", len(in.Pools), len(in.Objects))
	}
}

func TestReadFilesErrors(t *testing.T) {
	tests := map[string]struct{ text, want string }{
		"misspelt field": {strings.Replace(pool, "requirements:", "requirement:", 1), `bad.yaml: document 1: NodePool general: error unmarshaling JSON: while decoding JSON: json: unknown field "requirement"`},
		"old version":    {strings.Replace(pool, "karpenter.sh/v1", "karpenter.sh/v1beta1", 1), "convert it to karpenter.sh/v1"},
		"no name":        {"apiVersion: v1\nkind: Pod\nspec: {}\n", "bad.yaml: document 1: Pod: metadata.name is missing"},
		"no YAML":        {"a: [", "bad.yaml: document 1: error converting YAML to JSON"},
		"second one":     {pool + "---\nkind: Pod\napiVersion: v1\nmetadata: {name: p}\nspec: {containers: 7}\n", "bad.yaml: document 2: Pod p:"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			dir := write(t, map[string]string{"bad.yaml": tt.text, "good.yaml": pool})
			_, err := ReadFiles([]string{dir}, nil)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error %v, want one with %q", err, tt.want)
			}
		})
	}
	if _, err := ReadFiles([]string{t.TempDir(), "missing.yaml"}, nil); err == nil || !strings.Contains(err.Error(), "has no *.yaml") || !strings.Contains(err.Error(), "missing.yaml") {
		t.Errorf("error %v, want one that names the empty folder and the missing file", err)
	}
}

func TestSolve(t *testing.T) {
	market, err := Offline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	dir := write(t, map[string]string{"all.yaml": pool + "---" + workload("12", "1500m", "---\n") + `
apiVersion: v1
kind: Pod
metadata: {name: giant}
spec: {containers: [{name: c, resources: {requests: {cpu: "500"}}}]}
---
apiVersion: apps/v1
kind: DaemonSet
metadata: {name: agent}
spec:
  selector: {matchLabels: {app: agent}}
  template:
    metadata: {labels: {app: agent}}
    spec: {containers: [{name: c, resources: {requests: {cpu: 300m}}}]}
`})
	in, err := ReadFiles([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out, err := Solve(t.Context(), in, market)
	if err != nil {
		t.Fatal(err)
	}
	r := out.Report()
	placed, price := 0, 0.0
	for i := range r.Nodes {
		n := &r.Nodes[i]
		placed += len(n.Pods)
		price += n.Price
		if !strings.HasPrefix(n.InstanceType, "m5.") || n.CapacityType != "on-demand" {
			t.Errorf("node %s %s is not one the NodePool allows", n.InstanceType, n.CapacityType)
		}
	}
	if placed != 12 || r.Pods != 13 {
		t.Errorf("%d of %d pods have a place, want 12 of 13", placed, r.Pods)
	}
	// 12 × 1.5 CPU and 0.3 a node: more than 18 CPU, so at $0.048 for a CPU of m5 more than $0.864; the planner is no further
	// than a node of the smallest size from it.
	if price != r.Price || price < 0.864 || price > 1.1 {
		t.Errorf("price is $%.3f, the sum of the nodes $%.3f, want a little over $0.864", r.Price, price)
	}
	want := []Pod{{Pod: "default/giant", NodePool: "general", Reason: "NoInstanceTypeLargeEnough"}}
	for i := range r.Unplaced {
		if r.Unplaced[i].Detail == "" {
			t.Errorf("pod %s is unplaced without a detail", r.Unplaced[i].Pod)
		}
		r.Unplaced[i].Detail = ""
	}
	if diff := cmp.Diff(want, r.Unplaced); diff != "" {
		t.Errorf("unplaced (-want +got):\n%s", diff)
	}
	var text strings.Builder
	if err := out.Report().Write(&text, true); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"web ×", "for 12 pods", "1 pod no node can hold:", `giant: nearest NodePool "general": NoInstanceTypeLargeEnough`, `EC2NodeClass "default" is in none of the manifests`} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the report lacks %q:\n%s", want, text.String())
		}
	}
}

// The page has the nodes and pods of the plan.
func TestPage(t *testing.T) {
	in, err := ReadFiles([]string{write(t, map[string]string{"a.yaml": pool + "---" + workload("9", "1", "")})}, nil)
	if err != nil {
		t.Fatal(err)
	}
	market, err := Offline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := Solve(t.Context(), in, market)
	if err != nil {
		t.Fatal(err)
	}
	p := o.Page("of a test")
	pods, price := 0, 0.0
	for i := range p.Nodes {
		pods += len(p.Nodes[i].Pods)
		price += p.Nodes[i].Price
	}
	if r := o.Report(); pods != 9 || len(p.Nodes) != len(r.Nodes) || price != r.Price || p.Nodes[0].CPU <= 0 || p.Nodes[0].Pods[0].Workload != "web" {
		t.Errorf("the page has %d pods on %d nodes for %g, the report %d on %d for %g", pods, len(p.Nodes), price, r.Pods, len(r.Nodes), r.Price)
	}
}
