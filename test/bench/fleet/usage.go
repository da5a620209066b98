// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"fmt"
	"time"
)

// Usage is what a process has used since it started, and its resident memory in MB, by what it says of itself (Linux only).
type Usage struct {
	CPU    time.Duration
	Memory float64
}

// Usage reads what each process has used.
func (f *Fleet) Usage(ctx context.Context) (map[string]Usage, error) {
	out := map[string]Usage{}
	for _, process := range Processes() {
		families, err := f.Metrics(ctx, process)
		if err != nil {
			return nil, err
		}
		value := func(name string) float64 {
			sum := 0.0
			for _, m := range families[name].GetMetric() {
				sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
			}
			return sum
		}
		seconds, bytes := value("process_cpu_seconds_total"), value("process_resident_memory_bytes")
		if seconds == 0 || bytes == 0 {
			return nil, fmt.Errorf("%s does not say what it uses; it can on Linux", process)
		}
		out[process] = Usage{time.Duration(seconds * float64(time.Second)), bytes / 1e6}
	}
	return out, nil
}

// Steady is how much of a core each process uses in one slice of time after the other, in percent, and its memory at the end.
type Steady struct {
	Slices map[string][]float64
	CPU    map[string]float64 // over all slices
	Memory map[string]float64
	Took   time.Duration
}

// Steady watches the processes for so many slices.
func (f *Fleet) Steady(ctx context.Context, slice time.Duration, slices int) (Steady, error) {
	out := Steady{Slices: map[string][]float64{}, CPU: map[string]float64{}, Memory: map[string]float64{}}
	before, err := f.Usage(ctx)
	if err != nil {
		return out, err
	}
	first, began := before, time.Now()
	for range slices {
		from := time.Now()
		select {
		case <-ctx.Done():
			return out, context.Cause(ctx)
		case <-time.After(slice):
		}
		now, err := f.Usage(ctx)
		if err != nil {
			return out, err
		}
		for process, u := range now {
			out.Slices[process] = append(out.Slices[process], 100*(u.CPU-before[process].CPU).Seconds()/time.Since(from).Seconds())
			out.Memory[process] = u.Memory
		}
		before = now
	}
	out.Took = time.Since(began)
	for process, u := range before {
		out.CPU[process] = 100 * (u.CPU - first[process].CPU).Seconds() / out.Took.Seconds()
	}
	return out, nil
}
