// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/cmd/slipway/preview"
)

// exitUnplaced is the exit code that goes with errUnplaced.
const exitUnplaced = 3

// errUnplaced is the plan command's result when the plan is good and some pods have no place in it.
var errUnplaced = errors.New("some pods fit on no node that the NodePools allow")

func planCommand() *cobra.Command {
	var files []string
	var output string
	cmd := &cobra.Command{
		Use:   "plan -f FILE…",
		Short: "Show what would be bought for the pods and pools of some manifests",
		Long: "Plans nodes for the pods and workloads of the manifests, from their NodePools and EC2NodeClasses, on an empty cluster:\n" +
			"the planner and the scheduler's own filters, on the embedded catalogue of us-east-1 with its on-demand list prices and\n" +
			"sampled spot prices. No cluster and no AWS account is needed or asked. DaemonSets, LimitRanges and volumes in the\n" +
			"manifests count. The exit code is 0 if every pod has a place, 3 if not, 1 if the manifests cannot be read.",
		Example: "  slipway plan -f deploy/ -f nodepool.yaml\n  helm template app ./chart | slipway plan -f - -f pools/ -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if len(files) == 0 {
				return errors.New("nothing to plan: give manifests with -f (a file, a folder, or - for standard input)")
			}
			write, err := writer(cmd, output)
			if err != nil {
				return err
			}
			in, err := preview.ReadFiles(files, cmd.InOrStdin())
			if err != nil {
				return err
			}
			switch {
			case len(in.Pods) == 0:
				return errors.New("nothing to plan: the manifests have no Pod, Deployment, ReplicaSet, StatefulSet, Job or CronJob with replicas")
			case len(in.Pools) == 0:
				return errors.New("nothing to plan with: the manifests have no NodePool (apiVersion karpenter.sh/v1)")
			}
			market, err := preview.Offline(cmd.Context())
			if err != nil {
				return err
			}
			outcome, err := preview.Solve(cmd.Context(), in, market)
			if err != nil {
				return err
			}
			report := outcome.Report()
			if err := write(report); err != nil {
				return err
			}
			if len(report.Unplaced) > 0 {
				return errUnplaced
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVarP(&files, "filename", "f", nil, "manifests: a file, a folder of *.yaml, *.yml and *.json, or - for standard input; may be repeated")
	cmd.Flags().StringVarP(&output, "output", "o", "", "wide, json or yaml; a table if empty")
	return cmd
}

// writer prints a report in the format of that name.
func writer(cmd *cobra.Command, format string) (func(preview.Report) error, error) {
	w := cmd.OutOrStdout()
	switch format {
	case "", "wide":
		return func(r preview.Report) error { return r.Write(w, format == "wide") }, nil
	case "json":
		return func(r preview.Report) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(r)
		}, nil
	case "yaml":
		return func(r preview.Report) error {
			text, err := yaml.Marshal(r)
			if err != nil {
				return err
			}
			_, err = w.Write(text)
			return err
		}, nil
	}
	return nil, fmt.Errorf("--output %q is not wide, json or yaml", format)
}
