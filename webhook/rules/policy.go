// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"cmp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// SystemNamespaces are never looked at, whatever their labels say.
func SystemNamespaces() []string { return []string{"kube-node-lease", "kube-public", "kube-system"} }

// Choice is the policy that holds for a namespace.
type Choice struct {
	// Name is empty for the built-in behaviour.
	Name string
	Spec v1alpha1.WorkloadPolicySpec
	// Since is when the policy was created.
	Since time.Time
	// Lost are policies of the same priority that match too and lost by their name alone.
	Lost []string
	// Missing is the policy that the namespace's label names and that does not exist.
	Missing string
}

// Choose finds the policy of a namespace: the one its label names, else the one with the highest priority that selects
// it (ties: the first by name), else "default", else the built-in behaviour. Policies are never merged. Selectors that
// cannot be read select nothing.
func Choose(policies []*v1alpha1.WorkloadPolicy, namespace string, nsLabels map[string]string) Choice {
	policies = written(policies)
	if slices.Contains(SystemNamespaces(), namespace) {
		return Choice{Spec: Builtin()}
	}
	missing := ""
	if name := nsLabels[v1alpha1.PolicyLabel]; name != "" {
		if p := named(policies, name); p != nil {
			return Choice{Name: p.Name, Spec: p.Spec, Since: p.CreationTimestamp.Time}
		}
		missing = name
	}
	var match []*v1alpha1.WorkloadPolicy
	for _, p := range policies {
		if selects(p, nsLabels) {
			match = append(match, p)
		}
	}
	slices.SortFunc(match, strongest)
	if len(match) == 0 {
		return Choice{Missing: missing}.or(named(policies, v1alpha1.DefaultPolicy))
	}
	out := Choice{Missing: missing}.or(match[0])
	for _, p := range match[1:] {
		if p.Spec.Priority == match[0].Spec.Priority {
			out.Lost = append(out.Lost, p.Name)
		}
	}
	return out
}

// written are the policies without the one that stands for the built-in behaviour.
func written(policies []*v1alpha1.WorkloadPolicy) []*v1alpha1.WorkloadPolicy {
	builtin := func(p *v1alpha1.WorkloadPolicy) bool { return p.Name == v1alpha1.BuiltinPolicy }
	if !slices.ContainsFunc(policies, builtin) {
		return policies
	}
	return slices.DeleteFunc(slices.Clone(policies), builtin)
}

// strongest orders policies that select the same namespace: the first one holds.
func strongest(a, b *v1alpha1.WorkloadPolicy) int {
	return cmp.Or(cmp.Compare(b.Spec.Priority, a.Spec.Priority), strings.Compare(a.Name, b.Name))
}

// ForCluster is the choice for cluster-wide objects: the policy named "default".
func ForCluster(policies []*v1alpha1.WorkloadPolicy) Choice {
	return Choice{}.or(named(policies, v1alpha1.DefaultPolicy))
}

func (c Choice) or(p *v1alpha1.WorkloadPolicy) Choice {
	if p == nil {
		c.Spec = Builtin()
		return c
	}
	c.Name, c.Spec, c.Since = p.Name, p.Spec, p.CreationTimestamp.Time
	return c
}

func named(policies []*v1alpha1.WorkloadPolicy, name string) *v1alpha1.WorkloadPolicy {
	for _, p := range policies {
		if p.Name == name {
			return p
		}
	}
	return nil
}

func selects(p *v1alpha1.WorkloadPolicy, nsLabels map[string]string) bool {
	if p.Spec.NamespaceSelector == nil {
		return nsLabels[v1alpha1.ManagedLabel] == "true"
	}
	sel, err := metav1.LabelSelectorAsSelector(p.Spec.NamespaceSelector)
	return err == nil && sel.Matches(labels.Set(nsLabels))
}

// severity orders modes; Default is as strict as its namespace has to allow: it changes objects.
func severity(m v1alpha1.RuleMode) int {
	return slices.Index([]v1alpha1.RuleMode{v1alpha1.Off, v1alpha1.Audit, v1alpha1.Warn, v1alpha1.Default, v1alpha1.Enforce}, m)
}

func atMost(m, ceiling v1alpha1.RuleMode) v1alpha1.RuleMode {
	if severity(m) > severity(ceiling) {
		return ceiling
	}
	return m
}

// Mode is what a finding of the rule leads to under the choice. admission is the namespace's label slipway.sh/admission,
// empty for cluster-wide objects.
func (c *Choice) Mode(r *Rule, admission string) v1alpha1.RuleMode {
	mode := r.Mode
	overrides := c.Spec.Rules
	if r.Global() {
		overrides = c.Spec.ClusterRules
	}
	if r.ID == "D003" {
		mode = indefinite(c.Spec.Disruption.Indefinite)
	}
	if r.ID == "D005" && c.Spec.Disruption.Setters.Authorize {
		mode = v1alpha1.Enforce
	}
	if m, ok := overrides[r.ID]; ok && severity(m) >= 0 {
		mode = m
	}
	if c.Name == "" && (mode == v1alpha1.Default || !r.Always) {
		mode = atMost(mode, v1alpha1.Warn)
	}
	if c.Spec.Compatibility == v1alpha1.KarpenterRules && mode == v1alpha1.Enforce {
		mode = v1alpha1.Warn
	}
	switch admission {
	case "off":
		mode = v1alpha1.Off
	case "audit":
		mode = atMost(mode, v1alpha1.Audit)
	case "warn":
		mode = atMost(mode, v1alpha1.Warn)
	case "enforce":
		if c.Spec.AllowNamespaceEscalation && mode == v1alpha1.Warn {
			mode = v1alpha1.Enforce
		}
	}
	return mode
}

func indefinite(i v1alpha1.Indefinite) v1alpha1.RuleMode {
	switch i {
	case v1alpha1.IndefiniteAllow:
		return v1alpha1.Off
	case v1alpha1.IndefiniteDeny:
		return v1alpha1.Enforce
	case v1alpha1.IndefiniteCap:
		return v1alpha1.Default
	default:
		return v1alpha1.Warn
	}
}
