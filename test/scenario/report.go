// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// report writes the plan section.
func (o *outcome) report() string {
	var b strings.Builder
	o.launches(&b)
	o.placements(&b)
	o.unplaced(&b)
	if o.trials == 0 {
		return b.String()
	}
	if len(o.refusals) == 0 {
		fmt.Fprintf(&b, "judge: accepts %s\n", count(o.trials, "pod"))
		return b.String()
	}
	fmt.Fprintf(&b, "judge: refuses %d of %s of the first plan\n", len(o.refusals), count(o.trials, "pod"))
	groups := grouped[string]{}
	for _, r := range o.refusals {
		groups.add(r.Plugin+": "+r.Reason, r.Trial.Pod.Name)
	}
	for _, g := range groups.sorted() {
		fmt.Fprintf(&b, "  %s: %s\n", names(g.names), g.key)
	}
	return b.String()
}

func (o *outcome) launches(b *strings.Builder) {
	groups := grouped[string]{}
	sum := 0.0
	for i := range o.plan.Launches {
		l := &o.plan.Launches[i]
		sum += l.Price()
		var list []string
		for _, p := range l.Pods {
			list = append(list, p.Name)
		}
		groups.add(describe(l), names(list))
	}
	if len(o.plan.Launches) == 0 {
		fmt.Fprintln(b, "nothing to buy")
		return
	}
	fmt.Fprintf(b, "buy %s for $%.4f an hour\n", count(len(o.plan.Launches), "node"), sum)
	for _, g := range groups.sorted() {
		fmt.Fprintf(b, "  %s\n", g.key)
		for i := 0; i < len(g.names); {
			n := 1
			for i+n < len(g.names) && g.names[i+n] == g.names[i] {
				n++
			}
			if n > 1 {
				fmt.Fprintf(b, "    %d times %s\n", n, g.names[i])
			} else {
				fmt.Fprintf(b, "    %s\n", g.names[i])
			}
			i += n
		}
	}
}

// describe says what a launch buys, cheapest offering first, then what else would do.
func describe(l *plan.Launch) string {
	first := l.Offerings[0]
	text := fmt.Sprintf("%s: %s %s in %s, $%.4f", l.Pool.Name, first.Type.Name, first.CapacityType, first.Zone, first.Price)
	if first.ReservationID != "" {
		text += " of " + first.ReservationID
	}
	if custom := customLabels(l); custom != "" {
		text += ", labels " + custom
	}
	if len(l.Offerings) == 1 {
		return text
	}
	most := slices.MaxFunc(l.Offerings, func(a, b capacity.CatalogOffering) int { return cmp.Compare(a.Price, b.Price) }).Price
	return fmt.Sprintf("%s\n  or %s up to $%.4f: %s; %s; %s", text, count(len(l.Offerings)-1, "other offering"), most,
		distinct(l.Offerings, func(o capacity.CatalogOffering) string { return o.Type.Name }),
		distinct(l.Offerings, func(o capacity.CatalogOffering) string { return o.Zone }),
		distinct(l.Offerings, func(o capacity.CatalogOffering) string { return o.CapacityType }))
}

// customLabels are what the launch requires of labels that pods may choose.
func customLabels(l *plan.Launch) string {
	var out []string
	for _, key := range l.Requirements.Keys() {
		if have, ok := l.Pool.Requirements[key]; ok && !l.Pool.Catalog.Defines(key) && have.String() != l.Requirements[key].String() {
			out = append(out, l.Requirements[key].String())
		}
	}
	return strings.Join(out, ", ")
}

// distinct lists the values in order of appearance, that is, of price.
func distinct(list []capacity.CatalogOffering, of func(capacity.CatalogOffering) string) string {
	var out []string
	for _, o := range list {
		if v := of(o); !slices.Contains(out, v) {
			out = append(out, v)
		}
	}
	return strings.Join(out, " ")
}

func (o *outcome) placements(b *strings.Builder) {
	groups := grouped[string]{}
	for _, p := range o.plan.Placements {
		groups.add(fmt.Sprintf("%s (%s)", p.Node.ID(), strings.ToLower(p.Node.Phase.String())), p.Pod.Name)
	}
	for _, g := range groups.sorted() {
		fmt.Fprintf(b, "use %s: %s\n", g.key, names(g.names))
	}
}

func (o *outcome) unplaced(b *strings.Builder) {
	groups := grouped[string]{}
	for _, u := range o.plan.Unplaced {
		pool := "no pool"
		if u.Pool != "" {
			pool = "nearest pool " + u.Pool
		}
		groups.add(fmt.Sprintf("%s, %s: %s", u.Reason, pool, u.Detail), u.Pod.Name)
	}
	for _, g := range groups.sorted() {
		fmt.Fprintf(b, "no place for %s\n  %s\n", names(g.names), g.key)
	}
}

// grouped collects names by key.
type grouped[K cmp.Ordered] map[K][]string

func (g grouped[K]) add(key K, name string) { g[key] = append(g[key], name) }

type group[K cmp.Ordered] struct {
	key   K
	names []string
}

func (g grouped[K]) sorted() []group[K] {
	var out []group[K]
	for k, list := range g {
		slices.SortFunc(list, natural)
		out = append(out, group[K]{k, list})
	}
	slices.SortFunc(out, func(a, b group[K]) int { return cmp.Compare(a.key, b.key) })
	return out
}

// natural orders names with numbers at their ends by the numbers.
func natural(a, b string) int {
	x, i := split(a)
	y, j := split(b)
	return cmp.Or(strings.Compare(x, y), cmp.Compare(i, j), strings.Compare(a, b))
}

// split takes a name apart into the workload and the number of the pod, -1 if it has none.
func split(name string) (string, int) {
	at := strings.LastIndexByte(name, '-')
	if at < 0 {
		return name, -1
	}
	n := -1
	if _, err := fmt.Sscanf(name[at+1:], "%d", &n); err != nil || fmt.Sprint(n) != name[at+1:] {
		return name, -1
	}
	return name[:at], n
}

// names lists pods; those of one workload are alike, and counted.
func names(list []string) string {
	list = slices.Clone(list)
	slices.SortFunc(list, natural)
	var out []string
	for i := 0; i < len(list); {
		workload, number := split(list[i])
		if number < 0 {
			out = append(out, list[i])
			i++
			continue
		}
		n := 0
		for ; i < len(list); i++ {
			if w, k := split(list[i]); w != workload || k < 0 {
				break
			}
			n++
		}
		out = append(out, fmt.Sprintf("%s ×%d", workload, n))
	}
	return strings.Join(out, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
