// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"os/exec"

	"github.com/slipway-sh/slipway/test/cluster"
)

// Build builds slipway-scheduler and slipway-controller into the folder, as "make build" does: a scheduler that does not
// know its version calls itself v0.0.0-master, in its log, its metrics and its answers.
func Build(ctx context.Context, dir string) error {
	flags, err := cluster.VersionFlags(ctx)
	if err != nil {
		return err
	}
	const commands = "github.com/slipway-sh/slipway/cmd/"
	out, err := exec.CommandContext(ctx, "go", "build", "-ldflags", flags, "-o", dir+"/", commands+Scheduler, commands+Controller).CombinedOutput()
	if err != nil {
		return fmt.Errorf("building Slipway's processes: %w\n%s", err, out)
	}
	return nil
}
