// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// File is a file of manifests/policies.
type File struct {
	Name    string
	About   string
	Objects []runtime.Object
}

// Files are all native policies.
func Files() []File {
	registry := rules.NewRegistry()
	var out []File
	for _, g := range groups() {
		f := File{Name: g.name + ".yaml", About: "Rules about " + g.about + ": " + strings.Join(g.ids(), ", ") + "."}
		for _, mode := range []v1alpha1.RuleMode{v1alpha1.Enforce, v1alpha1.Warn, v1alpha1.Audit} {
			f.Objects = append(f.Objects, g.policy(registry, mode), g.binding(mode))
		}
		out = append(out, f)
	}
	return append(out, guard(registry), mutations(), parameter())
}

func (g *group) ids() []string {
	var out []string
	for _, c := range g.checks {
		out = append(out, c.rule)
	}
	return out
}

func (g *group) title(mode v1alpha1.RuleMode) string {
	return fmt.Sprintf("slipway-%s-%s", g.name, strings.ToLower(string(mode)))
}

func object(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Name: name, Labels: map[string]string{"app.kubernetes.io/part-of": "slipway"}}
}

func (g *group) policy(registry *rules.Registry, mode v1alpha1.RuleMode) *admission.ValidatingAdmissionPolicy {
	p := &admission.ValidatingAdmissionPolicy{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"},
		ObjectMeta: object(g.title(mode)),
		Spec: admission.ValidatingAdmissionPolicySpec{
			ParamKind: paramKind(), FailurePolicy: new(admission.Ignore),
			MatchConstraints: &admission.MatchResources{
				MatchPolicy: new(admission.Equivalent), ResourceRules: g.resources, ObjectSelector: notOurs(), NamespaceSelector: &metav1.LabelSelector{},
			},
		},
	}
	if g.match != nil {
		p.Spec.MatchConditions = g.match(mode)
	}
	if g.namespaced {
		p.Spec.MatchConstraints.NamespaceSelector = managed()
	}
	p.Spec.Variables = slices.Concat(policyVariables(g.namespaced), g.variables, []admission.Variable{excepted()})
	for _, c := range g.checks {
		rule := registry.Rule(c.rule)
		p.Spec.Validations = append(p.Spec.Validations, admission.Validation{
			Expression:        c.holds(mode),
			MessageExpression: fmt.Sprintf("'slipway %s: ' + %s + '. %s' + %s", c.rule, c.problem, strings.ReplaceAll(rule.Fix, "'", "\\'"), tag),
			Message:           fmt.Sprintf("slipway %s: %s.", c.rule, rule.Title),
			Reason:            new(metav1.StatusReasonForbidden),
		})
	}
	return p
}

// holds is the validation of a rule in the policy of a mode. Enforce refuses what is newly wrong and may be refused; what it
// may not refuse, Warn shows. What is cheap and rules most objects out comes first.
func (c *check) holds(mode v1alpha1.RuleMode) string {
	acts := func(letter string) string { return fmt.Sprintf(`variables.acts.contains('%s%s')`, c.rule, letter) }
	isExcepted := fmt.Sprintf(`'%s' in variables.excepted`, c.rule)
	if c.rule == "G002" {
		isExcepted = "false" // an exception to the rule about exceptions would be one without bounds
	}
	// refusable is that the object may be refused for it.
	refusable := fmt.Sprintf(`!(request.operation == 'UPDATE' && (%s))`, c.bad(before()))
	if c.strict != "" {
		refusable = c.strict + " && " + refusable
	}
	bad := "(" + c.bad(now()) + ")"
	switch mode {
	case v1alpha1.Enforce:
		return fmt.Sprintf(`!(%s && %s && %s && !(%s))`, acts("e"), bad, refusable, isExcepted)
	case v1alpha1.Warn:
		return fmt.Sprintf(`!((%[1]s || %[2]s) && %[3]s && (%[1]s || !(%[4]s)) && !(%[5]s))`, acts("w"), acts("e"), bad, refusable, isExcepted)
	default:
		return fmt.Sprintf(`!((%s || ((%s || %s) && %s)) && %s)`, acts("a"), acts("w"), acts("e"), isExcepted, bad)
	}
}

func (g *group) binding(mode v1alpha1.RuleMode) *admission.ValidatingAdmissionPolicyBinding {
	actions := map[v1alpha1.RuleMode][]admission.ValidationAction{
		v1alpha1.Enforce: {admission.Deny, admission.Audit}, v1alpha1.Warn: {admission.Warn, admission.Audit}, v1alpha1.Audit: {admission.Audit},
	}
	return &admission.ValidatingAdmissionPolicyBinding{
		TypeMeta:   metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"},
		ObjectMeta: object(g.title(mode)),
		Spec:       admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: g.title(mode), ParamRef: paramRef(), ValidationActions: actions[mode]},
	}
}

