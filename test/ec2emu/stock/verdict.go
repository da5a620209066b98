// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

// expected are parts of Karpenter's errors that real EC2, or no EC2 at all, would
// cause too, each with the reason.
func expected() map[string]string {
	return map[string]string{
		"karpenter is not compatible with kubernetes version": "this Karpenter is older than the control plane's Kubernetes, and says so once a period",
	}
}

// refusals are the codes with which the emulator answers what it doesn't know:
// EC2 knows it.
func refusals() []string {
	return []string{"InvalidAction", "UnknownOperationException", "UnknownParameter", "UnsupportedOperation", "InternalError", "SerializationException"}
}

// verdict reads Karpenter's log and the emulator's journal.
func (s *session) verdict() error {
	log, err := s.karpenter.Log()
	if err != nil {
		return fmt.Errorf("reading Karpenter's log: %w", err)
	}
	defer log.Close()
	found, err := complaints(log)
	if err != nil {
		return err
	}
	found = append(found, unknown(s.bed.Emulator.Requests())...)
	if len(found) > 0 {
		return fmt.Errorf("real EC2 would not have caused this:\n%s", strings.Join(found, "\n"))
	}
	s.tell.say("no error in Karpenter's log that real EC2 would not cause")
	return nil
}

// complaints returns the errors among the lines of a log, each once.
func complaints(log io.Reader) ([]string, error) {
	var out []string
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var entry struct{ Level, Logger, Message, Controller, Error string }
		if err := json.Unmarshal(lines.Bytes(), &entry); err != nil {
			if strings.HasPrefix(lines.Text(), "panic:") {
				out = append(out, lines.Text())
			}
			continue
		}
		text := fmt.Sprintf("%s: %s: %s", entry.Controller, entry.Message, entry.Error)
		if entry.Level == "ERROR" && !excused(text) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("reading Karpenter's log: %w", err)
	}
	return out, nil
}

func excused(text string) bool {
	for part := range expected() {
		if strings.Contains(text, part) {
			return true
		}
	}
	return false
}

// unknown returns the requests that the emulator did not understand, each once.
func unknown(requests []ec2emu.Request) []string {
	var out []string
	for _, r := range requests {
		text := fmt.Sprintf("the emulator answered %s to %s %s", r.Code, r.Service, r.Action)
		if slices.Contains(refusals(), r.Code) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}

// keep copies Karpenter's log and the journal for people.
func (s *session) keep(folder string) error {
	if err := os.MkdirAll(folder, 0o755); err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	log, err := s.karpenter.Log()
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	defer log.Close()
	text, err := io.ReadAll(log)
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	journal, err := json.MarshalIndent(s.bed.Emulator.Requests(), "", " ")
	if err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	return errors.Join(
		os.WriteFile(filepath.Join(folder, "karpenter.log"), text, 0o644),
		os.WriteFile(filepath.Join(folder, "requests.json"), journal, 0o644),
	)
}
