// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"cmp"
	"context"
	"debug/buildinfo"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// tool is one binary of the control plane and the module it is built from.
type tool struct {
	name, pkg, module string
}

const (
	etcdModule = "go.etcd.io/etcd/server/v3"
	kubeModule = "k8s.io/kubernetes"
	kwokModule = "sigs.k8s.io/kwok"
)

// tools are the binaries that a cluster with this kubelet needs.
func tools(kubelet KubeletKind) []tool {
	all := []tool{
		{"etcd", etcdModule, etcdModule},
		{"kube-apiserver", kubeModule + "/cmd/kube-apiserver", kubeModule},
		{"kube-controller-manager", kubeModule + "/cmd/kube-controller-manager", kubeModule},
	}
	if kubelet == Kwok {
		all = append(all, tool{"kwok", kwokModule + "/cmd/kwok", kwokModule})
	}
	return all
}

// Build makes sure that every binary a cluster with these options needs is there, building what is missing, and
// returns their folder. One caller on the machine builds at a time; the others wait.
//
// It fails if a binary is missing and cannot be built: no go command, or not run inside a module that pins
// k8s.io/kubernetes, go.etcd.io/etcd/server/v3 and sigs.k8s.io/kwok.
func Build(ctx context.Context, opts Options) (string, error) {
	opts = opts.withDefaults()
	t := newThread()
	defer t.stop()
	b := builder{thread: t, progress: opts.Progress}
	if dir := cmp.Or(opts.BinDir, os.Getenv(BinDirEnv)); dir != "" {
		return b.ensureGiven(ctx, dir, tools(opts.Kubelet))
	}
	return b.ensureCached(ctx, tools(opts.Kubelet))
}

// builder builds missing binaries.
type builder struct {
	thread   *thread
	progress func(string)
}

// pins are a module's folder and the versions it pins.
type pins struct {
	root     string
	versions map[string]string // by module path
}

// ensureGiven completes a folder that the caller named. What is in it is taken as it is, whoever built it.
func (b builder) ensureGiven(ctx context.Context, dir string, want []tool) (string, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", fmt.Errorf("locating binaries: %w", err)
	}
	exists := func(t tool) (bool, error) { return isFile(filepath.Join(dir, t.name)) }
	missing, err := filter(want, exists)
	if err != nil || len(missing) == 0 {
		return dir, err
	}
	p, err := readPins(ctx)
	if err != nil {
		return "", err
	}
	return dir, b.build(ctx, p, dir, want, exists)
}

// ensureCached completes the module's own folder. A binary of another version than the pinned one is built anew.
func (b builder) ensureCached(ctx context.Context, want []tool) (string, error) {
	p, err := readPins(ctx)
	if err != nil {
		return "", err
	}
	dir := filepath.Join(p.root, "bin", "k8s", p.versions[kubeModule])
	current := func(t tool) (bool, error) { return isCurrent(filepath.Join(dir, t.name), t, p.versions[t.module]) }
	missing, err := filter(want, current)
	if err != nil || len(missing) == 0 {
		return dir, err
	}
	return dir, b.build(ctx, p, dir, want, current)
}

// isCurrent tells whether path was built from the tool's package at this version.
func isCurrent(path string, t tool, version string) (bool, error) {
	if ok, err := isFile(path); !ok || err != nil {
		return false, err
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return false, nil //nolint:nilerr // not a Go binary, so not ours: build it
	}
	return info.Path == t.pkg && info.Main.Version == version, nil
}

// build builds, under the folder's lock, what is not present in it.
func (b builder) build(ctx context.Context, p pins, dir string, want []tool, present func(tool) (bool, error)) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("creating binary folder: %w", err)
	}
	held, err := lock(ctx, filepath.Join(dir, lockFile), func() {
		b.progress("waiting for another process that is building the control plane in " + dir)
	})
	if err != nil {
		return fmt.Errorf("waiting for the binary folder: %w", err)
	}
	defer held.Close()
	missing, err := filter(want, present) // again: the one we waited for may have built them
	if err != nil {
		return err
	}
	for _, t := range missing {
		if err := b.compile(ctx, p, dir, t); err != nil {
			return err
		}
	}
	return nil
}

// readPins asks the go command, since go.mod may hold replacements.
func readPins(ctx context.Context) (pins, error) {
	modules := []string{etcdModule, kubeModule, kwokModule}
	out, err := goCommand(ctx, append([]string{"list", "-m", "-f", "{{.Path}} {{.Version}}"}, modules...)...)
	if err != nil {
		return pins{}, fmt.Errorf("reading pinned versions (set %s to use binaries built elsewhere): %w", BinDirEnv, err)
	}
	gomod, err := goCommand(ctx, "env", "GOMOD")
	if err != nil {
		return pins{}, fmt.Errorf("locating the module: %w", err)
	}
	p := pins{root: filepath.Dir(strings.TrimSpace(gomod)), versions: map[string]string{}}
	for line := range strings.Lines(out) {
		path, version, _ := strings.Cut(strings.TrimSpace(line), " ")
		p.versions[path] = version
	}
	if _, _, err := majorMinor(p.versions[kubeModule]); err != nil {
		return pins{}, fmt.Errorf("reading pinned version %q of %s: %w", p.versions[kubeModule], kubeModule, err)
	}
	return p, nil
}

// goCommand runs a go command that answers at once and returns its output.
func goCommand(ctx context.Context, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("running go %s: %w: %s", args[0], err, strings.TrimSpace(stderr.String()))
	}
	return string(out), nil
}

func isFile(path string) (bool, error) {
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("looking for binary: %w", err)
	}
	return info.Mode().IsRegular(), nil
}

// filter returns the tools that are not present.
func filter(all []tool, present func(tool) (bool, error)) ([]tool, error) {
	var missing []tool
	for _, t := range all {
		ok, err := present(t)
		if err != nil {
			return nil, err
		}
		if !ok {
			missing = append(missing, t)
		}
	}
	return missing, nil
}
