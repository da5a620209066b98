// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

const (
	// maxNative and maxChosen keep the data of a thousand policies and namespaces well below what a ConfigMap may hold, 1 MiB.
	maxNative = 500
	maxChosen = 1000
	// notSelected stands for the selector of a policy that selects nothing.
	notSelected = "-"
)

// NativeLevels are the parts of the field under which [NativeData] has modes: one for each value of the namespace's label
// slipway.sh/admission, and "none".
func NativeLevels() []string { return []string{"none", "audit", "enforce", "warn"} }

// NativeFields are what a line of [NativeData] has of a policy, in this order.
func NativeFields() []string {
	return []string{
		"name", "selector", "modes.none", "modes.audit", "modes.enforce", "modes.warn", "floorCPU", "floorMemory", "ratioCPU", "ratioMemory",
		"maxProtection", "lastException", "reasons", "schedulerName", "latencyClasses",
	}
}

// NativeData makes what native policies read, the data of one ConfigMap, from the policies and the labels of the managed
// namespaces. An expression that follows it finds the policy that [Choose] chooses, also for a namespace that is not among
// them. Everything that does not depend on the object is worked out: expressions compare texts. The entries are few, because
// the API server copies them all, one by one, for every evaluation of a policy.
//
//	today              the date in UTC, YYYY-MM-DD; expressions have no clock
//	keys               label keys the policies' selectors ask for, joined with ","
//	policies           a line each, the strongest first and the built-in behaviour last: [NativeFields] with tabs between them.
//	                   selector is what it selects by, see [nativeSelector], "-" for nothing; modes.LEVEL is what findings lead
//	                   to: "D001e R003w S002a" refuses, warns and notes; S001d changes the object
//	chosen             lines "VALUES=NAME": the policy for these values of keys, see [nativeKey]; a short cut
//	on.MODE, floorCPU… the rules that have the mode for any policy (on.Warn: or Enforce, because what may not be refused is warned
//	                   about), and the strictest settings: a pod within them is in order anywhere
//
// A line begins with a newline, so that it is found by its beginning. The second result names policies that have no room.
func NativeData(policies []*v1alpha1.WorkloadPolicy, namespaces []map[string]string, now time.Time) (data map[string]string, left []string) {
	policies = slices.SortedFunc(slices.Values(written(policies)), strongest)
	registry := NewRegistry()
	var all []nativeSettings
	var keys []string
	for _, p := range policies {
		if len(all) >= maxNative {
			left = append(left, p.Name)
			continue
		}
		s := settingsOf(Choice{}.or(p), registry, now)
		s.name, s.selector = p.Name, notSelected
		if _, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err == nil {
			var asked []string
			s.selector, asked = nativeSelector(p.Spec.NamespaceSelector)
			keys = append(keys, asked...)
		}
		all = append(all, s)
	}
	builtin := settingsOf(Choice{Spec: Builtin()}, registry, now)
	builtin.name, builtin.selector = v1alpha1.BuiltinPolicy, notSelected
	all = append(all, builtin)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	data = map[string]string{"today": now.UTC().Format(time.DateOnly), "keys": strings.Join(keys, ","), "chosen": chosen(policies, namespaces, keys)}
	var lines strings.Builder
	for i := range all {
		lines.WriteString("\n" + all[i].line())
	}
	data["policies"] = lines.String()
	bounds(all, data)
	return data, left
}

// chosen are the lines for namespaces there are.
func chosen(policies []*v1alpha1.WorkloadPolicy, namespaces []map[string]string, keys []string) string {
	out := map[string]string{}
	for _, labels := range namespaces {
		if named(policies, labels[v1alpha1.PolicyLabel]) == nil { // else it is found by its name
			out[nativeKey(keys, labels)] = cmp.Or(Choose(policies, "", labels).Name, v1alpha1.BuiltinPolicy)
		}
	}
	var lines strings.Builder
	for i, key := range slices.Sorted(maps.Keys(out)) {
		if i < maxChosen {
			lines.WriteString("\n" + key + "=" + out[key])
		}
	}
	return lines.String()
}

// nativeSelector writes a selector that can be read as requirements "OPERATOR|KEY|,VALUE,…," joined with ";", empty if it
// selects all, and lists its keys.
func nativeSelector(s *metav1.LabelSelector) (text string, keys []string) {
	if s == nil {
		return "", nil
	}
	var parts []string
	for _, k := range slices.Sorted(maps.Keys(s.MatchLabels)) {
		keys = append(keys, k)
		parts = append(parts, fmt.Sprintf("In|%s|,%s,", k, s.MatchLabels[k]))
	}
	for _, e := range s.MatchExpressions {
		keys = append(keys, e.Key)
		parts = append(parts, fmt.Sprintf("%s|%s|,%s,", e.Operator, e.Key, strings.Join(e.Values, ",")))
	}
	return strings.Join(parts, ";"), keys
}

// nativeKey is made of the values of keys, "_VALUE" or "-" for none, joined with ".". A dot in a value is written twice, and
// no value begins or ends with one, so different labels have different keys.
func nativeKey(keys []string, labels map[string]string) string {
	parts := make([]string, 0, len(keys))
	for _, k := range keys {
		if v, ok := labels[k]; ok {
			parts = append(parts, "_"+strings.ReplaceAll(v, ".", ".."))
		} else {
			parts = append(parts, "-")
		}
	}
	return strings.Join(parts, ".")
}

