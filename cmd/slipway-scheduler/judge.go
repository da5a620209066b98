// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/slipway-sh/slipway/scheduler"
	"github.com/slipway-sh/slipway/scheduler/simulate"
)

// newJudge builds the judge for the first profile that enables the plugin.
func newJudge(ctx context.Context, d dependencies) (*simulate.Judge, error) {
	for _, p := range d.config.ComponentConfig.Profiles {
		if _, enabled, err := scheduler.ArgsOf(p); err != nil || !enabled {
			continue
		}
		j, err := simulate.New(ctx, simulate.Options{Profile: p, Live: scheduler.Unreserved(d.scheduler.Profiles[p.SchedulerName]), Registry: frameworkruntime.Registry{}})
		if err != nil {
			return nil, fmt.Errorf("building the judge of profile %q: %w", p.SchedulerName, err)
		}
		return j, nil
	}
	return nil, fmt.Errorf("no profile of the scheduler configuration enables plugin %q", scheduler.Name)
}
