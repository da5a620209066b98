// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"unicode/utf8"
)

// tomlTable is a table of a TOML document. Values are string, tomlRaw, []any and tomlTable.
type tomlTable map[string]any

// tomlRaw is a number, boolean or date as it was written: settings are passed on and not computed with.
type tomlRaw string

// tomlAtom is the form of the values that are neither strings nor made of others (TOML v1.0.0).
var tomlAtom = regexp.MustCompile(`^(true|false|[+-]?(inf|nan)|[+-]?[0-9][0-9_]*(\.[0-9_]+)?([eE][+-]?[0-9_]+)?|0[xob][0-9A-Fa-f_]+|` +
	`[0-9]{4}-[0-9]{2}-[0-9]{2}([Tt ][0-9:.]+([Zz]|[+-][0-9:]+)?)?|[0-9]{2}:[0-9]{2}(:[0-9.]+)?)$`)

// parseTOML reads a TOML document (toml.io, v1.0.0). Its errors name the line.
func parseTOML(text string) (tomlTable, error) {
	p := &tomlParser{rest: strings.ReplaceAll(text, "\r\n", "\n"), line: 1, explicit: map[string]bool{}}
	root := tomlTable{}
	if err := p.document(root); err != nil {
		return nil, fmt.Errorf("line %d: %w", p.line, err)
	}
	return root, nil
}

type tomlParser struct {
	rest     string
	line     int
	explicit map[string]bool // tables that have had a header of their own
}

func (p *tomlParser) document(root tomlTable) error {
	into := root
	for {
		p.blank(true)
		switch {
		case p.rest == "":
			return nil
		case p.take("[["):
			path, err := p.header("]]")
			if err != nil {
				return err
			}
			if into, err = root.grow(path); err != nil {
				return err
			}
		case p.take("["):
			path, err := p.header("]")
			if err != nil {
				return err
			}
			name := strings.Join(path, "\x00")
			if p.explicit[name] {
				return fmt.Errorf("table %q is there twice", strings.Join(path, "."))
			}
			p.explicit[name] = true
			if into, err = root.descend(path); err != nil {
				return err
			}
		default:
			if err := p.pair(into); err != nil {
				return err
			}
		}
		p.blank(false)
		if p.rest != "" && !strings.HasPrefix(p.rest, "\n") {
			return fmt.Errorf("unexpected %q at the end of the line", firstLine(p.rest))
		}
	}
}

// descend returns the table at the path, made as needed; the last element of an array of tables stands for it.
func (t tomlTable) descend(path []string) (tomlTable, error) {
	for i, key := range path {
		next, ok := t[key]
		if !ok {
			next = tomlTable{}
			t[key] = next
		}
		if list, isList := next.([]any); isList && len(list) > 0 {
			next = list[len(list)-1]
		}
		table, isTable := next.(tomlTable)
		if !isTable {
			return nil, fmt.Errorf("%q is not a table", strings.Join(path[:i+1], "."))
		}
		t = table
	}
	return t, nil
}

// grow appends a table to the array at the path.
func (t tomlTable) grow(path []string) (tomlTable, error) {
	parent, err := t.descend(path[:len(path)-1])
	if err != nil {
		return nil, err
	}
	last := path[len(path)-1]
	list, ok := parent[last].([]any)
	if !ok && parent[last] != nil {
		return nil, fmt.Errorf("%q is not an array of tables", strings.Join(path, "."))
	}
	fresh := tomlTable{}
	parent[last] = append(list, fresh)
	return fresh, nil
}

func (p *tomlParser) header(end string) ([]string, error) {
	path, err := p.key()
	if err == nil && !p.take(end) {
		err = fmt.Errorf("a table's header does not end with %q", end)
	}
	return path, err
}

func (p *tomlParser) pair(into tomlTable) error {
	path, err := p.key()
	if err != nil {
		return err
	}
	if !p.take("=") {
		return fmt.Errorf("key %q has no =", strings.Join(path, "."))
	}
	p.blank(false)
	value, err := p.value()
	if err != nil {
		return fmt.Errorf("key %q: %w", strings.Join(path, "."), err)
	}
	last := len(path) - 1
	if into, err = into.descend(path[:last]); err != nil {
		return err
	}
	if _, twice := into[path[last]]; twice {
		return fmt.Errorf("key %q is there twice", strings.Join(path, "."))
	}
	into[path[last]] = value
	return nil
}

// key reads a dotted key and the blanks around it.
func (p *tomlParser) key() ([]string, error) {
	var path []string
	for {
		p.blank(false)
		part, err := p.keyPart()
		if err != nil {
			return nil, err
		}
		path = append(path, part)
		p.blank(false)
		if !p.take(".") {
			return path, nil
		}
	}
}

func (p *tomlParser) keyPart() (string, error) {
	if strings.HasPrefix(p.rest, `"`) || strings.HasPrefix(p.rest, "'") {
		return p.str()
	}
	n := 0
	for n < len(p.rest) && isBare(p.rest[n]) {
		n++
	}
	if n == 0 {
		return "", fmt.Errorf("expected a key and found %q", firstLine(p.rest))
	}
	part := p.rest[:n]
	p.rest = p.rest[n:]
	return part, nil
}

