// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/slipway-sh/slipway/test/peer"
	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

// part measures one thing on all contenders.
type part func(context.Context) error

// run is what a call of the command measures.
type run struct {
	opts       options
	contenders []contender
	began      time.Time
	offPlan    map[string]float64
	figures    []string
	// section is what the part at work has to say, in Markdown; sections are those that have ended.
	section  strings.Builder
	sections []section
}

type section struct{ name, text string }

func (r *run) known() map[string]part {
	n := r.opts.sizes
	return map[string]part{
		"single":        r.single("single", n.singles, 0, false),
		"idle":          r.single("idle", n.idles, time.Minute, false),
		"shortage":      r.single("shortage", n.singles, 0, true),
		"burst-100":     r.burst(100),
		"burst-1000":    r.burst(1000),
		"consolidation": r.consolidation,
	}
}

// title is the heading of a part in the document, and what it does.
func title(name string) (heading, text string) {
	switch name {
	case "single":
		return "Single pods", "Pods one at a time, each of which needs a node of its own. Machines boot at once: what is left is the autoscalers' own time."
	case "idle":
		return "After idleness", "Single pods, each after a minute in which nothing happened. Machines boot at once: what is left is the autoscalers' own time."
	case "shortage":
		return "The 50 cheapest offerings out of stock", "Single pods while EC2 has none of the 50 cheapest offerings (type and zone, on demand) that hold one. Machines boot at once: what is left is the autoscalers' own time."
	case "burst-100":
		return "A burst of 100", "A Deployment is created; kube-controller-manager makes its pods at its default of 20 requests a second."
	case "burst-1000":
		return "A burst of 1,000", "A Deployment is created; kube-controller-manager makes its pods at its default of 20 requests a second. Times before the last pod exists are possible for a contender that plans for pods to come."
	default:
		return "Consolidation to rest", "Every node of a full cluster has lost half of its pods. Then its pools may consolidate, at once (`consolidateAfter: 0s`, budget 100 %), into anything that the pool of the latency parts may buy. To rest: until the last change of an instance or of a pod's node. Slipway's ten minutes of grace for new nodes are switched off (`slipway.sh/min-node-age: 0s`), as all nodes here are new."
	}
}

func (r *run) say(format string, args ...any) {
	fmt.Printf("%6.1f s  %s\n", time.Since(r.began).Seconds(), fmt.Sprintf(format, args...))
}

// measure runs one part.
func (r *run) measure(ctx context.Context, name string, p part) error {
	heading, text := title(name)
	r.say("%s", heading)
	r.section.Reset()
	fmt.Fprintf(&r.section, "## %s\n\n%s\n\n", heading, text)
	if err := p(ctx); err != nil {
		return err
	}
	r.sections = append(r.sections, section{name, r.section.String()})
	return nil
}

// note says something about a contender.
func (r *run) note(format string, args ...any) { r.say(format, args...) }

func (r *run) table(t document.Table) {
	fmt.Print(t.String())
	r.section.WriteString(t.String() + "\n")
}

func duration(d time.Duration) string {
	switch {
	case d < 100*time.Millisecond:
		return fmt.Sprintf("%.1f ms", float64(d)/float64(time.Millisecond))
	case d < 10*time.Second:
		return fmt.Sprintf("%.2f s", d.Seconds())
	default:
		return fmt.Sprintf("%.1f s", d.Seconds())
	}
}

// suffix is that of the figures beside the peer as it is set.
func (c contender) suffix() string { return strings.TrimPrefix(c.name, "karpenter") }

func (r *run) figure(name string, value float64, unit string) {
	r.figures = append(r.figures, fmt.Sprintf("figure %s %.3f %s", name, value, unit))
}

// ratios prints how many times longer each peer took than Slipway.
func (r *run) ratios(name string, took map[string]time.Duration) {
	if took["slipway"] <= 0 {
		return // it did not take part
	}
	for _, who := range r.contenders {
		if d := took[who.name]; !who.ours && d > 0 {
			ratio := float64(d) / float64(took["slipway"])
			r.figure(name+who.suffix(), ratio, "ratio")
			fmt.Fprintf(&r.section, "%s takes %.1f times as long as Slipway.\n\n", who.title, ratio)
		}
	}
}

// shares prints Slipway's figure over each peer's.
func (r *run) shares(name string, of map[string]float64) {
	ours, ok := of["slipway"]
	if !ok {
		return
	}
	for _, who := range r.contenders {
		if v := of[who.name]; !who.ours && v > 0 {
			r.figure(name+who.suffix(), ours/v, "ratio")
		}
	}
}

// finish writes the document and prints the figures.
func (r *run) finish() error {
	if off, ok := r.offPlan["slipway"]; ok {
		r.figure("off-plan", off, "count")
	}
	if r.opts.docs != "" && !r.opts.short {
		if err := r.write(); err != nil {
			return err
		}
	}
	for _, f := range r.figures {
		fmt.Println(f)
	}
	return nil
}

// write replaces the sections of the parts that ran in the document.
func (r *run) write() error {
	karpenter, err := peer.Version(r.opts.peer.Karpenter)
	if err != nil {
		return err
	}
	kubernetes, err := exec.Command(r.opts.peer.Scheduler, "--version").Output()
	if err != nil {
		return fmt.Errorf("asking kube-scheduler for its version: %w", err)
	}
	for _, s := range r.sections {
		where := document.Where("Karpenter "+karpenter, strings.TrimSpace(string(kubernetes)))
		if err := document.Write(r.opts.docs, s.name, s.text+where); err != nil {
			return err
		}
	}
	return nil
}
