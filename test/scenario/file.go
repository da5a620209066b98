// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/tools/txtar"
)

// isSection reports whether a variant may have a section of that name.
func isSection(name string) bool {
	switch name {
	case "catalog", "cluster", "unavailable", "pods", "plan":
		return true
	}
	return false
}

// file is a scenario file.
type file struct {
	path     string
	archive  *txtar.Archive
	variants []variant
}

// variant is one run of a scenario.
type variant struct {
	name     string
	sections map[string]string
	// base is the cluster section of the first variant, if this one is another.
	base string
	// plan is the index of the plan section in the archive; after is where one belongs if it is missing.
	plan, after int
}

const variantPrefix = "variant "

func readFile(path string) (*file, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parseFile(path, raw)
}

func parseFile(path string, raw []byte) (*file, error) {
	f := &file{path: path, archive: txtar.Parse(raw)}
	if len(strings.TrimSpace(string(f.archive.Comment))) == 0 {
		return nil, fmt.Errorf("%s: there is no comment that says what the case is about", path)
	}
	v := variant{name: "a", sections: map[string]string{}, plan: -1}
	own := map[string]bool{}
	flush := func() {
		f.variants = append(f.variants, v)
	}
	for i, s := range f.archive.Files {
		name, isVariant := strings.CutPrefix(s.Name, variantPrefix)
		switch {
		case isVariant:
			flush()
			first := f.variants[0]
			v = variant{name: name, sections: map[string]string{}, base: first.sections["cluster"], plan: -1}
			own = map[string]bool{}
			for k, text := range first.sections {
				if k != "cluster" && k != "plan" {
					v.sections[k] = text
				}
			}
			if slices.ContainsFunc(f.variants, func(o variant) bool { return o.name == name }) {
				return nil, fmt.Errorf("%s: there are two variants %q", path, name)
			}
		case !isSection(s.Name):
			return nil, fmt.Errorf("%s: section %q is none of catalog, cluster, unavailable, pods, plan and variant …", path, s.Name)
		case own[s.Name]:
			return nil, fmt.Errorf("%s: variant %s has two sections %q", path, v.name, s.Name)
		default:
			own[s.Name] = true
			v.sections[s.Name] = string(s.Data)
			if s.Name == "plan" {
				v.plan = i
			}
		}
		v.after = i + 1
	}
	flush()
	return f, nil
}

// setPlan writes the plan section of the i-th variant.
func (f *file) setPlan(i int, text string) {
	v := &f.variants[i]
	if v.plan >= 0 {
		f.archive.Files[v.plan].Data = []byte(text)
		return
	}
	f.archive.Files = slices.Insert(f.archive.Files, v.after, txtar.File{Name: "plan", Data: []byte(text)})
	for k := range f.variants {
		if f.variants[k].plan >= v.after {
			f.variants[k].plan++
		}
		if k > i {
			f.variants[k].after++
		}
	}
	v.plan = v.after
}

// write saves the file.
func (f *file) write() error {
	return os.WriteFile(f.path, txtar.Format(f.archive), 0o600)
}
