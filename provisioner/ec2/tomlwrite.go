// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"maps"
	"slices"
	"strings"
)

// String writes the table as a TOML document, keys sorted, so that equal tables make equal text.
func (t tomlTable) String() string {
	var b strings.Builder
	t.write(&b, nil)
	return b.String()
}

func (t tomlTable) write(b *strings.Builder, path []string) {
	var tables, values []string
	for _, k := range slices.Sorted(maps.Keys(t)) {
		if _, ok := t[k].(tomlTable); ok {
			tables = append(tables, k)
		} else {
			values = append(values, k)
		}
	}
	if len(path) > 0 && (len(values) > 0 || len(tables) == 0) {
		if b.Len() > 0 {
			b.WriteByte('\n')
		}
		b.WriteString("[" + strings.Join(path, ".") + "]\n")
	}
	for _, k := range values {
		b.WriteString(tomlKey(k) + " = " + tomlValue(t[k]) + "\n")
	}
	for _, k := range tables {
		t[k].(tomlTable).write(b, append(slices.Clone(path), tomlKey(k)))
	}
}

func tomlValue(v any) string {
	switch v := v.(type) {
	case string:
		return tomlQuote(v)
	case tomlRaw:
		return string(v)
	case []any:
		parts := make([]string, 0, len(v))
		for _, e := range v {
			parts = append(parts, tomlValue(e))
		}
		return "[" + strings.Join(parts, ", ") + "]"
	case tomlTable:
		parts := make([]string, 0, len(v))
		for _, k := range slices.Sorted(maps.Keys(v)) {
			parts = append(parts, tomlKey(k)+" = "+tomlValue(v[k]))
		}
		return "{" + strings.Join(parts, ", ") + "}"
	}
	return tomlQuote(fmt.Sprint(v)) // no other types are put in
}

func tomlKey(k string) string {
	for i := range len(k) {
		if !isBare(k[i]) {
			return tomlQuote(k)
		}
	}
	if k == "" {
		return `""`
	}
	return k
}

// tomlQuote is a basic string. (Go's own quoting has escapes that TOML lacks.)
func tomlQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\u%04X`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
