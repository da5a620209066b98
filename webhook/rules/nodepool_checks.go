// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// requirements are what every node of the pool satisfies as far as its requirements and labels say; ok is false if one of
// them cannot be read, which other checks report.
func requirements(np *karpv1.NodePool) (capacity.Requirements, bool) {
	out := capacity.Requirements{}
	for _, r := range np.Spec.Template.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			return nil, false
		}
		out = out.With(q)
	}
	return out.And(capacity.FromLabels(np.Spec.Template.Labels)), true
}

func requirementField(key string) string {
	return fmt.Sprintf("spec.template.spec.requirements[%s]", key)
}

// catalog is what the pool's class can buy, nil if that is not known.
func catalog(np *karpv1.NodePool, f *Facts) *capacity.Catalog {
	ref := np.Spec.Template.Spec.NodeClassRef
	if f.Catalog == nil || ref == nil {
		return nil
	}
	return f.Catalog(ref.Name)
}

func classUnusable(s *Subject, f *Facts) []Finding {
	ref := s.Pool.Spec.Template.Spec.NodeClassRef
	if f.Class == nil || ref == nil || ref.Kind != string(NodeClass) {
		return nil
	}
	x := Finding{Field: "spec.template.spec.nodeClassRef"}
	class := f.Class(ref.Name)
	if class == nil {
		x.Problem = fmt.Sprintf("EC2NodeClass %q does not exist", ref.Name)
		return []Finding{x}
	}
	if !class.DeletionTimestamp.IsZero() {
		x.Problem = fmt.Sprintf("EC2NodeClass %q is being deleted", ref.Name)
		return []Finding{x}
	}
	for _, c := range class.Status.Conditions {
		if c.Type == "Ready" && c.IsFalse() {
			x.Problem = fmt.Sprintf("EC2NodeClass %q is not ready: %s", ref.Name, c.Message)
			return []Finding{x}
		}
	}
	return nil
}

func nothingMatches(s *Subject, f *Facts) []Finding {
	cat := catalog(s.Pool, f)
	reqs, ok := requirements(s.Pool)
	if cat == nil || !ok || len(cat.Offerings) == 0 || !cat.Match(reqs).Empty() {
		return nil
	}
	x := Finding{Field: "spec.template.spec.requirements", Problem: fmt.Sprintf("match none of %d instance types", len(cat.Types))}
	best, most := "", 0
	for _, key := range reqs.Keys() {
		rest := maps.Clone(reqs)
		delete(rest, key)
		if n := len(cat.Values(corev1.LabelInstanceTypeStable, cat.Match(rest))); n > most {
			best, most = key, n
		}
	}
	if best != "" {
		x.Fix = fmt.Sprintf("Without the requirement on %s, %s match.", best, plural(most, "type"))
	}
	return []Finding{x}
}

func contradictions(s *Subject, _ *Facts) []Finding {
	var out []Finding
	seen := map[string]capacity.Requirement{}
	for _, r := range s.Pool.Spec.Template.Spec.Requirements {
		q, err := capacity.NewRequirement(r.Key, r.Operator, r.Values...)
		if err != nil {
			continue
		}
		key := capacity.CanonicalKey(r.Key)
		have, ok := seen[key]
		if !ok {
			seen[key] = q
			continue
		}
		both := have.Intersect(q)
		if both.Impossible() && !have.Impossible() && !q.Impossible() {
			out = append(out, Finding{Field: requirementField(key), Problem: fmt.Sprintf("%s and %s exclude each other", values(have), values(q))})
			continue
		}
		seen[key] = both
	}
	for _, key := range slices.Sorted(maps.Keys(s.Pool.Spec.Template.Labels)) {
		value := s.Pool.Spec.Template.Labels[key]
		if q, ok := seen[capacity.CanonicalKey(key)]; ok && !q.Has(value) && !q.Impossible() {
			out = append(out, Finding{Field: requirementField(key), Problem: fmt.Sprintf("%s excludes the template's label %q", values(q), value)})
		}
	}
	return out
}

// values prints a requirement without its key.
func values(q capacity.Requirement) string {
	return strings.TrimPrefix(q.String(), q.Key+" ")
}

// fixedValues are the values that keys can have whatever is sold.
func fixedValues() map[string][]string {
	return map[string][]string{
		corev1.LabelOSStable:        {"linux", "windows"},
		corev1.LabelArchStable:      {karpv1.ArchitectureAmd64, karpv1.ArchitectureArm64},
		karpv1.CapacityTypeLabelKey: {karpv1.CapacityTypeOnDemand, karpv1.CapacityTypeReserved, karpv1.CapacityTypeSpot},
	}
}

func unknownValues(s *Subject, f *Facts) []Finding {
	var out []Finding
	cat := catalog(s.Pool, f)
	fixed := fixedValues()
	for _, r := range s.Pool.Spec.Template.Spec.Requirements {
		if r.Operator != corev1.NodeSelectorOpIn || len(r.Values) == 0 {
			continue
		}
		key := capacity.CanonicalKey(r.Key)
		known, sure := fixed[key]
		if !sure && cat != nil && cat.Defines(key) {
			known = cat.Values(key, capacity.FullSet(len(cat.Offerings)))
		}
		if len(known) == 0 {
			continue
		}
		if x, bad := strangers(r.Values, known, sure); bad {
			x.Field = requirementField(r.Key)
			out = append(out, x)
		}
	}
	return out
}

