// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"bytes"
	"compress/gzip"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"sync"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

//go:embed facts.json.gz
var packed []byte

// load unpacks the facts once a process; they are constants, some 30 ms away.
//
//nolint:gochecknoglobals // constants that are too large for source
var load = sync.OnceValues(unpack)

// Facts is everything recorded. It is shared: callers must not change it.
type Facts struct {
	// Sources names the versions of the recordings.
	Sources []string
	// Types are all instance types of all regions, sorted by name.
	Types []ec2types.InstanceTypeInfo
	// Prices are USD an hour, Linux, on demand, shared tenancy (dedicated for
	// bare metal), in us-east-1. A type of Types may have none.
	Prices map[string]float64
	// Offerings says where the types are offered, by region.
	Offerings map[string]Region
}

// Region is the catalogue of one region.
type Region struct {
	// Zones are the names of the standard zones, sorted.
	Zones []string
	// Masks has an entry for each of Facts.Types; bit i is Zones[i].
	Masks []uint16
}

// Load returns the recorded facts. The error is that of a broken build.
func Load() (*Facts, error) { return load() }

func unpack() (*Facts, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, fmt.Errorf("unpacking instance type facts: %w", err)
	}
	var file file
	if err := json.NewDecoder(r).Decode(&file); err != nil {
		return nil, fmt.Errorf("decoding instance type facts: %w", err)
	}
	f := Facts{Sources: file.Sources, Prices: file.Prices, Offerings: file.Offerings, Types: file.types()}
	for name, region := range f.Offerings {
		if len(region.Masks) != len(f.Types) {
			return nil, fmt.Errorf("decoding instance type facts: region %q has %d masks for %d types", name, len(region.Masks), len(f.Types))
		}
	}
	return &f, nil
}

// file is what gen.py writes: each distinct value once, and rows of indexes.
type file struct {
	Sources   []string
	Names     []string
	Rows      [][6]int // in the order of Pools, -1 for absent
	Pools     pools
	Prices    map[string]float64
	Offerings map[string]Region
}

type pools struct {
	NetworkInfo         []*ec2types.NetworkInfo
	EbsInfo             []*ec2types.EbsInfo
	VCpuInfo            []*ec2types.VCpuInfo
	MemoryInfo          []*ec2types.MemoryInfo
	InstanceStorageInfo []*ec2types.InstanceStorageInfo
	Common              []ec2types.InstanceTypeInfo
}

func (f *file) types() []ec2types.InstanceTypeInfo {
	types := make([]ec2types.InstanceTypeInfo, len(f.Rows))
	for i, row := range f.Rows {
		t := f.Pools.Common[row[5]]
		t.InstanceType = ec2types.InstanceType(f.Names[i])
		t.NetworkInfo = at(f.Pools.NetworkInfo, row[0])
		t.EbsInfo = at(f.Pools.EbsInfo, row[1])
		t.VCpuInfo = at(f.Pools.VCpuInfo, row[2])
		t.MemoryInfo = at(f.Pools.MemoryInfo, row[3])
		t.InstanceStorageInfo = at(f.Pools.InstanceStorageInfo, row[4])
		types[i] = t
	}
	return types
}

func at[T any](pool []*T, i int) *T {
	if i < 0 {
		return nil
	}
	return pool[i]
}

// Index returns the position of an instance type in Types.
func (f *Facts) Index(instanceType string) (int, bool) {
	return slices.BinarySearchFunc(f.Types, instanceType, func(t ec2types.InstanceTypeInfo, name string) int {
		return bytes.Compare([]byte(t.InstanceType), []byte(name))
	})
}
