// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package htmlreport

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits of what is drawn; what is more is counted in words.
const (
	// MaxNodes is how many nodes are drawn as boxes.
	MaxNodes = 300
	// MaxPods is how many pods are drawn in the timeline. Of more, every k-th is, in order of time.
	MaxPods = 2000
)

// Page is what a report shows. Parts without content are left out.
type Page struct {
	Title, Subtitle string
	Facts           []Fact
	Nodes           []Node
	Pods            []Pod
	// Unplaced are groups of pods without a place, each with the reason.
	Unplaced []Fact
	// Prices are when what all nodes cost together changed, in order of time; it ends at End.
	Prices []Price
	End    time.Duration
	// Notes are sentences for the end of the page.
	Notes []string
}

// Fact is a name and what there is to say of it.
type Fact struct{ Name, Value string }

// Node is a node and what fills it. CPU is in millicores, Memory in bytes, Price in US dollars an hour.
type Node struct {
	Name, Pool, InstanceType, Zone, CapacityType string
	Price                                        float64
	CPU, Memory                                  int64
	Pods                                         []Box
}

// Box is a pod on a node, or what daemonsets take there.
type Box struct {
	Name string
	// Workload is what pods of one colour have in common; empty for daemonsets, which are grey.
	Workload    string
	CPU, Memory int64
}

// Pod is one pod's way. Phases follow one another.
type Pod struct {
	Name, Workload, Node string
	Phases               []Phase
}

// Phase is a part of a pod's way, from the beginning of the report on.
type Phase struct {
	Kind     Kind
	From, To time.Duration
}

// Kind is what a pod waits for.
type Kind int

// Kinds of phases, in the order of a pod's way.
const (
	Deciding Kind = iota // until EC2 is asked
	Buying               // until EC2 has answered
	Booting              // until the node is ready
	Binding              // until the pod has its node
	Starting             // until it runs
)

// kinds are the phases' names.
func kinds() []string {
	return []string{"decide and ask EC2", "EC2 answers", "machine boots", "pod gets its node", "containers start"}
}

// Price is what all nodes cost together from an instant on, in US dollars an hour.
type Price struct {
	At    time.Duration
	Price float64
}

//go:embed page.html.tmpl
var source string

// Write writes the page as HTML.
func (p *Page) Write(w io.Writer) error {
	t, err := template.New("page").Parse(source)
	if err != nil {
		return fmt.Errorf("reading the template of the report: %w", err)
	}
	if err := t.Execute(w, p.layout()); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// File is a report that is to be written. It is opened before long work, so that a wrong path is told first.
type File struct {
	path string
	temp *os.File
}

// Open makes sure that a report can be written to the path. What is there stays until Save.
func Open(path string) (*File, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return nil, fmt.Errorf("--report %q is a folder, name a file in it", path)
	}
	temp, err := os.CreateTemp(filepath.Dir(path), ".report-*.html")
	if err != nil {
		return nil, fmt.Errorf("--report %q cannot be written: %w", path, err)
	}
	return &File{path: path, temp: temp}, nil
}

// Save writes the page and puts it in its place.
func (f *File) Save(p *Page) error {
	if err := p.Write(f.temp); err != nil {
		return err
	}
	if err := f.temp.Chmod(0o644); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := f.temp.Close(); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	if err := os.Rename(f.temp.Name(), f.path); err != nil {
		return fmt.Errorf("writing the report: %w", err)
	}
	return nil
}

// Discard removes what Save has not put in its place. It may be called after Save.
func (f *File) Discard() {
	_ = f.temp.Close()
	_ = os.Remove(f.temp.Name())
}

// Workload is what pods that differ in a number or a random ending have in common: a Deployment's pods end in two such parts,
// the first of which belongs to the ReplicaSet.
func Workload(pod string) string {
	for range 2 {
		at := strings.LastIndexByte(pod, '-')
		if at <= 0 || !generated(pod[at+1:]) {
			break
		}
		pod = pod[:at]
	}
	return pod
}

// generated reports whether part of a name is a number or looks like one of Kubernetes' random endings, which have no vowels.
func generated(part string) bool {
	if part == "" {
		return false
	}
	number := strings.Trim(part, "0123456789") == ""
	random := (len(part) == 5 || len(part) >= 8 && len(part) <= 10) && strings.Trim(part, "bcdfghjklmnpqrstvwxz2456789") == ""
	return number || random
}
