// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	_ "embed" // for the two tables
	"fmt"
	"strconv"
	"strings"
)

//go:embed branch_interfaces.txt
var branchInterfacesText string

//go:embed network_bandwidth.txt
var networkBandwidthText string

// tables are the facts about instance types that EC2 does not answer; see gen.
type tables struct {
	branchInterfaces map[string]int64 // trunk-compatible types only
	bandwidth        map[string]int64 // Mbit/s
}

func newTables() (tables, error) {
	branch, err := parseTable(branchInterfacesText)
	if err != nil {
		return tables{}, fmt.Errorf("reading branch_interfaces.txt: %w", err)
	}
	bandwidth, err := parseTable(networkBandwidthText)
	if err != nil {
		return tables{}, fmt.Errorf("reading network_bandwidth.txt: %w", err)
	}
	return tables{branchInterfaces: branch, bandwidth: bandwidth}, nil
}

func parseTable(text string) (map[string]int64, error) {
	out := make(map[string]int64, 1500)
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		v, err := strconv.ParseInt(fields[0], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("parsing line %q: %w", line, err)
		}
		for _, name := range fields[1:] {
			out[name] = v
		}
	}
	return out, nil
}
