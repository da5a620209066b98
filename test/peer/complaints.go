// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package peer

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
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

// Complaints returns what real EC2 would not have caused, each once: errors in Karpenter's log, and requests that the emulator
// did not understand.
func (p *Peer) Complaints() ([]string, error) {
	log, err := p.Process.Log()
	if err != nil {
		return nil, fmt.Errorf("reading Karpenter's log: %w", err)
	}
	defer log.Close()
	found, err := complaints(log)
	return append(found, unknown(p.bed.Emulator.Requests())...), err
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
	for i := range requests {
		r := &requests[i]
		text := fmt.Sprintf("the emulator answered %s to %s %s", r.Code, r.Service, r.Action)
		if slices.Contains(refusals(), r.Code) && !slices.Contains(out, text) {
			out = append(out, text)
		}
	}
	return out
}
