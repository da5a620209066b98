// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// Severities of findings: what admission would refuse, warn of, or only note.
const (
	Error   = "error"
	Warning = "warning"
	Note    = "note"
)

// Rules of the linter itself.
const (
	// RuleOld is a manifest of karpenter.sh/v1beta1; each change to v1 is one finding. RuleSchema is a field nobody reads.
	RuleOld    = "v1beta1"
	RuleSchema = "schema"
)

// Finding is something about one object of a file.
type Finding struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Object   string `json:"object"`
	Rule     string `json:"rule"`
	Severity string `json:"severity"`
	Field    string `json:"field,omitempty"`
	Problem  string `json:"problem"`
	Fix      string `json:"fix,omitempty"`
}

// Converted is a v1beta1 object in its v1 form.
type Converted struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Object   string `json:"object"`
	Manifest string `json:"manifest"`
}

// Report is what there is to say about all documents.
type Report struct {
	Objects   int         `json:"objects"`
	Errors    int         `json:"errors"`
	Warnings  int         `json:"warnings"`
	Findings  []Finding   `json:"findings"`
	Converted []Converted `json:"converted,omitempty"`
}

// World is what is known beside the documents.
type World struct {
	Now time.Time
	// Facts are those of a cluster for a namespace; nil without one.
	Facts func(namespace string) *rules.Facts
	// Policies are those of the cluster; those among the documents go before.
	Policies []*v1alpha1.WorkloadPolicy
	// Labels are the labels of a namespace in the cluster, nil if that is not known.
	Labels func(namespace string) map[string]string
}

// Run judges the documents. Without any policy the rules have their default modes, as under a policy "default" that says
// nothing.
func Run(docs []Document, w World) Report {
	l := &linter{world: w, registry: rules.NewRegistry()}
	report := Report{Objects: len(docs), Findings: []Finding{}}
	for _, d := range docs {
		l.read(d, &report)
	}
	l.choose()
	for _, s := range l.subjects {
		l.judge(s, &report)
	}
	slices.SortStableFunc(report.Findings, func(a, b Finding) int {
		return cmp.Or(strings.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(rank(a.Severity), rank(b.Severity)))
	})
	for _, f := range report.Findings {
		switch f.Severity {
		case Error:
			report.Errors++
		case Warning:
			report.Warnings++
		}
	}
	return report
}

func rank(severity string) int { return slices.Index([]string{Error, Warning, Note}, severity) }

type placed struct {
	*rules.Subject

	doc Document
}

type linter struct {
	world    World
	registry *rules.Registry
	subjects []placed
	policies []*v1alpha1.WorkloadPolicy
	labels   map[string]map[string]string // of namespaces among the documents
}

// read decodes one document; what is wrong with its shape is reported at once.
func (l *linter) read(d Document, report *Report) {
	say := func(rule, severity, field, problem, fix string) {
		report.Findings = append(report.Findings, Finding{d.File, d.Line, d.Name(), rule, severity, field, problem, fix})
	}
	if IsOld(d.Object) {
		now, changes := Convert(d.Object)
		for i, c := range changes {
			severity := Note
			if i == 0 {
				severity = Error
			}
			say(RuleOld, severity, c.Field, c.What, "")
		}
		text, err := yaml.Marshal(now.Object)
		raw, jsonErr := json.Marshal(now.Object)
		if err != nil || jsonErr != nil {
			return
		}
		report.Converted = append(report.Converted, Converted{d.File, d.Line, d.Name(), string(text)})
		d.Object, d.raw = now, raw
	}
	if d.Object.GetKind() == "Namespace" {
		if l.labels == nil {
			l.labels = map[string]map[string]string{}
		}
		l.labels[d.Object.GetName()] = d.Object.GetLabels()
	}
	kind := rules.Kind(d.Object.GetKind())
	if len(l.registry.Of(kind)) == 0 || !ours(d.Object.GetAPIVersion()) {
		return
	}
	s, err := rules.Decode(kind, d.raw)
	if err != nil {
		say(RuleSchema, Error, "", err.Error(), "")
		return
	}
	for _, field := range unknown(s, d.raw) {
		say(RuleSchema, Error, field, "there is no such field; it would be dropped without a word", "")
	}
	l.subjects = append(l.subjects, placed{s, d})
	if s.Policy != nil {
		l.policies = append(l.policies, s.Policy)
	}
}

// ours reports whether rules are about the API group and version.
func ours(apiVersion string) bool {
	return slices.Contains([]string{
		"v1", "apps/v1", "batch/v1", "policy/v1", "karpenter.sh/v1", "karpenter.k8s.aws/v1", v1alpha1.GroupVersion().String(), "apiextensions.k8s.io/v1",
	}, apiVersion)
}

// choose takes the policies of the documents, else of the cluster, else the built-in parameters as a policy.
func (l *linter) choose() {
	for _, p := range l.world.Policies {
		if !slices.ContainsFunc(l.policies, func(have *v1alpha1.WorkloadPolicy) bool { return have.Name == p.Name }) {
			l.policies = append(l.policies, p)
		}
	}
	if len(l.policies) == 0 {
		l.policies = []*v1alpha1.WorkloadPolicy{{ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.DefaultPolicy}, Spec: rules.Builtin()}}
	}
}

