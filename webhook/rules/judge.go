// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"slices"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// Setting is what, beside the object, decides what findings lead to.
type Setting struct {
	// Namespace holds for rules about workloads, Cluster for those about cluster-wide objects.
	Namespace, Cluster Choice
	// Admission is the namespace's label slipway.sh/admission.
	Admission string
	// OwnerSince is when the pod's controller was created, zero if that is not known; OwnerRan says that it has or had pods.
	OwnerSince time.Time
	OwnerRan   bool
	// Keep says which rules are evaluated here; nil for all.
	Keep func(*Rule) bool
}

// Verdict is what an object's findings lead to. Every finding is in exactly one of the three.
type Verdict struct {
	Denied, Warned, Audited []Finding
	// Spared are the rules that would have refused a pod whose owner ran before, see [Registry.Judge].
	Spared []string
}

// Allowed reports whether nothing is refused.
func (v *Verdict) Allowed() bool { return len(v.Denied) == 0 }

// Rules lists the ids of all findings, sorted, each once.
func (v *Verdict) Rules() []string {
	var out []string
	for _, f := range slices.Concat(v.Denied, v.Warned, v.Audited) {
		out = append(out, f.Rule)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Judge evaluates the rules and decides. A finding of a rule in mode Enforce refuses the object, except that
//   - an exception that holds makes it Audit;
//   - an update that leaves the offending value as it was is warned about only, so that an object can always be mended;
//   - a pod whose controller has or had pods, or is older than the policy, is warned about only: it may be the replacement
//     of one that Slipway evicted. Enforcement is for new workloads.
func (r *Registry) Judge(s *Subject, f *Facts, in *Setting) Verdict {
	var out Verdict
	modes := map[string]v1alpha1.RuleMode{}
	keep := func(rule *Rule) bool {
		if in.Keep != nil && !in.Keep(rule) {
			return false
		}
		modes[rule.ID] = in.mode(rule)
		return modes[rule.ID] != v1alpha1.Off
	}
	var before []Finding
	found := r.Check(s, f, keep)
	if s.Old != nil && len(found) > 0 {
		before = r.Check(s.Old, f, keep)
	}
	for _, x := range found {
		mode := modes[x.Rule]
		if mode == v1alpha1.Enforce {
			mode = r.enforce(s, in, x, before)
			if mode == v1alpha1.Warn && in.spares(s) {
				out.Spared = append(out.Spared, x.Rule)
			}
		}
		if Excepted(s, f, x.Rule) {
			mode = v1alpha1.Audit
		}
		switch mode {
		case v1alpha1.Enforce:
			out.Denied = append(out.Denied, x)
		case v1alpha1.Audit, v1alpha1.Off:
			out.Audited = append(out.Audited, x)
		case v1alpha1.Warn, v1alpha1.Default:
			out.Warned = append(out.Warned, x)
		}
	}
	return out
}

func (in *Setting) mode(rule *Rule) v1alpha1.RuleMode {
	if rule.Global() && rule.ID != "G002" {
		return in.Cluster.Mode(rule, "")
	}
	return in.Namespace.Mode(rule, in.Admission)
}

// PolicyOf names the policy that a finding's mode is from, empty for the built-in behaviour.
func (in *Setting) PolicyOf(x Finding) string {
	if strings.ContainsAny(x.Rule[:1], "NCKG") {
		return in.Cluster.Name
	}
	return in.Namespace.Name
}

// enforce is Enforce or, where nothing may be refused, Warn.
func (r *Registry) enforce(s *Subject, in *Setting, x Finding, before []Finding) v1alpha1.RuleMode {
	same := func(b Finding) bool { return b.Rule == x.Rule && b.Field == x.Field && b.Problem == x.Problem }
	if x.Mild || in.spares(s) || slices.ContainsFunc(before, same) {
		return v1alpha1.Warn
	}
	return v1alpha1.Enforce
}

// spares reports whether the pod must not be refused: it may replace one that ran.
func (in *Setting) spares(s *Subject) bool {
	if s.Kind != Pod || s.Controller() == nil {
		return false
	}
	if in.OwnerRan || in.OwnerSince.IsZero() {
		return true
	}
	grandfather := in.Namespace.Spec.Grandfather != v1alpha1.GrandfatherNone
	return grandfather && in.OwnerSince.Before(in.Namespace.Since)
}

// maxDenials is how many findings a refusal spells out.
const maxDenials = 5

// Denial is the text of a refusal: the findings in the order given, one a line, at most five and a count of the rest.
func Denial(findings []Finding, policy string) string {
	var lines []string
	for i, f := range findings {
		if i == maxDenials {
			break
		}
		lines = append(lines, f.Message(policy))
	}
	text := strings.Join(lines, "\n")
	if n := len(findings) - maxDenials; n > 0 {
		text += "\n(and " + plural(n, "more finding") + ")"
	}
	return text
}
