// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Page draws the outcome. source says what was planned for.
func (o *Outcome) Page(source string) *htmlreport.Page {
	r := o.Report()
	p := &htmlreport.Page{Title: "Slipway plan", Subtitle: source}
	p.Facts = []htmlreport.Fact{
		{Name: "Pods", Value: fmt.Sprint(r.Pods)},
		{Name: "Nodes to buy", Value: fmt.Sprint(len(r.Nodes))},
		{Name: "Price", Value: fmt.Sprintf("$%.2f an hour", r.Price)},
		{Name: "Price a month", Value: fmt.Sprintf("$%.0f", r.Price*hoursAMonth)},
	}
	if n := len(r.Placed); n > 0 {
		p.Facts = append(p.Facts, htmlreport.Fact{Name: "Pods with room on nodes that are there", Value: fmt.Sprint(n)})
	}
	if n := len(r.Unplaced); n > 0 {
		p.Facts = append(p.Facts, htmlreport.Fact{Name: "Pods that no node can hold", Value: fmt.Sprint(n)})
	}
	for i := range o.Plan.Launches {
		p.Nodes = append(p.Nodes, box(&o.Plan.Launches[i]))
	}
	slices.SortStableFunc(p.Nodes, func(a, b htmlreport.Node) int {
		return cmp.Or(cmp.Compare(a.Pool, b.Pool), cmp.Compare(b.Price, a.Price), cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone))
	})
	for _, line := range r.unplaced() {
		pods, why, _ := strings.Cut(line, ": ")
		p.Unplaced = append(p.Unplaced, htmlreport.Fact{Name: pods, Value: why})
	}
	for _, name := range r.StandInClasses {
		p.Notes = append(p.Notes, fmt.Sprintf("EC2NodeClass %q is in none of the manifests: it counts as one with AL2023 images and no kubelet settings.", name))
	}
	p.Notes = append(p.Notes, "Made by slipway plan. What EC2 picks in the end may be another of a launch's offerings; its price then is no higher than twice the one shown.")
	return p
}

// box is a launch as a node that is filled.
func box(l *plan.Launch) htmlreport.Node {
	o := l.Offerings[0]
	n := htmlreport.Node{
		Pool: l.Pool.Name, InstanceType: o.Type.Name, Zone: o.Zone, CapacityType: o.CapacityType, Price: o.Price,
		CPU: o.Type.Allocatable.CPU, Memory: o.Type.Allocatable.Memory,
	}
	sum := capacity.Resources{}
	for _, p := range l.Pods {
		name := strings.TrimPrefix(p.NamespacedName.String(), "default/")
		n.Pods = append(n.Pods, htmlreport.Box{Name: name, Workload: htmlreport.Workload(name), CPU: p.Class.Requests.CPU, Memory: p.Class.Requests.Memory})
		sum = sum.Add(p.Class.Requests)
	}
	if rest := l.Requests.Sub(sum); rest.CPU > 0 || rest.Memory > 0 {
		n.Pods = append(n.Pods, htmlreport.Box{Name: "daemonsets", CPU: rest.CPU, Memory: rest.Memory})
	}
	slices.SortStableFunc(n.Pods, func(a, b htmlreport.Box) int {
		return cmp.Or(cmp.Compare(b.Workload, a.Workload), cmp.Compare(a.Name, b.Name))
	})
	return n
}
