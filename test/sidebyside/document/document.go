// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package document

import (
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"time"
)

// Table is a table of text.
type Table struct {
	Head []string
	rows [][]string
}

// Row adds a row.
func (t *Table) Row(cells ...string) { t.rows = append(t.rows, cells) }

// String is the table in Markdown.
func (t *Table) String() string {
	line := func(cells []string) string { return "| " + strings.Join(cells, " | ") + " |\n" }
	var text strings.Builder
	text.WriteString(line(t.Head) + "|" + strings.Repeat("---|", len(t.Head)) + "\n")
	for _, cells := range t.rows {
		text.WriteString(line(cells))
	}
	return text.String()
}

// Write replaces the section of a part in the file at path, or appends it.
func Write(path, part, text string) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the document: %w", err)
	}
	out, err := Replace(string(raw), part, text)
	if err != nil {
		return fmt.Errorf("writing into %s: %w", path, err)
	}
	info, err := os.Stat(path)
	if err != nil {
		return fmt.Errorf("writing the document: %w", err)
	}
	return os.WriteFile(path, []byte(out), info.Mode())
}

// Replace returns the document with the section of a part replaced, or appended if it has none.
func Replace(whole, part, text string) (string, error) {
	begin, end := "<!-- "+part+": written by test/sidebyside -->\n", "<!-- end of "+part+" -->\n"
	body := begin + text + end
	before, rest, found := strings.Cut(whole, begin)
	if !found {
		return whole + "\n" + body, nil
	}
	_, after, found := strings.Cut(rest, end)
	if !found {
		return "", fmt.Errorf("section %q has no end", part)
	}
	return before + body + after, nil
}

// Where says when and on what something was measured, with the versions of others.
func Where(versions ...string) string {
	slipway := "of an unknown commit"
	if out, err := exec.Command("git", "describe", "--always", "--dirty").Output(); err == nil {
		slipway = strings.TrimSpace(string(out))
	}
	return fmt.Sprintf("*Measured on %s on %d cores (%s), %s/%s, %s; Slipway %s, %s.*\n",
		time.Now().Format(time.DateOnly), runtime.NumCPU(), processor(), runtime.GOOS, runtime.GOARCH, runtime.Version(), slipway, strings.Join(versions, ", "))
}

// processor is the machine's, as Linux tells it.
func processor() string {
	raw, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "unknown processor"
	}
	lines := strings.Split(string(raw), "\n")
	i := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, "model name") })
	if i < 0 {
		return "unknown processor"
	}
	_, model, _ := strings.Cut(lines[i], ":")
	return strings.TrimSpace(model)
}
