// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gen reads the generated serializers of the pinned EC2 SDK and writes
// the names that members of its Go types have on the wire, for the actions the
// emulator answers. Run it through `go generate ./test/ec2emu/wire` after a
// change of the SDK version or of the list of actions.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"log"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"unicode"
)

const (
	module      = "github.com/aws/aws-sdk-go-v2/service/ec2"
	inDocument  = "awsEc2query_serializeDocument"
	inOp        = "awsEc2query_serializeOpDocument"
	outDocument = "awsEc2query_deserializeDocument"
	outOp       = "awsEc2query_deserializeOpDocument"
)

func main() {
	out := flag.String("out", "names_ec2.go", "file to write")
	actions := flag.String("actions", "actions.txt", "file that lists the actions, one a line")
	flag.Parse()
	if err := run(*out, *actions); err != nil {
		log.Fatal(err)
	}
}

func run(out, actionsFile string) error {
	list, err := os.ReadFile(actionsFile)
	if err != nil {
		return fmt.Errorf("reading actions: %w", err)
	}
	dir, version, err := moduleDir()
	if err != nil {
		return err
	}
	funcs := map[string]*ast.FuncDecl{}
	for _, name := range []string{"serializers.go", "deserializers.go"} {
		file, err := parser.ParseFile(token.NewFileSet(), filepath.Join(dir, name), nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing SDK source: %w", err)
		}
		for _, decl := range file.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil {
				funcs[fn.Name.Name] = fn
			}
		}
	}
	in, outNames := map[string]string{}, map[string]string{}
	for action := range strings.FieldsSeq(string(list)) {
		if funcs[outOp+action+"Output"] == nil && funcs[inOp+action+"Input"] == nil {
			return fmt.Errorf("finding action %q in the SDK: no serializer", action)
		}
		walk(funcs, inOp+action+"Input", inDocument, map[string]bool{}, func(fn *ast.FuncDecl) { readInput(fn, in) })
		walk(funcs, outOp+action+"Output", outDocument, map[string]bool{}, func(fn *ast.FuncDecl) { readOutput(funcs, fn, outNames) })
	}
	return write(out, version, in, outNames)
}

func moduleDir() (dir, version string, err error) {
	text, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}} {{.Version}}", module).Output()
	if err != nil {
		return "", "", fmt.Errorf("finding module %q: %w", module, err)
	}
	dir, version, ok := strings.Cut(strings.TrimSpace(string(text)), " ")
	if !ok {
		return "", "", fmt.Errorf("finding module %q: unexpected answer %q", module, text)
	}
	return dir, version, nil
}

// walk visits fn and every document serializer it reaches.
func walk(funcs map[string]*ast.FuncDecl, name, prefix string, seen map[string]bool, visit func(*ast.FuncDecl)) {
	fn := funcs[name]
	if fn == nil || seen[name] {
		return
	}
	seen[name] = true
	visit(fn)
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if id, ok := n.(*ast.Ident); ok && strings.HasPrefix(id.Name, prefix) {
			walk(funcs, id.Name, prefix, seen, visit)
		}
		return true
	})
}

// structName returns the struct that a serializer handles, empty for lists.
func structName(fn *ast.FuncDecl) string {
	t := fn.Type.Params.List[0].Type
	for {
		star, ok := t.(*ast.StarExpr)
		if !ok {
			break
		}
		t = star.X
	}
	switch t := t.(type) {
	case *ast.Ident:
		return t.Name
	case *ast.SelectorExpr:
		return t.Sel.Name
	}
	return ""
}

func readInput(fn *ast.FuncDecl, names map[string]string) {
	owner := structName(fn)
	for _, stmt := range fn.Body.List {
		cond, ok := stmt.(*ast.IfStmt)
		if !ok || owner == "" {
			continue
		}
		field, wire := selected(cond.Cond, "v"), ""
		ast.Inspect(cond.Body, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || wire != "" {
				return true
			}
			if sel, ok := call.Fun.(*ast.SelectorExpr); ok && (sel.Sel.Name == "Key" || sel.Sel.Name == "FlatKey") {
				wire = literal(call.Args[0])
			}
			return true
		})
		if field != "" && wire != "" && wire != field {
			names[owner+"."+field] = wire
		}
	}
}

