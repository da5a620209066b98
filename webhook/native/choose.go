// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	admission "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

const (
	// Namespace is that of [v1alpha1.NativeConfigMap] in manifests/policies; the chart puts its own there.
	Namespace = "slipway-system"
	// isKnown says that slipway-webhook has written [rules.NativeData].
	isKnown = `has(params.data) && 'policies' in params.data`
	builtin = `'` + v1alpha1.BuiltinPolicy + `'`
)

func paramKind() *admission.ParamKind {
	return &admission.ParamKind{APIVersion: "v1", Kind: "ConfigMap"}
}

// paramRef names the one object that has all policies in it, so that a native policy is evaluated once.
func paramRef() *admission.ParamRef {
	return &admission.ParamRef{Name: v1alpha1.NativeConfigMap, Namespace: Namespace, ParameterNotFoundAction: new(admission.AllowAction)}
}

// selects is true if the line l, of which the first fields are split off, is of a policy that selects the namespace, whose labels are
// variables.ns. What selects all selects every managed namespace: no other is looked at.
const selects = `size(l) > 1 && l[1] != '-' && (l[1] == '' || l[1].split(';').map(r, r.split('|')).all(r, ` +
	`r[0] == 'In' ? (r[1] in variables.ns && r[2].contains(',' + variables.ns[r[1]] + ',')) : ` +
	`(r[0] == 'NotIn' ? !(r[1] in variables.ns && r[2].contains(',' + variables.ns[r[1]] + ',')) : (r[0] == 'Exists') == (r[1] in variables.ns))))`

// field is the position of a field in a line.
func field(name string) string { return strconv.Itoa(slices.Index(rules.NativeFields(), name)) }

// policyVariables find the policy that holds for the object, as [rules.Choose] and [rules.ForCluster] do: holds is its name, p its
// line, acts what findings lead to. While nothing is known, because slipway-webhook has never run, the built-in behaviour holds.
func policyVariables(namespaced bool) []admission.Variable {
	const byDefault = `(variables.all.contains('\n` + v1alpha1.DefaultPolicy + `\t') ? '` + v1alpha1.DefaultPolicy + `' : ` + builtin + `)`
	out := []admission.Variable{variable("all", `(`+isKnown+`) ? params.data['policies'] : ''`)}
	level, holds := `'none'`, byDefault
	if namespaced {
		out = append(
			out,
			variable("ns", `has(namespaceObject.metadata.labels) ? namespaceObject.metadata.labels : {}`),
			variable("named", `'`+v1alpha1.PolicyLabel+`' in variables.ns ? variables.ns['`+v1alpha1.PolicyLabel+`'] : ''`),
			variable("key", `!(`+isKnown+`) ? '' : '\n' + (params.data['keys'] == '' ? '' : params.data['keys'].split(',')`+
				`.map(k, k in variables.ns ? '_' + variables.ns[k].replace('.', '..') : '-').join('.')) + '='`),
			variable("at", `(`+isKnown+`) ? params.data['chosen'].indexOf(variables.key) : -1`),
			variable("found", `variables.all.split('\n').map(l, l.split('\t', 3)).filter(l, `+selects+`)`),
		)
		level = `'` + v1alpha1.AdmissionLabel + `' in variables.ns && variables.ns['` + v1alpha1.AdmissionLabel + `'] in ['audit', 'enforce', 'warn'] ? variables.ns['` + v1alpha1.AdmissionLabel + `'] : 'none'`
		holds = `variables.named != '' && variables.named != ` + builtin + ` && variables.all.contains('\n' + variables.named + '\t') ? variables.named : (` +
			`variables.at >= 0 ? params.data['chosen'].substring(variables.at + size(variables.key)).split('\n', 2)[0] : (` +
			`size(variables.found) > 0 ? variables.found[0][0] : ` + byDefault + `))`
	}
	return append(
		out,
		variable("level", level),
		variable("holds", `(`+isKnown+`) ? (`+holds+`) : `+builtin),
		variable("p", `(`+isKnown+`) ? variables.all.substring(variables.all.indexOf('\n' + variables.holds + '\t') + 1).split('\n', 2)[0].split('\t') : []`),
		variable("acts", `(`+isKnown+`) ? variables.p[`+levelField()+`] : `+builtinActs()+`[variables.level]`),
	)
}

// levelField is the position of the modes of variables.level.
func levelField() string {
	var some []string
	for _, level := range rules.NativeLevels() {
		some = append(some, fmt.Sprintf("'%s': %s", level, field("modes."+level)))
	}
	return "{" + strings.Join(some, ", ") + "}[variables.level]"
}

// builtinField is a field of what holds until slipway-webhook has run.
func builtinField(name string) string {
	data, _ := rules.NativeData(nil, nil, time.Time{})
	return strings.Split(strings.TrimPrefix(data["policies"], "\n"), "\t")[slices.Index(rules.NativeFields(), name)]
}

func builtinActs() string {
	var levels []string
	for _, level := range rules.NativeLevels() {
		levels = append(levels, fmt.Sprintf("'%s': '%s'", level, builtinField("modes."+level)))
	}
	return "{" + strings.Join(levels, ", ") + "}"
}

// setting reads a field of the policy that holds.
func setting(key string) string {
	return fmt.Sprintf(`((%s) ? variables.p[%s] : '%s')`, isKnown, field(key), builtinField(key))
}

// excepted are the ids of rules the object is excepted from. Dates are compared as texts; what today is, slipway-webhook
// writes, and until it does an exception has no end.
func excepted() admission.Variable {
	return variable("excepted", `!(`+except+` in variables.a || `+except+` in variables.own) ? [] : [variables.a, variables.own].filter(m, `+except+` in m).map(m, m[`+except+`]).join(',').split(',')`+
		`.map(e, e.trim()).filter(e, e.matches(`+exception()+`) && `+
		`(!(`+isKnown+`) || (e.substring(e.size() - 10) >= params.data['today'] && (`+setting("lastException")+` == '' || e.substring(e.size() - 10) <= `+setting("lastException")+`))))`+
		`.map(e, e.substring(0, 4))`)
}

// exception is the form of an entry of slipway.sh/except.
func exception() string {
	return `(` + setting("reasons") + ` == 'true' ? '^[RDBSNCKG][0-9]{3} *= *[^;, ][^;,]*; *until=[0-9]{4}-[0-9]{2}-[0-9]{2}$' : '^[RDBSNCKG][0-9]{3} *=[^;,]*; *until=[0-9]{4}-[0-9]{2}-[0-9]{2}$')`
}

// tag is the end of a message: the policy that holds, if somebody wrote it.
const tag = `(variables.holds == ` + builtin + ` ? '' : ' [policy ' + variables.holds + ']')`

// parameter is the object native policies read. Its data is slipway-webhook's, so it comes without.
func parameter() File {
	return File{
		Name: "parameter.yaml", About: "What native policies read. slipway-webhook writes the data; until then warnings are given, and nothing is changed.",
		Objects: []runtime.Object{&corev1.ConfigMap{
			TypeMeta:   metav1.TypeMeta{APIVersion: "v1", Kind: "ConfigMap"},
			ObjectMeta: metav1.ObjectMeta{Name: v1alpha1.NativeConfigMap, Namespace: Namespace, Labels: map[string]string{"app.kubernetes.io/part-of": "slipway"}},
		}},
	}
}
