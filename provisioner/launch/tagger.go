// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// TagWriter adds tags to an instance (EC2 CreateTags).
type TagWriter interface {
	Tag(ctx context.Context, id string, tags map[string]string) error
}

const (
	// EC2's bucket for CreateTags refills 10 a second and holds 100. Tagging stays well below, so that it never takes
	// the tokens of anything that matters.
	tagsPerSecond = 5
	tagBurst      = 50
	tagTries      = 5
)

// Tagger puts the tags that differ from claim to claim (Name and karpenter.sh/nodeclaim) on launched instances, in the
// background and slowly. They are for people and for Karpenter; nothing in Slipway depends on them.
type Tagger struct {
	writer TagWriter
	queue  workqueue.TypedRateLimitingInterface[tagging]
	limit  flowcontrol.RateLimiter
}

// tagging is the tags of one instance. The node is empty if it is unknown, or the instance has a Name already: its class's.
type tagging struct {
	instance, claim, node, cluster string
}

// NewTagger returns a tagger that does nothing until [Tagger.Run].
func NewTagger(writer TagWriter) *Tagger {
	return &Tagger{
		writer: writer,
		queue:  workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[tagging]()),
		limit:  flowcontrol.NewTokenBucketRateLimiter(tagsPerSecond, tagBurst),
	}
}

func (t *Tagger) add(i ec2.Instance, claim, cluster string) {
	next := tagging{instance: i.ID, claim: claim, node: i.PrivateDNSName, cluster: cluster}
	if _, named := i.Tags[ec2.TagName]; named { // as Karpenter: spec.tags of the class goes before
		next.node = ""
	}
	t.queue.Add(next)
}

// Inventory lists the cluster's instances that are not terminated.
type Inventory interface {
	ClusterInstances(ctx context.Context) ([]ec2.Instance, error)
}

// Resume takes up what an earlier process has not come to: instances that Slipway launched, whose claim has them and whose
// tags do not say so. It asks EC2 once.
func (t *Tagger) Resume(ctx context.Context, inventory Inventory, claims client.Reader, cluster string) error {
	instances, err := inventory.ClusterInstances(ctx)
	if err != nil {
		return fmt.Errorf("listing instances whose tags may lack: %w", err)
	}
	var list karpv1.NodeClaimList
	if err := claims.List(ctx, &list); err != nil {
		return fmt.Errorf("listing the claims of instances whose tags may lack: %w", err)
	}
	owners := map[string]string{}
	for i := range list.Items {
		if id := instanceID(list.Items[i].Status.ProviderID); id != "" {
			owners[id] = list.Items[i].Name
		}
	}
	for _, i := range instances {
		if owner := owners[i.ID]; owner != "" && i.Tags[ec2.TagLaunch] != "" && i.Tags[ec2.TagNodeClaim] == "" {
			t.add(i, owner, cluster)
		}
	}
	return nil
}

// Run tags until ctx ends.
func (t *Tagger) Run(ctx context.Context) {
	go func() {
		<-ctx.Done()
		t.queue.ShutDown()
	}()
	for {
		next, shutdown := t.queue.Get()
		if shutdown || t.limit.Wait(ctx) != nil {
			return
		}
		t.tag(ctx, next)
		t.queue.Done(next)
	}
}

func (t *Tagger) tag(ctx context.Context, next tagging) {
	tags := map[string]string{ec2.TagNodeClaim: next.claim, ec2.TagClusterName: next.cluster}
	if next.node != "" {
		tags[ec2.TagName] = next.node
	}
	err := t.writer.Tag(ctx, next.instance, tags)
	switch {
	case err == nil:
		t.queue.Forget(next)
	case t.queue.NumRequeues(next) < tagTries:
		t.queue.AddRateLimited(next)
	default:
		t.queue.Forget(next)
		log.FromContext(ctx).Info("instance stays without its Name tag", "instanceID", next.instance, "nodeClaim", next.claim, "reason", err.Error())
	}
}
