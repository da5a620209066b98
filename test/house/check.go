// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Violation is a rule broken at a place.
type Violation struct {
	Path string
	Line int
	What string
}

// String prints the violation as compilers do.
func (v Violation) String() string { return fmt.Sprintf("%s:%d: %s", v.Path, v.Line, v.What) }

// Check applies all rules to the files of a tree. The answer is sorted by file and line.
func Check(files []File) []Violation {
	var out []Violation
	for _, f := range files {
		out = append(out, checkHeader(f)...)
		out = append(out, checkMain(f)...)
		if !f.Nested {
			out = append(out, checkLevels(f)...)
			out = append(out, checkBans(f)...)
			out = append(out, checkClock(f)...)
		}
	}
	out = append(out, checkDocs(files)...)
	slices.SortFunc(out, func(a, b Violation) int {
		return strings.Compare(fmt.Sprintf("%s:%6d:%s", a.Path, a.Line, a.What), fmt.Sprintf("%s:%6d:%s", b.Path, b.Line, b.What))
	})
	return out
}

func checkHeader(f File) []Violation {
	if f.Header {
		return nil
	}
	return []Violation{{f.Path, 1, "does not begin with the licence header"}}
}

func checkMain(f File) []Violation {
	if f.Main > MaxMain {
		return []Violation{{f.Path, 1, fmt.Sprintf("func main has %d lines, at most %d: main only wires", f.Main, MaxMain)}}
	}
	if f.Main > 0 && within(f.Dir(), "cmd") && f.Lines > MaxMain {
		return []Violation{{f.Path, 1, fmt.Sprintf("the file of func main has %d lines, at most %d: main only wires", f.Lines, MaxMain)}}
	}
	return nil
}

// unitOf finds the unit a folder belongs to: the longest path that is the folder or above it.
func unitOf(dir string) (Unit, bool) {
	var best Unit
	found := false
	for _, u := range Units() {
		if (dir == u.Path || (within(dir, u.Path) && !u.Bare)) && len(u.Path) >= len(best.Path) {
			best, found = u, true
		}
	}
	return best, found
}

// within reports whether p is folder or import path root, or below it.
func within(p, root string) bool { return p == root || strings.HasPrefix(p, root+"/") }

func withinAny(p string, roots []string) bool {
	return slices.ContainsFunc(roots, func(r string) bool { return within(p, r) })
}

func checkLevels(f File) []Violation {
	from, ok := unitOf(f.Dir())
	if !ok {
		return []Violation{{f.Path, 1, fmt.Sprintf("folder %q is in no unit of the table of import levels", f.Dir())}}
	}
	var out []Violation
	for _, imp := range f.Imports {
		if !within(imp.Name, Module) {
			continue
		}
		dir := strings.TrimPrefix(strings.TrimPrefix(imp.Name, Module), "/")
		to, ok := unitOf(dir)
		switch {
		case !ok:
			out = append(out, Violation{f.Path, imp.Line, fmt.Sprintf("imports %q, which is in no unit of the table of import levels", dir)})
		case to.Path == from.Path, from.Level == TestLevel, to.Level < from.Level:
		case f.Test && to.Path == "test": // tests of every level use the builders, the emulator and the cluster
		case to.Level > from.Level:
			out = append(out, Violation{f.Path, imp.Line, fmt.Sprintf("level %d (%s) imports level %d (%s)", from.Level, from.Path, to.Level, to.Path)})
		default:
			out = append(out, Violation{f.Path, imp.Line, fmt.Sprintf("%s imports its sibling %s on level %d", from.Path, to.Path, to.Level)})
		}
	}
	return out
}

func checkBans(f File) []Violation {
	var out []Violation
	for _, imp := range f.Imports {
		for _, b := range Bans() {
			if !within(imp.Name, b.Import) || (f.Test && !b.Tests) || (len(b.In) > 0 && !withinAny(f.Dir(), b.In)) ||
				withinAny(f.Dir(), b.Except) || withinAny(imp.Name, b.Except) {
				continue
			}
			out = append(out, Violation{f.Path, imp.Line, fmt.Sprintf("imports %q: %s", imp.Name, b.Reason)})
		}
	}
	return out
}

func checkClock(f File) []Violation {
	if f.Test || !withinAny(f.Dir(), PureOf()) {
		return nil
	}
	var out []Violation
	for _, c := range f.Clock {
		out = append(out, Violation{f.Path, c.Line, fmt.Sprintf("uses %s: a pure package does not read the clock", c.Name)})
	}
	return out
}

// checkDocs wants in every package a doc.go with a package comment that names the import level of the table. A package of
// one file has the comment there. A command's may be in any file, for it is its usage text, and names no level.
func checkDocs(files []File) []Violation {
	packages := map[string][]File{}
	var dirs []string
	for _, f := range files {
		if _, ok := packages[f.Dir()]; !ok {
			dirs = append(dirs, f.Dir())
		}
		packages[f.Dir()] = append(packages[f.Dir()], f)
	}
	var out []Violation
	for _, dir := range dirs {
		if v, ok := checkDoc(dir, packages[dir]); !ok {
			out = append(out, v)
		}
	}
	return out
}

func checkDoc(dir string, files []File) (Violation, bool) {
	command := slices.ContainsFunc(files, func(f File) bool { return f.Package == "main" })
	if command || files[0].Nested {
		documented := slices.ContainsFunc(files, func(f File) bool { return f.Doc != "" })
		return Violation{files[0].Path, 1, "the package has no package comment"}, documented
	}
	i := slices.IndexFunc(files, func(f File) bool { return path.Base(f.Path) == "doc.go" })
	if len(files) == 1 && files[0].Doc != "" {
		i = 0
	}
	if i < 0 || files[i].Doc == "" {
		return Violation{path.Join(dir, "doc.go"), 1, "missing, or without a package comment"}, false
	}
	u, ok := unitOf(dir)
	if !ok {
		return Violation{}, true // reported by checkLevels
	}
	m := regexp.MustCompile(`Import\s+level:?\s+([0-9])`).FindStringSubmatch(files[i].Doc)
	if m == nil {
		return Violation{files[i].Path, 1, fmt.Sprintf("does not say \"Import level %d\"", u.Level)}, false
	}
	if m[1] != strconv.Itoa(u.Level) {
		return Violation{files[i].Path, 1, fmt.Sprintf("says import level %s, the table says %d", m[1], u.Level)}, false
	}
	return Violation{}, true
}
