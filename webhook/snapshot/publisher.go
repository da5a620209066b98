// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"context"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	applycore "k8s.io/client-go/applyconfigurations/core/v1"
	applymeta "k8s.io/client-go/applyconfigurations/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// lookEvery is how often classes are looked at, settle the least time between two writes of one, and confirmEvery how
	// often a catalogue that stays the same is confirmed: readers take one for an hour.
	lookEvery    = 15 * time.Second
	settle       = 5 * time.Minute
	confirmEvery = 30 * time.Minute
	manager      = "slipway-catalog"
)

// Publisher writes the catalogue of every class for whoever has no rights in AWS.
type Publisher struct {
	Kube kubernetes.Interface
	// Classes reads EC2NodeClasses, from a cache.
	Classes   client.Reader
	Catalog   func(*v1.EC2NodeClass) *capacity.Catalog
	Namespace string
	Clock     clock.WithTicker
	Log       logr.Logger

	written map[types.UID]record
}

type record struct {
	catalog *capacity.Catalog
	at      time.Time
}

// Run publishes until ctx ends.
func (p *Publisher) Run(ctx context.Context) {
	for {
		if err := p.Publish(ctx); err != nil && ctx.Err() == nil {
			p.Log.Error(err, "publishing catalogues; admission does not say what is feasible", "namespace", p.Namespace)
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(lookEvery):
		}
	}
}

// Publish writes the catalogues that have changed or are to be confirmed. The ConfigMap of a class goes with the class.
func (p *Publisher) Publish(ctx context.Context) error {
	var classes v1.EC2NodeClassList
	if err := p.Classes.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		return fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	next := map[types.UID]record{}
	for i := range classes.Items {
		class := &classes.Items[i]
		before, known := p.written[class.UID]
		if known {
			next[class.UID] = before
		}
		c := p.Catalog(class)
		now := p.Clock.Now()
		since := now.Sub(before.at)
		if c == nil || (known && (since < settle || (c == before.catalog && since < confirmEvery))) {
			continue
		}
		if err := p.write(ctx, class, c, now); err != nil {
			p.written = next
			return err
		}
		next[class.UID] = record{c, now}
	}
	p.written = next
	return nil
}

func (p *Publisher) write(ctx context.Context, class *v1.EC2NodeClass, c *capacity.Catalog, now time.Time) error {
	m, err := Encode(p.Namespace, class.Name, c, now)
	if err != nil {
		return err
	}
	apply := applycore.ConfigMap(m.Name, m.Namespace).WithLabels(m.Labels).WithAnnotations(m.Annotations).WithBinaryData(m.BinaryData).
		WithOwnerReferences(applymeta.OwnerReference().WithAPIVersion("karpenter.k8s.aws/v1").WithKind("EC2NodeClass").WithName(class.Name).WithUID(class.UID))
	if _, err := p.Kube.CoreV1().ConfigMaps(p.Namespace).Apply(ctx, apply, metav1.ApplyOptions{FieldManager: manager, Force: true}); err != nil {
		return fmt.Errorf("writing ConfigMap %q: %w", m.Name, err)
	}
	return nil
}
