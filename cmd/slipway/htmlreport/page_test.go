// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package htmlreport

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/net/html"
)

// render parses the page as a browser does.
func render(t *testing.T, p *Page) *html.Node {
	t.Helper()
	var out bytes.Buffer
	if err := p.Write(&out); err != nil {
		t.Fatal(err)
	}
	doc, err := html.Parse(&out)
	if err != nil {
		t.Fatal(err)
	}
	return doc
}

func attr(n *html.Node, key string) string {
	for _, a := range n.Attr {
		if strings.EqualFold(a.Key, key) {
			return a.Val
		}
	}
	return ""
}

// find returns the elements of a name for which want is true.
func find(doc *html.Node, name string, want func(*html.Node) bool) []*html.Node {
	var out []*html.Node
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && n.Data == name && (want == nil || want(n)) {
			out = append(out, n)
		}
	}
	return out
}

func text(n *html.Node) string {
	var b strings.Builder
	for c := range n.Descendants() {
		if c.Type == html.TextNode {
			b.WriteString(c.Data)
		}
	}
	return strings.Join(strings.Fields(b.String()), " ")
}

func class(name string) func(*html.Node) bool {
	return func(n *html.Node) bool { return strings.Contains(" "+attr(n, "class")+" ", " "+name+" ") }
}

func id(doc *html.Node, name string) *html.Node {
	for n := range doc.Descendants() {
		if n.Type == html.ElementNode && attr(n, "id") == name {
			return n
		}
	}
	return nil
}

// sample is a page with n pods on nodes of 10.
func sample(n int) *Page {
	p := &Page{Title: "Sample", Facts: []Fact{{"Pods", fmt.Sprint(n)}}, End: 20 * time.Second}
	for i := range n {
		if i%10 == 0 {
			p.Nodes = append(p.Nodes, Node{Name: fmt.Sprintf("n%d", i/10), InstanceType: "m5.large", Price: 0.096, CPU: 2000, Memory: 8 << 30})
			p.Prices = append(p.Prices, Price{time.Duration(i) * time.Millisecond, 0.096 * float64(len(p.Nodes))})
		}
		at := time.Duration(i) * time.Millisecond
		name := fmt.Sprintf("web-%d", i)
		node := &p.Nodes[len(p.Nodes)-1]
		node.Pods = append(node.Pods, Box{name, Workload(name), 100, 512 << 20})
		p.Pods = append(p.Pods, Pod{Name: name, Workload: "web", Node: node.Name, Phases: []Phase{
			{Deciding, at, at + 10*time.Millisecond}, {Booting, at + 10*time.Millisecond, at + 8*time.Second}, {Starting, at + 8*time.Second, at + 9*time.Second},
		}})
	}
	return p
}

func TestPage(t *testing.T) {
	doc := render(t, sample(25))
	if got := text(find(doc, "title", func(n *html.Node) bool { return n.Parent.Data == "head" })[0]); got != "Sample" {
		t.Errorf("the title is %q", got)
	}
	boxes := find(doc, "article", class("node"))
	if len(boxes) != 3 {
		t.Fatalf("%d nodes are drawn, want 3", len(boxes))
	}
	// 10 pods of 100m and 512 MiB on 2 CPU and 8 GiB: half of one bar, five eighths of the other.
	var cpu, memory float64
	for _, r := range find(boxes[0], "rect", class("cell")) {
		w, err := strconv.ParseFloat(attr(r, "width"), 64)
		if err != nil {
			t.Fatal(err)
		}
		if attr(r, "y") == "0" {
			cpu += w
		} else {
			memory += w
		}
	}
	if cpu != 140 || memory != 175 {
		t.Errorf("the bars are filled to %g and %g of 280, want 140 and 175", cpu, memory)
	}
	if got := text(boxes[2]); !strings.Contains(got, "CPU 25 % of 2 CPU · memory 31 % of 8 GiB") || !strings.Contains(got, "pods 5") || !strings.Contains(got, "$0.0960 an hour") {
		t.Errorf("the last node says %q", got)
	}
	rows := find(id(doc, "timeline"), "g", class("pod"))
	if len(rows) != 25 || len(find(rows[0], "rect", nil)) != 3 || len(find(rows[0], "text", nil)) != 1 {
		t.Errorf("the timeline has %d rows, the first %d phases", len(rows), len(find(rows[0], "rect", nil)))
	}
	if got := text(find(rows[0], "title", nil)[0]); got != "web-0 on n0: decide and ask EC2, 0.000 s to 0.010 s" {
		t.Errorf("the first phase says %q", got)
	}
	curve := find(id(doc, "cost"), "path", class("curve"))
	if len(curve) != 1 || strings.Count(attr(curve[0], "d"), "V") != 3 {
		t.Errorf("cost over time has %d curves, want one with 3 steps", len(curve))
	}
}

