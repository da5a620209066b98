// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
)

// staysMost is how many nodes that stay for the same reason are named; wide names all.
const staysMost = 3

// Write prints the preview for people: what goes, what is bought instead, what that saves, and why the other nodes stay. wide names
// where each pod goes and every node that stays.
func (c Consolidation) Write(w io.Writer, wide bool) error {
	if c.Nodes == 0 {
		_, err := fmt.Fprintln(w, "There is no node of a NodePool: nothing to disrupt.")
		return err
	}
	if err := c.writeCommands(w, wide); err != nil {
		return err
	}
	c.writeStays(w, wide)
	gone := 0
	for _, m := range c.Commands {
		if m.Refused == "" {
			gone += len(m.Nodes)
		}
	}
	fmt.Fprintf(w, "\n%s cost $%.4f an hour", count(c.Nodes, "node"), c.Price)
	if c.Unpriced > 0 {
		fmt.Fprintf(w, " without %d whose price is not known", c.Unpriced)
	}
	fmt.Fprintf(w, ". Disruption would begin with %d of them, which saves $%.4f an hour ($%.0f a month)", gone, c.Saving, c.Saving*hoursAMonth)
	if c.Price > 0 {
		fmt.Fprintf(w, ", %.0f %%", 100*c.Saving/c.Price)
	}
	fmt.Fprintln(w, ".")
	if b := c.WithoutBudgets; b.Nodes > gone {
		fmt.Fprintf(w, "Without disruption budgets it would begin with %d, which saves $%.4f an hour.\n", b.Nodes, b.Saving)
	}
	for _, name := range c.StandInClasses {
		fmt.Fprintf(w, "\nEC2NodeClass %q is in none of the manifests: it counts as one with AL2023 images and no kubelet settings.\n", name)
	}
	if n := len(c.StandInClaims); n > 0 {
		fmt.Fprintf(w, "\nWithout a NodeClaim, so that they count as initialized since they were created: %s.\n", count(n, "node"))
	}
	if len(c.Ignored) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(c.Ignored)) {
			kinds = append(kinds, fmt.Sprintf("%s ×%d", kind, c.Ignored[kind]))
		}
		fmt.Fprintf(w, "\nNot looked at: %s\n", strings.Join(kinds, ", "))
	}
	return nil
}

func (c Consolidation) writeCommands(w io.Writer, wide bool) error {
	if len(c.Commands) == 0 {
		_, err := fmt.Fprintln(w, "Nothing to disrupt.")
		return err
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "REASON\tDECISION\tNODE\tNODEPOOL\tINSTANCE TYPE\tZONE\tCAPACITY\tPODS\t$/HOUR\tBOUGHT INSTEAD\tSAVES $/HOUR")
	for i := range c.Commands {
		m := &c.Commands[i]
		for k := range m.Nodes {
			n := &m.Nodes[k]
			reason, decision, bought, saves := m.Reason, m.Decision, boughtBy(m), fmt.Sprintf("%.4f", m.Saving)
			if k > 0 { // of one command, what is said of all of it stands in its first row
				reason, decision, bought, saves = "", "", "", ""
			}
			fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\t%d\t%.4f\t%s\t%s\n",
				reason, decision, n.Node, n.NodePool, n.InstanceType, n.Zone, n.CapacityType, n.Pods, n.Price, bought, saves)
		}
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for i := range c.Commands {
		m := &c.Commands[i]
		if m.Refused != "" {
			fmt.Fprintf(w, "\nThe command for %s would be taken back, and saves nothing: Not all pods would schedule, %s\n", m.Nodes[0].Node, m.Refused)
		}
		if wide {
			for _, p := range m.Placed {
				fmt.Fprintf(w, "  %s → %s\n", strings.TrimPrefix(p.Pod, "default/"), p.Node)
			}
		}
	}
	return nil
}

// boughtBy sums up what a command buys.
func boughtBy(m *Move) string {
	var parts []string
	for i := range m.Bought {
		o := &m.Bought[i].Offering
		parts = append(parts, fmt.Sprintf("%s %s %s %.4f", o.InstanceType, o.Zone, o.CapacityType, o.Price))
	}
	if len(parts) == 0 {
		return "-"
	}
	return strings.Join(parts, ", ")
}

// writeStays groups the nodes that stay by why they do, without the names that are in the reason.
func (c Consolidation) writeStays(w io.Writer, wide bool) {
	if len(c.Stays) == 0 {
		return
	}
	by := map[string][]string{}
	for i := range c.Stays {
		by[c.Stays[i].Why] = append(by[c.Stays[i].Why], c.Stays[i].Node)
	}
	why := slices.SortedStableFunc(maps.Keys(by), func(a, b string) int {
		if n := len(by[b]) - len(by[a]); n != 0 {
			return n
		}
		return strings.Compare(a, b)
	})
	fmt.Fprintf(w, "\nNodes that stay: %d\n", len(c.Stays))
	for _, reason := range why {
		names := by[reason]
		text := strings.Join(names, ", ")
		if !wide && len(names) > staysMost {
			text = fmt.Sprintf("%s and %d more", strings.Join(names[:staysMost], ", "), len(names)-staysMost)
		}
		fmt.Fprintf(w, "  %d  %s: %s\n", len(names), reason, text)
	}
}