func isBare(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *tomlParser) value() (any, error) {
	switch {
	case strings.HasPrefix(p.rest, `"`), strings.HasPrefix(p.rest, "'"):
		return p.str()
	case p.take("["):
		return p.array()
	case p.take("{"):
		return p.inline()
	}
	n := strings.IndexAny(p.rest, ",]}#\n")
	if n < 0 {
		n = len(p.rest)
	}
	atom := strings.TrimSpace(p.rest[:n])
	if !tomlAtom.MatchString(atom) {
		return nil, fmt.Errorf("%q is not a value", atom)
	}
	p.rest = p.rest[n:]
	return tomlRaw(atom), nil
}

func (p *tomlParser) array() (any, error) {
	out := []any{}
	for {
		p.blank(true)
		if p.take("]") {
			return out, nil
		}
		v, err := p.value()
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		p.blank(true)
		if !p.take(",") && !strings.HasPrefix(p.rest, "]") {
			return nil, fmt.Errorf("an array goes on with %q", firstLine(p.rest))
		}
	}
}

func (p *tomlParser) inline() (any, error) {
	out := tomlTable{}
	p.blank(false)
	if p.take("}") {
		return out, nil
	}
	for {
		if err := p.pair(out); err != nil {
			return nil, err
		}
		p.blank(false)
		switch {
		case p.take("}"):
			return out, nil
		case !p.take(","):
			return nil, fmt.Errorf("an inline table goes on with %q", firstLine(p.rest))
		}
	}
}

// str reads a string of any of the four kinds.
func (p *tomlParser) str() (string, error) {
	for _, quote := range []string{`"""`, "'''", `"`, "'"} {
		if !p.take(quote) {
			continue
		}
		multi := len(quote) == 3
		if multi && strings.HasPrefix(p.rest, "\n") { // a newline right after the quotes does not count
			p.advance(1)
		}
		return p.until(quote, quote[0] == '"', multi)
	}
	return "", fmt.Errorf("expected a string")
}

func (p *tomlParser) until(quote string, escapes, multi bool) (string, error) {
	var b strings.Builder
	for p.rest != "" {
		switch c := p.rest[0]; {
		case strings.HasPrefix(p.rest, quote):
			// Up to two quotes may stand before the closing ones of a multi-line string.
			for multi && strings.HasPrefix(p.rest[1:], quote) {
				b.WriteByte(quote[0])
				p.advance(1)
			}
			p.advance(len(quote))
			return b.String(), nil
		case c == '\n' && !multi:
			return "", fmt.Errorf("a string does not end on its line")
		case c == '\\' && escapes:
			if err := p.escape(&b); err != nil {
				return "", err
			}
		default:
			b.WriteByte(c)
			p.advance(1)
		}
	}
	return "", fmt.Errorf("a string does not end")
}

// escape reads a backslash and what belongs to it.
func (p *tomlParser) escape(b *strings.Builder) error {
	if len(p.rest) < 2 {
		return fmt.Errorf("a string does not end")
	}
	simple := map[byte]byte{'b': '\b', 't': '\t', 'n': '\n', 'f': '\f', 'r': '\r', '"': '"', '\\': '\\'}
	c := p.rest[1]
	if plain, ok := simple[c]; ok {
		b.WriteByte(plain)
		p.advance(2)
		return nil
	}
	if digits := map[byte]int{'u': 4, 'U': 8}[c]; digits > 0 && len(p.rest) >= 2+digits {
		n, err := strconv.ParseUint(p.rest[2:2+digits], 16, 32)
		if err == nil && utf8.ValidRune(rune(n)) {
			b.WriteRune(rune(n))
			p.advance(2 + digits)
			return nil
		}
	}
	if trimmed := strings.TrimLeft(p.rest[1:], " \t"); strings.HasPrefix(trimmed, "\n") { // the line goes on below
		p.advance(len(p.rest) - len(strings.TrimLeft(trimmed, " \t\n")))
		return nil
	}
	return fmt.Errorf(`\%c is not an escape`, c)
}

// blank passes over blanks and comments, and over line ends if lines is set.
func (p *tomlParser) blank(lines bool) {
	for p.rest != "" {
		switch c := p.rest[0]; {
		case c == ' ' || c == '\t' || c == '\n' && lines:
			p.advance(1)
		case c == '#':
			n := strings.IndexByte(p.rest, '\n')
			if n < 0 {
				n = len(p.rest)
			}
			p.advance(n)
		default:
			return
		}
	}
}

func (p *tomlParser) take(s string) bool {
	if !strings.HasPrefix(p.rest, s) {
		return false
	}
	p.advance(len(s))
	return true
}

func (p *tomlParser) advance(n int) {
	p.line += strings.Count(p.rest[:n], "\n")
	p.rest = p.rest[n:]
}

func firstLine(s string) string {
	line, _, _ := strings.Cut(s, "\n")
	return line
}
