// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package htmlreport

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"
)

// Sizes, in pixels of the drawings' own coordinates.
const (
	chartWidth, chartHeight = 960.0, 220.0
	left, right, top        = 64.0, 12.0, 8.0
	axis                    = 24.0
	nodeWidth               = 280.0
	// A timeline whose rows fit is drawn with names; one with more has rows of a few pixels.
	rowNamed, rowBare = 16.0, 3.0
	namedMost         = 120
	nameWidth         = 230.0
	colours           = 8
	thin              = 4.0
)

// drawing is a page with everything at its place.
type drawing struct {
	*Page

	Legend      []swatch
	Boxes       []nodeBox
	MoreNodes   int
	Timeline    *timeline
	Cost        *cost
	PhaseLegend []swatch
}

type swatch struct{ Name, Class string }

type nodeBox struct {
	*Node

	CPUText, MemoryText string
	CPUBar, MemoryBar   []rect
	Count               int
}

type rect struct {
	X, Y, W, H   float64
	Class, Title string
}

type tick struct {
	At   float64
	Text string
}

type timeline struct {
	Width, Height, Left, Right, Bottom float64
	Top                                float64
	Rows                               []row
	Ticks                              []tick
	Named                              bool
	Shown, All                         int
}

type row struct {
	Name, Class string
	Text        float64
	Rects       []rect
}

type cost struct {
	Width, Height, Left, Right, Top, Bottom float64
	Area, Line                              string
	X, Y                                    []tick
}

func (p *Page) layout() *drawing {
	d := &drawing{Page: p}
	classes := d.classes()
	d.nodes(classes)
	d.timeline(classes)
	d.cost()
	return d
}

// classes gives each workload a colour, those with most pods first; what comes after the last colour shares one.
func (d *drawing) classes() map[string]string {
	counts := map[string]int{}
	for i := range d.Page.Nodes {
		for _, b := range d.Page.Nodes[i].Pods {
			if b.Workload != "" {
				counts[b.Workload]++
			}
		}
	}
	for i := range d.Pods {
		if len(d.Page.Nodes) == 0 {
			counts[d.Pods[i].Workload]++
		}
	}
	names := make([]string, 0, len(counts))
	for name := range counts {
		names = append(names, name)
	}
	slices.SortFunc(names, func(a, b string) int { return cmp.Or(counts[b]-counts[a], cmp.Compare(a, b)) })
	out := map[string]string{"": "daemon"}
	for i, name := range names {
		if i < colours {
			out[name] = fmt.Sprintf("w%d", i)
			d.Legend = append(d.Legend, swatch{fmt.Sprintf("%s ×%d", name, counts[name]), out[name]})
			continue
		}
		out[name] = "other"
	}
	if n := len(names) - colours; n > 0 {
		d.Legend = append(d.Legend, swatch{fmt.Sprintf("%d more workloads", n), "other"})
	}
	if len(d.Page.Nodes) > 0 {
		d.Legend = append(d.Legend, swatch{"daemonsets", "daemon"}, swatch{"free", "free"})
	}
	return out
}

// Palette are the classes that have a colour of their own.
func (*drawing) Palette() []string {
	out := []string{"daemon", "free", "other"}
	for i := range colours {
		out = append(out, fmt.Sprintf("w%d", i))
	}
	for i := range kinds() {
		out = append(out, fmt.Sprintf("p%d", i))
	}
	return out
}

// PriceText is what the node costs.
func (b nodeBox) PriceText() string {
	if b.Price == 0 {
		return "price not known"
	}
	return fmt.Sprintf("$%.4f an hour", b.Price)
}

// Where is what tells the node from others.
func (b nodeBox) Where() string {
	var parts []string
	for _, s := range []string{b.Name, b.Zone, b.CapacityType} {
		if s != "" {
			parts = append(parts, s)
		}
	}
	if b.Pool != "" {
		parts = append(parts, "pool "+b.Pool)
	}
	return strings.Join(append(parts, fmt.Sprintf("pods %d", b.Count)), " · ")
}

// YText is where numbers beside the axis end.
func (c *cost) YText() float64 { return c.Left - 8 }

func (d *drawing) nodes(classes map[string]string) {
	for i := range d.Page.Nodes {
		if i == MaxNodes {
			d.MoreNodes = len(d.Page.Nodes) - MaxNodes
			return
		}
		n := &d.Page.Nodes[i]
		b := nodeBox{Node: n}
		for _, p := range n.Pods {
			if p.Workload != "" {
				b.Count++
			}
		}
		var usedCPU, usedMemory int64
		b.CPUBar, usedCPU = bar(n.Pods, classes, n.CPU, 0, func(p Box) int64 { return p.CPU })
		b.MemoryBar, usedMemory = bar(n.Pods, classes, n.Memory, 22, func(p Box) int64 { return p.Memory })
		b.CPUText = fmt.Sprintf("CPU %s of %s", percent(usedCPU, n.CPU), cores(n.CPU))
		b.MemoryText = fmt.Sprintf("memory %s of %s", percent(usedMemory, n.Memory), gib(n.Memory))
		d.Boxes = append(d.Boxes, b)
	}
}

