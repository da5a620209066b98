// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package data

import (
	"slices"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

func TestFacts(t *testing.T) {
	f, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	if len(f.Types) < 1300 || len(f.Prices) < 1300 || len(f.Offerings) < 20 {
		t.Fatalf("got %d types, %d prices, %d regions", len(f.Types), len(f.Prices), len(f.Offerings))
	}
	if !slices.IsSortedFunc(f.Types, func(a, b ec2types.InstanceTypeInfo) int {
		return slices.Compare([]byte(a.InstanceType), []byte(b.InstanceType))
	}) {
		t.Error("types are not sorted: Index would miss some")
	}
	for name := range f.Prices {
		if _, ok := f.Index(name); !ok {
			t.Errorf("price of %q, which is no type", name)
		}
	}
	i, ok := f.Index("m5.large")
	if !ok {
		t.Fatal("no m5.large")
	}
	m5 := f.Types[i]
	if got := aws.ToInt32(m5.VCpuInfo.DefaultVCpus); got != 2 {
		t.Errorf("m5.large has %d vCPUs, want 2", got)
	}
	if got := aws.ToInt64(m5.MemoryInfo.SizeInMiB); got != 8192 {
		t.Errorf("m5.large has %d MiB, want 8192", got)
	}
	if got := f.Prices["m5.large"]; got != 0.096 {
		t.Errorf("m5.large costs %v, want 0.096", got)
	}
}

// The product's labels need these members of every type (karpenter.k8s.aws/*).
func TestFactsHaveWhatLabelsNeed(t *testing.T) {
	f, err := Load()
	if err != nil {
		t.Fatal(err)
	}
	for _, info := range f.Types {
		switch {
		case info.VCpuInfo == nil || info.VCpuInfo.DefaultVCpus == nil,
			info.MemoryInfo == nil || info.MemoryInfo.SizeInMiB == nil,
			info.ProcessorInfo == nil || len(info.ProcessorInfo.SupportedArchitectures) == 0,
			info.NetworkInfo == nil || info.NetworkInfo.Ipv4AddressesPerInterface == nil || len(info.NetworkInfo.NetworkCards) == 0,
			len(info.SupportedUsageClasses) == 0, info.EbsInfo == nil:
			t.Errorf("%s lacks a member", info.InstanceType)
		}
	}
}

func BenchmarkUnpack(b *testing.B) {
	for b.Loop() {
		if _, err := unpack(); err != nil {
			b.Fatal(err)
		}
	}
}
