// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"
)

// Document is one object of a file.
type Document struct {
	File string
	// Line is where the document begins, from 1.
	Line   int
	Object *unstructured.Unstructured
	raw    []byte // as JSON
}

// Name is how messages call the object.
func (d *Document) Name() string {
	name := d.Object.GetName()
	if ns := d.Object.GetNamespace(); ns != "" {
		name = ns + "/" + name
	}
	return fmt.Sprintf("%s %s", strings.ToLower(d.Object.GetKind()), name)
}

// Files lists the files that the arguments mean: a file itself, of a folder everything below it that ends in .yaml, .yml or
// .json. "-" is standard input.
func Files(args []string) ([]string, error) {
	var out []string
	for _, arg := range args {
		if arg == "-" {
			out = append(out, arg)
			continue
		}
		err := filepath.WalkDir(arg, func(path string, entry fs.DirEntry, err error) error {
			if err != nil {
				return err
			}
			if entry.IsDir() {
				return nil
			}
			if path == arg || slices.Contains([]string{".yaml", ".yml", ".json"}, filepath.Ext(path)) {
				out = append(out, path)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return out, nil
}

// ReadFile reads the documents of a file; stdin stands for "-".
func ReadFile(path string, stdin io.Reader) ([]Document, error) {
	if path == "-" {
		return Read("-", stdin)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return Read(path, f)
}

// Read splits YAML or JSON into documents. Lists are taken apart; documents that are no Kubernetes object (values of a chart,
// a kustomization) are left out. Errors name file and line.
func Read(file string, r io.Reader) ([]Document, error) {
	text, err := io.ReadAll(r)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	var out []Document
	var errs []error
	for _, part := range split(text) {
		raw, err := yaml.YAMLToJSONStrict(part.text)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, part.line, err))
			continue
		}
		docs, err := objects(file, part.line, raw)
		if err != nil {
			errs = append(errs, fmt.Errorf("%s:%d: %w", file, part.line, err))
		}
		out = append(out, docs...)
	}
	return out, errors.Join(errs...)
}

type part struct {
	line int
	text []byte
}

// split cuts at lines that begin with "---" and says at which line each part has its first content.
func split(text []byte) []part {
	var out []part
	var now bytes.Buffer
	start, line := 0, 0
	flush := func() {
		if start > 0 {
			out = append(out, part{start, bytes.Clone(now.Bytes())})
		}
		now.Reset()
		start = 0
	}
	scanner := bufio.NewScanner(bytes.NewReader(text))
	scanner.Buffer(nil, len(text)+1)
	for scanner.Scan() {
		line++
		content := scanner.Text()
		if strings.HasPrefix(content, "---") {
			flush()
			continue
		}
		if trimmed := strings.TrimSpace(content); start == 0 && trimmed != "" && !strings.HasPrefix(trimmed, "#") {
			start = line
		}
		now.WriteString(content + "\n")
	}
	flush()
	return out
}

func objects(file string, line int, raw []byte) ([]Document, error) {
	o := &unstructured.Unstructured{}
	if err := json.Unmarshal(raw, &o.Object); err != nil || o.GetKind() == "" || o.GetAPIVersion() == "" {
		return nil, nil //nolint:nilerr // no Kubernetes object: not ours to judge
	}
	if !o.IsList() {
		return []Document{{file, line, o, raw}}, nil
	}
	var out []Document
	err := o.EachListItem(func(item runtime.Object) error {
		u, ok := item.(*unstructured.Unstructured)
		if !ok {
			return fmt.Errorf("an item of the list is no object")
		}
		raw, err := u.MarshalJSON()
		if err != nil {
			return err
		}
		out = append(out, Document{file, line, u, raw})
		return nil
	})
	return out, err
}
