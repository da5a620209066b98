// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Inventory lists the cluster's instances.
type Inventory interface {
	// ClusterInstances returns every instance bought for the cluster that is not terminated.
	ClusterInstances(ctx context.Context) ([]ec2.Instance, error)
}

// Rival says who but Slipway launches instances of the cluster, empty if nobody; view.Lease is one.
type Rival interface {
	Holder(ctx context.Context) (string, error)
}

// Collector ends instances without a claim and claims without an instance, and corrects the labels of those whose capacity
// reservation has ended.
type Collector struct {
	Options
	inventory Inventory
	rival     Rival
}

// NewCollector returns a collector. Instances that Karpenter launched are ended only while the rival says that nobody else
// acts; without one they are left alone.
func NewCollector(o Options, inventory Inventory, rival Rival) *Collector {
	return &Collector{Options: o.withDefaults(), inventory: inventory, rival: rival}
}

// NeedLeaderElection says that only the leader collects.
func (c *Collector) NeedLeaderElection() bool { return true }

// Start collects periodically until ctx ends; it is a manager's Runnable.
func (c *Collector) Start(ctx context.Context) error {
	for {
		if err := c.Collect(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "collecting what was left behind")
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(c.CollectEvery):
		}
	}
}

// Collect looks once. Instances are listed before claims: a claim is written before its instance is asked for, so an
// instance in the list whose claim is not in the later list has none.
func (c *Collector) Collect(ctx context.Context) error {
	instances, err := c.inventory.ClusterInstances(ctx)
	if err != nil {
		return fmt.Errorf("listing the cluster's instances: %w", err)
	}
	claims, err := c.claims(ctx, c.Kube)
	if err != nil {
		return err
	}
	return errors.Join(c.endOrphans(ctx, instances, claims), c.endBereft(ctx, instances, claims), c.demote(ctx, instances, claims))
}

func (c *Collector) claims(ctx context.Context, from client.Reader) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := from.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return slices.DeleteFunc(list.Items, func(n karpv1.NodeClaim) bool { return !capacity.Managed(n.Spec.NodeClassRef) }), nil
}

// endOrphans terminates instances no claim stands for.
func (c *Collector) endOrphans(ctx context.Context, instances []ec2.Instance, claims []karpv1.NodeClaim) error {
	before := c.Clock.Now().Add(-c.OrphanAge)
	found := orphans(instances, claims, before)
	if slices.ContainsFunc(found, foreign) && !c.alone(ctx) {
		instances = slices.DeleteFunc(slices.Clone(instances), foreign)
		found = slices.DeleteFunc(found, foreign)
	}
	if len(found) == 0 {
		return nil
	}
	// A cache can be behind. Before anything is ended, the API server itself is asked.
	claims, err := c.claims(ctx, c.Live)
	if err != nil {
		return err
	}
	if found = orphans(instances, claims, before); len(found) == 0 {
		return nil
	}
	ids := make([]string, len(found))
	for i, o := range found {
		ids[i] = o.ID
	}
	if err := c.Cloud.Terminate(ctx, ids); err != nil {
		return fmt.Errorf("terminating %d instances without a claim: %w", len(ids), err)
	}
	for _, o := range found {
		c.Metrics.Orphans.Inc()
		log.FromContext(ctx).Info("terminated an instance without a claim", "instanceID", o.ID, "launch", o.Tags[ec2.TagLaunch],
			"nodePool", o.Tags[ec2.TagNodePool], "age", c.Clock.Since(o.LaunchTime).Round(time.Second).String())
		if err := deleteNodes(ctx, c.Kube, o.ProviderID()); err != nil {
			return err
		}
	}
	return nil
}

// foreign reports whether an instance was launched by Karpenter.
func foreign(i ec2.Instance) bool { return i.Tags[ec2.TagLaunch] == "" }

