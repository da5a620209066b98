// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// Ports come from below the range the kernel hands out to outgoing connections and to listeners on port 0, so that
// no unrelated connection can take one between its choice and the component's bind.
const (
	firstPort = 20000
	lastPort  = 29999
)

const (
	lockFile = "lock"
	pidFile  = "pids"
)

// workdir is a cluster's folder, with the locks that say it and its ports are in use.
type workdir struct {
	path  string
	root  string
	locks []*os.File
}

// newWorkdir removes the folders of callers that are gone and makes a new one below tempDir.
func newWorkdir(ctx context.Context, tempDir string) (*workdir, error) {
	root := filepath.Join(tempDir, fmt.Sprintf("slipway-clusters-%d", os.Getuid()))
	if err := os.MkdirAll(filepath.Join(root, "ports"), 0o700); err != nil {
		return nil, fmt.Errorf("creating data folder: %w", err)
	}
	// One at a time: a folder that is made but not yet locked would look abandoned.
	rootLock, err := lock(ctx, filepath.Join(root, lockFile), nil)
	if err != nil {
		return nil, fmt.Errorf("waiting for the data folder: %w", err)
	}
	defer rootLock.Close()
	if err := sweep(root); err != nil {
		return nil, err
	}
	path, err := os.MkdirTemp(root, "cluster-")
	if err != nil {
		return nil, fmt.Errorf("creating data folder: %w", err)
	}
	own, err := tryLock(filepath.Join(path, lockFile))
	if err != nil || own == nil {
		return nil, fmt.Errorf("locking data folder %q: %w", path, err)
	}
	return &workdir{path: path, root: root, locks: []*os.File{own}}, nil
}

// sweep removes every cluster folder below root that no living process holds. The caller holds root's lock.
func sweep(root string) error {
	dirs, err := filepath.Glob(filepath.Join(root, "cluster-*"))
	if err != nil {
		return fmt.Errorf("listing data folders: %w", err)
	}
	var errs []error
	for _, dir := range dirs {
		l, err := tryLock(filepath.Join(dir, lockFile))
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if l == nil {
			continue // in use
		}
		killRecorded(dir)
		if err := os.RemoveAll(dir); err != nil {
			errs = append(errs, fmt.Errorf("removing abandoned data folder: %w", err))
		}
		_ = l.Close()
	}
	return errors.Join(errs...)
}

// killRecorded ends the processes recorded in an abandoned folder that still run from it. On Linux the kernel has
// ended them already. A process counts only if its command line names the folder, since process ids are reused.
func killRecorded(dir string) {
	b, err := os.ReadFile(filepath.Join(dir, pidFile))
	if err != nil {
		return // nothing was started
	}
	for field := range strings.FieldsSeq(string(b)) {
		pid, err := strconv.Atoi(field)
		if err != nil || pid <= 1 {
			continue
		}
		args, err := exec.Command("ps", "-o", "args=", "-p", field).Output()
		if err != nil || !strings.Contains(string(args), dir) {
			continue
		}
		if p, err := os.FindProcess(pid); err == nil {
			_ = p.Kill()
		}
	}
}

// record notes a started process for a later sweep.
func (w *workdir) record(pid int) error {
	f, err := os.OpenFile(filepath.Join(w.path, pidFile), os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("recording process: %w", err)
	}
	defer f.Close()
	if _, err := fmt.Fprintln(f, pid); err != nil {
		return fmt.Errorf("recording process: %w", err)
	}
	return nil
}

// port returns a free loopback TCP port that no other cluster of this user is given while this one lives.
func (w *workdir) port() (int, error) {
	const count = lastPort - firstPort + 1
	start := rand.IntN(count)
	for i := range count {
		port := firstPort + (start+i)%count
		held, err := tryLock(filepath.Join(w.root, "ports", strconv.Itoa(port)))
		if err != nil {
			return 0, err
		}
		if held == nil {
			continue
		}
		l, err := net.Listen("tcp", net.JoinHostPort(loopback, strconv.Itoa(port)))
		if err != nil {
			_ = held.Close()
			continue // taken by somebody else
		}
		_ = l.Close()
		w.locks = append(w.locks, held)
		return port, nil
	}
	return 0, fmt.Errorf("choosing a port: none free from %d to %d", firstPort, lastPort)
}

// remove deletes the folder and gives its ports back.
func (w *workdir) remove() error {
	err := os.RemoveAll(w.path)
	for _, l := range w.locks {
		_ = l.Close()
	}
	if err != nil {
		return fmt.Errorf("removing data folder: %w", err)
	}
	return nil
}