// strangers reports the values that are not known; if all are strange and the list of known ones is complete, that is no
// mild finding. A catalogue is of one moment and region, so it is never more than a warning.
func strangers(have, known []string, complete bool) (Finding, bool) {
	var strange []string
	for _, v := range have {
		if !slices.Contains(known, v) {
			strange = append(strange, v)
		}
	}
	if len(strange) == 0 {
		return Finding{}, false
	}
	x := Finding{Mild: !complete || len(strange) < len(have)}
	if complete {
		x.Problem = fmt.Sprintf("%q is not one of %s", strange[0], listed(known))
	} else {
		x.Problem = fmt.Sprintf("nothing on sale has %s", listed(quoted(strange)))
	}
	if near := closest(strange[0], known); near != "" {
		x.Fix = fmt.Sprintf("Did you mean %q?", near)
	}
	return x, true
}

func quoted(in []string) []string {
	out := make([]string, len(in))
	for i, v := range in {
		out[i] = fmt.Sprintf("%q", v)
	}
	return out
}

func limits(s *Subject, f *Facts) []Finding {
	if s.Pool.Spec.Replicas != nil {
		return nil
	}
	if len(s.Pool.Spec.Limits) == 0 {
		return []Finding{{Field: "spec.limits", Problem: "no limits: a mistake in a workload can buy any number of nodes", Fix: "Set spec.limits.cpu and memory."}}
	}
	cat := catalog(s.Pool, f)
	reqs, ok := requirements(s.Pool)
	if cat == nil || !ok {
		return nil
	}
	match := cat.Match(reqs)
	if match.Empty() {
		return nil // N002
	}
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(s.Pool.Spec.Limits)) {
		least := smallest(cat, match, name)
		limit := capacity.FromList(corev1.ResourceList{name: s.Pool.Spec.Limits[name]}).Get(name)
		if least == math.MaxInt64 || limit >= least || name == "nodes" {
			continue
		}
		q := s.Pool.Spec.Limits[name]
		out = append(out, Finding{
			Field:   fmt.Sprintf("spec.limits.%s", name),
			Problem: fmt.Sprintf("%s is below %s, what the smallest matching type has", q.String(), capacity.FormatQuantity(name, least)),
			Fix:     "Raise it, or allow smaller types.",
		})
	}
	return out
}

// smallest is the least a type of the set has of the resource; MaxInt64 if the set is empty.
func smallest(cat *capacity.Catalog, match capacity.Set, name corev1.ResourceName) int64 {
	least := int64(math.MaxInt64)
	for i := range match.All {
		least = min(least, cat.Offerings[i].Type.Capacity.Get(name))
	}
	return least
}

func overlappingPools(s *Subject, f *Facts) []Finding {
	if f.Pools == nil || s.Pool.Spec.Replicas != nil {
		return nil
	}
	mine, ok := requirements(s.Pool)
	if !ok {
		return nil
	}
	for _, other := range f.Pools() {
		if other.Name == s.Pool.Name || other.Spec.Replicas != nil || weight(other) != weight(s.Pool) || !sameTaints(s.Pool, other) {
			continue
		}
		theirs, ok := requirements(other)
		if ok && mine.Overlaps(theirs) == nil {
			return []Finding{{Field: "spec.weight", Problem: fmt.Sprintf("%q and %q have weight %d and take the same pods", s.Pool.Name, other.Name, weight(s.Pool))}}
		}
	}
	return nil
}

func weight(np *karpv1.NodePool) int32 {
	if np.Spec.Weight == nil {
		return 0
	}
	return *np.Spec.Weight
}

func sameTaints(a, b *karpv1.NodePool) bool {
	return maps.Equal(taintSet(a), taintSet(b))
}

func taintSet(np *karpv1.NodePool) map[corev1.Taint]bool {
	out := map[corev1.Taint]bool{}
	for _, t := range np.Spec.Template.Spec.Taints {
		out[corev1.Taint{Key: t.Key, Value: t.Value, Effect: t.Effect}] = true
	}
	return out
}

func endlessDrain(s *Subject, _ *Facts) []Finding {
	t := s.Pool.Spec.Template.Spec
	if t.ExpireAfter.Duration == nil || t.TerminationGracePeriod != nil {
		return nil
	}
	return []Finding{{Field: "spec.template.spec", Problem: fmt.Sprintf(
		"expireAfter %s without terminationGracePeriod: one protected pod keeps an expired node for ever", short(*t.ExpireAfter.Duration))}}
}

