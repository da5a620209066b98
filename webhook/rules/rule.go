// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"slices"
	"strings"
	"unicode"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// Engine is where a rule is evaluated in a cluster. slipway lint evaluates all of them.
type Engine string

// Engines. Native ones are in the API server and work without Slipway's pods.
const (
	CRD        Engine = "CRD schema"
	VAP        Engine = "ValidatingAdmissionPolicy"
	MAP        Engine = "MutatingAdmissionPolicy"
	Webhook    Engine = "webhook"
	Controller Engine = "controller condition"
)

// Need is what a rule has to know beside the object.
type Need string

// Needs. Cluster is other objects, Catalog the instance types a node class can buy.
const (
	Nothing Need = "nothing"
	Cluster Need = "other objects"
	Catalog Need = "the instance catalogue"
)

// Rule is one thing that can be wrong with an object.
type Rule struct {
	// ID is the family's letter and a number. It never changes its meaning.
	ID string
	// Title says in a few words what is found, Why what happens if nobody acts.
	Title, Why string
	// Mode is what a finding leads to in a namespace whose policy does not say otherwise.
	Mode v1alpha1.RuleMode
	// Always keeps an Enforce without any policy: an object like that can never work.
	Always bool
	// Engines are where it is evaluated.
	Engines []Engine
	// Kinds are the objects it is about.
	Kinds []Kind
	// Needs is what has to be known; without it the rule is silent.
	Needs Need
	// Example is a message as users see it, Fix what to do.
	Example, Fix string
	// Check finds what is wrong.
	Check func(*Subject, *Facts) []Finding
}

// On reports whether the rule is evaluated by the engine.
func (r *Rule) On(e Engine) bool { return slices.Contains(r.Engines, e) }

// Global reports whether the rule is about cluster-wide objects; its mode is read from clusterRules of the default policy.
func (r *Rule) Global() bool { return strings.ContainsAny(r.ID[:1], "NCKG") }

// Finding is one rule broken at one place.
type Finding struct {
	Rule string
	// Field is the path in the object, for instance spec.template.spec.containers[api].resources.requests.memory.
	Field string
	// Problem says what is wrong, with the number; Fix what to do. Neither contains the name of a pod, so that the text is
	// the same for all pods of an owner.
	Problem, Fix string
	// Mild says that this finding is at most a warning, whatever the rule's mode.
	Mild bool
}

// maxMessage is how long a message may be: the API server cuts warnings at 256 runes once there are many.
const maxMessage = 240

// Message is the finding as users see it: one line, at most 240 runes. The policy is left out if there is none.
func (f Finding) Message(policy string) string {
	text := fmt.Sprintf("slipway %s: ", f.Rule)
	if f.Field != "" {
		text += f.Field + ": "
	}
	text += f.Problem + "."
	if f.Fix != "" {
		text += " " + f.Fix
	}
	tail := ""
	if policy != "" {
		tail = fmt.Sprintf(" [policy %s]", policy)
	}
	return clip(text, maxMessage-len([]rune(tail))) + tail
}

// clip makes one printable line of at most n runes. A control character would make the API server drop the warning.
func clip(s string, n int) string {
	s = strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || r == unicode.ReplacementChar {
			return ' '
		}
		return r
	}, s)
	runes := []rune(s)
	if len(runes) <= n {
		return s
	}
	return string(runes[:max(n-1, 0)]) + "…"
}

// All lists every rule in the order of the families and their numbers.
func All() []Rule {
	return slices.Concat(requestRules(), disruptRules(), budgetRules(), scheduleRules(), nodePoolRules(), nodeClassRules(), claimRules(), guardRules())
}

// Registry finds rules by id and by kind of object. It is made once and read by all.
type Registry struct {
	all    []Rule
	byID   map[string]*Rule
	byKind map[Kind][]*Rule
}

// NewRegistry indexes all rules.
func NewRegistry() *Registry {
	r := &Registry{all: All(), byID: map[string]*Rule{}, byKind: map[Kind][]*Rule{}}
	for i := range r.all {
		rule := &r.all[i]
		r.byID[rule.ID] = rule
		for _, k := range rule.Kinds {
			r.byKind[k] = append(r.byKind[k], rule)
		}
	}
	return r
}

// Rule finds a rule by its id, nil if there is none.
func (r *Registry) Rule(id string) *Rule { return r.byID[id] }

// Of lists the rules about a kind of object.
func (r *Registry) Of(k Kind) []*Rule { return r.byKind[k] }

// Check evaluates the rules of the subject's kind that keep lets through. Findings carry their rule's id.
func (r *Registry) Check(s *Subject, f *Facts, keep func(*Rule) bool) []Finding {
	var out []Finding
	for _, rule := range r.byKind[s.Kind] {
		if rule.Check == nil || !keep(rule) {
			continue
		}
		for _, found := range rule.Check(s, f) {
			found.Rule = rule.ID
			if found.Fix == "" {
				found.Fix = rule.Fix
			}
			out = append(out, found)
		}
	}
	return out
}
