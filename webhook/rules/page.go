// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	_ "embed"
	"fmt"
	"strings"
)

//go:embed page.md
var pageHead string

// Page is docs/reference/admission.md: how admission works, then every rule.
func Page() string {
	var b strings.Builder
	b.WriteString(pageHead)
	b.WriteString("\n## Rules\n\n| id | finds | default mode | evaluated by | needs |\n|---|---|---|---|---|\n")
	for _, r := range All() {
		fmt.Fprintf(&b, "| [%s](#%s) | %s | %s | %s | %s |\n", r.ID, strings.ToLower(r.ID), r.Title, r.mode(), join(r.Engines, ", "), r.Needs)
	}
	for _, r := range All() {
		fmt.Fprintf(&b, "\n### %s\n\n%s. %s\n\n", r.ID, upper(r.Title), r.Why)
		fmt.Fprintf(&b, "- Default mode: %s. Evaluated by: %s. Objects: %s.\n", r.mode(), join(r.Engines, ", "), join(r.Kinds, ", "))
		fmt.Fprintf(&b, "- Message: `%s`\n- To fix: %s\n- To except: %s\n", strings.Trim(r.Example, "`"), r.Fix, r.except())
	}
	return b.String()
}

func (r *Rule) mode() string {
	if r.Always {
		return string(r.Mode) + ", also without a policy"
	}
	return string(r.Mode)
}

// except says how an object, or everybody, gets out of the rule.
func (r *Rule) except() string {
	list := "rules"
	if r.Global() {
		list = "clusterRules"
	}
	everybody := fmt.Sprintf("`spec.%s: {%s: \"Off\"}` in the policy.", list, r.ID)
	switch r.ID {
	case "K001":
		return "not possible, it is in the schema."
	case "G002":
		return everybody
	case "N012", "C008":
		return "annotation `slipway.sh/confirm-delete` with the object's name; " + everybody
	}
	return fmt.Sprintf("`slipway.sh/except: \"%s=<reason>;until=<YYYY-MM-DD>\"` on the object; %s", r.ID, everybody)
}

func join[T ~string](list []T, sep string) string {
	out := make([]string, len(list))
	for i, v := range list {
		out[i] = string(v)
	}
	return strings.Join(out, sep)
}

func upper(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
