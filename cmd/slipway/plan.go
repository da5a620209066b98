// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	"github.com/slipway-sh/slipway/cmd/slipway/preview"
)

// exitUnplaced is the exit code that goes with errUnplaced.
const exitUnplaced = 3

// errUnplaced is the plan command's result when the plan is good and some pods have no place in it.
var errUnplaced = errors.New("some pods fit on no node that the NodePools allow")

type planOptions struct {
	files    []string
	output   string
	live     bool
	embedded bool
	// consolidate asks what would be disrupted instead of what would be bought.
	consolidate bool
	report      string
	page        *htmlreport.File
	at          target
}

func planCommand() *cobra.Command {
	o := &planOptions{}
	cmd := &cobra.Command{
		Use:   "plan {-f FILE… | --live}",
		Short: "Show what would be bought for the pods and pools of some manifests, or of a cluster",
		Long: "Plans nodes for the pods and workloads of the manifests, from their NodePools and EC2NodeClasses, on an empty cluster:\n" +
			"the planner and the scheduler's own filters, on the embedded catalogue of us-east-1 with its on-demand list prices and\n" +
			"sampled spot prices. No cluster and no AWS account is needed or asked. DaemonSets, LimitRanges and volumes in the\n" +
			"manifests count.\n\n" +
			"With --live or --context it plans on a cluster as it is: its pools, nodes and nodes on their way, with what AWS sells to your account\n" +
			"now. Without -f it plans for the pods that wait; with -f for the manifests' pods, and pools of the manifests stand in for the\n" +
			"cluster's of the same name. Nothing is written.\n\n" +
			"With --consolidate it shows what disruption would begin with now: which nodes would go and why, what would be bought instead,\n" +
			"what that saves, and why the other nodes stay. Of files it takes Nodes, NodeClaims, pods and PodDisruptionBudgets as they are,\n" +
			"for instance: kubectl get nodes,nodeclaims,nodepools,ec2nodeclasses,pods,pdb -A -o yaml.\n\n" +
			"The exit code is 0 if every pod has a place, 3 if not, 1 if something cannot be read.",
		Example: "  slipway plan -f deploy/ -f nodepool.yaml\n  helm template app ./chart | slipway plan -f - -f pools/ -o json\n  slipway plan --live\n  slipway plan --context prod -f deployment.yaml\n  slipway plan --live --consolidate",
		Args:    cobra.NoArgs,
		RunE:    func(cmd *cobra.Command, _ []string) error { return runPlan(cmd, o) },
	}
	o.at.addFlags(cmd)
	f := cmd.Flags()
	f.StringArrayVarP(&o.files, "filename", "f", nil, "manifests: a file, a folder of *.yaml, *.yml and *.json, or - for standard input; may be repeated")
	f.StringVarP(&o.output, "output", "o", "", "wide, json or yaml; a table if empty")
	f.BoolVar(&o.live, "live", false, "plan on the cluster of the kubeconfig's current context")
	f.StringVar(&o.report, "report", "", "also write a page about the plan to this file (HTML, complete in itself)")
	f.BoolVar(&o.consolidate, "consolidate", false, "show what disruption would do and save")
	f.BoolVar(&o.embedded, "embedded-prices", false, "with a cluster of us-east-1: take the embedded catalogue and ask nothing of AWS")
	return cmd
}

