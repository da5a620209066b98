// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/cmd/slipway/migrate"
)

// errBlocked is a check's result when something stands in the way.
var errBlocked = errors.New("the cluster is not ready to be moved, see above")

type migrateOptions struct {
	at       target
	names    migrate.Names
	from     string
	output   string
	yes      bool
	patience time.Duration
}

func migrateCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Move a cluster from Karpenter to Slipway and back, or from Cluster Autoscaler",
		Long: "Moves the nodes, NodeClaims, NodePools and EC2NodeClasses of a cluster from one owner to the other, as they are: no node\n" +
			"is replaced and no pod is moved. Without --yes nothing is changed. docs/migrating.md tells the whole way.",
	}
	cmd.AddCommand(migrateCheck(), migrateMove(true), migrateMove(false))
	return cmd
}

func (o *migrateOptions) addFlags(cmd *cobra.Command) {
	o.at.addFlags(cmd)
	f := cmd.Flags()
	f.StringVar(&o.names.Karpenter, "karpenter-namespace", "", "namespace of Karpenter's Deployment; all are searched if empty")
	f.StringVar(&o.names.Slipway, "slipway-namespace", "slipway-system", "namespace of Slipway's Deployments")
	f.StringVar(&o.names.Lease, "karpenter-lease-name", "karpenter-leader-election", "name of Karpenter's leader lease")
}

func migrateCheck() *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "check",
		Short: "Say what stands in the way of a move",
		Long: "Looks at the cluster and says what stands in the way of a move to Slipway, what to know before it, and what to do. From\n" +
			"Cluster Autoscaler it lists the node groups in the order in which to close them, with the minimum each keeps, and the\n" +
			"labels that pods select and no NodePool gives. Exits with 1 if something stands in the way.",
		Example: "  slipway migrate check\n  slipway migrate check --from cluster-autoscaler -o json",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if o.output != "" && o.output != "json" {
				return fmt.Errorf("--output %q is not json", o.output)
			}
			report, err := o.check(cmd.Context())
			if err != nil {
				return err
			}
			if o.output == "json" {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				err = e.Encode(report)
			} else {
				err = report.Write(cmd.OutOrStdout())
			}
			if err == nil && report.Blocked() > 0 {
				err = errBlocked
			}
			return err
		},
	}
	o.addFlags(cmd)
	cmd.Flags().StringVar(&o.from, "from", "karpenter", "what looks after nodes now: karpenter or cluster-autoscaler")
	cmd.Flags().StringVarP(&o.output, "output", "o", "", "json; a text if empty")
	return cmd
}

func (o *migrateOptions) check(ctx context.Context) (*migrate.Report, error) {
	switch o.from {
	case "karpenter":
		_, site, err := o.gather(ctx)
		if err != nil {
			return nil, err
		}
		return migrate.CheckTakeover(site), nil
	case "cluster-autoscaler":
		kube, err := o.client()
		if err != nil {
			return nil, err
		}
		site, err := migrate.GatherGroups(ctx, kube, o.names)
		if err != nil {
			return nil, o.at.explainError(err)
		}
		return migrate.CheckAutoscaler(site), nil
	}
	return nil, fmt.Errorf("--from is %q, it has to be karpenter or cluster-autoscaler", o.from)
}

func (o *migrateOptions) client() (client.Client, error) {
	scheme, err := migrate.NewScheme()
	if err != nil {
		return nil, err
	}
	return o.at.writer(scheme)
}

// gather reads the cluster, with a client that can move it.
func (o *migrateOptions) gather(ctx context.Context) (client.Client, *migrate.Site, error) {
	kube, err := o.client()
	if err != nil {
		return nil, nil, err
	}
	minor, err := o.at.minor()
	if err != nil {
		return nil, nil, o.at.explainError(err)
	}
	site, err := migrate.Gather(ctx, kube, minor, o.names)
	return kube, site, o.at.explainError(err)
}

func migrateMove(forth bool) *cobra.Command {
	o := &migrateOptions{}
	cmd := &cobra.Command{
		Use:   "takeover",
		Short: "Give Karpenter's nodes and pools to Slipway",
		Long: "Stops Karpenter when no launch is under way, has Slipway take its leader lease, and waits until pools are ready and hashes are\n" +
			"stamped. Slipway has to be installed and waits for the lease until then. Nothing is changed without --yes, nor while\n" +
			"\"slipway migrate check\" finds something in the way. Run it again if it was interrupted: it goes on.",
		Args: cobra.NoArgs,
	}
	if !forth {
		cmd.Use, cmd.Short = "handback", "Give the nodes and pools back to Karpenter"
		cmd.Long = "Stops Slipway's scheduler and controller when no launch is under way, and starts Karpenter with the replicas it had. Pods\n" +
			"must not name Slipway as their scheduler any more. Nothing is changed without --yes. Run it again if it was interrupted."
	}
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		kube, site, err := o.gather(cmd.Context())
		if err != nil {
			return err
		}
		report := migrate.CheckHandback(site)
		if forth {
			report = migrate.CheckTakeover(site)
		}
		if err := report.Write(cmd.OutOrStdout()); err != nil {
			return err
		}
		if report.Blocked() > 0 {
			return errBlocked
		}
		fmt.Fprintln(cmd.OutOrStdout(), "\n"+strings.ToUpper(cmd.Use[:1])+cmd.Use[1:]+":")
		m := &migrate.Mover{Kube: kube, Names: o.names, Minor: site.Minor, Patience: o.patience, Out: cmd.OutOrStdout()}
		if forth {
			err = m.Takeover(cmd.Context(), site, o.yes)
		} else {
			err = m.Handback(cmd.Context(), site, o.yes)
		}
		return o.at.explainError(err)
	}
	o.addFlags(cmd)
	cmd.Flags().BoolVar(&o.yes, "yes", false, "do it; without it the steps are only listed")
	cmd.Flags().DurationVar(&o.patience, "timeout", 3*time.Minute, "how long each step may take")
	return cmd
}