// bar fills a bar of the node's width with one piece a pod.
func bar(pods []Box, classes map[string]string, whole int64, y float64, of func(Box) int64) (out []rect, used int64) {
	x := 0.0
	for _, p := range pods {
		used += of(p)
		if whole <= 0 || of(p) <= 0 {
			continue
		}
		w := min(nodeWidth*float64(of(p))/float64(whole), nodeWidth-x)
		title := fmt.Sprintf("%s: %s, %s", p.Name, cores(p.CPU), gib(p.Memory))
		c := "cell " + classes[p.Workload]
		if w < thin {
			c += " thin" // lines between pieces this thin would hide them
		}
		out = append(out, rect{X: round(x), Y: y, W: round(w), H: 20, Class: c, Title: title})
		x += w
	}
	return out, used
}

func (d *drawing) timeline(classes map[string]string) {
	if len(d.Pods) == 0 {
		return
	}
	for i, name := range kinds() {
		d.PhaseLegend = append(d.PhaseLegend, swatch{name, fmt.Sprintf("p%d", i)})
	}
	pods := slices.Clone(d.Pods)
	slices.SortStableFunc(pods, func(a, b Pod) int {
		return cmp.Or(cmp.Compare(begin(a), begin(b)), cmp.Compare(end(a), end(b)), cmp.Compare(a.Name, b.Name))
	})
	t := &timeline{Width: chartWidth, Left: left, Right: chartWidth - right, Top: axis, All: len(pods)}
	if stride := (len(pods) + MaxPods - 1) / MaxPods; stride > 1 {
		kept := pods[:0]
		for i, p := range pods {
			if i%stride == 0 {
				kept = append(kept, p)
			}
		}
		pods = kept
	}
	last := time.Duration(0)
	for _, p := range pods {
		last = max(last, end(p))
	}
	t.Named, t.Shown = len(pods) <= namedMost, len(pods)
	height := rowBare
	if t.Named {
		t.Left, height = nameWidth, rowNamed
	} else {
		t.Left = left / 4
	}
	scale, ticks := axisOf(last.Seconds(), t.Left, t.Right, seconds)
	t.Ticks = ticks
	for i, p := range pods {
		y := axis + float64(i)*height
		r := row{Name: p.Name, Class: classes[p.Workload], Text: y + height - 4}
		for _, ph := range p.Phases {
			x, to := scale(ph.From.Seconds()), scale(ph.To.Seconds())
			title := fmt.Sprintf("%s on %s: %s, %s to %s", p.Name, p.Node, kinds()[ph.Kind], clock(ph.From), clock(ph.To))
			r.Rects = append(r.Rects, rect{X: round(x), Y: y, W: round(max(to-x, 0.4)), H: height - min(height/4, 3), Class: fmt.Sprintf("p%d", ph.Kind), Title: title})
		}
		t.Rows = append(t.Rows, r)
	}
	t.Bottom = axis + float64(len(pods))*height
	t.Height = t.Bottom + axis
	d.Timeline = t
}

func begin(p Pod) time.Duration {
	if len(p.Phases) == 0 {
		return 0
	}
	return p.Phases[0].From
}

func end(p Pod) time.Duration {
	if len(p.Phases) == 0 {
		return 0
	}
	return p.Phases[len(p.Phases)-1].To
}

func (d *drawing) cost() {
	if len(d.Prices) == 0 {
		return
	}
	c := &cost{Width: chartWidth, Height: chartHeight, Left: left, Right: chartWidth - right, Top: top, Bottom: chartHeight - axis}
	most := 0.0
	for _, p := range d.Prices {
		most = max(most, p.Price)
	}
	until := max(d.End, d.Prices[len(d.Prices)-1].At).Seconds()
	x, xTicks := axisOf(until, c.Left, c.Right, seconds)
	y, yTicks := axisOf(most, c.Bottom, c.Top, dollars)
	c.X, c.Y = xTicks, yTicks
	var line strings.Builder
	fmt.Fprintf(&line, "M%.1f %.1f", c.Left, c.Bottom)
	for _, p := range d.Prices {
		fmt.Fprintf(&line, "H%.1fV%.1f", x(p.At.Seconds()), y(p.Price))
	}
	c.Line = fmt.Sprintf("%sH%.1f", line.String(), x(until))
	c.Area = fmt.Sprintf("%sV%.1fZ", c.Line, c.Bottom)
	d.Cost = c
}

// axisOf maps the numbers from 0 to most onto the pixels between two and says where which number stands.
func axisOf(most, from, to float64, text func(float64) string) (scale func(float64) float64, ticks []tick) {
	if most <= 0 {
		most = 1
	}
	scale = func(v float64) float64 { return from + (to-from)*v/most }
	step := math.Pow(10, math.Floor(math.Log10(most)))
	for _, f := range []float64{0.1, 0.2, 0.5, 1, 2} {
		if most/(step*f) <= 8 {
			step *= f
			break
		}
	}
	for v := 0.0; v <= most*1.0001; v += step {
		ticks = append(ticks, tick{round(scale(v)), text(v)})
	}
	return scale, ticks
}

func round(v float64) float64 { return math.Round(v*100) / 100 }

func seconds(v float64) string { return fmt.Sprintf("%.3g s", v) }

func dollars(v float64) string { return fmt.Sprintf("$%.3g", v) }

func clock(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }

func percent(part, whole int64) string {
	if whole <= 0 {
		return "-"
	}
	return fmt.Sprintf("%.0f %%", 100*float64(part)/float64(whole))
}

func cores(milli int64) string { return fmt.Sprintf("%.4g CPU", float64(milli)/1000) }

func gib(bytes int64) string { return fmt.Sprintf("%.3g GiB", float64(bytes)/(1<<30)) }
