// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"fmt"
	"io"
	"slices"
)

// Level says how much a finding matters.
type Level string

// Levels, in order of weight.
const (
	// Blocks is what keeps a move from being begun.
	Blocks Level = "blocks"
	// Warns is what people should know before they move.
	Warns Level = "warns"
	// Tells is how things are.
	Tells Level = "tells"
)

// Finding is what a rule says about a cluster.
type Finding struct {
	Level Level `json:"level"`
	// Rule is the rule's name, for searching in docs/migrating.md.
	Rule string `json:"rule"`
	What string `json:"what"`
	// Do is what to do about it, empty if nothing.
	Do string `json:"do,omitempty"`
}

// Report is what a check found.
type Report struct {
	APIVersion string    `json:"apiVersion"`
	Kind       string    `json:"kind"`
	Findings   []Finding `json:"findings"`
	// Groups are Cluster Autoscaler's node groups in the order in which to close them.
	Groups []Group `json:"nodeGroups,omitempty"`
}

// Blocked is how many findings keep a move from being begun.
func (r *Report) Blocked() int {
	n := 0
	for _, f := range r.Findings {
		if f.Level == Blocks {
			n++
		}
	}
	return n
}

func newReport(findings []Finding) *Report {
	weight := map[Level]int{Blocks: 0, Warns: 1, Tells: 2}
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(weight[a.Level], weight[b.Level]) })
	return &Report{APIVersion: "slipway.sh/v1alpha1", Kind: "MigrationReport", Findings: findings}
}

// Write prints the report for people.
func (r *Report) Write(w io.Writer) error {
	for _, f := range r.Findings {
		fmt.Fprintf(w, "%-6s  %s: %s\n", f.Level, f.Rule, f.What)
		if f.Do != "" {
			fmt.Fprintf(w, "        → %s\n", f.Do)
		}
	}
	if err := writeGroups(w, r.Groups); err != nil {
		return err
	}
	verdict := "Nothing stands in the way."
	if n := r.Blocked(); n > 0 {
		verdict = fmt.Sprintf("%s in the way.", count(n, "finding stands", "findings stand"))
	}
	_, err := fmt.Fprintf(w, "\n%s\n", verdict)
	return err
}

func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return fmt.Sprintf("%d %s", n, many)
}

// most is how many names a finding gives.
const most = 5

// names joins the first few names, sorted.
func names(all []string) string {
	all = slices.Compact(slices.Sorted(slices.Values(all)))
	out := ""
	for i, n := range all {
		if i == most {
			return fmt.Sprintf("%s and %d more", out, len(all)-most)
		}
		if i > 0 {
			out += ", "
		}
		out += n
	}
	return out
}
