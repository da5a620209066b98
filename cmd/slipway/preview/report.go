// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// hoursAMonth is what AWS's price lists take for a month.
const hoursAMonth = 730

// Report is an outcome for machines. Prices are US dollars an hour.
type Report struct {
	APIVersion string  `json:"apiVersion"`
	Kind       string  `json:"kind"`
	Pods       int     `json:"pods"`
	Price      float64 `json:"pricePerHour"`
	Nodes      []Node  `json:"nodes"`
	Unplaced   []Pod   `json:"unplaced"`
	// Placed are pods that fit on nodes that are there or on their way.
	Placed []Placed `json:"placed,omitempty"`
	// StandInClasses are node classes that no manifest has, taken for plain AL2023 ones.
	StandInClasses []string `json:"standInClasses,omitempty"`
	// Ignored are kinds of the manifests that say nothing about nodes.
	Ignored map[string]int `json:"ignoredKinds,omitempty"`
}

// Node is one node that would be bought.
type Node struct {
	NodePool string `json:"nodePool"`
	Offering
	// Requests is what the pods and the daemonset pods on the node ask for, Allocatable what it has for them.
	Requests     Amount     `json:"requests"`
	Allocatable  Amount     `json:"allocatable"`
	Pods         []string   `json:"pods"`
	Alternatives []Offering `json:"alternatives,omitempty"`
}

// Placed is a pod with the node that has room for it.
type Placed struct {
	Pod  string `json:"pod"`
	Node string `json:"node"`
}

