// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the plan sections of the scenarios anew")

func TestScenarios(t *testing.T) {
	paths, err := filepath.Glob("testdata/*.txtar")
	if err != nil || len(paths) == 0 {
		t.Fatalf("no scenarios: %v", err)
	}
	standard, err := os.ReadFile("testdata/catalog.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".txtar"), func(t *testing.T) {
			f, err := readFile(path)
			if err != nil {
				t.Fatal(err)
			}
			for i := range f.variants {
				v := &f.variants[i]
				t.Run(v.name, func(t *testing.T) {
					w, err := v.load(string(standard))
					if err != nil {
						t.Fatal(err)
					}
					out, err := w.solve(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					got := out.report()
					if *update {
						f.setPlan(i, got)
						return
					}
					if diff := cmp.Diff(v.sections["plan"], got); diff != "" {
						t.Errorf("plan (-want +got):\n%s", diff)
					}
				})
			}
			if *update && !t.Failed() {
				if err := f.write(); err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}
