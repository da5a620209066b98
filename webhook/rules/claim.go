// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func claimRules() []Rule {
	return []Rule{
		{
			ID: "K001", Title: "NodeClaim spec is immutable", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{CRD}, Kinds: []Kind{NodeClaim}, Needs: Nothing,
			Why:     "A claim is one instance; its spec is what was bought. Karpenter's schema refuses changes.",
			Example: `spec: Invalid value: spec is immutable`,
			Fix:     "Change the NodePool.",
			Check:   claimChanged,
		},
		{
			ID: "K002", Title: "NodeClaim written by hand", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: []Kind{NodeClaim}, Needs: Nothing,
			Why:     "A claim that a person creates is bought, limits and budgets or not, and nobody will consolidate it back.",
			Example: `slipway K002: NodeClaims are written by controllers; this buys an instance. Change the NodePool, or its replicas.`,
			Fix:     "Change the NodePool, or its replicas.",
			Check:   claimByHand,
		},
	}
}

func claimChanged(s *Subject, _ *Facts) []Finding {
	if s.Old == nil {
		return nil
	}
	now, err := json.Marshal(s.Claim.Spec)
	before, oldErr := json.Marshal(s.Old.Claim.Spec)
	if err != nil || oldErr != nil || string(now) == string(before) {
		return nil
	}
	return []Finding{{Field: "spec", Problem: "spec is immutable"}}
}

func claimByHand(s *Subject, _ *Facts) []Finding {
	if s.Operation == Delete || s.User == "" || strings.HasPrefix(s.User, "system:serviceaccount:") || strings.HasPrefix(s.User, "system:kube-") {
		return nil
	}
	what := "this changes one"
	if s.Operation == Create {
		what = "this buys an instance"
	}
	return []Finding{{Problem: fmt.Sprintf("NodeClaims are written by controllers; %s", what)}}
}
