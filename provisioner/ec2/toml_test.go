// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// The examples are those of the specification (toml.io, v1.0.0), where it has one.
func TestParseTOML(t *testing.T) {
	tests := []struct {
		name, text string
		want       tomlTable
	}{
		{"nothing", "\n# only a comment", tomlTable{}},
		{"atoms", "i = +1_000\nf = 6.626e-34\nb = true\nd = 1979-05-27T07:32:00Z\nl = 07:32:00 # local time\nh = 0xDEADBEEF\nn = -inf", tomlTable{
			"i": tomlRaw("+1_000"), "f": tomlRaw("6.626e-34"), "b": tomlRaw("true"), "d": tomlRaw("1979-05-27T07:32:00Z"), "l": tomlRaw("07:32:00"),
			"h": tomlRaw("0xDEADBEEF"), "n": tomlRaw("-inf"),
		}},
		{"strings", `a = "I'm \"quoted\"\tJos\u00E9"` + "\nb = 'C:\\Users\\n'\nc = \"\"\"\nRoses\nViolets\"\"\"\nd = '''\nraw \\n'''\ne = \"\"\"one \\\n   line\"\"\"\nf = \"\"\"\"This,\" she said\"\"\"\"", tomlTable{
			"a": "I'm \"quoted\"\tJosé", "b": `C:\Users\n`, "c": "Roses\nViolets", "d": `raw \n`, "e": "one line", "f": `"This," she said"`,
		}},
		{"keys", "bare_key-1 = '1'\n\"127.0.0.1\" = '2'\n'quoted \"value\"' = '3'\nphysical . color = 'orange'\nsite.\"google.com\" = true", tomlTable{
			"bare_key-1": "1", "127.0.0.1": "2", `quoted "value"`: "3", "physical": tomlTable{"color": "orange"}, "site": tomlTable{"google.com": tomlRaw("true")},
		}},
		{"arrays", "a = [1, 2]\nb = [ [ 1, 2 ], ['a'] ]\nc = [\n  1, # one\n  2,\n]\nd = []", tomlTable{
			"a": []any{tomlRaw("1"), tomlRaw("2")}, "b": []any{[]any{tomlRaw("1"), tomlRaw("2")}, []any{"a"}}, "c": []any{tomlRaw("1"), tomlRaw("2")}, "d": []any{},
		}},
		{"tables", "[x.y.z.w]\n[x]\na = '1'\n[ j . \"k\" ]\nb = { c = '2', d.e = '3' }\nempty = {}", tomlTable{
			"x": tomlTable{"y": tomlTable{"z": tomlTable{"w": tomlTable{}}}, "a": "1"},
			"j": tomlTable{"k": tomlTable{"b": tomlTable{"c": "2", "d": tomlTable{"e": "3"}}, "empty": tomlTable{}}},
		}},
		{"arrays of tables", "[[products]]\nname = 'Hammer'\n[[products]]\n[products.size]\ncm = 3\r\n", tomlTable{
			"products": []any{tomlTable{"name": "Hammer"}, tomlTable{"size": tomlTable{"cm": tomlRaw("3")}}},
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			got, err := parseTOML(tt.text)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, got); diff != "" {
				t.Errorf("document (-want +got):\n%s", diff)
			}
			again, err := parseTOML(got.String())
			if err != nil {
				t.Fatalf("what was written cannot be read: %v\n%s", err, got)
			}
			if diff := cmp.Diff(tt.want, again); diff != "" {
				t.Errorf("written and read again (-want +got):\n%s\n%s", diff, got)
			}
		})
	}
}

func TestParseTOMLRefuses(t *testing.T) {
	for text, want := range map[string]string{
		"a = 1\na = 2":            `line 2: key "a" is there twice`,
		"[a]\n[a]":                "line 2: table \"a\" is there twice",
		"a = 1\n[a]":              `line 2: "a" is not a table`,
		"a = 1\n[[a]]":            "is not an array of tables",
		"a = hello":               `"hello" is not a value`,
		"a = 1 2":                 `"1 2" is not a value`,
		"a = 1 b":                 `is not a value`,
		"a = '1' b":               `unexpected "b"`,
		"a":                       "has no =",
		"= 1":                     "expected a key",
		"[a\nb = 1":               `does not end with "]"`,
		"a = \"x":                 "does not end",
		"a = \"x\n\"":             "does not end on its line",
		`a = "\q"`:                `\q is not an escape`,
		`a = "\uD800"`:            "is not an escape",
		"a = [1 2]":               "is not a value",
		"a = ['1' '2']":           "an array goes on with",
		"a = { b = 1 c = 2 }":     "is not a value",
		"a = { b = '1' c = '2' }": "an inline table goes on with",
		"a = \"\"\"x":             "does not end",
		"a = \"\\":                "does not end",
	} {
		_, err := parseTOML(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: err = %v, want one that says %q", text, err, want)
		}
	}
}

// Whatever can be read can be written and read again, to the same.
func FuzzTOML(f *testing.F) {
	for _, s := range []string{"a = 1", "[a.b]\nc = \"\\u00e9\"", "[[a]]\nb = {c = [1, '2']}", "a = '''\nx'''", "\"\" = \"\"", "a = \"\"\"\\\n x\"\"\""} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		doc, err := parseTOML(text)
		if err != nil {
			return
		}
		again, err := parseTOML(doc.String())
		if err != nil {
			t.Fatalf("what was written cannot be read: %v\n%s", err, doc)
		}
		if diff := cmp.Diff(doc, again); diff != "" {
			t.Errorf("another document (-first +second):\n%s", diff)
		}
	})
}
