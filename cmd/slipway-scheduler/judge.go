// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/scheduler"
	"github.com/slipway-sh/slipway/scheduler/simulate"
)

// judge lets the provisioner ask scheduler/simulate.
type judge struct{ *simulate.Judge }

// newJudge builds the judge for the first profile that enables the plugin.
func newJudge(ctx context.Context, d dependencies) (provisioner.Judge, error) {
	for _, p := range d.config.ComponentConfig.Profiles {
		if _, enabled, err := scheduler.ArgsOf(p); err != nil || !enabled {
			continue
		}
		j, err := simulate.New(ctx, simulate.Options{Profile: p, Live: scheduler.Unreserved(d.scheduler.Profiles[p.SchedulerName]), Registry: frameworkruntime.Registry{}})
		if err != nil {
			return nil, fmt.Errorf("building the judge of profile %q: %w", p.SchedulerName, err)
		}
		return judge{j}, nil
	}
	return nil, fmt.Errorf("no profile of the scheduler configuration enables plugin %q", scheduler.Name)
}

// Verify implements provisioner.Judge.
func (j judge) Verify(ctx context.Context, nodes []provisioner.Hypothesis, trials []provisioner.Trial) ([]provisioner.Refusal, error) {
	candidates, asked := forJudge(nodes, trials)
	rejections, err := j.Judge.Verify(ctx, candidates, asked)
	if err != nil {
		return nil, err
	}
	out := make([]provisioner.Refusal, 0, len(rejections))
	for _, r := range rejections {
		out = append(out, provisioner.Refusal{Trial: provisioner.Trial{Pod: r.Pod, Node: r.Node}, Plugin: r.Plugin, Reason: r.Reason})
	}
	return out, nil
}

// forJudge changes a plan's nodes and placements into the judge's terms.
func forJudge(nodes []provisioner.Hypothesis, placed []provisioner.Trial) ([]simulate.Candidate, []simulate.Trial) {
	candidates := make([]simulate.Candidate, len(nodes))
	for i, n := range nodes {
		candidates[i] = simulate.Candidate(n)
	}
	trials := make([]simulate.Trial, len(placed))
	for i, t := range placed {
		trials[i] = simulate.Trial(t)
	}
	return candidates, trials
}