func (l *linter) judge(s placed, report *Report) {
	labels := l.labels[s.Meta.Namespace]
	if labels == nil && l.world.Labels != nil {
		labels = l.world.Labels(s.Meta.Namespace)
	}
	in := &rules.Setting{
		Namespace: rules.Choose(l.policies, s.Meta.Namespace, labels), Cluster: rules.ForCluster(l.policies), Admission: labels[v1alpha1.AdmissionLabel],
		Keep: func(r *rules.Rule) bool { return !r.On(rules.CRD) && (r.ID != "S002" || l.world.Facts != nil) },
	}
	v := l.registry.Judge(s.Subject, l.facts(s, in), in)
	for severity, list := range map[string][]rules.Finding{Error: v.Denied, Warning: v.Warned, Note: v.Audited} {
		for _, x := range list {
			report.Findings = append(report.Findings, Finding{s.doc.File, s.doc.Line, s.doc.Name(), x.Rule, severity, x.Field, x.Problem, x.Fix})
		}
	}
}

// facts are those of the cluster, if there is one, with what the documents hold.
func (l *linter) facts(s placed, in *rules.Setting) *rules.Facts {
	f := &rules.Facts{}
	if l.world.Facts != nil {
		f = l.world.Facts(s.Meta.Namespace)
	}
	f.Now, f.Policy = l.world.Now, in.Namespace.Spec
	if s.Meta.Namespace == "" {
		f.Policy = in.Cluster.Spec
	}
	var workloads []rules.Workload
	var budgets []*policyv1.PodDisruptionBudget
	var pools []*karpv1.NodePool
	classes := map[string]*v1.EC2NodeClass{}
	for _, o := range l.subjects {
		same := o.Meta.Namespace == s.Meta.Namespace
		switch {
		case o.Replicas != nil && same && o.Controller() == nil:
			workloads = append(workloads, rules.Workload{Kind: string(o.Kind), Name: o.Meta.Name, Labels: o.Template.Labels, Replicas: *o.Replicas, Least: *o.Replicas})
		case o.Budget != nil && same:
			budgets = append(budgets, o.Budget)
		case o.Pool != nil:
			pools = append(pools, o.Pool)
		case o.Class != nil:
			classes[o.Class.Name] = o.Class
		}
	}
	f.Workloads = both(f.Workloads, workloads, s.Meta.Namespace)
	f.Budgets = both(f.Budgets, budgets, s.Meta.Namespace)
	if theirs := f.Pools; len(pools) > 0 {
		f.Pools = func() []*karpv1.NodePool {
			if theirs == nil {
				return pools
			}
			return append(slices.Clone(pools), slices.DeleteFunc(slices.Clone(theirs()), func(p *karpv1.NodePool) bool {
				return slices.ContainsFunc(pools, func(q *karpv1.NodePool) bool { return q.Name == p.Name })
			})...)
		}
	}
	if theirs := f.Class; len(classes) > 0 {
		f.Class = func(name string) *v1.EC2NodeClass {
			if c := classes[name]; c != nil || theirs == nil {
				return c
			}
			return theirs(name)
		}
	}
	return f
}

// both joins what the cluster has in a namespace with what the documents have. Without either nothing is known.
func both[T any](theirs func(string) []T, mine []T, namespace string) func(string) []T {
	if len(mine) == 0 {
		return theirs
	}
	all := slices.Clone(mine)
	if theirs != nil {
		all = append(all, theirs(namespace)...)
	}
	return func(string) []T { return all }
}

// unknown are the fields of the document that its type does not have.
func unknown(s *rules.Subject, raw []byte) []string {
	var into any
	switch {
	case s.Pool != nil:
		into = &karpv1.NodePool{}
	case s.Class != nil:
		into = &v1.EC2NodeClass{}
	case s.Policy != nil:
		into = &v1alpha1.WorkloadPolicy{}
	default:
		return nil // kubectl and the API server tell of fields of built-in kinds
	}
	strict, err := kjson.UnmarshalStrict(raw, into, kjson.DisallowUnknownFields)
	if err != nil {
		return nil // Decode has said so
	}
	var out []string
	for _, e := range strict {
		var unknown interface{ FieldPath() string }
		if !errors.As(e, &unknown) {
			continue
		}
		if path := unknown.FieldPath(); s.Class == nil || !strings.HasPrefix(path, "spec.kubelet.") { // C005 knows more settings
			out = append(out, path)
		}
	}
	return out
}

// Text prints the report for people.
func (r *Report) Text() string {
	var b strings.Builder
	for _, f := range r.Findings {
		field := ""
		if f.Field != "" {
			field = f.Field + ": "
		}
		fix := ""
		if f.Fix != "" {
			fix = " " + f.Fix
		}
		fmt.Fprintf(&b, "%s:%d: %s: %s: %s: %s%s.%s\n", f.File, f.Line, f.Severity, f.Rule, f.Object, field, strings.TrimSuffix(f.Problem, "."), fix)
	}
	for _, c := range r.Converted {
		fmt.Fprintf(&b, "\n# %s:%d: %s as karpenter.sh/v1\n---\n%s", c.File, c.Line, c.Object, c.Manifest)
	}
	if len(r.Converted) > 0 {
		b.WriteString("\n")
	}
	fmt.Fprintf(&b, "%s, %s, %s\n", count(r.Objects, "object"), count(r.Errors, "error"), count(r.Warnings, "warning"))
	return b.String()
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
