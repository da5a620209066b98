// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"
)

// ticks are the units of /proc/PID/stat in a second.
const ticks = 100

// apiServerArgs are flags beyond the cluster's own.
func (o options) apiServerArgs() []string {
	if o.profiles == "" {
		return nil
	}
	return []string{"--profiling=true"}
}

// spent is the processor time each of the cluster's processes has used so far (proc_pid_stat(5): fields 14 and 15).
func (s *site) spent() map[string]time.Duration {
	out := map[string]time.Duration{}
	for name, pid := range s.PIDs() {
		raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil {
			continue // it has ended
		}
		fields := strings.Fields(string(raw[bytes.LastIndexByte(raw, ')')+1:])) // from field 3 on: a name may have spaces
		for _, i := range []int{14 - 3, 15 - 3} {
			if n, err := strconv.ParseInt(fields[i], 10, 64); err == nil {
				out[name] += time.Duration(n) * time.Second / ticks
			}
		}
	}
	return out
}

// resident is the most memory a process has had at once, and what it has now, in MB (10^6 bytes).
func resident(pid int) (most, now float64, err error) {
	raw, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		return 0, 0, err
	}
	for line := range strings.Lines(string(raw)) {
		for prefix, to := range map[string]*float64{"VmHWM:": &most, "VmRSS:": &now} {
			if text, ok := strings.CutPrefix(line, prefix); ok {
				kib, err := strconv.ParseFloat(strings.TrimSuffix(strings.TrimSpace(text), " kB"), 64)
				if err != nil {
					return 0, 0, err
				}
				*to = kib * 1024 / 1e6
			}
		}
	}
	return most, now, nil
}

// profile has the API server write what it does for the time of a situation; the result waits for it.
func (s *site) profile(ctx context.Context, o options, name string) func() error {
	if o.profiles == "" {
		return func() error { return nil }
	}
	done := make(chan error, 1)
	go func() {
		config := s.Config()
		config.Timeout = 0
		client, err := kubernetes.NewForConfig(config)
		if err != nil {
			done <- err
			return
		}
		query := url.Values{"seconds": {strconv.Itoa(max(1, int(o.creating.Seconds())-1))}}
		raw, err := client.CoreV1().RESTClient().Get().RequestURI("/debug/pprof/profile?" + query.Encode()).DoRaw(ctx)
		if err != nil {
			done <- fmt.Errorf("profiling the API server: %w", err)
			return
		}
		done <- os.WriteFile(filepath.Join(o.profiles, name+".pprof"), raw, 0o600)
	}()
	return func() error { return <-done }
}
