// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"bytes"
	"encoding/json"
	"fmt"

	"sigs.k8s.io/yaml"
)

// YAML is the file's content.
func (f *File) YAML() ([]byte, error) {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Copyright The Slipway Authors.\n# SPDX-License-Identifier: Apache-2.0\n\n# Made from webhook/native (make generate). Do not edit.\n# %s\n", f.About)
	for _, o := range f.Objects {
		raw, err := json.Marshal(o)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		var plain map[string]any
		if err := json.Unmarshal(raw, &plain); err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		delete(plain, "status")
		if meta, ok := plain["metadata"].(map[string]any); ok {
			delete(meta, "creationTimestamp")
		}
		text, err := yaml.Marshal(plain)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", f.Name, err)
		}
		b.WriteString("---\n")
		b.Write(text)
	}
	return b.Bytes(), nil
}
