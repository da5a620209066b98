// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// conditionRules is False, with reasonRules, on pools and classes that break rules of admission in mode Warn or Enforce, and
// absent otherwise. Ready does not depend on it: what cannot work at all is told by Karpenter's own conditions too.
const (
	conditionRules = "AdmissionRules"
	reasonRules    = "RulesBroken"
)

const (
	// rulesEvery is how often a pool is judged again: what can be bought changes without the pool.
	rulesEvery = 5 * time.Minute
	// sameFor is how long a ruling on an object that has not changed is taken again. A pool is reconciled for every change of
	// its NodeClaims, and what rules say of it depends on the whole catalogue.
	sameFor = 30 * time.Second
	// policyEvery is how often the modes of rules are read.
	policyEvery = time.Minute
	// rulesTold is how many findings a condition spells out.
	rulesTold = 8
)

// Rulebook judges pools and classes by the rules of admission, which may have been off or unreachable when they were applied.
type Rulebook struct {
	// Live reads the WorkloadPolicy "default", whose clusterRules are the modes.
	Live client.Reader
	// Catalog is what a class can buy, nil if that is not known.
	Catalog func(*v1.EC2NodeClass) *capacity.Catalog
	Clock   clock.Clock

	mu       sync.Mutex
	registry *rules.Registry
	choice   rules.Choice
	read     time.Time
	rulings  map[string]ruling // by kind, name and UID
}

// ruling is what the rules said of an object as it was.
type ruling struct {
	of   string
	at   time.Time
	told []string
}

// judgePool sets or clears the condition of a pool.
func (b *Rulebook) judgePool(ctx context.Context, kube client.Reader, pool *karpv1.NodePool) error {
	return b.judge(ctx, kube, rules.NodePool, pool, pool.StatusConditions(status.WithClock(b.Clock)))
}

// judgeClass sets or clears the condition of a class.
func (b *Rulebook) judgeClass(ctx context.Context, kube client.Reader, class *v1.EC2NodeClass) error {
	return b.judge(ctx, kube, rules.NodeClass, class, class.StatusConditions(status.WithClock(b.Clock)))
}

// facts are what rules may ask beside the object.
func (b *Rulebook) facts(ctx context.Context, kube client.Reader) (*rules.Facts, error) {
	var pools karpv1.NodePoolList
	if err := kube.List(ctx, &pools); err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	var classes v1.EC2NodeClassList
	if err := kube.List(ctx, &classes); err != nil {
		return nil, fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	all := make([]*karpv1.NodePool, len(pools.Items))
	for i := range pools.Items {
		all[i] = &pools.Items[i]
	}
	named := make(map[string]*v1.EC2NodeClass, len(classes.Items))
	for i := range classes.Items {
		named[classes.Items[i].Name] = &classes.Items[i]
	}
	return &rules.Facts{
		Now: b.Clock.Now(), Policy: rules.Builtin(),
		Pools: func() []*karpv1.NodePool { return all },
		Class: func(name string) *v1.EC2NodeClass { return named[name] },
		Catalog: func(name string) *capacity.Catalog {
			if class := named[name]; class != nil && b.Catalog != nil {
				return b.Catalog(class)
			}
			return nil
		},
	}, nil
}

func (b *Rulebook) judge(ctx context.Context, kube client.Reader, kind rules.Kind, o client.Object, conditions status.ConditionSet) error {
	told, err := b.ruling(ctx, kube, kind, o)
	if err != nil {
		return err
	}
	if len(told) == 0 {
		if err := conditions.Clear(conditionRules); err != nil {
			return fmt.Errorf("clearing condition %s of %s %q: %w", conditionRules, kind, o.GetName(), err)
		}
		return nil
	}
	conditions.SetFalse(conditionRules, reasonRules, strings.Join(told, " "))
	return nil
}

// ruling is what the rules say of the object, or said of it a moment ago.
func (b *Rulebook) ruling(ctx context.Context, kube client.Reader, kind rules.Kind, o client.Object) ([]string, error) {
	key := fmt.Sprintf("%s/%s/%s", kind, o.GetName(), o.GetUID())
	// What people write, and nothing of what controllers do.
	of := fmt.Sprint(o.GetGeneration(), o.GetDeletionTimestamp(), o.GetAnnotations(), o.GetLabels())
	now := b.Clock.Now()
	b.mu.Lock()
	v, ok := b.rulings[key]
	b.mu.Unlock()
	if ok && v.of == of && now.Sub(v.at) < sameFor {
		return v.told, nil
	}
	told, err := b.check(ctx, kube, kind, o)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.rulings == nil {
		b.rulings = map[string]ruling{}
	}
	for key, old := range b.rulings {
		if now.Sub(old.at) > 2*rulesEvery { // it is gone
			delete(b.rulings, key)
		}
	}
	b.rulings[key] = ruling{of: of, at: now, told: told}
	return told, nil
}

// check has the rules judge the object. It returns what is to be told.
func (b *Rulebook) check(ctx context.Context, kube client.Reader, kind rules.Kind, o client.Object) ([]string, error) {
	facts, err := b.facts(ctx, kube)
	if err != nil {
		return nil, err
	}
	raw, err := json.Marshal(o)
	if err != nil {
		return nil, fmt.Errorf("writing %s %q: %w", kind, o.GetName(), err)
	}
	subject, err := rules.Decode(kind, raw)
	if err != nil {
		return nil, err
	}
	choice, registry := b.policy(ctx)
	var told []string
	for _, x := range registry.Check(subject, facts, func(r *rules.Rule) bool {
		mode := choice.Mode(r, "")
		return r.On(rules.Controller) && (mode == v1alpha1.Warn || mode == v1alpha1.Enforce)
	}) {
		if !rules.Excepted(subject, facts, x.Rule) {
			told = append(told, strings.TrimPrefix(x.Message(choice.Name), "slipway "))
		}
	}
	if more := len(told) - rulesTold; more > 0 {
		told = append(told[:rulesTold], fmt.Sprintf("And %d more; slipway lint shows all.", more))
	}
	return told, nil
}

// policy is the choice for cluster-wide objects, and the rules. A cluster without WorkloadPolicies has the built-in modes, and so
// has one whose policy cannot be read now.
func (b *Rulebook) policy(ctx context.Context) (*rules.Choice, *rules.Registry) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.registry == nil {
		b.registry = rules.NewRegistry()
	}
	now := b.Clock.Now()
	if !b.read.IsZero() && now.Sub(b.read) < policyEvery {
		choice := b.choice
		return &choice, b.registry
	}
	var known []*v1alpha1.WorkloadPolicy
	p := &v1alpha1.WorkloadPolicy{}
	switch err := b.Live.Get(ctx, client.ObjectKey{Name: v1alpha1.DefaultPolicy}, p); {
	case err == nil:
		known = append(known, p)
	case client.IgnoreNotFound(err) != nil && !meta.IsNoMatchError(err):
		log.FromContext(ctx).Info("the modes of admission rules could not be read; the built-in ones hold", "reason", err.Error())
	}
	b.choice, b.read = rules.ForCluster(known), now
	choice := b.choice
	return &choice, b.registry
}