func silentDefaults(s *Subject, _ *Facts) []Finding {
	reqs, ok := requirements(s.Pool)
	if !ok {
		return nil
	}
	var out []Finding
	for _, d := range []struct{ key, value string }{
		{corev1.LabelOSStable, "whatever the class's images run"},
		{corev1.LabelArchStable, "amd64 and arm64 nodes are bought, by price"},
		{karpv1.CapacityTypeLabelKey, "spot and on-demand are bought, by price"},
	} {
		if _, ok := reqs[d.key]; !ok {
			out = append(out, Finding{Field: "spec.template.spec.requirements", Problem: fmt.Sprintf("nothing on %s: %s", d.key, d.value)})
		}
	}
	return out
}

func restless(s *Subject, _ *Facts) []Finding {
	d := s.Pool.Spec.Disruption
	if d.ConsolidateAfter.Duration == nil || *d.ConsolidateAfter.Duration != 0 || d.ConsolidationPolicy == karpv1.ConsolidationPolicyWhenEmpty {
		return nil
	}
	return []Finding{{Field: "spec.disruption.consolidateAfter", Problem: "0s consolidates with every change"}}
}

// driftsNodes counts what an update replaces: every node if the hashed part of the template changes, else those whose
// labels no longer satisfy the requirements.
func driftsNodes(s *Subject, f *Facts) []Finding {
	if s.Old == nil || f.Claims == nil || s.Pool.Name == "" {
		return nil
	}
	claims := f.Claims(s.Pool.Name)
	drifted := 0
	if s.Pool.Hash() != s.Old.Pool.Hash() {
		drifted = len(claims)
	} else if now, ok := requirements(s.Pool); ok {
		before, _ := requirements(s.Old.Pool)
		for _, c := range claims {
			if now.Overlaps(capacity.FromLabels(c.Labels)) != nil && before.Overlaps(capacity.FromLabels(c.Labels)) == nil {
				drifted++
			}
		}
	}
	if drifted == 0 {
		return nil
	}
	pace := "budgets do not bound it"
	if n := s.Pool.MustGetAllowedDisruptions(frozen{at: f.Now}, len(claims), karpv1.DisruptionReasonDrifted); n < math.MaxInt32 {
		pace = fmt.Sprintf("budgets allow %d at a time", n)
	}
	return []Finding{{Field: "spec.template", Problem: fmt.Sprintf("drifts %d of %s of %q; %s", drifted, plural(len(claims), "node"), s.Pool.Name, pace)}}
}

func deletesNodes(s *Subject, _ *Facts) []Finding {
	if s.Operation != Delete || s.Meta.Annotations[v1alpha1.ConfirmDeleteAnnotation] == s.Meta.Name {
		return nil
	}
	x := Finding{
		Field: fmt.Sprintf("metadata.annotations[%s]", v1alpha1.ConfirmDeleteAnnotation),
		Fix:   fmt.Sprintf("Annotate it with %s=%s first.", v1alpha1.ConfirmDeleteAnnotation, s.Meta.Name),
	}
	if s.Kind == Definition {
		if !slices.Contains(OurDefinitions(), s.Meta.Name) {
			return nil
		}
		x.Problem = fmt.Sprintf("deleting %q deletes all of its objects and with them nodes, past every budget", s.Meta.Name)
		return []Finding{x}
	}
	n := int64(0)
	if s.Pool.Status.Nodes != nil {
		n = *s.Pool.Status.Nodes
	}
	if n == 0 {
		return nil
	}
	x.Problem = fmt.Sprintf("%q has %s that would go with it", s.Meta.Name, plural(int(n), "node"))
	return []Finding{x}
}

// OurDefinitions are the CustomResourceDefinitions whose deletion ends nodes or policies.
func OurDefinitions() []string {
	return []string{
		"ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh", "workloadpolicies.slipway.sh",
	}
}

func duplicateTaints(s *Subject, _ *Facts) []Finding {
	var out []Finding
	spec := s.Pool.Spec.Template.Spec
	for _, l := range []struct {
		field string
		list  []corev1.Taint
	}{{"taints", spec.Taints}, {"startupTaints", spec.StartupTaints}} {
		seen := map[string]bool{}
		for _, t := range l.list {
			id := fmt.Sprintf("%s:%s", t.Key, t.Effect)
			if seen[id] {
				out = append(out, Finding{Field: "spec.template.spec." + l.field, Problem: id + " is there twice"})
			}
			seen[id] = true
		}
	}
	return out
}

func limitsBelowUse(s *Subject, _ *Facts) []Finding {
	var out []Finding
	for _, name := range slices.Sorted(maps.Keys(s.Pool.Spec.Limits)) {
		limit, used := s.Pool.Spec.Limits[name], s.Pool.Status.Resources[name]
		if used.Cmp(limit) > 0 {
			out = append(out, Finding{Field: fmt.Sprintf("spec.limits.%s", name), Problem: fmt.Sprintf("%s is below %s, what the pool's nodes have", limit.String(), used.String())})
		}
	}
	return out
}

// classRef reports whether the pool refers to the class.
func classRef(np *karpv1.NodePool, class *v1.EC2NodeClass) bool {
	ref := np.Spec.Template.Spec.NodeClassRef
	return ref != nil && ref.Kind == string(NodeClass) && ref.Name == class.Name
}
