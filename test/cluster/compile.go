// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// progressInterval is how often a running build says what it is at.
const progressInterval = 15 * time.Second

// compile builds one binary and puts it in place in one step, so that a half-written file is never taken for it.
func (b builder) compile(ctx context.Context, p pins, dir string, t tool) error {
	version := p.versions[t.module]
	note := ""
	if t.module == kubeModule {
		note = " (first time only: compiling Kubernetes takes 10 to 20 minutes on 2 cores unless it is in Go's cache)"
	}
	b.progress(fmt.Sprintf("building %s %s%s", t.name, version, note))

	partial := filepath.Join(dir, t.name+".partial")
	cmd := exec.CommandContext(ctx, "go", "build", "-v", "-ldflags", ldflags(p), "-o", partial, t.pkg)
	cmd.Dir = p.root
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) } // lets go remove its work folder
	cmd.WaitDelay = 10 * time.Second
	// A pipe of our own: StderrPipe would be closed by Wait before the last lines are read.
	read, write, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("building %s: %w", t.name, err)
	}
	defer read.Close()
	cmd.Stderr = write
	if err := b.thread.start(cmd); err != nil {
		_ = write.Close()
		return fmt.Errorf("building %s: %w", t.name, err)
	}
	_ = write.Close()
	packages, words := b.follow(read, t.name+" "+version)
	if err := cmd.Wait(); err != nil {
		if ctx.Err() != nil {
			return fmt.Errorf("building %s: %w (what is compiled so far stays in Go's cache)", t.name, context.Cause(ctx))
		}
		return fmt.Errorf("building %s: %w: %s", t.name, err, words)
	}
	if err := os.Rename(partial, filepath.Join(dir, t.name)); err != nil {
		return fmt.Errorf("building %s: %w", t.name, err)
	}
	b.progress(fmt.Sprintf("built %s %s; %d packages compiled", t.name, version, packages))
	return nil
}

// follow reads the output of "go build -v", which names each package as it starts to compile it, tells the
// progress now and then, and returns the count and the end of what was said besides.
func (b builder) follow(r io.Reader, what string) (packages int, words string) {
	lines := make(chan string)
	go func() {
		defer close(lines)
		s := bufio.NewScanner(r)
		s.Buffer(nil, 1<<20)
		for s.Scan() {
			lines <- s.Text()
		}
		_, _ = io.Copy(io.Discard, r) // a line beyond the buffer must not block the build
	}()
	tick := time.NewTicker(progressInterval)
	defer tick.Stop()
	var rest []string
	at := ""
	for {
		select {
		case line, ok := <-lines:
			switch {
			case !ok:
				return packages, strings.Join(rest[max(0, len(rest)-20):], "\n")
			case isPackage(line):
				packages++
				at = line
			default:
				rest = append(rest, line)
			}
		case <-tick.C:
			b.progress(fmt.Sprintf("building %s; %d packages compiled, now at %s", what, packages, cmp.Or(at, "the start")))
		}
	}
}

// isPackage tells an import path from a message of the go command ("go: downloading …", "# pkg", "file.go:1:2: …").
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " :#")
}

// VersionFlags are linker flags by which a program built from this module calls itself by the version of Kubernetes that it
// was built from, as the release builds do.
func VersionFlags(ctx context.Context) (string, error) {
	p, err := readPins(ctx)
	if err != nil {
		return "", err
	}
	return ldflags(p), nil
}

// ldflags stamps the versions in, as the release builds of the components do.
func ldflags(p pins) string {
	v := p.versions[kubeModule]
	major, minor, _ := majorMinor(v) // checked by readPins
	flags := []string{"-s", "-w", "-X", "sigs.k8s.io/kwok/pkg/consts.Version=" + strings.TrimPrefix(p.versions[kwokModule], "v")}
	for _, pkg := range []string{"k8s.io/component-base/version", "k8s.io/client-go/pkg/version"} {
		flags = append(flags,
			"-X", pkg+".gitVersion="+v, "-X", pkg+".gitMajor="+major, "-X", pkg+".gitMinor="+minor,
			"-X", pkg+".gitTreeState=clean", "-X", pkg+".gitCommit=module")
	}
	return strings.Join(flags, " ")
}

// majorMinor splits a version such as v1.37.2.
func majorMinor(version string) (major, minor string, err error) {
	parts := strings.SplitN(strings.TrimPrefix(version, "v"), ".", 3)
	if len(parts) != 3 || parts[0] == "" || parts[1] == "" {
		return "", "", errors.New("parsing version: want vMAJOR.MINOR.PATCH")
	}
	return parts[0], parts[1], nil
}
