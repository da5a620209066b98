// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"sigs.k8s.io/yaml"
)

// APIVersion is that of configuration files.
const APIVersion = "config.slipway.sh/v1alpha1"

// Read sets flags from a configuration file in YAML or JSON: apiVersion, kind, and a key for each flag (see [Key]) with a value of the
// flag's type; durations are strings. Anything else in it is an error; all errors are told at once and name file and key.
func Read(fs *flag.FlagSet, kind, file string) error {
	raw, err := os.ReadFile(file)
	if err != nil {
		return fmt.Errorf("reading --config: %w", err)
	}
	values := map[string]any{}
	if err := yaml.UnmarshalStrict(raw, &values); err != nil {
		return fmt.Errorf("reading --config %q: %w", file, err)
	}
	var invalid []error
	for key, want := range map[string]string{"apiVersion": APIVersion, "kind": kind} {
		if got, ok := values[key].(string); !ok || got != want {
			invalid = append(invalid, fmt.Errorf("--config %q: %s is %s, it has to be %q", file, key, shown(values[key]), want))
		}
		delete(values, key)
	}
	slices.SortFunc(invalid, func(a, b error) int { return strings.Compare(a.Error(), b.Error()) })
	flags := map[string]*flag.Flag{}
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name != Config {
			flags[Key(f.Name)] = f
		}
	})
	for _, key := range slices.Sorted(maps.Keys(values)) {
		f := flags[key]
		if f == nil {
			invalid = append(invalid, unknownKey(file, key, slices.Sorted(maps.Keys(flags))))
			continue
		}
		text, err := textOf(f, values[key])
		if err == nil {
			err = fs.Set(f.Name, text)
		}
		if err != nil {
			invalid = append(invalid, fmt.Errorf("--config %q: %s: %w", file, key, err))
		}
	}
	return errors.Join(invalid...)
}

func unknownKey(file, key string, known []string) error {
	folded := make(map[string]string, len(known))
	for _, k := range known {
		folded[strings.ToLower(k)] = k
	}
	plain := strings.ToLower(strings.NewReplacer("-", "", "_", "").Replace(key))
	if near := Nearest(plain, slices.Sorted(maps.Keys(folded))); near != "" {
		return fmt.Errorf("--config %q: unknown key %q (did you mean %s?)", file, key, folded[near])
	}
	return fmt.Errorf("--config %q: unknown key %q; known are %s", file, key, strings.Join(known, ", "))
}

// Key is a flag's name in configuration files: cluster-ca-bundle is clusterCABundle there.
func Key(name string) string {
	acronyms := map[string]string{"ca": "CA", "vpc": "VPC", "enis": "ENIs", "qps": "QPS"}
	words := strings.Split(name, "-")
	for i, w := range words[1:] {
		if a, ok := acronyms[w]; ok {
			words[i+1] = a
		} else if w != "" {
			words[i+1] = strings.ToUpper(w[:1]) + w[1:]
		}
	}
	return strings.Join(words, "")
}

// textOf is a value as the flag reads it; an error says of which type it has to be.
func textOf(f *flag.Flag, v any) (string, error) {
	want := "string"
	if g, ok := f.Value.(flag.Getter); ok {
		switch g.Get().(type) {
		case bool:
			if b, ok := v.(bool); ok {
				return strconv.FormatBool(b), nil
			}
			want = "boolean"
		case int, float64:
			if n, ok := v.(float64); ok {
				return strconv.FormatFloat(n, 'f', -1, 64), nil
			}
			want = "number"
		case time.Duration:
			want = "duration in quotes, such as \"15s\""
		}
	}
	if s, ok := v.(string); ok && want != "boolean" && want != "number" {
		return s, nil
	}
	return "", fmt.Errorf("it is %s and has to be a %s", shown(v), want)
}

func shown(v any) string {
	switch v := v.(type) {
	case nil:
		return "missing"
	case string:
		return strconv.Quote(v)
	case map[string]any:
		return "a mapping"
	case []any:
		return "a list"
	}
	return fmt.Sprint(v)
}

// Table documents the keys of configuration files: one row for each flag, in Markdown.
func Table(fs *flag.FlagSet) string {
	var b strings.Builder
	b.WriteString("| key | flag | default | |\n|---|---|---|---|\n")
	fs.VisitAll(func(f *flag.Flag) {
		if f.Name == Config {
			return
		}
		def := "—"
		if f.DefValue != "" {
			def = "`" + f.DefValue + "`"
		}
		fmt.Fprintf(&b, "| `%s` | `--%s` | %s | %s |\n", Key(f.Name), f.Name, def, f.Usage)
	})
	return b.String()
}
