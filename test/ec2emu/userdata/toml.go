// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package userdata

import (
	"fmt"
	"strconv"
	"strings"
)

// tree is a TOML table: values are string, int64, bool, []any and tree.
type tree map[string]any

// table returns a table below, empty when there is none.
func (t tree) table(key string) tree {
	below, _ := t[key].(tree)
	return below
}

func (t tree) text(key string) string {
	s, _ := t[key].(string)
	return s
}

func (t tree) number(key string) int64 {
	n, _ := t[key].(int64)
	return n
}

// list returns a list of strings; a single string is a list of one.
func (t tree) list(key string) []string {
	switch v := t[key].(type) {
	case string:
		return []string{v}
	case []any:
		var out []string
		for _, item := range v {
			if s, ok := item.(string); ok {
				out = append(out, s)
			}
		}
		return out
	}
	return nil
}

// texts returns the scalars of the table as text.
func (t tree) texts() map[string]string {
	out := make(map[string]string, len(t))
	for key, v := range t {
		switch v := v.(type) {
		case string, int64, bool:
			out[key] = fmt.Sprint(v)
		}
	}
	return out
}

// tomlParser reads the part of TOML that Bottlerocket settings use: tables,
// dotted and quoted keys, one-line strings, integers, booleans, arrays of them.
// Everything else is an error, never a silent loss.
type tomlParser struct {
	text string
	at   int
	line int
}

func parseTOML(text string) (tree, error) {
	p := &tomlParser{text: text, line: 1}
	root := tree{}
	current := root
	for {
		p.skipBlank(true)
		if p.at >= len(p.text) {
			return root, nil
		}
		if p.text[p.at] == '[' {
			p.at++
			path, err := p.key(']')
			if err != nil {
				return nil, err
			}
			if current, err = root.descend(path); err != nil {
				return nil, p.errorf("%v", err)
			}
			continue
		}
		path, err := p.key('=')
		if err != nil {
			return nil, err
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		last := len(path) - 1
		owner, err := current.descend(path[:last])
		if err != nil {
			return nil, p.errorf("%v", err)
		}
		if _, taken := owner[path[last]]; taken {
			return nil, p.errorf("key %q is set twice", path[last])
		}
		owner[path[last]] = value
		p.skipBlank(false)
		if p.at < len(p.text) && p.text[p.at] != '\n' {
			return nil, p.errorf("unexpected %q after a value", p.text[p.at])
		}
	}
}

func (t tree) descend(path []string) (tree, error) {
	for _, key := range path {
		below, ok := t[key]
		if !ok {
			below = tree{}
			t[key] = below
		}
		if t, ok = below.(tree); !ok {
			return nil, fmt.Errorf("key %q is no table", key)
		}
	}
	return t, nil
}

func (p *tomlParser) errorf(format string, args ...any) error {
	return fmt.Errorf("line %d: "+format, append([]any{p.line}, args...)...)
}

// skipBlank skips spaces and comments, and line ends if asked to.
func (p *tomlParser) skipBlank(lines bool) {
	for p.at < len(p.text) {
		switch c := p.text[p.at]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.at++
		case c == '#':
			for p.at < len(p.text) && p.text[p.at] != '\n' {
				p.at++
			}
		case c == '\n' && lines:
			p.line++
			p.at++
		default:
			return
		}
	}
}

// key reads a dotted key and the delimiter that ends it.
func (p *tomlParser) key(end byte) ([]string, error) {
	var path []string
	for {
		p.skipBlank(false)
		if p.at >= len(p.text) {
			return nil, p.errorf("a key is not finished")
		}
		if c := p.text[p.at]; c == '"' || c == '\'' {
			part, err := p.quoted()
			if err != nil {
				return nil, err
			}
			path = append(path, part)
		} else {
			from := p.at
			for p.at < len(p.text) && isBare(p.text[p.at]) {
				p.at++
			}
			if from == p.at {
				return nil, p.errorf("unexpected %q in a key", c)
			}
			path = append(path, p.text[from:p.at])
		}
		p.skipBlank(false)
		switch {
		case p.at < len(p.text) && p.text[p.at] == '.':
			p.at++
		case p.at < len(p.text) && p.text[p.at] == end:
			p.at++
			return path, nil
		default:
			return nil, p.errorf("a key is not followed by %q", end)
		}
	}
}

func isBare(c byte) bool {
	return c == '-' || c == '_' || c >= '0' && c <= '9' || c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
}

func (p *tomlParser) quoted() (string, error) {
	quote, from := p.text[p.at], p.at
	if strings.HasPrefix(p.text[p.at:], strings.Repeat(string(quote), 3)) {
		return "", p.errorf("strings of several lines are not supported")
	}
	for p.at++; p.at < len(p.text) && p.text[p.at] != '\n'; p.at++ {
		switch {
		case p.text[p.at] == '\\' && quote == '"':
			p.at++
		case p.text[p.at] == quote:
			p.at++
			raw := p.text[from:p.at]
			if quote == '\'' {
				return raw[1 : len(raw)-1], nil
			}
			s, err := strconv.Unquote(raw)
			if err != nil {
				return "", p.errorf("string %s: %v", raw, err)
			}
			return s, nil
		}
	}
	return "", p.errorf("a string is not finished")
}

func (p *tomlParser) value() (any, error) {
	p.skipBlank(false)
	if p.at >= len(p.text) {
		return nil, p.errorf("a value is missing")
	}
	switch p.text[p.at] {
	case '"', '\'':
		return p.quoted()
	case '[':
		return p.array()
	}
	from := p.at
	for p.at < len(p.text) && !strings.ContainsRune(" \t\r\n,]#", rune(p.text[p.at])) {
		p.at++
	}
	word := p.text[from:p.at]
	if word == "true" || word == "false" {
		return word == "true", nil
	}
	n, err := strconv.ParseInt(strings.ReplaceAll(word, "_", ""), 10, 64)
	if err != nil {
		return nil, p.errorf("value %q is not supported", word)
	}
	return n, nil
}

func (p *tomlParser) array() (any, error) {
	p.at++
	items := []any{}
	for {
		p.skipBlank(true)
		if p.at < len(p.text) && p.text[p.at] == ']' {
			p.at++
			return items, nil
		}
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		p.skipBlank(true)
		if p.at < len(p.text) && p.text[p.at] == ',' {
			p.at++
		} else if p.at >= len(p.text) || p.text[p.at] != ']' {
			return nil, p.errorf("an array is not finished")
		}
	}
}
