// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	_ "embed" // for the tables
	"fmt"
	"strconv"
	"strings"
)

//go:embed branch_interfaces.txt
var branchInterfacesText string

//go:embed network_bandwidth.txt
var networkBandwidthText string

//go:embed prices.txt
var pricesText string

// staticRegion is the region whose prices stand in for those of a region that the table of prices lacks: one of the same
// part of AWS, which has prices in the same currency.
func staticRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "cn-north-1"
	case region == "us-gov-east-1":
		return region
	case strings.HasPrefix(region, "us-gov-"):
		return "us-gov-west-1"
	}
	return "us-east-1"
}

// staticPrices returns the on-demand prices known when this version was built, as the region's own or as those of
// [staticRegion].
func staticPrices(region string) (map[string]float64, error) {
	region = staticRegion(region)
	out := make(map[string]float64, 1500)
	for line := range strings.Lines(pricesText) {
		fields := strings.Fields(line)
		if len(fields) < 3 || fields[0] != region {
			continue
		}
		price, err := strconv.ParseFloat(fields[1], 64)
		if err != nil {
			return nil, fmt.Errorf("parsing line %q of prices.txt: %w", line, err)
		}
		for _, name := range fields[2:] {
			out[name] = price
		}
	}
	return out, nil
}

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