// readOutput adds the members of fn's struct, and for a list whose elements are
// not called "item" what they are called, under the member's name and "[]".
func readOutput(funcs map[string]*ast.FuncDecl, fn *ast.FuncDecl, names map[string]string) {
	owner := structName(fn)
	if owner == "" {
		return
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		clause, ok := n.(*ast.CaseClause)
		if !ok || len(clause.List) != 1 {
			return true
		}
		call, ok := clause.List[0].(*ast.CallExpr)
		if !ok || len(call.Args) == 0 {
			return true
		}
		wire, field, item := literal(call.Args[0]), "", "item"
		for _, stmt := range clause.Body {
			if field == "" {
				field = selected(stmt, "sv")
			}
			ast.Inspect(stmt, func(n ast.Node) bool {
				if id, ok := n.(*ast.Ident); ok && strings.HasPrefix(id.Name, outDocument) {
					item = itemName(funcs[id.Name])
				}
				return true
			})
		}
		if item != "item" {
			names[owner+"."+field+"[]"] = item
		}
		if field != "" && wire != "" && wire != lowerFirst(field) {
			names[owner+"."+field] = wire
		}
		return true
	})
}

// itemName returns what the elements of a list are called, "item" for a struct.
func itemName(fn *ast.FuncDecl) string {
	item := "item"
	if fn == nil || structName(fn) != "" {
		return item
	}
	ast.Inspect(fn.Body, func(n ast.Node) bool {
		if clause, ok := n.(*ast.CaseClause); ok && len(clause.List) == 1 {
			if call, ok := clause.List[0].(*ast.CallExpr); ok && len(call.Args) > 0 {
				item = literal(call.Args[0])
			}
		}
		return true
	})
	return item
}

// selected returns F of the first selector base.F below n.
func selected(n ast.Node, base string) string {
	field := ""
	ast.Inspect(n, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok && field == "" {
			if id, ok := sel.X.(*ast.Ident); ok && id.Name == base {
				field = sel.Sel.Name
			}
		}
		return true
	})
	return field
}

func literal(e ast.Expr) string {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return ""
	}
	s, err := strconv.Unquote(lit.Value)
	if err != nil {
		return ""
	}
	return s
}

func lowerFirst(s string) string {
	r := []rune(s)
	r[0] = unicode.ToLower(r[0])
	return string(r)
}

func write(out, version string, in, outNames map[string]string) error {
	var b bytes.Buffer
	fmt.Fprintf(&b, "// Copyright The Slipway Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n")
	fmt.Fprintf(&b, "// Code generated by test/ec2emu/wire/gen from %s %s. DO NOT EDIT.\n\npackage wire\n\n", module, version)
	table(&b, "ec2InputName", "returns the query parameter of a request member whose name is not the Go field's, or empty.", in)
	table(&b, "ec2OutputName", "returns the XML element of a response member whose name is not the Go field's in lower camel case, or empty.", outNames)
	src, err := format.Source(b.Bytes())
	if err != nil {
		return fmt.Errorf("formatting: %w", err)
	}
	if err := os.WriteFile(out, src, 0o644); err != nil {
		return fmt.Errorf("writing names: %w", err)
	}
	return nil
}

func table(b *bytes.Buffer, name, doc string, names map[string]string) {
	fmt.Fprintf(b, "// %s %s\nfunc %s(member string) string {\n\tswitch member {\n", name, doc, name)
	keys := make([]string, 0, len(names))
	for k := range names {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	for _, k := range keys {
		fmt.Fprintf(b, "\tcase %q:\n\t\treturn %q\n", k, names[k])
	}
	fmt.Fprintf(b, "\t}\n\treturn \"\"\n}\n\n")
}
