// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/slipway-sh/slipway/test/house"
)

func TestHouse(t *testing.T) {
	root := moduleRoot(t)
	files, err := house.Read(os.DirFS(root))
	if err != nil {
		t.Fatal(err)
	}
	if len(files) < 20 {
		t.Fatalf("found only %d Go files below %q: the walk is broken", len(files), root)
	}
	for _, v := range house.Check(files) {
		t.Error(v)
	}
}

// moduleRoot is the nearest folder upwards that has a go.mod.
func moduleRoot(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		_, err := os.Stat(filepath.Join(dir, "go.mod"))
		if err == nil {
			return dir
		}
		if !errors.Is(err, fs.ErrNotExist) || filepath.Dir(dir) == dir {
			t.Fatalf("finding go.mod above the working directory: %v", err)
		}
		dir = filepath.Dir(dir)
	}
}
