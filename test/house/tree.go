// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"slices"
	"strconv"
	"strings"
)

// File is what the rules look at in one Go file.
type File struct {
	Path    string // below the module's root
	Package string // package clause
	Test    bool   // _test.go
	Nested  bool   // in a module of its own below the root, whose imports are its own business
	Doc     string // package comment, empty if there is none
	Header  bool   // begins with the licence
	Lines   int
	Imports []Ref
	// Clock are the uses of functions that read the clock.
	Clock []Ref
	// Main is the number of lines of func main, 0 if the file has none.
	Main int
}

// Dir is the file's folder.
func (f File) Dir() string { return path.Dir(f.Path) }

// Ref is a name used at a line.
type Ref struct {
	Name string
	Line int
}

// Read parses every Go file of a tree, apart from hidden folders, testdata, vendor and build output. A file that does
// not parse is an error that names it.
func Read(tree fs.FS) ([]File, error) {
	var files []File
	nested := map[string]bool{}
	err := fs.WalkDir(tree, ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return fmt.Errorf("walking %q: %w", p, err)
		}
		if d.IsDir() {
			if p != "." && skipped(d.Name()) {
				return fs.SkipDir
			}
			nested[p] = nested[path.Dir(p)] || (p != "." && exists(tree, path.Join(p, "go.mod")))
			return nil
		}
		if path.Ext(p) != ".go" {
			return nil
		}
		f, err := parse(tree, p)
		if err != nil {
			return err
		}
		f.Nested = nested[path.Dir(p)]
		files = append(files, f)
		return nil
	})
	return files, err
}

func skipped(dir string) bool {
	return strings.HasPrefix(dir, ".") || strings.HasPrefix(dir, "_") ||
		slices.Contains([]string{"testdata", "vendor", "bin", "dist"}, dir)
}

func exists(tree fs.FS, p string) bool {
	_, err := fs.Stat(tree, p)
	return !errors.Is(err, fs.ErrNotExist)
}

func parse(tree fs.FS, p string) (File, error) {
	src, err := fs.ReadFile(tree, p)
	if err != nil {
		return File{}, fmt.Errorf("reading %q: %w", p, err)
	}
	set := token.NewFileSet()
	syntax, err := parser.ParseFile(set, p, src, parser.ParseComments|parser.SkipObjectResolution)
	if err != nil {
		return File{}, fmt.Errorf("parsing: %w", err)
	}
	line := func(n ast.Node) int { return set.Position(n.Pos()).Line }
	f := File{
		Path: p, Package: syntax.Name.Name, Test: strings.HasSuffix(p, "_test.go"),
		Doc: syntax.Doc.Text(), Header: hasHeader(src), Lines: bytes.Count(src, []byte("\n")),
	}
	clock := "" // the name package time goes by
	for _, spec := range syntax.Imports {
		name, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return File{}, fmt.Errorf("parsing %q: import %s: %w", p, spec.Path.Value, err)
		}
		f.Imports = append(f.Imports, Ref{name, line(spec)})
		if name == "time" {
			clock = "time"
			if spec.Name != nil {
				clock = spec.Name.Name
			}
		}
	}
	ast.Inspect(syntax, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && clock != "" {
			if pkg, ok := sel.X.(*ast.Ident); ok && pkg.Name == clock && slices.Contains(clockReaders(), sel.Sel.Name) {
				f.Clock = append(f.Clock, Ref{"time." + sel.Sel.Name, line(sel)})
			}
		}
		return true
	})
	for _, d := range syntax.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "main" && f.Package == "main" {
			f.Main = set.Position(fn.End()).Line - line(fn) + 1
		}
	}
	return f, nil
}

func hasHeader(src []byte) bool {
	want := Header()
	lines := strings.SplitN(string(src), "\n", len(want)+1)
	return len(lines) > len(want) && slices.Equal(lines[:len(want)], want)
}
