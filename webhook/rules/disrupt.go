// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// spotNotice is how long before a spot instance goes EC2 announces it.
const spotNotice = 120

func disruptRules() []Rule {
	return []Rule{
		{
			ID: "D001", Title: "do-not-disrupt with a value that means nothing", Mode: v1alpha1.Enforce, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "Karpenter and Slipway ignore values other than \"true\" and positive durations: the pod is evicted although its owner thinks it is safe. Pods that a controller makes are warned about only.",
			Example: `slipway D001: metadata.annotations[karpenter.sh/do-not-disrupt]: "yes" is not "true" or a duration such as 4h; it would be ignored.`,
			Fix:     `Use "true" or a duration such as 4h, or remove the annotation.`,
			Check:   badProtection,
		},
		{
			ID: "D002", Title: "annotations of old Karpenter versions", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "karpenter.sh/do-not-evict and do-not-consolidate were removed; the pod is not protected.",
			Example: `slipway D002: metadata.annotations[karpenter.sh/do-not-evict]: is no longer read. Use karpenter.sh/do-not-disrupt.`,
			Fix:     "Use karpenter.sh/do-not-disrupt.",
			Check:   removedKeys,
		},
		{
			ID: "D003", Title: "protection without end", Mode: v1alpha1.Warn, Engines: []Engine{VAP, MAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "A node with a pod that may never be disrupted is never consolidated, and drifted or expired only by force. spec.disruption.indefinite of the policy decides what happens.",
			Example: `slipway D003: metadata.annotations[karpenter.sh/do-not-disrupt]: "true" never ends. Use a duration up to 24h.`,
			Fix:     "Use a duration.",
			Check:   endless,
		},
		{
			ID: "D004", Title: "protection longer than the maximum", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "The longer pods are protected, the longer their nodes keep old images and half empty.",
			Example: `slipway D004: metadata.annotations[karpenter.sh/do-not-disrupt]: 240h is longer than the maximum 24h. Use a shorter duration.`,
			Fix:     "Use a shorter duration.",
			Check:   tooLong,
		},
		{
			ID: "D005", Title: "protection set by somebody who may not", Mode: v1alpha1.Off, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Cluster,
			Why:     "Protection costs money that the owner of the cluster pays. With spec.disruption.setters.authorize, RBAC verb \"protect\" on disruptions.slipway.sh is needed; it is asked for the user of the workload, because pods come from controllers.",
			Example: `slipway D005: metadata.annotations[karpenter.sh/do-not-disrupt]: you may not protect pods in this namespace. Ask for verb "protect" on disruptions.slipway.sh.`,
			Fix:     `Ask for verb "protect" on disruptions.slipway.sh.`,
		},
		{
			ID: "D006", Title: "protected pod without a controller", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "Nobody creates a bare pod again and nobody ends it, so its protection lasts until somebody remembers it.",
			Example: `slipway D006: metadata.annotations[karpenter.sh/do-not-disrupt]: a pod without a controller holds its node for good. Use a Job, or a duration.`,
			Fix:     "Use a Job, or a duration.",
			Check:   bareProtected,
		},
		{
			ID: "D007", Title: "too many protected pods in the namespace", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: []Kind{Pod}, Needs: Cluster,
			Why:     "A few protected pods on many nodes stop consolidation of all of them.",
			Example: `slipway D007: metadata.annotations[karpenter.sh/do-not-disrupt]: 13 of 40 pods of the namespace are protected, above the maximum 10%. Protect fewer pods.`,
			Fix:     "Protect fewer pods.",
			Check:   overQuota,
		},
		{
			ID: "D008", Title: "do-not-disrupt duration on a node", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: []Kind{Node, NodeClaim, NodePool}, Needs: Nothing,
			Why:     "On nodes, claims and NodePool templates only \"true\" counts; a duration is ignored without a word.",
			Example: `slipway D008: metadata.annotations[karpenter.sh/do-not-disrupt]: "4h" is ignored on a node, only "true" counts. Put durations on pods.`,
			Fix:     "Put durations on pods.",
			Check:   nodeProtection,
		},
		{
			ID: "D009", Title: "grace period longer than every pool allows", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: podsAndWorkloads(), Needs: Catalog,
			Why:     "Where the pool's terminationGracePeriod is shorter than the pod's, the pod is deleted as soon as draining begins, so that it gets what time there is.",
			Example: `slipway D009: spec.terminationGracePeriodSeconds: 7200 s is longer than terminationGracePeriod of every pool it fits (at most 1h0m0s in "general"). Shorten it or raise the pool's.`,
			Fix:     "Shorten it or raise the pool's.",
			Check:   graceAbovePools,
		},
		{
			ID: "D010", Title: "long grace period on spot only", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: podsAndWorkloads(), Needs: Catalog,
			Why:     "EC2 announces the end of a spot instance two minutes ahead; what takes longer to stop is cut off.",
			Example: `slipway D010: spec.terminationGracePeriodSeconds: 600 s, but only spot capacity fits, which ends 120 s after its notice. Allow on-demand or stop faster.`,
			Fix:     "Allow on-demand or stop faster.",
			Check:   graceOnSpot,
		},
		{
			ID: "D011", Title: "protected pod on pools that expire by force", Mode: v1alpha1.Warn, Engines: []Engine{Webhook}, Kinds: podsAndWorkloads(), Needs: Catalog,
			Why:     "A pool with expireAfter and without terminationGracePeriod starts to drain at its end and waits for protected pods for ever, tainted and paid for.",
			Example: `slipway D011: metadata.annotations[karpenter.sh/do-not-disrupt]: every pool it fits ("general") has expireAfter and no terminationGracePeriod. Set terminationGracePeriod on the pool.`,
			Fix:     "Set terminationGracePeriod on the pool.",
			Check:   expiresByForce,
		},
	}
}

const doNotDisrupt = karpv1.DoNotDisruptAnnotationKey

func protectionField(s *Subject) string {
	return fmt.Sprintf("%smetadata.annotations[%s]", s.Path, doNotDisrupt)
}

func protection(s *Subject) (Protection, error) {
	return ParseProtection(s.Template.Annotations[doNotDisrupt])
}

func badProtection(s *Subject, _ *Facts) []Finding {
	if _, err := protection(s); err != nil {
		return []Finding{{Field: protectionField(s), Problem: err.Error(), Mild: s.Kind == Pod && !s.Bare()}}
	}
	return nil
}

func removedKeys(s *Subject, _ *Facts) []Finding {
	var out []Finding
	for _, key := range []string{"karpenter.sh/do-not-evict", "karpenter.sh/do-not-consolidate"} {
		if _, ok := s.Template.Annotations[key]; ok {
			out = append(out, Finding{Field: fmt.Sprintf("%smetadata.annotations[%s]", s.Path, key), Problem: "is no longer read"})
		}
	}
	return out
}

func endless(s *Subject, f *Facts) []Finding {
	p, err := protection(s)
	if err != nil || !p.Set || p.For > 0 || s.Bare() {
		return nil
	}
	fix := ""
	if d := f.Policy.Disruption.MaxDoNotDisrupt; d != nil {
		fix = fmt.Sprintf("Use a duration up to %s.", short(d.Duration))
	}
	return []Finding{{Field: protectionField(s), Problem: `"true" never ends`, Fix: fix}}
}

func tooLong(s *Subject, f *Facts) []Finding {
	most := f.Policy.Disruption.MaxDoNotDisrupt
	p, err := protection(s)
	if err != nil || most == nil || p.For <= most.Duration {
		return nil
	}
	return []Finding{{Field: protectionField(s), Problem: fmt.Sprintf("%s is longer than the maximum %s", short(p.For), short(most.Duration))}}
}

func bareProtected(s *Subject, _ *Facts) []Finding {
	p, err := protection(s)
	if err != nil || !p.Set || p.For > 0 || !s.Bare() {
		return nil
	}
	return []Finding{{Field: protectionField(s), Problem: "a pod without a controller holds its node for good"}}
}

func overQuota(s *Subject, f *Facts) []Finding {
	p, err := protection(s)
	if err != nil || !p.Set || f.Protected == nil || s.Operation != Create {
		return nil
	}
	protected, all := f.Protected(s.Meta.Namespace)
	protected, all = protected+1, all+1 // this pod
	most, ok := Quota(f.Policy.Disruption.MaxProtectedPods, all)
	if !ok || protected <= most {
		return nil
	}
	return []Finding{{Field: protectionField(s), Problem: fmt.Sprintf("%d of %s of the namespace are protected, above the maximum %s",
		protected, plural(all, "pod"), f.Policy.Disruption.MaxProtectedPods)}}
}

// Quota is how many of n pods may be protected by a value such as "10%" or "5". A percentage is rounded up, so that a
// namespace of a few pods may protect one; ok is false if there is no quota.
func Quota(value string, n int) (most int, ok bool) {
	if value == "" {
		return 0, false
	}
	if p, percent := strings.CutSuffix(value, "%"); percent {
		v, err := strconv.Atoi(p)
		return int(math.Ceil(float64(v) * float64(n) / 100)), err == nil
	}
	v, err := strconv.Atoi(value)
	return v, err == nil
}

func nodeProtection(s *Subject, _ *Facts) []Finding {
	annotations, path := s.Meta.Annotations, ""
	if s.Pool != nil {
		annotations, path = s.Pool.Spec.Template.Annotations, "spec.template."
	}
	v, ok := annotations[doNotDisrupt]
	if !ok || v == "true" || v == "false" {
		return nil
	}
	return []Finding{{
		Field:   fmt.Sprintf("%smetadata.annotations[%s]", path, doNotDisrupt),
		Problem: fmt.Sprintf("%q is ignored on a node, only \"true\" counts", v),
	}}
}

// fits are the pools the subject's pods could run on; empty if that is not known.
func fits(s *Subject, f *Facts) (Feasibility, []*karpv1.NodePool) {
	if f.Where == nil || f.Pools == nil || s.OfDaemonSet() {
		return Feasibility{Answer: Unknown}, nil
	}
	v := f.Where(s.Meta.Namespace, s.Template)
	var out []*karpv1.NodePool
	for _, p := range f.Pools() {
		for _, name := range v.Pools {
			if p.Name == name {
				out = append(out, p)
			}
		}
	}
	return v, out
}

func grace(s *Subject) time.Duration {
	g := s.Template.Spec.TerminationGracePeriodSeconds
	if g == nil {
		return 30 * time.Second
	}
	return time.Duration(min(*g, math.MaxInt32)) * time.Second
}

func graceAbovePools(s *Subject, f *Facts) []Finding {
	g := grace(s)
	if g <= 30*time.Second {
		return nil
	}
	_, pools := fits(s, f)
	var most time.Duration
	var best string
	for _, p := range pools {
		t := p.Spec.Template.Spec.TerminationGracePeriod
		if t == nil || t.Duration >= g {
			return nil
		}
		if best == "" || t.Duration > most {
			most, best = t.Duration, p.Name
		}
	}
	if best == "" {
		return nil
	}
	return []Finding{{Field: s.Path + "spec.terminationGracePeriodSeconds", Problem: fmt.Sprintf(
		"%d s is longer than terminationGracePeriod of every pool it fits (at most %s in %q)", int(g.Seconds()), short(most), best)}}
}

func graceOnSpot(s *Subject, f *Facts) []Finding {
	g := grace(s)
	if g <= spotNotice*time.Second {
		return nil
	}
	if v, _ := fits(s, f); v.Answer != Yes || !v.OnlySpot {
		return nil
	}
	return []Finding{{Field: s.Path + "spec.terminationGracePeriodSeconds", Problem: fmt.Sprintf(
		"%d s, but only spot capacity fits, which ends %d s after its notice", int(g.Seconds()), spotNotice)}}
}

func expiresByForce(s *Subject, f *Facts) []Finding {
	if p, err := protection(s); err != nil || !p.Set {
		return nil
	}
	_, pools := fits(s, f)
	var names []string
	for _, p := range pools {
		spec := p.Spec.Template.Spec
		if spec.ExpireAfter.Duration == nil || spec.TerminationGracePeriod != nil {
			return nil
		}
		names = append(names, fmt.Sprintf("%q", p.Name))
	}
	if len(names) == 0 {
		return nil
	}
	return []Finding{{Field: protectionField(s), Problem: fmt.Sprintf("every pool it fits (%s) has expireAfter and no terminationGracePeriod", listed(names))}}
}

// short prints a duration without zero minutes and seconds.
func short(d time.Duration) string {
	text := d.String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}
