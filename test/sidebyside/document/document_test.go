// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package document_test

import (
	"testing"

	"github.com/slipway-sh/slipway/test/sidebyside/document"
)

func TestReplace(t *testing.T) {
	first, err := document.Replace("# Title\n", "a", "one\n")
	if err != nil {
		t.Fatal(err)
	}
	both, err := document.Replace(first, "b", "two\n")
	if err != nil {
		t.Fatal(err)
	}
	got, err := document.Replace(both, "a", "three\n")
	if err != nil {
		t.Fatal(err)
	}
	want := "# Title\n\n<!-- a: written by test/sidebyside -->\nthree\n<!-- end of a -->\n\n<!-- b: written by test/sidebyside -->\ntwo\n<!-- end of b -->\n"
	if got != want {
		t.Errorf("document:\n%s\nwant:\n%s", got, want)
	}
	if _, err := document.Replace("<!-- a: written by test/sidebyside -->\ntext without an end\n", "a", "x"); err == nil {
		t.Error("a section without an end was replaced")
	}
}

func TestTable(t *testing.T) {
	table := document.Table{Head: []string{"", "pods"}}
	table.Row("Slipway", "1")
	if got, want := table.String(), "|  | pods |\n|---|---|\n| Slipway | 1 |\n"; got != want {
		t.Errorf("table = %q, want %q", got, want)
	}
}
