// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// statusEvery is how often the status of policies is looked after.
const statusEvery = 2 * time.Second

// Reasons of a policy's conditions.
const (
	reasonInUse      = "InUse"
	reasonFindings   = "Findings"
	reasonNoConflict = "NoConflict"
	reasonSamePrio   = "SamePriority"
)

// PolicyStatus keeps the status of WorkloadPolicies. Every replica does so; equal answers are written once.
type PolicyStatus struct {
	Kube  client.Client
	State func() *State
	Clock clock.WithTicker
	Log   logr.Logger
}

// Run looks after the policies until ctx ends.
func (p *PolicyStatus) Run(ctx context.Context) {
	for {
		if s := p.State(); s != nil {
			if err := p.Write(ctx, s); err != nil && ctx.Err() == nil {
				p.Log.Error(err, "writing the status of policies")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(statusEvery):
		}
	}
}

// Write writes what has changed.
func (p *PolicyStatus) Write(ctx context.Context, s *State) error {
	all := Statuses(s.in.Policies, s.in.Namespaces, metav1.NewTime(p.Clock.Now()))
	for _, policy := range s.in.Policies {
		now := all[policy.Name]
		if equality.Semantic.DeepEqual(policy.Status, now) {
			continue
		}
		changed := policy.DeepCopy()
		changed.Status = now
		err := p.Kube.Status().Patch(ctx, changed, client.MergeFromWithOptions(policy.DeepCopy(), client.MergeFromWithOptimisticLock{}))
		if err != nil && !apierrors.IsConflict(err) && !apierrors.IsNotFound(err) {
			return fmt.Errorf("policy %q: %w", policy.Name, err)
		}
	}
	return nil
}

// Statuses says of every policy, by name, which namespaces it won, whom it is in conflict with, and what of it has no effect.
func Statuses(policies []*v1alpha1.WorkloadPolicy, namespaces []*corev1.Namespace, now metav1.Time) map[string]v1alpha1.WorkloadPolicyStatus {
	won := map[string]int32{}
	rivals := map[string]map[string]string{} // policy → rival → the one that wins
	put := func(a, b, winner string) {
		if rivals[a] == nil {
			rivals[a] = map[string]string{}
		}
		rivals[a][b] = winner
	}
	for _, ns := range namespaces {
		if ns.Labels[v1alpha1.ManagedLabel] != "true" {
			continue // never looked at, whoever selects it
		}
		c := rules.Choose(policies, ns.Name, ns.Labels)
		if c.Name == "" {
			continue
		}
		won[c.Name]++
		for _, lost := range c.Lost {
			put(c.Name, lost, c.Name)
			put(lost, c.Name, c.Name)
		}
	}
	out := map[string]v1alpha1.WorkloadPolicyStatus{}
	registry := rules.NewRegistry()
	_, left := rules.NativeData(policies, nil, now.Time)
	for _, p := range policies {
		s := *p.Status.DeepCopy()
		s.ObservedGeneration, s.MatchedNamespaces, s.Findings = p.Generation, won[p.Name], mistakes(p, registry)
		if slices.Contains(left, p.Name) {
			s.Findings = append(s.Findings, "native policies do not know this policy: there are too many, or its name is too long")
		}
		ready := metav1.Condition{Type: v1alpha1.ConditionReady, Status: metav1.ConditionTrue, Reason: reasonInUse, ObservedGeneration: p.Generation}
		if len(s.Findings) > 0 {
			ready.Status, ready.Reason, ready.Message = metav1.ConditionFalse, reasonFindings, strings.Join(s.Findings, "; ")
		}
		conflict := metav1.Condition{Type: v1alpha1.ConditionConflicting, Status: metav1.ConditionFalse, Reason: reasonNoConflict, ObservedGeneration: p.Generation}
		if list := rivals[p.Name]; len(list) > 0 {
			conflict.Status, conflict.Reason = metav1.ConditionTrue, reasonSamePrio
			conflict.Message = conflicts(p.Spec.Priority, list)
		}
		for _, c := range []metav1.Condition{ready, conflict} {
			c.LastTransitionTime = now
			meta.SetStatusCondition(&s.Conditions, c)
		}
		out[p.Name] = s
	}
	return out
}

func conflicts(priority int32, rivals map[string]string) string {
	var lines []string
	for _, name := range slices.Sorted(maps.Keys(rivals)) {
		lines = append(lines, fmt.Sprintf("policy %q selects some of the same namespaces with the same priority %d; there %q holds, the first by name", name, priority, rivals[name]))
	}
	return strings.Join(lines, "; ")
}

// mistakes are what the schema cannot see.
func mistakes(p *v1alpha1.WorkloadPolicy, registry *rules.Registry) []string {
	var out []string
	for field, list := range map[string]map[string]v1alpha1.RuleMode{"spec.rules": p.Spec.Rules, "spec.clusterRules": p.Spec.ClusterRules} {
		for id, mode := range list {
			rule := registry.Rule(id)
			switch {
			case rule == nil:
				out = append(out, fmt.Sprintf("%s[%s]: there is no such rule", field, id))
			case mode == v1alpha1.Default && rule.Mode != v1alpha1.Default && id != "D003" && id != "S004":
				out = append(out, fmt.Sprintf("%s[%s]: Default is for rules that change objects; this one warns instead", field, id))
			case rule.On(rules.CRD):
				out = append(out, fmt.Sprintf("%s[%s]: is in a schema and has one mode only", field, id))
			case field == "spec.clusterRules" && p.Name != v1alpha1.DefaultPolicy:
				out = append(out, fmt.Sprintf("%s[%s]: is read from the policy named %q only", field, id, v1alpha1.DefaultPolicy))
			}
		}
	}
	if p.Spec.NamespaceSelector != nil {
		if _, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector); err != nil {
			out = append(out, fmt.Sprintf("spec.namespaceSelector: %v; it selects nothing", err))
		}
	}
	slices.Sort(out)
	return out
}
