// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"time"
)

// Look is how a frame is drawn.
type Look struct {
	// Width and Height are the terminal's; everything is shown if Height is 0.
	Width, Height int
	// Title is what is looked at; By is what nodes are sorted by; From is the first node shown.
	Title string
	By    Order
	From  int
	// Paint colours text; nil leaves it plain.
	Paint func(Kind, string) string
}

// Kind is what a piece of text means.
type Kind int

// Kinds of text.
const (
	Heading Kind = iota
	Good
	Concern
	Bad
	Faint
)

const (
	// narrow is the least width at which everything can be read.
	narrow = 71
	// few is how many rows the lists above the nodes get in a terminal.
	few = 5
)

// frame is one being drawn.
type frame struct {
	Look
	lines []string
}

// Frame draws the snapshot, and returns how many nodes are seen.
func Frame(s *Snapshot, l Look) (text string, seen int) {
	f := &frame{Look: l}
	f.Width = max(f.Width, narrow)
	f.head(s)
	f.pools(s)
	f.flight(s)
	f.waiting(s)
	seen = f.nodes(s)
	if l.Height > 0 {
		if len(f.lines) > l.Height-1 {
			f.lines = f.lines[:l.Height-1]
		}
		for len(f.lines) < l.Height-1 {
			f.lines = append(f.lines, "")
		}
		f.add(Faint, "q quit  ↑↓ scroll  n name  c cpu  p price  a age")
	}
	return strings.Join(f.lines, "\n"), seen
}

// add appends a line, cut to the width.
func (f *frame) add(k Kind, text string) {
	text = fit(text, f.Width)
	if f.Paint != nil && k != Good {
		text = f.Paint(k, text)
	}
	f.lines = append(f.lines, text)
}

// fit cuts text to a width in characters, and marks where.
func fit(text string, width int) string {
	r := []rune(text)
	if len(r) <= width {
		return strings.TrimRight(text, " ")
	}
	return string(r[:max(width-1, 0)]) + "…"
}

// cell fills or cuts text to exactly a width.
func cell(text string, width int) string {
	text = fit(text, width)
	return text + strings.Repeat(" ", max(width-len([]rune(text)), 0))
}

func (f *frame) head(s *Snapshot) {
	t := &s.Total
	f.add(Heading, fmt.Sprintf("slipway top  %s  %s", f.Title, s.At.Format("15:04:05")))
	line := fmt.Sprintf("%d nodes  %d pods  %s/h  cpu %d%%  mem %d%%", t.Nodes, t.Pods, price(t), t.CPU.Percent(), t.Memory.Percent())
	if t.Late > 0 {
		line += fmt.Sprintf("  %d not ready", t.Late)
	}
	kind := Good
	if n := len(s.Waiting); n > 0 {
		line += fmt.Sprintf("  %d waiting, longest %s", n, age(s.At.Sub(s.Waiting[0].Since)))
		kind = Concern
	}
	f.add(kind, line)
}

// price writes a sum, with a plus if not all of it is known.
func price(p *Pool) string {
	plus := ""
	if p.Unpriced > 0 {
		plus = "+"
	}
	return fmt.Sprintf("$%.2f%s", p.Price, plus)
}

func (f *frame) title(text string) {
	f.lines = append(f.lines, "")
	f.add(Heading, text)
}

func (f *frame) pools(s *Snapshot) {
	name := f.Width - 58
	f.title(cell("NODEPOOL", name) + fmt.Sprintf(" %5s %5s  %-16s  %-16s %9s", "NODES", "PODS", "CPU", "MEMORY", "$/HOUR"))
	for i := range s.Pools {
		p := &s.Pools[i]
		kind := Good
		if !p.Ready {
			kind = Bad
		}
		f.add(kind, cell(p.Name, name)+fmt.Sprintf(" %5d %5d  %s  %s %9s", p.Nodes, p.Pods, bar(p.CPU), bar(p.Memory), price(p)))
	}
}

// bar is a share as a bar of ten and its number, 16 wide.
func bar(s Share) string {
	full := min(max((s.Percent()+5)/10, 0), 10)
	return fmt.Sprintf("%s%s %4d%%", strings.Repeat("█", full), strings.Repeat("░", 10-full), s.Percent())
}

// rows is how many of n rows a list above the nodes shows.
func (f *frame) rows(n int) int {
	if f.Height > 0 {
		return min(n, few)
	}
	return n
}

func (f *frame) flight(s *Snapshot) {
	if len(s.Flight) == 0 {
		return
	}
	f.title(fmt.Sprintf("IN FLIGHT (%d)", len(s.Flight)))
	for _, x := range s.Flight[:f.rows(len(s.Flight))] {
		kind := Good
		if x.What == "draining" || x.What == "disrupting" {
			kind = Concern
		}
		f.add(kind, fmt.Sprintf("%-10s %6s  %s  %s", x.What, age(s.At.Sub(x.Since)), x.Object, x.Detail))
	}
}

func (f *frame) waiting(s *Snapshot) {
	if len(s.Waiting) == 0 {
		return
	}
	f.title(fmt.Sprintf("PODS WAITING (%d)", len(s.Waiting)))
	for _, x := range s.Waiting[:f.rows(len(s.Waiting))] {
		f.add(Concern, fmt.Sprintf("%6s  %s  %s", age(s.At.Sub(x.Since)), x.Pod, x.Why))
	}
}

// nodes draws those that fit, from From on.
func (f *frame) nodes(s *Snapshot) int {
	name := max(f.Width-58, 12)
	f.title(cell(fmt.Sprintf("NODE (%d, by %s)", len(s.Nodes), f.By), name) + fmt.Sprintf(" %-14s %-10s %4s %5s %5s %8s %5s", "TYPE", "STATE", "PODS", "CPU", "MEM", "$/HOUR", "AGE"))
	from := min(max(f.From, 0), max(len(s.Nodes)-1, 0))
	to := len(s.Nodes)
	if f.Height > 0 {
		to = min(to, from+max(f.Height-1-len(f.lines), 0))
	}
	for i := from; i < to; i++ {
		n := &s.Nodes[i]
		kind := Good
		switch n.State {
		case "ready":
		case "not ready":
			kind = Bad
		default:
			kind = Concern
		}
		cost := "-"
		if n.Priced {
			cost = fmt.Sprintf("%.4f", n.Price)
		}
		f.add(kind, cell(short(n.Name, name), name)+fmt.Sprintf(" %s %s %4d %4d%% %4d%% %8s %5s", cell(n.Type, 14), cell(n.State, 10), n.Pods,
			n.CPU.Percent(), n.Memory.Percent(), cost, age(s.At.Sub(n.Since))))
	}
	return to - from
}

// short leaves the domain of a node's name away if the whole does not fit: the rest tells nodes apart.
func short(name string, width int) string {
	if len(name) <= width {
		return name
	}
	host, _, _ := strings.Cut(name, ".")
	return host
}

// age writes a duration in its two largest units at most, five characters wide.
func age(d time.Duration) string {
	switch d = max(d, 0); {
	case d < time.Minute:
		return fmt.Sprintf("%ds", int(d.Seconds()))
	case d < 10*time.Minute:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	case d < time.Hour:
		return fmt.Sprintf("%dm", int(d.Minutes()))
	case d < 10*time.Hour:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	case d < 48*time.Hour:
		return fmt.Sprintf("%dh", int(d.Hours()))
	}
	return fmt.Sprintf("%dd", int(d.Hours()/24))
}
