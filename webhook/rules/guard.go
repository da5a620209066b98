// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"time"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func guardRules() []Rule {
	return []Rule{
		{
			ID: "G001", Title: "policies edited by others than admins", Mode: v1alpha1.Off, Engines: []Engine{VAP}, Kinds: []Kind{WorkloadPolicy}, Needs: Cluster,
			Why:     "Whoever may edit policies and webhook configurations decides for every namespace. Asks RBAC for verb \"administer\" on workloadpolicies.slipway.sh.",
			Example: `slipway G001: you may not change policies. Ask for verb "administer" on workloadpolicies.slipway.sh.`,
			Fix:     `Ask for verb "administer" on workloadpolicies.slipway.sh.`,
		},
		{
			ID: "G002", Title: "exception without reason or end", Mode: v1alpha1.Enforce, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "Exceptions without an end are never looked at again, and one without a reason cannot be judged by anybody.",
			Example: `slipway G002: metadata.annotations[slipway.sh/except]: exception from S005 has no end. Write slipway.sh/except: "S005=reason;until=2026-12-31".`,
			Fix:     `Write slipway.sh/except: "RULE=reason;until=YYYY-MM-DD".`,
			Check:   badExceptions,
		},
	}
}

func badExceptions(s *Subject, f *Facts) []Finding {
	type place struct{ path, value string }
	places := []place{{"", s.Meta.Annotations[v1alpha1.ExceptAnnotation]}}
	if s.Kind != Pod {
		places = append(places, place{s.Path, s.Template.Annotations[v1alpha1.ExceptAnnotation]})
	}
	var out []Finding
	for _, p := range places {
		list, errs := ParseExceptions(p.value)
		field := fmt.Sprintf("%smetadata.annotations[%s]", p.path, v1alpha1.ExceptAnnotation)
		for _, err := range errs {
			out = append(out, Finding{Field: field, Problem: err.Error()})
		}
		for _, e := range list {
			if problem, mild := exceptionProblem(e, f); problem != "" {
				out = append(out, Finding{Field: field, Problem: problem, Mild: mild})
			}
		}
	}
	for i := range out {
		out[i].Mild = out[i].Mild || (s.Kind == Pod && !s.Bare())
	}
	return out
}

// exceptionProblem says what is wrong with an exception. One that is over is no mistake of this request: it is mild.
func exceptionProblem(e Exception, f *Facts) (problem string, mild bool) {
	x := f.Policy.Exceptions
	switch {
	case !slices.ContainsFunc(All(), func(r Rule) bool { return r.ID == e.Rule }):
		return fmt.Sprintf("there is no rule %s", e.Rule), false
	case e.Reason == "" && (x.RequireReason == nil || *x.RequireReason):
		return fmt.Sprintf("exception from %s has no reason", e.Rule), false
	case e.Until.IsZero():
		return fmt.Sprintf("exception from %s has no end", e.Rule), false
	case !f.Now.Before(e.Until):
		return fmt.Sprintf("exception from %s ended on %s", e.Rule, e.Until.AddDate(0, 0, -1).Format(time.DateOnly)), true
	case x.MaxLifetime != nil && e.Until.Sub(f.Now) > x.MaxLifetime.Duration+24*time.Hour:
		return fmt.Sprintf("exception from %s is for longer than %s", e.Rule, short(x.MaxLifetime.Duration)), false
	}
	return "", false
}
