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

// newJudge builds the judge for all profiles that enable the plugin.
func newJudge(ctx context.Context, d dependencies) (*simulate.Judge, error) {
	var profiles []simulate.Options
	for _, p := range d.config.ComponentConfig.Profiles {
		if _, enabled, err := scheduler.ArgsOf(p); err != nil || !enabled {
			continue
		}
		profiles = append(profiles, simulate.Options{Profile: p, Live: scheduler.Unreserved(d.scheduler.Profiles[p.SchedulerName]), Registry: frameworkruntime.Registry{}})
	}
	if len(profiles) == 0 {
		return nil, fmt.Errorf("no profile of the scheduler configuration enables plugin %q", scheduler.Name)
	}
	j, err := simulate.New(ctx, profiles[0], profiles[1:]...)
	if err != nil {
		return nil, fmt.Errorf("building the judge: %w", err)
	}
	return j, nil
}