func runPlan(cmd *cobra.Command, o *planOptions) error {
	o.live = o.live || o.at.overrides.CurrentContext != ""
	if len(o.files) == 0 && !o.live {
		return errors.New("nothing to plan: give manifests with -f (a file, a folder, or - for standard input), or a cluster with --live or --context")
	}
	write, err := writer(cmd, o.output)
	if err != nil {
		return err
	}
	if o.report != "" {
		if o.consolidate {
			return errors.New("--report draws what would be bought: leave --consolidate out, or take -o json")
		}
		if o.page, err = htmlreport.Open(o.report); err != nil {
			return err
		}
		defer o.page.Discard()
	}
	read := preview.ReadFiles
	if o.consolidate {
		read = preview.ReadRunning
	}
	in, err := read(o.files, cmd.InOrStdin())
	if err != nil {
		return err
	}
	if o.live {
		kube, _, err := o.at.connect()
		if err != nil {
			return err
		}
		if err := in.ReadCluster(cmd.Context(), kube, o.consolidate || len(o.files) == 0); err != nil {
			return o.at.explainError(err)
		}
	}
	if o.consolidate {
		return o.runConsolidate(cmd.Context(), in, write)
	}
	switch {
	case len(in.Pods) == 0 && len(o.files) == 0:
		_, err := fmt.Fprintln(cmd.OutOrStdout(), "No pod waits for a node: nothing to buy.")
		return err
	case len(in.Pods) == 0:
		return errors.New("nothing to plan: the manifests have no Pod, Deployment, ReplicaSet, StatefulSet, Job or CronJob with replicas")
	case len(in.Pools) == 0:
		return errors.New("nothing to plan with: there is no NodePool (apiVersion karpenter.sh/v1)")
	}
	market, err := o.market(cmd.Context(), in)
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
	if o.page != nil {
		if err := o.page.Save(outcome.Page(o.source(in))); err != nil {
			return err
		}
	}
	if len(report.Unplaced) > 0 {
		return errUnplaced
	}
	return nil
}

// source says what was planned for.
func (o *planOptions) source(in *preview.Input) string {
	var parts []string
	if len(o.files) > 0 {
		parts = append(parts, "pods and pools of "+strings.Join(o.files, ", "))
	} else {
		parts = append(parts, "pods that wait")
	}
	if o.live {
		parts = append(parts, "on the cluster at "+o.at.host)
	}
	if region := in.Region(); o.live && region != "" && !o.embedded {
		return strings.Join(append(parts, "with what AWS sells in "+region), ", ")
	}
	return strings.Join(append(parts, "with the embedded catalogue of "+embeddedRegion), ", ")
}

// table is a report that can be printed for people.
type table interface {
	Write(w io.Writer, wide bool) error
}

func (o *planOptions) runConsolidate(ctx context.Context, in *preview.Input, write func(table) error) error {
	if len(in.Pools) == 0 {
		return errors.New("nothing to consolidate: there is no NodePool (apiVersion karpenter.sh/v1)")
	}
	if region := in.Region(); !o.live && region != "" && region != embeddedRegion {
		return fmt.Errorf("the manifests' nodes are in %s and the embedded catalogue is that of %s: ask the cluster itself with --context", region, embeddedRegion)
	}
	market, err := o.market(ctx, in)
	if err != nil {
		return err
	}
	report, err := preview.Consolidate(ctx, in, market, time.Now())
	if err != nil {
		return err
	}
	return write(*report)
}

// embeddedRegion is that of the embedded catalogue.
const embeddedRegion = "us-east-1"

// market is what is sold: to the account that AWS's own tools would use, or by the embedded catalogue.
func (o *planOptions) market(ctx context.Context, in *preview.Input) (*preview.Market, error) {
	if !o.live {
		return preview.Offline(ctx)
	}
	if !o.embedded {
		return preview.Live(ctx, in.Region())
	}
	if region := in.Region(); region != "" && region != embeddedRegion {
		return nil, fmt.Errorf("the cluster is in %s and the embedded catalogue is that of %s: plan without --embedded-prices", region, embeddedRegion)
	}
	return preview.Offline(ctx)
}

// writer prints a report in the format of that name.
func writer(cmd *cobra.Command, format string) (func(table) error, error) {
	w := cmd.OutOrStdout()
	switch format {
	case "", "wide":
		return func(r table) error { return r.Write(w, format == "wide") }, nil
	case "json":
		return func(r table) error {
			e := json.NewEncoder(w)
			e.SetIndent("", "  ")
			return e.Encode(r)
		}, nil
	case "yaml":
		return func(r table) error {
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
