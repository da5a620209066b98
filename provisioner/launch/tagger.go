// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"

	"k8s.io/client-go/util/flowcontrol"
	"k8s.io/client-go/util/workqueue"
	"sigs.k8s.io/controller-runtime/pkg/log"

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

// tagging is the tags of one instance.
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
	t.queue.Add(tagging{instance: i.ID, claim: claim, node: i.PrivateDNSName, cluster: cluster})
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