// Offering is one way to buy a node.
type Offering struct {
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"pricePerHour"`
}

// Amount is CPU and memory as Kubernetes writes them.
type Amount struct {
	CPU    string `json:"cpu"`
	Memory string `json:"memory"`
}

// Pod is a pod no node can hold, the pool that came nearest, and what blocks it there.
type Pod struct {
	Pod      string `json:"pod"`
	NodePool string `json:"nearestNodePool,omitempty"`
	Reason   string `json:"reason"`
	Detail   string `json:"detail"`
}

// Report changes the outcome into its form for machines. Nodes are in order of pool, price and name.
func (o *Outcome) Report() Report {
	r := Report{
		APIVersion: "slipway.sh/v1alpha1", Kind: "PlanPreview", Nodes: []Node{}, Unplaced: []Pod{},
		StandInClasses: o.StoodIn, Ignored: o.Ignored,
	}
	for i := range o.Plan.Launches {
		n := node(&o.Plan.Launches[i])
		r.Pods += len(n.Pods)
		r.Price += n.Price
		r.Nodes = append(r.Nodes, n)
	}
	slices.SortStableFunc(r.Nodes, func(a, b Node) int {
		return cmp.Or(cmp.Compare(a.NodePool, b.NodePool), cmp.Compare(b.Price, a.Price), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	for _, u := range o.Plan.Unplaced {
		r.Unplaced = append(r.Unplaced, Pod{Pod: u.Pod.NamespacedName.String(), NodePool: u.Pool, Reason: string(u.Reason), Detail: u.Detail})
	}
	for _, p := range o.Plan.Placements {
		r.Placed = append(r.Placed, Placed{Pod: p.Pod.NamespacedName.String(), Node: cmp.Or(p.Node.Name, p.Node.Claim)})
	}
	slices.SortFunc(r.Placed, func(a, b Placed) int { return strings.Compare(a.Pod, b.Pod) })
	r.Pods += len(r.Unplaced) + len(r.Placed)
	return r
}

func node(l *plan.Launch) Node {
	n := Node{
		NodePool: l.Pool.Name, Offering: offering(l.Offerings[0]),
		Requests: amount(l.Requests), Allocatable: amount(l.Offerings[0].Type.Allocatable),
	}
	for _, p := range l.Pods {
		n.Pods = append(n.Pods, p.NamespacedName.String())
	}
	slices.Sort(n.Pods)
	for _, o := range l.Offerings[1:] {
		n.Alternatives = append(n.Alternatives, offering(o))
	}
	return n
}

func offering(o capacity.CatalogOffering) Offering {
	return Offering{InstanceType: o.Type.Name, Zone: o.Zone, CapacityType: o.CapacityType, Price: o.Price}
}

func amount(r capacity.Resources) Amount {
	list := r.List()
	return Amount{CPU: list.Cpu().String(), Memory: list.Memory().String()}
}

// Write prints the report for people: what is bought, row by row, then what cannot be placed and why. wide adds the
// alternatives of each row.
func (r Report) Write(w io.Writer, wide bool) error {
	if err := r.writeNodes(w, wide); err != nil {
		return err
	}
	if len(r.Placed) > 0 {
		pods := make([]string, 0, len(r.Placed))
		for _, p := range r.Placed {
			pods = append(pods, p.Pod)
		}
		fmt.Fprintf(w, "\n%s will find room on nodes that are there or on their way: %s\n", count(len(pods), "pod"), workloads(pods))
	}
	if len(r.Unplaced) > 0 {
		fmt.Fprintf(w, "\n%s no node can hold:\n", count(len(r.Unplaced), "pod"))
		for _, line := range r.unplaced() {
			fmt.Fprintf(w, "  %s\n", line)
		}
	}
	for _, name := range r.StandInClasses {
		fmt.Fprintf(w, "\nEC2NodeClass %q is in none of the manifests: it counts as one with AL2023 images and no kubelet settings.\n", name)
	}
	if len(r.Ignored) > 0 {
		var kinds []string
		for _, kind := range slices.Sorted(maps.Keys(r.Ignored)) {
			kinds = append(kinds, fmt.Sprintf("%s ×%d", kind, r.Ignored[kind]))
		}
		fmt.Fprintf(w, "\nNot looked at: %s\n", strings.Join(kinds, ", "))
	}
	return nil
}

// row is a kind of node in the table: nodes that differ in nothing it shows are one row.
type row struct {
	nodes int
	first *Node
	pods  string
}

func (r Report) writeNodes(w io.Writer, wide bool) error {
	if len(r.Nodes) == 0 {
		_, err := fmt.Fprintln(w, "Nothing to buy.")
		return err
	}
	var rows []*row
	index := map[string]*row{}
	for i := range r.Nodes {
		n := &r.Nodes[i]
		pods := workloads(n.Pods)
		key := fmt.Sprint(n.NodePool, n.Offering, pods)
		if index[key] == nil {
			index[key] = &row{first: n, pods: pods}
			rows = append(rows, index[key])
		}
		index[key].nodes++
	}
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprint(t, "NODES\tNODEPOOL\tINSTANCE TYPE\tZONE\tCAPACITY\t$/HOUR\tCPU\tMEMORY\tPODS")
	if wide {
		fmt.Fprint(t, "\tALTERNATIVES")
	}
	fmt.Fprintln(t)
	for _, row := range rows {
		n := row.first
		fmt.Fprintf(t, "%d\t%s\t%s\t%s\t%s\t%.4f\t%s\t%s\t%s", row.nodes, n.NodePool, n.InstanceType, n.Zone, n.CapacityType, n.Price,
			share(n.Requests.CPU, n.Allocatable.CPU), share(n.Requests.Memory, n.Allocatable.Memory), row.pods)
		if wide {
			fmt.Fprintf(t, "\t%s", alternatives(n))
		}
		fmt.Fprintln(t)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "\n%s for %s: $%.2f an hour, $%.0f a month\n", count(len(r.Nodes), "node"), count(r.Pods-len(r.Unplaced)-len(r.Placed), "pod"), r.Price, r.Price*hoursAMonth)
	return err
}

// share is how much of b a is, in percent.
func share(a, b string) string {
	x, errA := resource.ParseQuantity(a)
	y, errB := resource.ParseQuantity(b)
	if errA != nil || errB != nil || y.IsZero() {
		return "-"
	}
	return fmt.Sprintf("%.0f%%", 100*x.AsApproximateFloat64()/y.AsApproximateFloat64())
}

// alternatives sums up what else a launch would take.
func alternatives(n *Node) string {
	if len(n.Alternatives) == 0 {
		return "none"
	}
	most := slices.MaxFunc(n.Alternatives, func(a, b Offering) int { return cmp.Compare(a.Price, b.Price) })
	types := map[string]bool{}
	for _, o := range n.Alternatives {
		types[o.InstanceType] = true
	}
	return fmt.Sprintf("%d (%s) up to %.4f", len(n.Alternatives), count(len(types), "type"), most.Price)
}

// unplaced groups pods by what blocks them.
func (r Report) unplaced() []string {
	groups := map[string][]string{}
	for _, p := range r.Unplaced {
		why := p.Reason + ": " + p.Detail
		if p.NodePool != "" {
			why = fmt.Sprintf("nearest NodePool %q: %s", p.NodePool, why)
		}
		groups[why] = append(groups[why], p.Pod)
	}
	var out []string
	for _, why := range slices.Sorted(maps.Keys(groups)) {
		out = append(out, workloads(groups[why])+": "+why)
	}
	return out
}

// workloads lists pods by their names; those that differ in a number at the end only are counted together.
func workloads(pods []string) string {
	counts := map[string]int{}
	for _, p := range pods {
		name := strings.TrimPrefix(p, "default/")
		if at := strings.LastIndexByte(name, '-'); at > 0 && at < len(name)-1 && strings.Trim(name[at+1:], "0123456789") == "" {
			name = name[:at]
		}
		counts[name]++
	}
	var out []string
	for _, name := range slices.Sorted(maps.Keys(counts)) {
		if n := counts[name]; n > 1 {
			name = fmt.Sprintf("%s ×%d", name, n)
		}
		out = append(out, name)
	}
	return strings.Join(out, ", ")
}

func count(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
