// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Page is a Markdown file.
type Page struct {
	Path  string
	Lines []string
	// Anchors are what its headings can be linked as.
	Anchors map[string]bool
}

// Docs is what pages are held against.
type Docs struct {
	Pages []Page
	// Exists are all files and folders of the tree.
	Exists map[string]bool
	// Flags are the flags that commands in cmd define by a literal name, without dashes; Words all string literals of Go sources.
	Flags, Words map[string]bool
	// Events are the reasons of events that sources give by a literal, with the place of each.
	Events map[string]string
	// Samples are the files of manifests/samples, Metrics the generated reference.
	Samples []string
	Metrics string
}

// metricsPage is made from the metrics that are registered, so it holds exactly those.
const metricsPage = "docs/reference/metrics.md"

// ReadDocs reads a tree's pages and what they are held against.
func ReadDocs(tree fs.FS) (Docs, error) {
	d := Docs{Exists: map[string]bool{}, Flags: map[string]bool{}, Words: map[string]bool{}, Events: map[string]string{}}
	err := fs.WalkDir(tree, ".", func(p string, e fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walking %q: %w", p, err)
		}
		if e.IsDir() && p != "." && skipped(e.Name()) {
			return fs.SkipDir
		}
		d.Exists[p] = true
		if e.IsDir() {
			return nil
		}
		return d.read(tree, p)
	})
	return d, err
}

func (d *Docs) read(tree fs.FS, p string) error {
	ext, sample := path.Ext(p), within(p, "manifests/samples")
	isCode := ext == ".go" && !strings.HasSuffix(p, "_test.go") && !within(p, "test")
	if ext != ".md" && !isCode && !sample {
		return nil
	}
	text, err := fs.ReadFile(tree, p)
	if err != nil {
		return fmt.Errorf("reading %q: %w", p, err)
	}
	switch {
	case isCode:
		return d.readCode(p, text)
	case ext == ".md":
		d.Pages = append(d.Pages, newPage(p, string(text)))
		if p == metricsPage {
			d.Metrics = string(text)
		}
	case ext == ".yaml":
		d.Samples = append(d.Samples, string(text))
	}
	return nil
}

func newPage(p, text string) Page {
	page := Page{Path: p, Lines: strings.Split(text, "\n"), Anchors: map[string]bool{}}
	fenced := false
	for _, line := range page.Lines {
		fenced = fenced != strings.HasPrefix(line, "```")
		if heading := strings.TrimLeft(line, "#"); !fenced && heading != line && strings.HasPrefix(heading, " ") {
			page.Anchors[anchor(heading)] = true
		}
	}
	return page
}

var notInAnchors = regexp.MustCompile(`[^\p{L}\p{N}\- _]`)

// anchor is GitHub's name for a heading: lower case, spaces become dashes, other characters go.
func anchor(heading string) string {
	return strings.ReplaceAll(notInAnchors.ReplaceAllString(strings.ToLower(strings.TrimSpace(heading)), ""), " ", "-")
}

// definesFlag are the functions of flag and pflag that take a flag's name as a literal, whatever its type.
var definesFlag = regexp.MustCompile(`^(String|Bool|U?[Ii]nt(32|64)?|Float64|Duration|StringSlice|StringArray)(Var)?P?$`)

// eventReason is at which argument a function that writes an event has its reason.
func eventReason(function, receiver string) (int, bool) {
	switch {
	case function == "Eventf", function == "event":
		return 3, true
	case receiver == "teller" && (function == "node" || function == "claim"):
		return 1, true
	}
	return 0, false
}

func (d *Docs) readCode(p string, text []byte) error {
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, p, bytes.NewReader(text), parser.SkipObjectResolution)
	if err != nil {
		return fmt.Errorf("parsing %q: %w", p, err)
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.BasicLit:
			if s := literal(n); s != "" {
				d.Words[s] = true
			}
		case *ast.CallExpr:
			if f, ok := n.Fun.(*ast.SelectorExpr); ok {
				d.readCall(n, f, fset.Position(n.Pos()))
			}
		}
		return true
	})
	return nil
}

// readCall notes the flag a call defines, and the reason of the event it writes.
func (d *Docs) readCall(call *ast.CallExpr, f *ast.SelectorExpr, at token.Position) {
	if within(at.Filename, "cmd") && definesFlag.MatchString(f.Sel.Name) {
		for _, a := range call.Args[:min(2, len(call.Args))] { // the name comes first, or after the variable
			if s := literal(a); s != "" {
				d.Flags[s] = true
				break
			}
		}
	}
	receiver := ""
	if r, ok := f.X.(*ast.SelectorExpr); ok {
		receiver = r.Sel.Name
	}
	if i, ok := eventReason(f.Sel.Name, receiver); ok && i < len(call.Args) {
		if s := literal(call.Args[i]); s != "" {
			d.Events[s] = fmt.Sprintf("%s:%d", at.Filename, at.Line)
		}
	}
}

