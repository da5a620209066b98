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
	// maxNativeName keeps keys that have a policy's name in them, and maxNativeKey those of label values, below 253 bytes.
	maxNativeName = 200
	maxNativeKey  = 240
)

// NativeLevels are the parts of the key under which [NativeData] has modes: one for each value of the namespace's label
// slipway.sh/admission, and "none".
func NativeLevels() []string { return []string{"none", "audit", "enforce", "warn"} }

// NativeData makes what native policies read, the data of one ConfigMap, from the policies and the labels of the managed
// namespaces. An expression that follows it finds the policy that [Choose] chooses, also for a namespace that is not among
// them. Everything that does not depend on the object is worked out: expressions compare texts.
//
//	today                  the date in UTC, YYYY-MM-DD; expressions have no clock
//	order, keys            names of the policies, the strongest first; label keys their selectors ask for; joined with ","
//	selector.NAME          what the policy selects by, see [nativeSelector]
//	chosen.VALUES          the policy for these values of keys, see [nativeKey]; a short cut
//	modes.LEVEL.NAME       what findings lead to: "D001e R003w S002a" refuses, warns and notes; S001d changes the object
//	floorCPU.NAME          and other settings, as texts
//	bounds, floorCPU…      the rules that are on anywhere, and the strictest settings: a pod within them is in order anywhere
//
// The second result names policies that have no room.
func NativeData(policies []*v1alpha1.WorkloadPolicy, namespaces []map[string]string, now time.Time) (data map[string]string, left []string) {
	policies = slices.SortedFunc(slices.Values(written(policies)), strongest)
	registry := NewRegistry()
	settings := map[string]nativeSettings{v1alpha1.BuiltinPolicy: settingsOf(Choice{Spec: Builtin()}, registry, now)}
	data = map[string]string{"today": now.UTC().Format(time.DateOnly)}
	var order, keys []string
	for _, p := range policies {
		if len(p.Name) > maxNativeName || len(settings) > maxNative {
			left = append(left, p.Name)
			continue
		}
		settings[p.Name] = settingsOf(Choice{}.or(p), registry, now)
		if _, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err == nil { // else it selects nothing
			order = append(order, p.Name)
			var asked []string
			data["selector."+p.Name], asked = nativeSelector(p.Spec.NamespaceSelector)
			keys = append(keys, asked...)
		}
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	data["order"], data["keys"] = strings.Join(order, ","), strings.Join(keys, ",")
	maps.Copy(data, chosen(policies, namespaces, keys))
	for name, s := range settings {
		s.write(name, data)
	}
	bounds(settings, data)
	return data, left
}

// chosen are the entries for namespaces there are.
func chosen(policies []*v1alpha1.WorkloadPolicy, namespaces []map[string]string, keys []string) map[string]string {
	out := map[string]string{}
	for _, labels := range namespaces {
		if named(policies, labels[v1alpha1.PolicyLabel]) != nil {
			continue // found by its name
		}
		if key := "chosen." + nativeKey(keys, labels); len(key) <= maxNativeKey {
			out[key] = cmp.Or(Choose(policies, "", labels).Name, v1alpha1.BuiltinPolicy)
		}
	}
	for i, key := range slices.Sorted(maps.Keys(out)) {
		if i >= maxChosen {
			delete(out, key)
		}
	}
	return out
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

func (s *nativeSettings) write(name string, data map[string]string) {
	for level, acts := range s.modes {
		data["modes."+level+"."+name] = acts
	}
	data["floorCPU."+name], data["floorMemory."+name] = s.floorCPU, s.floorMemory
	data["ratioCPU."+name], data["ratioMemory."+name] = s.ratioCPU, s.ratioMemory
	data["maxProtection."+name], data["lastException."+name], data["reasons."+name] = s.maxProtection, s.lastException, s.reasons
	data["schedulerName."+name], data["latencyClasses."+name] = s.schedulerName, s.latencyClasses
}

func bounds(all map[string]nativeSettings, data map[string]string) {
	on, schedulers := map[string]bool{}, map[string]bool{}
	var floorCPU, floorMemory, ratioCPU, ratioMemory []string
	for _, s := range all {
		for _, acts := range s.modes {
			for act := range strings.FieldsSeq(acts) {
				on[act] = true
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
	data["bounds"] = strings.Join(slices.Sorted(maps.Keys(on)), " ")
	data["schedulerNames"] = strings.Join(slices.Sorted(maps.Keys(schedulers)), ",")
	data["floorCPU"], data["floorMemory"] = slices.MaxFunc(floorCPU, compare), slices.MaxFunc(floorMemory, compare)
	data["ratioCPU"], data["ratioMemory"] = slices.MinFunc(ratioCPU, compare), slices.MinFunc(ratioMemory, compare)
}