// guard is N012, which has no parameter: it holds without any policy, and its way out is an annotation.
func guard(registry *rules.Registry) File {
	const confirm = "'" + v1alpha1.ConfirmDeleteAnnotation + "'"
	confirmed := `has(oldObject.metadata.annotations) && ` + confirm + ` in oldObject.metadata.annotations && oldObject.metadata.annotations[` + confirm + `] == oldObject.metadata.name`
	rule := registry.Rule("N012")
	pair := func(name string, match admission.NamedRuleWithOperations, holds, problem string) []runtime.Object {
		p := &admission.ValidatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicy"}, ObjectMeta: object(name),
			Spec: admission.ValidatingAdmissionPolicySpec{
				FailurePolicy:    new(admission.Fail),
				MatchConstraints: &admission.MatchResources{MatchPolicy: new(admission.Equivalent), ResourceRules: []admission.NamedRuleWithOperations{match}, ObjectSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{}},
				Validations: []admission.Validation{{
					Expression: confirmed + " || " + holds, Message: fmt.Sprintf("slipway N012: %s.", rule.Title), Reason: new(metav1.StatusReasonForbidden),
					MessageExpression: `'slipway N012: ' + ` + problem + ` + '. Annotate it with ` + v1alpha1.ConfirmDeleteAnnotation + `=' + oldObject.metadata.name + ' first.'`,
				}},
			},
		}
		b := &admission.ValidatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingAdmissionPolicyBinding"}, ObjectMeta: object(name),
			Spec: admission.ValidatingAdmissionPolicyBindingSpec{PolicyName: name, ValidationActions: []admission.ValidationAction{admission.Deny, admission.Audit}},
		}
		return []runtime.Object{p, b}
	}
	deletion := []admission.OperationType{admission.Delete}
	definitions := "['" + strings.Join(rules.OurDefinitions(), "', '") + "']"
	return File{
		Name: "deletions.yaml", About: "The guard against deletions that end nodes: N012. It has no parameter and holds without any WorkloadPolicy.",
		Objects: append(
			pair("slipway-delete-nodepools", ruleFor("karpenter.sh", "v1", deletion, "nodepools"), `!has(oldObject.status) || !has(oldObject.status.nodes) || oldObject.status.nodes == 0`,
				`'"' + oldObject.metadata.name + '" has ' + string(oldObject.status.nodes) + ' nodes that would go with it'`),
			pair("slipway-delete-definitions", ruleFor("apiextensions.k8s.io", "v1", deletion, "customresourcedefinitions"), `!(oldObject.metadata.name in `+definitions+`)`,
				`'deleting "' + oldObject.metadata.name + '" deletes all of its objects and with them nodes, past every budget'`)...),
	}
}

// mutations are S001 and the part of D003 that changes pods.
func mutations() File {
	pods := &admission.MatchResources{
		MatchPolicy: new(admission.Equivalent), ResourceRules: []admission.NamedRuleWithOperations{ruleFor("", "v1", []admission.OperationType{admission.Create}, "pods")},
		ObjectSelector: notOurs(), NamespaceSelector: managed(),
	}
	pods.NamespaceSelector.MatchExpressions[1].Values = []string{"off", "audit", "warn"}
	// The API server evaluates all conditions of a policy, each for itself and twice for a pod, so there is one.
	when := func(some ...string) []admission.MatchCondition {
		some = append(some, `!(has(object.metadata.annotations) && 'kubernetes.io/config.mirror' in object.metadata.annotations)`)
		return []admission.MatchCondition{{Name: "something-to-change", Expression: strings.Join(some, " && ")}}
	}
	on := func(rule string) string {
		return isKnown + ` && params.data['on.Default'].contains('` + rule + `')`
	}
	pair := func(name, rule string, match []admission.MatchCondition, expression string) []runtime.Object {
		p := &admission.MutatingAdmissionPolicy{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicy"}, ObjectMeta: object(name),
			Spec: admission.MutatingAdmissionPolicySpec{
				ParamKind: paramKind(), MatchConstraints: pods, MatchConditions: match, Variables: policyVariables(true), FailurePolicy: new(admission.Ignore), ReinvocationPolicy: admission.IfNeededReinvocationPolicy,
				Mutations: []admission.Mutation{{PatchType: admission.PatchTypeJSONPatch, JSONPatch: &admission.JSONPatch{Expression: fmt.Sprintf("variables.acts.contains('%sd') ? %s : []", rule, expression)}}},
			},
		}
		b := &admission.MutatingAdmissionPolicyBinding{
			TypeMeta: metav1.TypeMeta{APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingAdmissionPolicyBinding"}, ObjectMeta: object(name),
			Spec: admission.MutatingAdmissionPolicyBindingSpec{PolicyName: name, ParamRef: paramRef()},
		}
		return []runtime.Object{p, b}
	}
	return File{
		Name: "mutations.yaml", About: "What is changed in pods without slipway-webhook: schedulerName (S001), and protections without end where the policy caps them (D003).",
		Objects: append(
			pair("slipway-scheduler-name", "S001", when(
				`(!has(object.spec.schedulerName) || object.spec.schedulerName in ['', 'default-scheduler'])`,
				on("S001"),
				`(!has(object.spec.nodeName) || object.spec.nodeName == '')`,
				`!(has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, o.kind == 'DaemonSet' && has(o.controller) && o.controller))`,
				`!(has(object.metadata.labels) && '`+v1alpha1.SchedulerLabel+`' in object.metadata.labels && object.metadata.labels['`+v1alpha1.SchedulerLabel+`'] == 'default')`,
			), `[JSONPatch{op: 'add', path: '/spec/schedulerName', value: `+setting("schedulerName")+`}]`),
			pair("slipway-cap-protection", "D003", when(
				`has(object.metadata.annotations) && `+disrupt+` in object.metadata.annotations && object.metadata.annotations[`+disrupt+`] == 'true'`,
				on("D003"),
			), `[JSONPatch{op: 'replace', path: '/metadata/annotations/' + jsonpatch.escapeKey(`+disrupt+`), value: `+setting("maxProtection")+`}]`)...),
	}
}
