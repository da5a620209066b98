// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/slipway-sh/slipway/test/bed"
)

// karpenterWaits are Karpenter's fixed waits between a pending pod and its CreateFleet request: the shortest batch window
// (BATCH_IDLE_DURATION) and the shortest CreateFleet batch.
const karpenterWaits = 1*time.Second + 35*time.Millisecond

// Report is the result of a demo, as --json prints it.
type Report struct {
	Steps []StepReport `json:"steps"`
	// Instances bought, with their price in US dollars an hour.
	Instances []Bought `json:"instances"`
	Price     float64  `json:"pricePerHour"`
	// SecondLaunches is for how many pods more than one node was bought.
	SecondLaunches int `json:"secondLaunches"`
	// KarpenterFixedWaits is what Karpenter's constants alone would have added before each request, in milliseconds.
	KarpenterFixedWaits float64 `json:"karpenterFixedWaitsMs"`
	// Speed is how much faster than measured the machines booted.
	Speed float64 `json:"bootSpeed"`
}

// StepReport is one scale-up. Phases are in milliseconds.
type StepReport struct {
	Name   string  `json:"name"`
	Pods   int     `json:"pods"`
	Took   float64 `json:"tookMs"`
	Phases []Phase `json:"phases"`
}

// Phase is the time between two instants of a pod's way over all pods of a step, in milliseconds.
type Phase struct {
	Name string  `json:"name"`
	P50  float64 `json:"p50"`
	P99  float64 `json:"p99"`
}

// Bought is a kind of instance that was bought.
type Bought struct {
	Count        int     `json:"count"`
	InstanceType string  `json:"instanceType"`
	Zone         string  `json:"zone"`
	CapacityType string  `json:"capacityType"`
	Price        float64 `json:"pricePerHour"`
}

func (d *demo) report(ctx context.Context) error {
	r := Report{KarpenterFixedWaits: ms(karpenterWaits), Speed: d.Speed}
	for _, s := range d.steps {
		r.Steps = append(r.Steps, StepReport{Name: s.name, Pods: s.replicas, Took: ms(s.took), Phases: phases(d.watch.Pods(s.prefix))})
	}
	kinds := map[Bought]int{}
	for _, i := range d.bed.Emulator.Instances() {
		kinds[Bought{InstanceType: i.InstanceType, Zone: i.Zone, CapacityType: i.CapacityType, Price: i.Price}]++
		r.Price += i.Price
	}
	for b, n := range kinds {
		b.Count = n
		r.Instances = append(r.Instances, b)
	}
	slices.SortFunc(r.Instances, func(a, b Bought) int {
		return cmp.Or(cmp.Compare(a.InstanceType, b.InstanceType), cmp.Compare(a.Zone, b.Zone), cmp.Compare(a.CapacityType, b.CapacityType))
	})
	_, r.SecondLaunches = d.watch.Claims()
	if d.Page != nil {
		page, err := d.page(ctx, &r)
		if err != nil {
			return err
		}
		if err := d.Page.Save(page); err != nil {
			return err
		}
	}
	if d.JSON {
		enc := json.NewEncoder(d.Out)
		enc.SetIndent("", "  ")
		return enc.Encode(r)
	}
	return d.table(r)
}

func (d *demo) table(r Report) error {
	w := tabwriter.NewWriter(d.Out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w)
	for _, s := range r.Steps {
		fmt.Fprintf(w, "%s\t\tall running after %.2f s\n", s.Name, s.Took/1000)
		fmt.Fprintf(w, "  step\tp50 ms\tp99 ms\n")
		for _, p := range s.Phases {
			fmt.Fprintf(w, "  %s\t%.1f\t%.1f\n", p.Name, p.P50, p.P99)
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "bought\tzone\tcapacity type\t$ an hour each\n")
	for _, b := range r.Instances {
		fmt.Fprintf(w, "  %d x %s\t%s\t%s\t%.4f\n", b.Count, b.InstanceType, b.Zone, b.CapacityType, b.Price)
	}
	fmt.Fprintf(w, "  in all\t\t\t%.4f\n\n", r.Price)
	if err := w.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(d.Out, "Pods for which a second node was bought: %d\n", r.SecondLaunches)
	for _, s := range r.Steps {
		for _, p := range s.Phases {
			if p.Name == total {
				fmt.Fprintf(d.Out, "%s: CreateFleet was on the wire %.1f ms (p50) after the pod was created; Karpenter's fixed waits alone (1 s batch, 35 ms fleet batcher) would have added %.0f ms.\n",
					s.Name, p.P50, r.KarpenterFixedWaits)
			}
		}
	}
	return nil
}

// total is the phase that sums up the wait for EC2 to be asked.
const total = "created → CreateFleet sent"

// phases computes the quantiles of every leg of the way.
func phases(pods []bed.Times) []Phase {
	var out []Phase
	leg := func(name string, from, to func(bed.Times) time.Time) {
		var ds []time.Duration
		for _, p := range pods {
			// A pod that found room on a node that was there already waited for none of the node's steps.
			if a, b := from(p), to(p); !a.IsZero() && !b.IsZero() && (a.Equal(p.Created) || p.Usable.After(p.Created)) {
				ds = append(ds, max(b.Sub(a), 0))
			}
		}
		if len(ds) > 0 {
			out = append(out, Phase{Name: name, P50: ms(bed.Quantile(ds, 0.5)), P99: ms(bed.Quantile(ds, 0.99))})
		}
	}
	created := func(t bed.Times) time.Time { return t.Created }
	offered := func(t bed.Times) time.Time { return t.Offered }
	planned := func(t bed.Times) time.Time { return t.Planned }
	sent := func(t bed.Times) time.Time { return t.Requested }
	answered := func(t bed.Times) time.Time { return t.Answered }
	registered := func(t bed.Times) time.Time { return t.Registered }
	ready := func(t bed.Times) time.Time { return t.Ready }
	usable := func(t bed.Times) time.Time { return t.Usable }
	bound := func(t bed.Times) time.Time { return t.Bound }
	leg("created → first of its node's pods offered", created, offered)
	leg("offered → planned", offered, planned)
	leg("planned → CreateFleet sent", planned, sent)
	leg("CreateFleet sent → instance", sent, answered)
	leg("instance → node registered", answered, registered)
	leg("registered → ready", registered, ready)
	leg("ready → usable", ready, usable)
	leg("usable → bound", usable, bound)
	leg(total, created, sent)
	leg("created → bound", created, bound)
	return out
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }
