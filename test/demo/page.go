// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/component-helpers/resource"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// page draws the run so far.
func (d *demo) page(ctx context.Context, r *Report) (*htmlreport.Page, error) {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	p := &htmlreport.Page{
		Title:    "Slipway demo",
		Subtitle: fmt.Sprintf("A real control plane and an emulated AWS account; machines boot %g times faster than measured ones.", d.Speed),
		Notes: []string{
			"Made by slipway demo. Instants are those at which a watch of the API server showed them, or EC2 was asked.",
			fmt.Sprintf("Karpenter's fixed waits alone (1 s batch, 35 ms fleet batcher) would add %.0f ms to each pod that waits for a node.", r.KarpenterFixedWaits),
		},
	}
	pods := d.watch.Pods("")
	start := time.Now()
	for i := range pods {
		if pods[i].Created.Before(start) {
			start = pods[i].Created
		}
	}
	for i := range pods {
		p.Pods = append(p.Pods, way(&pods[i], start))
	}
	instances := d.bed.Emulator.Instances()
	p.End = time.Since(start)
	p.Prices = prices(instances, d.bed.Emulator.Events(), start)
	var err error
	if p.Nodes, err = d.boxes(ctx, instances); err != nil {
		return nil, err
	}
	p.Facts = append(p.Facts, htmlreport.Fact{Name: "Pods", Value: fmt.Sprint(len(pods))}, htmlreport.Fact{Name: "Nodes", Value: fmt.Sprint(len(p.Nodes))},
		htmlreport.Fact{Name: "Price", Value: fmt.Sprintf("$%.2f an hour", r.Price)})
	for _, s := range r.Steps {
		p.Facts = append(p.Facts, htmlreport.Fact{Name: s.Name, Value: fmt.Sprintf("all running after %.2f s", s.Took/1000)})
		for _, ph := range s.Phases {
			if ph.Name == total {
				p.Facts = append(p.Facts, htmlreport.Fact{Name: s.Name + ", EC2 asked", Value: fmt.Sprintf("after %.0f ms (p50), %.0f ms (p99)", ph.P50, ph.P99)})
			}
		}
	}
	return p, nil
}

// way is a pod's way in phases. One that found room on a node that was usable before it waited for none of the node's steps.
func way(t *bed.Times, start time.Time) htmlreport.Pod {
	p := htmlreport.Pod{Name: t.Pod.Name, Workload: htmlreport.Workload(t.Pod.Name), Node: t.Node}
	at := t.Created
	until := func(kind htmlreport.Kind, to time.Time) {
		if to.After(at) {
			p.Phases = append(p.Phases, htmlreport.Phase{Kind: kind, From: at.Sub(start), To: to.Sub(start)})
			at = to
		}
	}
	if t.Usable.After(t.Created) {
		until(htmlreport.Deciding, t.Requested)
		until(htmlreport.Buying, t.Answered)
		until(htmlreport.Booting, t.Ready)
	}
	until(htmlreport.Binding, t.Bound)
	until(htmlreport.Starting, t.Running)
	return p
}

// prices is what all instances cost together, each from its launch until it is ended.
func prices(instances []ec2emu.Instance, events []ec2emu.Event, start time.Time) []htmlreport.Price {
	type change struct {
		at time.Time
		by float64
	}
	var changes []change
	price := map[string]float64{}
	for i := range instances {
		price[instances[i].ID] = instances[i].Price
	}
	for _, e := range events {
		switch e.Type {
		case ec2emu.Launched:
			changes = append(changes, change{e.At, price[e.InstanceID]})
		case ec2emu.ShuttingDown:
			changes = append(changes, change{e.At, -price[e.InstanceID]})
		default: // costs the same as before
		}
	}
	slices.SortStableFunc(changes, func(a, b change) int { return a.at.Compare(b.at) })
	var out []htmlreport.Price
	sum := 0.0
	for _, c := range changes {
		sum += c.by
		out = append(out, htmlreport.Price{At: max(c.at.Sub(start), 0), Price: max(sum, 0)})
	}
	return out
}

// boxes are the nodes with what runs on them.
func (d *demo) boxes(ctx context.Context, instances []ec2emu.Instance) ([]htmlreport.Node, error) {
	nodes, err := d.bed.Client.CoreV1().Nodes().List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing nodes for the report: %w", err)
	}
	pods, err := d.bed.Client.CoreV1().Pods("").List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, fmt.Errorf("listing pods for the report: %w", err)
	}
	price := map[string]float64{}
	for i := range instances {
		price[instances[i].NodeName] = instances[i].Price
	}
	var out []htmlreport.Node
	for i := range nodes.Items {
		n := &nodes.Items[i]
		box := htmlreport.Node{
			Name: n.Name, Pool: n.Labels[karpv1.NodePoolLabelKey], InstanceType: n.Labels[corev1.LabelInstanceTypeStable], Zone: n.Labels[corev1.LabelTopologyZone],
			CapacityType: n.Labels[karpv1.CapacityTypeLabelKey], Price: price[n.Name],
			CPU: n.Status.Allocatable.Cpu().MilliValue(), Memory: n.Status.Allocatable.Memory().Value(),
		}
		for k := range pods.Items {
			p := &pods.Items[k]
			if p.Spec.NodeName != n.Name || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
				continue
			}
			requests := resource.PodRequests(p, resource.PodResourcesOptions{})
			box.Pods = append(box.Pods, htmlreport.Box{
				Name: p.Name, Workload: workload(p), CPU: requests.Cpu().MilliValue(), Memory: requests.Memory().Value(),
			})
		}
		slices.SortFunc(box.Pods, func(a, b htmlreport.Box) int {
			return cmp.Or(cmp.Compare(b.Workload, a.Workload), cmp.Compare(a.Name, b.Name))
		})
		out = append(out, box)
	}
	return out, nil
}

// workload is what the pod belongs to; empty for a DaemonSet's.
func workload(p *corev1.Pod) string {
	for _, o := range p.OwnerReferences {
		if o.Kind == "DaemonSet" {
			return ""
		}
	}
	return htmlreport.Workload(p.Name)
}
