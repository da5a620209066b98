// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/tools/txtar"
)

func TestParseFile(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"no comment":                {"-- cluster --\n", "no comment"},
		"unknown section":           {"x\n-- clutser --\n", `section "clutser" is none of`},
		"a section twice":           {"x\n-- pods --\n-- pods --\n", `variant a has two sections "pods"`},
		"a variant twice":           {"x\n-- variant b --\n-- variant b --\n", `two variants "b"`},
		"a section in each variant": {"x\n-- pods --\n-- variant b --\n-- pods --\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := parseFile("f", []byte(tc.text))
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error = %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestVariantsTakeOverSections(t *testing.T) {
	f, err := parseFile("f", []byte("x\n-- cluster --\nC\n-- pods --\nP\n-- plan --\nA\n-- variant b --\nwords\n-- cluster --\nD\n"))
	if err != nil {
		t.Fatal(err)
	}
	b := f.variants[1]
	if got := []string{b.name, b.base, b.sections["cluster"], b.sections["pods"], b.sections["plan"]}; !cmp.Equal(got, []string{"b", "C\n", "D\n", "P\n", ""}) {
		t.Errorf("variant b = %q", got)
	}
	f.setPlan(0, "new A\n")
	f.setPlan(1, "new B\n")
	want := "x\n-- cluster --\nC\n-- pods --\nP\n-- plan --\nnew A\n-- variant b --\nwords\n-- cluster --\nD\n-- plan --\nnew B\n"
	if diff := cmp.Diff(want, string(txtar.Format(f.archive))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

// TestSetPlanInsertsInOrder checks that a plan section inserted before others does not lose track of them.
func TestSetPlanInsertsInOrder(t *testing.T) {
	f, err := parseFile("f", []byte("x\n-- pods --\n-- variant b --\n-- plan --\nB\n-- variant c --\n"))
	if err != nil {
		t.Fatal(err)
	}
	for i, text := range []string{"1\n", "2\n", "3\n"} {
		f.setPlan(i, text)
	}
	want := "x\n-- pods --\n-- plan --\n1\n-- variant b --\n-- plan --\n2\n-- variant c --\n-- plan --\n3\n"
	if diff := cmp.Diff(want, string(txtar.Format(f.archive))); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

func TestNames(t *testing.T) {
	for _, tc := range []struct {
		in   []string
		want string
	}{
		{nil, ""},
		{[]string{"web"}, "web"},
		{[]string{"web-1"}, "web ×1"},
		{[]string{"web-10", "web-2", "web-1", "web-0", "api-3"}, "api ×1, web ×4"},
		{[]string{"x-abc", "x-07", "db-0", "x-7"}, "db ×1, x ×1, x-07, x-abc"},
	} {
		if got := names(tc.in); got != tc.want {
			t.Errorf("names(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestDecode(t *testing.T) {
	for name, tc := range map[string]struct{ text, want string }{
		"comments only":        {"# nothing\n---\n", ""},
		"unknown kind":         {"kind: Widget\nmetadata: {name: x}\n", `do not know kind "Widget"`},
		"a field that is not":  {"kind: Pod\nmetadata: {name: x}\nspec: {unknown: []}\n", `reading Pod "x"`},
		"no name":              {"kind: Pod\n", "a Pod has no name"},
		"two objects in a row": {"kind: Pod\nmetadata: {name: x}\n---\nkind: Pod\nmetadata: {name: y}\n", ""},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := decode(tc.text)
			switch {
			case tc.want == "" && err != nil:
				t.Error(err)
			case tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)):
				t.Errorf("error = %v, want one with %q", err, tc.want)
			}
		})
	}
}

func TestParseCatalog(t *testing.T) {
	for text, want := range map[string]string{
		"m5.large 2 8Gi 0.1":                       "want type, cores, memory",
		"m5.large 2 8Gi x -":                       "on-demand price",
		"m5.large 2 8Gi 0.1 x":                     "spot price",
		"m5.large 2 8Gi 0.1 - fast":                "not key=value",
		"m5.large 2 8Gi 0.1 - speed=9":             `option "speed" is none of`,
		"# only\nm5.large 2 8Gi 0.1 - volumes=two": "volumes",
		"m5.large 2 8Gi 0.1 0.05 zones=a gpu=1":    "",
	} {
		_, _, err := parseCatalog(text)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("parseCatalog(%q): error = %v, want one with %q", text, err, want)
		}
	}
	if _, err := parseUnavailable("m5.large a\n"); err == nil {
		t.Error("parseUnavailable takes a line of two words")
	}
}