// alone reports whether nobody but Slipway launches instances of the cluster. If that is not known, somebody may.
func (c *Collector) alone(ctx context.Context) bool {
	if c.rival == nil {
		return false
	}
	holder, err := c.rival.Holder(ctx)
	switch {
	case err != nil:
		log.FromContext(ctx).Info("instances of Karpenter's without a claim are left alone: whether it runs is not known", "reason", err.Error())
	case holder != "":
		log.FromContext(ctx).V(1).Info("instances of Karpenter's without a claim are left to it", "reason", holder)
	}
	return err == nil && holder == ""
}

// orphans returns the instances launched before the instant that no claim has and none is waiting for. A launch of Slipway's
// with fewer waiting claims than spare instances keeps the first ones in the order of their ids, in which package launch
// hands them out. One of Karpenter's bears no name of a claim: a claim without instance is launched anew, so that none
// waits for it, and Karpenter's own rule holds (the tags of cluster, pool and class, and no claim).
func orphans(instances []ec2.Instance, claims []karpv1.NodeClaim, before time.Time) []ec2.Instance {
	owned, waiting := map[string]bool{}, map[string]int{}
	for i := range claims {
		if id := instanceID(claims[i].Status.ProviderID); id != "" {
			owned[id] = true
			continue
		}
		own, group := launchIDs(&claims[i])
		waiting[own]++
		if group != own {
			waiting[group]++
		}
	}
	var out []ec2.Instance
	for _, i := range slices.SortedFunc(slices.Values(instances), func(a, b ec2.Instance) int { return strings.Compare(a.ID, b.ID) }) {
		launch := i.Tags[ec2.TagLaunch]
		switch {
		case owned[i.ID] || i.State == "shutting-down" || i.State == "terminated":
			continue
		case foreign(i) && (i.Tags[ec2.TagClusterName] == "" || i.Tags[ec2.TagNodePool] == "" || i.Tags[ec2.TagNodeClass] == ""):
			continue
		case waiting[launch] > 0:
			waiting[launch]--
			continue
		}
		if i.LaunchTime.Before(before) {
			out = append(out, i)
		}
	}
	return out
}

// endBereft deletes claims whose instance is gone or going.
func (c *Collector) endBereft(ctx context.Context, instances []ec2.Instance, claims []karpv1.NodeClaim) error {
	there := map[string]bool{}
	for _, i := range instances {
		there[i.ID] = i.State != "shutting-down"
	}
	missing := map[string]*karpv1.NodeClaim{}
	var ids []string
	for i := range claims {
		claim := &claims[i]
		id := instanceID(claim.Status.ProviderID)
		launched := claim.StatusConditions().Get(karpv1.ConditionTypeLaunched)
		if id == "" || there[id] || claim.DeletionTimestamp != nil || c.Clock.Since(launched.LastTransitionTime.Time) < c.OrphanAge {
			continue
		}
		missing[id] = claim
		ids = append(ids, id)
	}
	if len(ids) == 0 {
		return nil
	}
	found, err := c.Cloud.Describe(ctx, ids) // the list goes by tags, which somebody may have taken off
	if err != nil && capacity.KindOf(err) != capacity.NotFound {
		return fmt.Errorf("describing %d instances that are not listed: %w", len(ids), err)
	}
	states := map[string]string{}
	for _, i := range found {
		states[i.ID] = i.State
	}
	for id, claim := range missing {
		gone, err := c.gone(ctx, claim, states[id])
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		if err := c.end(ctx, claim, endGone, fmt.Sprintf("Instance %s is gone", id)); err != nil {
			return err
		}
	}
	return nil
}

// gone judges by what EC2 says of an instance; the state is empty if it has never heard of it, and then a Node that still
// reports as ready is believed more.
func (c *Collector) gone(ctx context.Context, claim *karpv1.NodeClaim, state string) (bool, error) {
	if state != "" {
		return state == "terminated" || state == "shutting-down", nil
	}
	nodes, err := nodesOf(ctx, c.Kube, claim)
	if err != nil {
		return false, err
	}
	return !slices.ContainsFunc(nodes, func(n corev1.Node) bool { return nodeReady(&n) }), nil
}
