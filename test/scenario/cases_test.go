// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// caseIDs are the cases that have to be in cases.txt.
const caseIDs = "C01 C02 C03 C04 C05 C06 C07 C08 C09 C11 C12 C14 C15 C16 C17 C18 C19 C21 C24 C25 " +
	"C26 C29 C31 C32 C34 C35 C36 C39 C40 C44 C46 C47 C48 C50 C51 C52 C53 C57 C58 C60"

// proof is what a case has: names of scenarios, and of tests by folder.
type proof struct {
	id, what  string
	scenarios []string
	tests     []string // folder and name, apart by a blank
}

// readCases reads cases.txt, whose form its head describes.
func readCases(text string) ([]proof, error) {
	var out []proof
	lines := bufio.NewScanner(strings.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		line := lines.Text()
		indented := strings.HasPrefix(line, "\t")
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || fields[0] == "#" || strings.HasPrefix(line, "#"):
		case !indented && len(fields) > 1:
			out = append(out, proof{id: fields[0], what: strings.Join(fields[1:], " ")})
		case len(out) == 0 || len(fields) < 2:
			return nil, fmt.Errorf("line %d: %q stands for nothing", n, line)
		case fields[0] == "scenario" && len(fields) == 2:
			out[len(out)-1].scenarios = append(out[len(out)-1].scenarios, fields[1])
		case fields[0] == "test" && len(fields) > 2:
			for _, name := range fields[2:] {
				out[len(out)-1].tests = append(out[len(out)-1].tests, fields[1]+" "+name)
			}
		case fields[0] == "open":
		default:
			return nil, fmt.Errorf("line %d: %q is none of scenario, test and open", n, line)
		}
	}
	return out, lines.Err()
}

// testsOf are the names of the tests in a folder of the module.
func testsOf(folder string) (map[string]bool, error) {
	paths, err := filepath.Glob(filepath.Join("..", "..", filepath.FromSlash(folder), "*_test.go"))
	if err != nil {
		return nil, err
	}
	declared, out := regexp.MustCompile(`(?m)^func (Test\w+)\(`), map[string]bool{}
	for _, path := range paths {
		raw, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		for _, m := range declared.FindAllSubmatch(raw, -1) {
			out[string(m[1])] = true
		}
	}
	return out, nil
}

// TestCases checks that every case is in cases.txt, has something that shows it, and that all of that exists.
func TestCases(t *testing.T) {
	raw, err := os.ReadFile("cases.txt")
	if err != nil {
		t.Fatal(err)
	}
	cases, err := readCases(string(raw))
	if err != nil {
		t.Fatal(err)
	}
	var ids []string
	tests := map[string]map[string]bool{}
	for _, c := range cases {
		ids = append(ids, c.id)
		if len(c.scenarios)+len(c.tests) == 0 {
			t.Errorf("%s: nothing shows that it is right", c.id)
		}
		for _, name := range c.scenarios {
			if _, err := os.Stat(filepath.Join("testdata", name+".txtar")); err != nil {
				t.Errorf("%s: scenario %q: %v", c.id, name, err)
			}
		}
		for _, test := range c.tests {
			folder, name, _ := strings.Cut(test, " ")
			if tests[folder] == nil {
				if tests[folder], err = testsOf(folder); err != nil {
					t.Fatal(err)
				}
			}
			if !tests[folder][name] {
				t.Errorf("%s: there is no %s in %s", c.id, name, folder)
			}
		}
	}
	if diff := cmp.Diff(strings.Fields(caseIDs), ids); diff != "" {
		t.Errorf("cases (-want +got):\n%s", diff)
	}
}

func TestReadCases(t *testing.T) {
	for text, want := range map[string]string{
		"C01 what\n\tscenario a\n\ttest b TestC TestD\n\topen words\n": "",
		"\tscenario a\n":            "stands for nothing",
		"C01 what\n\tscenario\n":    "stands for nothing",
		"C01 what\n\ttest a\n":      "none of scenario, test and open",
		"C01 what\n\tproof a b c\n": "none of scenario, test and open",
	} {
		_, err := readCases(text)
		if (want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), want)) {
			t.Errorf("readCases(%q): error = %v, want one with %q", text, err, want)
		}
	}
}
