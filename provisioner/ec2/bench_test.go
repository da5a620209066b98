// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"fmt"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// BenchmarkRefresh measures, with the whole catalogue of EC2, how long a reader that looks for offerings (as a launch does)
// is held up while what is refreshed is swapped in and rebuilt again and again, and how much memory the catalogue of a class takes.
func BenchmarkRefresh(b *testing.B) {
	_, c := start(b)
	class := resolved(b, c)
	before := heap()
	cs, err := ec2.NewCatalogs(c)
	if err != nil {
		b.Fatal(err)
	}
	if err := cs.Refresh(b.Context()); err != nil {
		b.Fatal(err)
	}
	cat := cs.For(class)
	b.Logf("%d types, %d offerings", len(cat.Types), len(cat.Offerings))
	size := heap() - before
	runtime.KeepAlive(cs)

	var done atomic.Bool
	stalls := make(chan []time.Duration)
	go func() {
		reqs := capacity.Requirements{}.With(capacity.In("kubernetes.io/arch", "amd64"), capacity.In("karpenter.sh/capacity-type", "spot"))
		var took []time.Duration
		for !done.Load() {
			begun := time.Now()
			if cs.For(class).Match(reqs).Empty() {
				b.Error("a reader found nothing")
			}
			took = append(took, time.Since(begun))
			time.Sleep(100 * time.Microsecond) // the pace of a busy launcher
		}
		stalls <- took
	}()
	for b.Loop() {
		cs.Rebuild() // the emulator's own work would be measured with that of a whole refresh
	}
	done.Store(true)
	took := <-stalls
	slices.Sort(took)
	fmt.Printf("figure aws-refresh-stall %.3f ms\n", took[len(took)-1].Seconds()*1e3)
	fmt.Printf("figure aws-refresh-read-p99 %.3f ms\n", took[len(took)*99/100].Seconds()*1e3)
	fmt.Printf("figure aws-catalogue %.1f MB\n", float64(size)/1e6)
}

// heap is how many bytes are in use.
func heap() int64 {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
