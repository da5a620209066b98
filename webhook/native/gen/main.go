// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gen writes the native policies into a folder.
package main

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"

	"github.com/slipway-sh/slipway/webhook/native"
)

func main() {
	out := flag.String("out", ".", "folder to write to")
	flag.Parse()
	if err := write(*out); err != nil {
		fmt.Fprintf(os.Stderr, "gen: %v\n", err)
		os.Exit(1)
	}
}

func write(dir string) error {
	for _, f := range native.Files() {
		text, err := f.YAML()
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dir, f.Name), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}