// Nothing outside the file is asked for, and what people call their pods is text.
func TestPageIsSelfContained(t *testing.T) {
	p := sample(3)
	evil := `<script src="http://x">"'`
	p.Title, p.Nodes[0].Name, p.Pods[0].Name, p.Nodes[0].Pods[0].Name = evil, evil, evil, evil
	p.Unplaced = []Fact{{evil, evil}}
	doc := render(t, p)
	for n := range doc.Descendants() {
		if n.Type != html.ElementNode {
			continue
		}
		switch n.Data {
		case "script", "link", "img", "iframe", "object", "embed", "use", "image", "base":
			t.Errorf("the page has an element <%s>", n.Data)
		}
		for _, a := range n.Attr {
			if key := strings.ToLower(a.Key); key == "src" || key == "href" || strings.HasPrefix(key, "on") || strings.Contains(a.Val, "url(") {
				t.Errorf("<%s> has %s=%q", n.Data, a.Key, a.Val)
			}
		}
		if n.Data == "style" && (strings.Contains(text(n), "url(") || strings.Contains(text(n), "@import") || strings.Contains(text(n), "ZgotmplZ")) {
			t.Errorf("the style asks for something or was not understood: %s", text(n))
		}
	}
	if got := text(find(doc, "h1", nil)[0]); got != evil {
		t.Errorf("the heading is %q, want the title as it is", got)
	}
}

// At its limits the page says what it leaves out; below, everything is there.
func TestPageLimits(t *testing.T) {
	tests := map[string]struct {
		pods, rows, boxes int
		more              string
	}{
		"none":     {},
		"1000":     {pods: 1000, rows: 1000, boxes: 100},
		"too many": {pods: 4100, rows: 1367, boxes: MaxNodes, more: "110 more nodes are not drawn. Drawn are 1367 of 4100, evenly chosen."},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			p := sample(tt.pods)
			doc := render(t, p)
			if rows := len(find(doc, "g", class("pod"))); rows != tt.rows {
				t.Errorf("%d rows, want %d", rows, tt.rows)
			}
			if boxes := len(find(doc, "article", class("node"))); boxes != tt.boxes {
				t.Errorf("%d nodes are drawn, want %d", boxes, tt.boxes)
			}
			more := ""
			for _, part := range []string{"more-nodes", "more-pods"} {
				if n := id(doc, part); n != nil {
					more = strings.TrimSpace(more + " " + text(n))
				}
			}
			if more != tt.more {
				t.Errorf("what is left out: %q, want %q", more, tt.more)
			}
		})
	}
}

func TestWorkload(t *testing.T) {
	tests := map[string]string{
		"web-0": "web", "web-api-7d9f8c6b54-x2k4z": "web-api", "db": "db", "fluent-bit-2kxzq": "fluent-bit", "worker-6c5d4f7b89-zzzzz": "worker",
		"shop/cart-12": "shop/cart", "node-local-dns": "node-local-dns", "-": "-",
	}
	got := map[string]string{}
	for pod := range tests {
		got[pod] = Workload(pod)
	}
	if diff := cmp.Diff(tests, got); diff != "" {
		t.Errorf("workloads (-want +got):\n%s", diff)
	}
}

func TestAxis(t *testing.T) {
	for _, most := range []float64{0, 0.003, 0.7, 1, 9.99, 64, 1234} {
		_, ticks := axisOf(most, 0, 100, seconds)
		if len(ticks) < 2 || len(ticks) > 9 || ticks[0].At != 0 || ticks[len(ticks)-1].At > 100.1 {
			t.Errorf("up to %g there are the ticks %v", most, ticks)
		}
	}
}

func TestFile(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "r.html")
	for name, bad := range map[string]string{"a folder": dir, "no folder": filepath.Join(dir, "missing", "r.html")} {
		if _, err := Open(bad); err == nil || !strings.Contains(err.Error(), strconv.Quote(bad)) {
			t.Errorf("%s: error %v, want one that names the path", name, err)
		}
	}
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	f.Discard()
	if left, _ := os.ReadDir(dir); len(left) != 0 {
		t.Errorf("a report that was given up left %v", left)
	}
	if f, err = Open(path); err != nil {
		t.Fatal(err)
	}
	if err := f.Save(sample(1)); err != nil {
		t.Fatal(err)
	}
	f.Discard()
	raw, err := os.ReadFile(path)
	if err != nil || !bytes.HasPrefix(raw, []byte("<!DOCTYPE html>")) || !bytes.Contains(raw, []byte("</html>")) {
		t.Errorf("the report begins with %.20q (%v)", raw, err)
	}
}
