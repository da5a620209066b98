// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"fmt"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/house"
)

const header = "// Copyright The Slipway Authors.\n// SPDX-License-Identifier: Apache-2.0\n\n"

// The checker finds what is planted, and nothing else.
func TestCheck(t *testing.T) {
	tests := map[string]struct {
		files map[string]string // path → text after the licence header
		want  []string
	}{
		"clean": {
			files: map[string]string{
				"provisioner/plan/doc.go":       doc("plan", 2),
				"provisioner/plan/plan.go":      "package plan\n\nimport \"" + house.Module + "/provisioner/capacity\"\n",
				"provisioner/plan/plan_test.go": "package plan_test\n\nimport (\n\t\"os\"\n\t\"testing\"\n\t\"" + house.Module + "/test/builder\"\n)\n",
				"cmd/slipway/main.go":           "// Command slipway.\npackage main\n\nimport \"" + house.Module + "/test/cluster\"\n\nfunc main() {}\n",
			},
		},
		"a lower level imports a higher one": {
			files: map[string]string{
				"provisioner/view/doc.go":  doc("view", 3),
				"provisioner/view/view.go": "package view\n\nimport \"" + house.Module + "/provisioner\"\n",
			},
			want: []string{"provisioner/view/view.go:6: level 3 (provisioner/view) imports level 5 (provisioner)"},
		},
		"siblings": {
			files: map[string]string{
				"provisioner/launch/doc.go":         doc("launch", 4),
				"provisioner/launch/launch_test.go": "package launch\n\nimport \"" + house.Module + "/provisioner/claim\"\n",
			},
			want: []string{"provisioner/launch/launch_test.go:6: provisioner/launch imports its sibling provisioner/claim on level 4"},
		},
		"product code imports test helpers": {
			files: map[string]string{
				"webhook/doc.go": doc("webhook", 5),
				"webhook/x.go":   "package webhook\n\nimport (\n\t\"testing\"\n\t\"" + house.Module + "/test/builder\"\n)\n",
			},
			want: []string{
				`webhook/x.go:7: imports "testing": test helpers live in test/`,
				"webhook/x.go:8: level 5 (webhook) imports level 6 (test)",
			},
		},
		"a folder nobody put into the table": {
			files: map[string]string{
				"provisioner/util/doc.go": doc("util", 3),
				"provisioner/doc.go":      doc("provisioner", 5),
				"provisioner/run.go":      "package provisioner\n\nimport \"" + house.Module + "/provisioner/util\"\n",
			},
			want: []string{
				`provisioner/run.go:6: imports "provisioner/util", which is in no unit of the table of import levels`,
				`provisioner/util/doc.go:1: folder "provisioner/util" is in no unit of the table of import levels`,
			},
		},
		"AWS and Kubernetes internals": {
			files: map[string]string{
				"provisioner/ec2/doc.go":   doc("ec2", 3),
				"provisioner/ec2/ec2.go":   "package ec2\n\nimport \"github.com/aws/aws-sdk-go-v2/service/ec2\"\n",
				"provisioner/claim/doc.go": doc("claim", 4),
				"provisioner/claim/c.go": "package claim\n\nimport (\n\t\"github.com/aws/aws-sdk-go-v2/service/ec2\"\n" +
					"\t\"k8s.io/kubernetes/pkg/scheduler\"\n\t\"sigs.k8s.io/karpenter/pkg/apis/v1\"\n\t\"sigs.k8s.io/karpenter/pkg/scheduling\"\n)\n",
			},
			want: []string{
				`provisioner/claim/c.go:7: imports "github.com/aws/aws-sdk-go-v2/service/ec2": EC2 is spoken in provisioner/ec2, where its error codes become kinds`,
				`provisioner/claim/c.go:8: imports "k8s.io/kubernetes/pkg/scheduler": Kubernetes' internals change with every minor: only the scheduler and its judge live in them`,
				`provisioner/claim/c.go:10: imports "sigs.k8s.io/karpenter/pkg/scheduling": the product shares Karpenter's API and none of its code`,
			},
		},
		"impure planner": {
			files: map[string]string{
				"provisioner/plan/doc.go": doc("plan", 2),
				"provisioner/plan/p.go": "package plan\n\nimport (\n\t\"math/rand/v2\"\n\tclock \"time\"\n)\n\n" +
					"const pause = clock.Second\n\nfunc now() int64 { return clock.Now().Unix() + rand.Int64() }\n",
			},
			want: []string{
				`provisioner/plan/p.go:7: imports "math/rand/v2": the same input gives the same answer on any machine`,
				"provisioner/plan/p.go:13: uses time.Now: a pure package does not read the clock",
			},
		},
		"test frameworks": {
			files: map[string]string{
				"test/x/doc.go":    doc("x", 6),
				"test/x/x_test.go": "package x\n\nimport \"github.com/stretchr/testify/require\"\n",
			},
			want: []string{`test/x/x_test.go:6: imports "github.com/stretchr/testify/require": tests use the standard library and go-cmp`},
		},
		"package comments": {
			files: map[string]string{
				"provisioner/plan/plan.go": "package plan\n",
				"manifests/x/x.go":         "// Package x embeds. Import level 0.\npackage x\n",
				"manifests/y/y.go":         "// Package y embeds. Import level 1.\npackage y\n",
				"api/v1/a.go":              "// Package v1 has two files. Import level 0.\npackage v1\n",
				"api/v1/b.go":              "package v1\n",
				"provisioner/view/doc.go":  doc("view", 5),
				"provisioner/ec2/doc.go":   "// Package ec2 is.\npackage ec2\n",
				"cmd/slipway/main.go":      "package main\n\nfunc main() {}\n",
			},
			want: []string{
				"api/v1/doc.go:1: missing, or without a package comment",
				"cmd/slipway/main.go:1: the package has no package comment",
				"manifests/y/y.go:1: says import level 1, the table says 0",
				`provisioner/ec2/doc.go:1: does not say "Import level 3"`,
				"provisioner/plan/doc.go:1: missing, or without a package comment",
				"provisioner/view/doc.go:1: says import level 5, the table says 3",
			},
		},
		"long mains": {
			files: map[string]string{
				"cmd/a/main.go":      "// Command a.\npackage main\n\nfunc main() {}\n" + strings.Repeat("//\n", 100),
				"test/gen/main.go":   "// Command gen.\npackage main\n\nfunc main() {\n" + strings.Repeat("\tprintln()\n", 99) + "}\n",
				"test/small/main.go": "// Command small.\npackage main\n\nfunc main() {}\n" + strings.Repeat("//\n", 100),
			},
			want: []string{
				"cmd/a/main.go:1: the file of func main has 107 lines, at most 100: main only wires",
				"test/gen/main.go:1: func main has 101 lines, at most 100: main only wires",
			},
		},
		"a nested module chooses its own imports": {
			files: map[string]string{
				"tools/go.mod":  "module tools\n",
				"tools/main.go": "// Command tools.\npackage main\n\nimport \"k8s.io/kubernetes/pkg/scheduler\"\n\nfunc main() {}\n",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			tree := fstest.MapFS{}
			for p, text := range tt.files {
				tree[p] = &fstest.MapFile{Data: []byte(header + text)}
			}
			if diff := cmp.Diff(tt.want, check(t, tree)); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestLicenceHeader(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"header":                 {header + doc("x", 6), nil},
		"header, then generated": {header + "// Code generated by hand. DO NOT EDIT.\n\n" + doc("x", 6), nil},
		"no header":              {doc("x", 6), []string{"test/x/doc.go:1: does not begin with the licence header"}},
		"header of someone else": {
			"// Copyright 2020 Someone.\n// SPDX-License-Identifier: Apache-2.0\n\n" + doc("x", 6),
			[]string{"test/x/doc.go:1: does not begin with the licence header"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := check(t, fstest.MapFS{"test/x/doc.go": {Data: []byte(tt.text)}})
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("violations (-want +got):\n%s", diff)
			}
		})
	}
}

func TestReadSkips(t *testing.T) {
	tree := fstest.MapFS{
		"test/x/doc.go":              {Data: []byte(header + doc("x", 6))},
		"test/x/testdata/bad.go":     {Data: []byte("not Go")},
		"bin/k8s/src.go":             {Data: []byte("not Go")},
		".git/hooks/hook.go":         {Data: []byte("not Go")},
		"test/x/testdata/more/in.go": {Data: []byte("package in")},
	}
	files, err := house.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 {
		t.Errorf("read %d files, want 1: %v", len(files), files)
	}
}

func TestReadNamesTheFileThatDoesNotParse(t *testing.T) {
	_, err := house.Read(fstest.MapFS{"test/x/bad.go": {Data: []byte("not Go")}})
	if err == nil || !strings.Contains(err.Error(), "test/x/bad.go") {
		t.Errorf("error = %v, want one that names test/x/bad.go", err)
	}
}

// No unit is named twice, and every ban has a reason to print.
func TestTables(t *testing.T) {
	seen := map[string]bool{}
	for _, u := range house.Units() {
		if seen[u.Path] {
			t.Errorf("unit %q is in the table twice", u.Path)
		}
		seen[u.Path] = true
	}
	for _, b := range house.Bans() {
		if b.Reason == "" {
			t.Errorf("the ban of %q has no reason", b.Import)
		}
	}
}

func check(t *testing.T, tree fstest.MapFS) []string {
	t.Helper()
	files, err := house.Read(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, v := range house.Check(files) {
		got = append(got, v.String())
	}
	return got
}

func doc(name string, level int) string {
	return fmt.Sprintf("// Package %s is.\n//\n// Import level %d.\npackage %s\n", name, level, name)
}
