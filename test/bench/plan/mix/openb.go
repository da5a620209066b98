// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package mix

import (
	"encoding/csv"
	"fmt"
	"io"
	"math/rand/v2"
	"strconv"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// TracePod is a pod of the Alibaba GPU cluster trace of 2023.
type TracePod struct {
	Millis, MiB, GPUs int
}

// ReadOpenb reads openb_pod_list_default.csv of the trace (cluster-trace-gpu-v2023 of github.com/alibaba/clusterdata).
func ReadOpenb(r io.Reader) ([]TracePod, error) {
	rows, err := csv.NewReader(r).ReadAll()
	if err != nil {
		return nil, fmt.Errorf("reading the trace: %w", err)
	}
	if len(rows) < 2 {
		return nil, fmt.Errorf("reading the trace: it has %d rows", len(rows))
	}
	column := map[string]int{}
	for i, name := range rows[0] {
		column[name] = i
	}
	var out []TracePod
	for line, row := range rows[1:] {
		var p TracePod
		for name, to := range map[string]*int{"cpu_milli": &p.Millis, "memory_mib": &p.MiB, "num_gpu": &p.GPUs} {
			i, ok := column[name]
			if !ok {
				return nil, fmt.Errorf("reading the trace: it has no column %q", name)
			}
			if *to, err = strconv.Atoi(row[i]); err != nil {
				return nil, fmt.Errorf("reading the trace: line %d, column %q: %w", line+2, name, err)
			}
		}
		out = append(out, p)
	}
	return out, nil
}

// openb is n pods of the trace in random order, over and over if n is more than the trace has; without GPUs only those that
// ask for none. A share of a GPU counts as a whole one, since Kubernetes counts extended resources in whole units.
func (m *Maker) openb(r *rand.Rand, n, cores int, gpus bool) (plan.Input, error) {
	if m.Openb == nil {
		return plan.Input{}, ErrNoTrace
	}
	var pods []TracePod
	in := plan.Input{View: &capacity.View{Pools: onePool(m.Catalog, cores)}}
	if gpus {
		pods = append(pods, m.Openb...)
		in.View.Pools = fivePools(m.Catalog, cores)
	} else {
		for _, p := range m.Openb {
			if p.GPUs == 0 {
				pods = append(pods, p)
			}
		}
	}
	r.Shuffle(len(pods), func(i, j int) { pods[i], pods[j] = pods[j], pods[i] })
	d := newDealer(&in)
	for i := 0; d.dealt < n; i++ {
		p := pods[i%len(pods)]
		if err := d.deal(shape{millis: p.Millis, mib: p.MiB, gpus: p.GPUs}, 1); err != nil {
			return plan.Input{}, err
		}
	}
	d.done()
	return in, nil
}