// nativeSettings is what expressions need of a policy.
type nativeSettings struct {
	name, selector                               string
	modes                                        map[string]string // by level
	floorCPU, floorMemory, ratioCPU, ratioMemory string
	maxProtection, lastException, reasons        string
	schedulerName, latencyClasses                string
}

// settingsOf is the choice with what its fields leave open taken from the built-in values.
func settingsOf(c Choice, registry *Registry, now time.Time) nativeSettings {
	builtin := Builtin()
	amount := func(a, b v1alpha1.Amounts, name corev1.ResourceName) string {
		return cmp.Or(a.Of(name), b.Of(name)).String()
	}
	r, x := &c.Spec.Requests, &c.Spec.Exceptions
	out := nativeSettings{
		modes:    map[string]string{},
		floorCPU: amount(r.Floor, builtin.Requests.Floor, corev1.ResourceCPU), floorMemory: amount(r.Floor, builtin.Requests.Floor, corev1.ResourceMemory),
		ratioCPU: amount(r.MaxRatio, builtin.Requests.MaxRatio, corev1.ResourceCPU), ratioMemory: amount(r.MaxRatio, builtin.Requests.MaxRatio, corev1.ResourceMemory),
		maxProtection: cmp.Or(c.Spec.Disruption.MaxDoNotDisrupt, builtin.Disruption.MaxDoNotDisrupt).Duration.String(),
		reasons:       fmt.Sprint(x.RequireReason == nil || *x.RequireReason),
		schedulerName: c.Spec.SchedulerName,
	}
	if x.MaxLifetime != nil {
		out.lastException = now.Add(x.MaxLifetime.Duration).UTC().Format(time.DateOnly)
	}
	for _, class := range c.Spec.LatencyClasses {
		out.latencyClasses += "," + class.Name + ","
	}
	letters := map[v1alpha1.RuleMode]string{v1alpha1.Audit: "a", v1alpha1.Warn: "w", v1alpha1.Enforce: "e", v1alpha1.Default: "d"}
	for _, level := range NativeLevels() {
		var acts []string
		for i := range registry.all {
			rule := &registry.all[i]
			if !rule.On(VAP) && !rule.On(MAP) {
				continue
			}
			mode := c.Mode(rule, level)
			if rule.Global() && rule.ID != "G002" {
				mode = c.Mode(rule, "")
			}
			if mode == v1alpha1.Default && !rule.On(MAP) { // nothing changes the object; what can be done is to say so
				mode = v1alpha1.Warn
			}
			if letter := letters[mode]; letter != "" && (letter == "d" || rule.On(VAP)) {
				acts = append(acts, rule.ID+letter)
			}
		}
		out.modes[level] = strings.Join(acts, " ")
	}
	return out
}

// line has the fields in their order. A tab or a newline in one would make two of it.
func (s *nativeSettings) line() string {
	of := map[string]string{
		"name": s.name, "selector": s.selector, "floorCPU": s.floorCPU, "floorMemory": s.floorMemory, "ratioCPU": s.ratioCPU, "ratioMemory": s.ratioMemory,
		"maxProtection": s.maxProtection, "lastException": s.lastException, "reasons": s.reasons, "schedulerName": s.schedulerName, "latencyClasses": s.latencyClasses,
	}
	for level, acts := range s.modes {
		of["modes."+level] = acts
	}
	fields := NativeFields()
	for i, f := range fields {
		fields[i] = strings.NewReplacer("\t", " ", "\n", " ").Replace(of[f])
	}
	return strings.Join(fields, "\t")
}

func bounds(all []nativeSettings, data map[string]string) {
	on, schedulers := map[v1alpha1.RuleMode]map[string]bool{v1alpha1.Audit: {}, v1alpha1.Warn: {}, v1alpha1.Enforce: {}, v1alpha1.Default: {}}, map[string]bool{}
	var floorCPU, floorMemory, ratioCPU, ratioMemory []string
	for i := range all {
		s := &all[i]
		for _, acts := range s.modes {
			for act := range strings.FieldsSeq(acts) {
				rule := act[:len(act)-1]
				switch act[len(act)-1] {
				case 'a':
					on[v1alpha1.Audit][rule] = true
				case 'w':
					on[v1alpha1.Warn][rule] = true
				case 'e':
					on[v1alpha1.Warn][rule], on[v1alpha1.Enforce][rule] = true, true
				case 'd':
					on[v1alpha1.Default][rule] = true
				}
			}
		}
		if s.schedulerName != "" {
			schedulers[s.schedulerName] = true
		}
		floorCPU, floorMemory = append(floorCPU, s.floorCPU), append(floorMemory, s.floorMemory)
		ratioCPU, ratioMemory = append(ratioCPU, s.ratioCPU), append(ratioMemory, s.ratioMemory)
	}
	compare := func(a, b string) int {
		x, y := resource.MustParse(a), resource.MustParse(b) // both were written by Quantity.String
		return cmp.Or(x.Cmp(y), strings.Compare(a, b))
	}
	for mode, some := range on {
		data["on."+string(mode)] = strings.Join(slices.Sorted(maps.Keys(some)), " ")
	}
	data["schedulerNames"] = strings.Join(slices.Sorted(maps.Keys(schedulers)), ",")
	data["floorCPU"], data["floorMemory"] = slices.MaxFunc(floorCPU, compare), slices.MaxFunc(floorMemory, compare)
	data["ratioCPU"], data["ratioMemory"] = slices.MinFunc(ratioCPU, compare), slices.MinFunc(ratioMemory, compare)
}
