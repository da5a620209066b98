// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// paramRef has a policy evaluated with every WorkloadPolicy; variable "holds" says with which of them it acts.
func paramRef() *admission.ParamRef {
	return &admission.ParamRef{Selector: &metav1.LabelSelector{}, ParameterNotFoundAction: new(admission.AllowAction)}
}

// selects is true if the selector that an object has selects the namespace, whose labels are variables.ns. Without a selector
// every managed namespace is selected, and no other is looked at.
func selects(object string) string {
	return strings.ReplaceAll(`(!has($.namespaceSelector) || (`+
		`(!has($.namespaceSelector.matchLabels) || $.namespaceSelector.matchLabels.all(k, k in variables.ns && variables.ns[k] == $.namespaceSelector.matchLabels[k])) && `+
		`(!has($.namespaceSelector.matchExpressions) || $.namespaceSelector.matchExpressions.all(e, `+
		`e.operator == 'In' ? (e.key in variables.ns && variables.ns[e.key] in e.values) : `+
		`(e.operator == 'NotIn' ? !(e.key in variables.ns && variables.ns[e.key] in e.values) : (e.operator == 'Exists') == (e.key in variables.ns))))))`, "$", object)
}

// holdsVariables say whether the parameter is the policy that holds for the object, as [rules.Choose] and [rules.ForCluster]
// choose it. What a policy has to know of the others is in its status; while that is not there, because slipway-webhook does
// not run, only the policy "default" and the one that a namespace's label names act.
func holdsVariables(namespaced bool) []admission.Variable {
	name := func(constant string) string { return fmt.Sprintf(`params.metadata.name == '%s'`, constant) }
	isDefault, isBuiltin := name(v1alpha1.DefaultPolicy), name(v1alpha1.BuiltinPolicy)
	out := []admission.Variable{
		variable("known", `has(params.status) && has(params.status.observedGeneration)`),
		variable("others", `variables.known && has(params.status.others) ? params.status.others : []`),
		variable("byDefault", `variables.others.exists(o, o.name == '`+v1alpha1.DefaultPolicy+`')`),
	}
	if !namespaced {
		return append(out, variable("holds", isDefault+` || (`+isBuiltin+` && variables.known && !variables.byDefault)`))
	}
	return append(
		out,
		variable("ns", `has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}`),
		variable("named", `'`+v1alpha1.PolicyLabel+`' in variables.ns ? variables.ns['`+v1alpha1.PolicyLabel+`'] : ''`),
		variable("outranked", `variables.others.exists(o, has(o.stronger) && o.stronger && `+selects("o")+`)`),
		variable("alone", `!variables.others.exists(o, `+selects("o")+`)`),
		variable("holds", `variables.named == params.metadata.name && !(`+isBuiltin+`) ? true : (`+
			`!variables.known ? `+isDefault+` && variables.named == '' : (`+
			`variables.others.exists(o, o.name == variables.named) ? false : (`+
			isBuiltin+` ? !variables.byDefault && variables.alone : (`+
			selects("params.spec")+` ? !variables.outranked : `+isDefault+` && variables.alone))))`),
	)
}

// tag is the end of a message: the policy that holds, if somebody wrote it.
const tag = `(params.metadata.name == '` + v1alpha1.BuiltinPolicy + `' ? '' : ' [policy ' + params.metadata.name + ']')`

// builtin is the policy without which native policies would do nothing in a cluster that has none: warn and audit, refuse what
// can never work, change nothing.
func builtin() File {
	policy := &v1alpha1.WorkloadPolicy{
		TypeMeta: metav1.TypeMeta{APIVersion: v1alpha1.GroupVersion().String(), Kind: "WorkloadPolicy"}, ObjectMeta: object(v1alpha1.BuiltinPolicy),
		Spec: v1alpha1.WorkloadPolicySpec{
			Compatibility: v1alpha1.KarpenterRules, Rules: map[string]v1alpha1.RuleMode{"S001": v1alpha1.Off},
		},
	}
	return File{
		Name:    "builtin.yaml",
		About:   "What holds where no WorkloadPolicy does, for the native policies. Do not change it: write a policy named default instead.",
		Objects: []runtime.Object{policy},
	}
}
