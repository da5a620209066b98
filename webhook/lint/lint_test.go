// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package lint_test

import (
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/webhook/lint"
)

func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func run(t *testing.T, text string) lint.Report {
	t.Helper()
	docs, err := lint.Read("x.yaml", strings.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	return lint.Run(docs, lint.World{Now: now()})
}

// said are the findings in one line each, without notes.
func said(r lint.Report) []string {
	var out []string
	for _, f := range r.Findings {
		if f.Severity != lint.Note {
			out = append(out, strings.TrimSpace(f.Severity+" "+f.Rule+" "+f.Object+" "+f.Field))
		}
	}
	return out
}

// The samples are what we tell people to write: nothing about them is an error.
func TestSamples(t *testing.T) {
	err := fs.WalkDir(samples.Files, ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := fs.ReadFile(samples.Files, path)
		if err != nil {
			return err
		}
		if r := run(t, string(text)); r.Errors > 0 {
			t.Errorf("%s:\n%s", path, r.Text())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A pool as it was written for Karpenter before v1 is explained and converted, and the result has no error.
func TestOldNodePool(t *testing.T) {
	r := run(t, `# kept in git for years
apiVersion: karpenter.sh/v1beta1
kind: NodePool
metadata:
  name: spot-with-fallback
spec:
  template:
    spec:
      kubelet: {maxPods: 50}
      nodeClassRef: {apiVersion: karpenter.k8s.aws/v1beta1, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [spot, on-demand]}
  disruption:
    consolidationPolicy: WhenUnderutilized
    expireAfter: 240h
    budgets:
    - nodes: 25%
`)
	if r.Errors != 1 || r.Findings[0].Line != 2 {
		t.Errorf("findings are %+v, want one error, at line 2", r.Findings)
	}
	var fields []string
	for _, f := range r.Findings {
		if f.Rule == lint.RuleOld {
			fields = append(fields, f.Field)
		}
	}
	want := []string{
		"apiVersion", "spec.template.spec.nodeClassRef.apiVersion", "spec.template.spec.nodeClassRef.group", "spec.template.spec.nodeClassRef.kind",
		"spec.disruption.consolidationPolicy", "spec.disruption.consolidateAfter", "spec.disruption.expireAfter", "spec.template.spec.kubelet",
	}
	if diff := cmp.Diff(want, fields); diff != "" {
		t.Errorf("explained (-want +got):\n%s", diff)
	}
	if len(r.Converted) != 1 {
		t.Fatalf("%d objects are converted, want 1", len(r.Converted))
	}
	manifest := `apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: spot-with-fallback
spec:
  disruption:
    budgets:
    - nodes: 25%
    consolidateAfter: 0s
    consolidationPolicy: WhenEmptyOrUnderutilized
  template:
    spec:
      expireAfter: 240h
      nodeClassRef:
        group: karpenter.k8s.aws
        kind: EC2NodeClass
        name: default
      requirements:
      - key: karpenter.sh/capacity-type
        operator: In
        values:
        - spot
        - on-demand
`
	if diff := cmp.Diff(manifest, r.Converted[0].Manifest); diff != "" {
		t.Errorf("v1 form (-want +got):\n%s", diff)
	}
	if again := run(t, r.Converted[0].Manifest); again.Errors > 0 {
		t.Errorf("the v1 form has errors:\n%s", again.Text())
	}
}

func TestOldNodeClass(t *testing.T) {
	tests := map[string]struct{ spec, want string }{
		"family":      {"{amiFamily: Bottlerocket, role: r}", "alias: bottlerocket@latest"},
		"no family":   {"{role: r}", "alias: al2@latest"},
		"ubuntu":      {"{amiFamily: Ubuntu, role: r}", "amiFamily: AL2"},
		"own images":  {"{amiFamily: AL2, amiSelectorTerms: [{id: ami-1}], role: r}", "id: ami-1"},
		"two of them": {"{amiFamily: AL2, instanceProfile: p, role: r}", "role: r"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			r := run(t, "{apiVersion: karpenter.k8s.aws/v1beta1, kind: EC2NodeClass, metadata: {name: default}, spec: "+tt.spec+"}")
			if len(r.Converted) != 1 || !strings.Contains(r.Converted[0].Manifest, tt.want) || strings.Contains(r.Converted[0].Manifest, "instanceProfile") {
				t.Errorf("converted is %+v, want %q in it", r.Converted, tt.want)
			}
		})
	}
}

func TestRun(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"a workload and its budget": {
			text: `
apiVersion: apps/v1
kind: Deployment
metadata: {name: web, namespace: team}
spec:
  replicas: 5
  template:
    metadata: {labels: {app: web}, annotations: {karpenter.sh/do-not-disrupt: "yes"}}
    spec: {containers: [{name: a}]}
---
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata: {name: web, namespace: team}
spec: {minAvailable: 90%, selector: {matchLabels: {app: web}}}
`,
			want: []string{
				"error D001 deployment team/web spec.template.metadata.annotations[karpenter.sh/do-not-disrupt]",
				"warning R010 deployment team/web spec.template.spec.containers[a]",
				"warning R010 deployment team/web spec.template.spec.containers[a]",
				"warning B002 poddisruptionbudget team/web spec.minAvailable",
			},
		},
		"a budget alone says nothing of workloads": {
			text: "{apiVersion: policy/v1, kind: PodDisruptionBudget, metadata: {name: web}, spec: {minAvailable: 90%, selector: {matchLabels: {app: web}}}}",
		},
		"a policy of the files decides": {
			text: `
apiVersion: v1
kind: List
items:
- {apiVersion: slipway.sh/v1alpha1, kind: WorkloadPolicy, metadata: {name: default}, spec: {rules: {D001: "Off", D002: Enforce}}}
- {apiVersion: v1, kind: Pod, metadata: {name: p, namespace: team, annotations: {karpenter.sh/do-not-disrupt: "yes", karpenter.sh/do-not-evict: "true"}}, spec: {containers: [{name: a, resources: {requests: {cpu: 1, memory: 1Gi}}}]}}
`,
			want: []string{"error D002 pod team/p metadata.annotations[karpenter.sh/do-not-evict]"},
		},
		"fields nobody reads": {
			text: "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}, spec: {limit: {cpu: 1}, limits: {cpu: 9}, template: {spec: {expireAfter: Never, nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: [{key: kubernetes.io/os, operator: Exists}, {key: kubernetes.io/arch, operator: Exists}, {key: karpenter.sh/capacity-type, operator: Exists}]}}}}",
			want: []string{"error schema nodepool a spec.limit"},
		},
		"a pool and a class that is not its own": {
			text: `
{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: a}, spec: {limits: {cpu: 9}, template: {spec: {expireAfter: Never, nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: gpu}, requirements: [{key: kubernetes.io/os, operator: Exists}, {key: kubernetes.io/arch, operator: Exists}, {key: karpenter.sh/capacity-type, operator: Exists}]}}}}
---
{apiVersion: karpenter.k8s.aws/v1, kind: EC2NodeClass, metadata: {name: default}, spec: {role: r, kubelet: {maxPod: 4}}}
`,
			want: []string{"warning N001 nodepool a spec.template.spec.nodeClassRef", "error C005 ec2nodeclass default spec.kubelet.maxPod"},
		},
		"a type that does not fit": {
			text: "{apiVersion: v1, kind: Pod, metadata: {name: p}, spec: {containers: 7}}",
			want: []string{"error schema pod p"},
		},
		"other files": {text: "replicaCount: 3\n---\n# nothing\n---\n{apiVersion: example.com/v1, kind: Deployment, metadata: {name: x}, spec: {template: {spec: 7}}}"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tt.want, said(run(t, tt.text))); diff != "" {
				t.Errorf("findings (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadNamesWhereItFails(t *testing.T) {
	_, err := lint.Read("x.yaml", strings.NewReader("a: 1\n---\n\nkind: [\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "x.yaml:4:") {
		t.Errorf("error is %v, want one at x.yaml:4", err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add("apiVersion: karpenter.sh/v1beta1\nkind: NodePool\nspec: {disruption: 7, template: {spec: {nodeClassRef: x}}}\n")
	f.Add("apiVersion: karpenter.k8s.aws/v1beta1\nkind: EC2NodeClass\nspec: []\n---\nkind: List\napiVersion: v1\nitems: [1]\n")
	f.Add("apiVersion: karpenter.sh/v1\nkind: NodePool\nspec: {template: {spec: {requirements: [{key: a, operator: Gt, values: []}]}}, disruption: {budgets: [{nodes: x, schedule: 'TZ=x * * * * *'}]}}\n")
	f.Add("apiVersion: v1\nkind: Pod\nmetadata: {annotations: {slipway.sh/except: 'R005=;until='}}\nspec: {containers: [{}], initContainers: [{}]}\n")
	f.Fuzz(func(_ *testing.T, text string) {
		docs, err := lint.Read("f", strings.NewReader(text))
		if err != nil {
			return
		}
		r := lint.Run(docs, lint.World{Now: now()})
		_ = r.Text()
	})
}
