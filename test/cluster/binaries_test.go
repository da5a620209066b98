// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// smallModule writes a module with a command that builds in a moment and one that doesn't build.
func smallModule(t *testing.T) pins {
	t.Helper()
	root := t.TempDir()
	for name, content := range map[string]string{
		"go.mod":         "module example.com/small\n\ngo 1.24\n",
		"good/main.go":   "package main\n\nfunc main() {}\n",
		"broken/main.go": "package main\n\nfunc main() { undefinedName() }\n",
	} {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return pins{root: root, versions: map[string]string{kubeModule: "v1.2.3", "example.com/small": "v0"}}
}

func smallTool(name string) tool {
	return tool{name: name, pkg: "example.com/small/" + name, module: "example.com/small"}
}

// recorder collects progress lines.
type recorder struct {
	mu    sync.Mutex
	lines []string
}

func (r *recorder) add(line string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.lines = append(r.lines, line)
}

func (r *recorder) count(prefix string) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for _, line := range r.lines {
		if strings.HasPrefix(line, prefix) {
			n++
		}
	}
	return n
}

// TestBuildersTakeTurns has several callers miss the same binary.
func TestBuildersTakeTurns(t *testing.T) {
	module, dir := smallModule(t), t.TempDir()
	var progress recorder
	present := func(tool) (bool, error) { return isFile(filepath.Join(dir, "good")) }
	var callers sync.WaitGroup
	for range 4 {
		callers.Go(func() {
			thread := newThread()
			defer thread.stop()
			b := builder{thread: thread, progress: progress.add}
			if err := b.build(t.Context(), module, dir, []tool{smallTool("good")}, present); err != nil {
				t.Error(err)
			}
		})
	}
	callers.Wait()
	if got := progress.count("building good"); got != 1 {
		t.Errorf("built %d times, want once; progress: %q", got, progress.lines)
	}
	if _, err := os.Stat(filepath.Join(dir, "good.partial")); !os.IsNotExist(err) {
		t.Errorf("partial file: %v, want none", err)
	}
	for version, want := range map[string]bool{"(devel)": true, "v1.0.0": false} {
		got, err := isCurrent(filepath.Join(dir, "good"), smallTool("good"), version)
		if got != want || err != nil {
			t.Errorf("isCurrent at %s = %v, %v; want %v", version, got, err, want)
		}
	}
	if got, err := isCurrent(filepath.Join(module.root, "go.mod"), smallTool("good"), "(devel)"); got || err != nil {
		t.Errorf("isCurrent of a text file = %v, %v; want false", got, err)
	}
}

func TestFailedBuildQuotesTheCompiler(t *testing.T) {
	dir := t.TempDir()
	thread := newThread()
	defer thread.stop()
	b := builder{thread: thread, progress: func(string) {}}
	none := func(tool) (bool, error) { return false, nil }
	err := b.build(t.Context(), smallModule(t), dir, []tool{smallTool("broken")}, none)
	if err == nil || !strings.Contains(err.Error(), "undefined: undefinedName") {
		t.Errorf("got %v, want the compiler's words", err)
	}
	if got, err := isFile(filepath.Join(dir, "broken")); got || err != nil {
		t.Errorf("binary after a failed build: %v, %v", got, err)
	}
}

// TestGivenBinariesNeedNoGo uses a complete folder on a machine without Go.
func TestGivenBinariesNeedNoGo(t *testing.T) {
	dir := t.TempDir()
	for _, tool := range tools(Kwok) {
		if err := os.WriteFile(filepath.Join(dir, tool.name), nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", "")
	t.Setenv(BinDirEnv, dir)
	got, err := Build(t.Context(), Options{Kubelet: Kwok})
	if err != nil || got != dir {
		t.Errorf("Build = %q, %v; want %q", got, err, dir)
	}
	if err := os.Remove(filepath.Join(dir, "kwok")); err != nil {
		t.Fatal(err)
	}
	if _, err := Build(t.Context(), Options{Kubelet: Kwok}); err == nil || !strings.Contains(err.Error(), BinDirEnv) {
		t.Errorf("with one missing: %v, want an error that names %s", err, BinDirEnv)
	}
}

func TestPinsComeFromTheModule(t *testing.T) {
	p, err := readPins(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(p.root, "go.mod")); err != nil {
		t.Error(err)
	}
	for module, want := range map[string]string{kubeModule: "v1.37.", etcdModule: "v3.7.", kwokModule: "v0.8."} {
		if !strings.HasPrefix(p.versions[module], want) {
			t.Errorf("%s is pinned at %q, want %sx", module, p.versions[module], want)
		}
	}
	flags := ldflags(pins{versions: map[string]string{kubeModule: "v1.37.2", kwokModule: "v0.8.0"}})
	for _, want := range []string{"component-base/version.gitVersion=v1.37.2", ".gitMajor=1 ", ".gitMinor=37 ", "consts.Version=0.8.0"} {
		if !strings.Contains(flags, want) {
			t.Errorf("linker flags lack %q: %s", want, flags)
		}
	}
}

func TestIsPackage(t *testing.T) {
	for line, want := range map[string]bool{
		"k8s.io/api/core/v1": true, "fmt": true, "": false, "go: downloading k8s.io/api v0.37.2": false,
		"# example.com/broken": false, "broken/main.go:3:15: undefined: x": false,
	} {
		if got := isPackage(line); got != want {
			t.Errorf("isPackage(%q) = %v, want %v", line, got, want)
		}
	}
}

func TestLockIsExclusiveUntilClosed(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	first, err := tryLock(path)
	if first == nil || err != nil {
		t.Fatalf("first lock: %v, %v", first, err)
	}
	if second, err := tryLock(path); second != nil || err != nil {
		t.Errorf("second lock: %v, %v; want neither", second, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	third, err := tryLock(path)
	if third == nil || err != nil {
		t.Fatalf("lock after close: %v, %v", third, err)
	}
	_ = third.Close()
}
