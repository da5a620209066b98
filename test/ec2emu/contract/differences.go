// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"path"
	"strings"
)

// differences are those that are known, with their reasons.
type differences struct{ entries []*entry }

type entry struct {
	pattern, reason string
	line            int
	used            bool
}

// parseDifferences reads the list: a line "# reason" holds for the patterns below
// it until an empty line; * in a pattern stands for any text.
func parseDifferences(text string) (*differences, error) {
	d := &differences{}
	reason := ""
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		switch comment, isComment := strings.CutPrefix(line, "#"); {
		case line == "":
			reason = ""
		case isComment:
			reason = strings.TrimSpace(reason + " " + strings.TrimSpace(comment))
		case reason == "":
			return nil, fmt.Errorf("reading differences.txt: line %d: %q has no reason above it", i+1, line)
		default:
			d.entries = append(d.entries, &entry{pattern: line, reason: reason, line: i + 1})
		}
	}
	return d, nil
}

// judge returns the differences that are not listed and the lines that list
// nothing that was found.
func (d *differences) judge(found []string) []string {
	var out []string
	for _, f := range found {
		if !d.knows(f) {
			out = append(out, f)
		}
	}
	for _, e := range d.entries {
		if !e.used {
			out = append(out, fmt.Sprintf("differences.txt line %d: %q is no difference any more", e.line, e.pattern))
		}
	}
	return out
}

func (d *differences) knows(difference string) bool {
	known := false
	for _, e := range d.entries {
		if matches(e.pattern, difference) {
			e.used, known = true, true
		}
	}
	return known
}

// matches compares with * for any text. Members of lists have brackets, and
// actions no slashes, so path.Match does after both are taken literally.
func matches(pattern, text string) bool {
	literal := strings.NewReplacer("[", "(", "]", ")", "/", "|", "?", "!")
	ok, err := path.Match(literal.Replace(pattern), literal.Replace(text))
	return ok && err == nil
}