// literal is the value of a string literal, empty for anything else.
func literal(e ast.Expr) string {
	b, ok := e.(*ast.BasicLit)
	if !ok || b.Kind != token.STRING {
		return ""
	}
	s, err := strconv.Unquote(b.Value)
	if err != nil {
		return ""
	}
	return s
}

// CheckDocs says what in the pages is not so. foreign are the flags of other programs that the pages name; one that no page
// names is a violation, too.
func CheckDocs(d Docs, foreign []string) []Violation {
	var out []Violation
	used := map[string]bool{}
	for _, page := range d.Pages {
		out = append(out, d.checkLinks(page)...)
		if page.Path == "CHANGELOG.md" { // says what was so
			continue
		}
		out = append(out, d.checkNames(page, foreign, used)...)
		if path.Dir(page.Path) == "docs" {
			out = append(out, d.checkExamples(page)...)
		}
	}
	for _, f := range foreign {
		if !used[f] {
			out = append(out, Violation{"test/house", 1, fmt.Sprintf("flag --%s of another program is in the table, and on no page", f)})
		}
	}
	return append(out, d.checkEvents()...)
}

var link = regexp.MustCompile(`\]\(([^)\s]+)\)`)

func (d *Docs) checkLinks(page Page) []Violation {
	var out []Violation
	for n, line := range page.Lines {
		for _, m := range link.FindAllStringSubmatch(line, -1) {
			if strings.Contains(m[1], "://") {
				continue
			}
			target, fragment, _ := strings.Cut(m[1], "#")
			file := page.Path
			if target != "" {
				file = path.Join(path.Dir(page.Path), target)
			}
			to := slices.IndexFunc(d.Pages, func(p Page) bool { return p.Path == file })
			switch {
			case !d.Exists[file]:
				out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("links to %q, which is not there", m[1])})
			case fragment != "" && to >= 0 && !d.Pages[to].Anchors[fragment]:
				out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("links to %q, and %s has no such heading", m[1], file)})
			}
		}
	}
	return out
}

var (
	flagName   = regexp.MustCompile("(?:^|[\\s`'{,(])--([a-z][a-z0-9-]*)")
	ownName    = regexp.MustCompile(`\bslipway\.sh/[a-z]+(?:-[a-z]+)*\b`)
	metricName = regexp.MustCompile(`\b(?:slipway|karpenter)_[a-z0-9]+(?:_[a-z0-9]+)+\b`)
)

// checkNames looks for flags, for labels and annotations of Slipway's, and for metrics that do not exist.
func (d *Docs) checkNames(page Page, foreign []string, used map[string]bool) []Violation {
	var out []Violation
	for n, line := range page.Lines {
		for _, m := range flagName.FindAllStringSubmatch(line, -1) {
			known := slices.Contains(foreign, m[1])
			used[m[1]] = used[m[1]] || known
			if !known && !d.Flags[m[1]] {
				out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("no command in cmd has a flag --%s", m[1])})
			}
		}
		for _, name := range ownName.FindAllString(line, -1) {
			if !d.Words[name] {
				out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("no source has the name %s", name)})
			}
		}
		for _, name := range metricName.FindAllString(line, -1) {
			if !strings.Contains(d.Metrics, "`"+name+"`") {
				out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("%s has no metric %s", metricsPage, name)})
			}
		}
	}
	return out
}

// checkExamples wants every example in a guide to be part of a file in manifests/samples: those are applied by tests.
func (d *Docs) checkExamples(page Page) []Violation {
	var out []Violation
	var block []string
	begin := 0
	for n, line := range page.Lines {
		switch {
		case begin == 0 && line == "```yaml":
			begin, block = n+1, nil
		case begin > 0 && line == "```":
			text := strings.Join(block, "\n") + "\n"
			if !slices.ContainsFunc(d.Samples, func(s string) bool { return strings.HasPrefix(s, text) || strings.Contains(s, "\n"+text) }) {
				out = append(out, Violation{page.Path, begin, "the example is not part of a file in manifests/samples"})
			}
			begin = 0
		case begin > 0:
			block = append(block, line)
		}
	}
	return out
}

// eventsPage lists events in tables whose first cells are their reasons.
const eventsPage = "docs/events.md"

var code = regexp.MustCompile("`([A-Za-z]+)`")

func (d *Docs) checkEvents() []Violation {
	var out []Violation
	listed := map[string]bool{}
	for _, page := range d.Pages {
		if page.Path != eventsPage {
			continue
		}
		for n, line := range page.Lines {
			cells := strings.Split(line, "|")
			if len(cells) < 3 {
				continue
			}
			for _, m := range code.FindAllStringSubmatch(cells[1], -1) {
				listed[m[1]] = true
				if !d.Words[m[1]] {
					out = append(out, Violation{page.Path, n + 1, fmt.Sprintf("no source has an event %s", m[1])})
				}
			}
		}
	}
	for reason, at := range d.Events {
		if !listed[reason] {
			out = append(out, Violation{eventsPage, 1, fmt.Sprintf("the event %s of %s is missing", reason, at)})
		}
	}
	slices.SortFunc(out, func(a, b Violation) int { return strings.Compare(a.What, b.What) })
	return out
}
