// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"strings"

	admission "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// group is the rules about some resources.
type group struct {
	name  string
	about string
	// resources are what the policies match; namespaced groups look at managed namespaces only.
	resources  []admission.NamedRuleWithOperations
	namespaced bool
	match      func(v1alpha1.RuleMode) []admission.MatchCondition
	variables  []admission.Variable
	checks     []check
}

func ruleFor(apiGroup, version string, operations []admission.OperationType, resources ...string) admission.NamedRuleWithOperations {
	scope := admission.AllScopes
	return admission.NamedRuleWithOperations{RuleWithOperations: admission.RuleWithOperations{
		Operations: operations, Rule: admission.Rule{APIGroups: []string{apiGroup}, APIVersions: []string{version}, Resources: resources, Scope: &scope},
	}}
}

func written() []admission.OperationType {
	return []admission.OperationType{admission.Create, admission.Update}
}

func variable(name, expression string) admission.Variable {
	return admission.Variable{Name: name, Expression: expression}
}

func podVariables() []admission.Variable {
	template := func(o string) string {
		return fmt.Sprintf(`request.kind.kind == 'Pod' ? %[1]s : (request.kind.kind == 'CronJob' ? %[1]s.spec.jobTemplate.spec.template : %[1]s.spec.template)`, o)
	}
	annotations := func(t string) string {
		return fmt.Sprintf(`has(%[1]s.metadata) && has(%[1]s.metadata.annotations) ? %[1]s.metadata.annotations : {}`, t)
	}
	containers := func(t string) string {
		return fmt.Sprintf(`(has(%[1]s.spec.initContainers) ? %[1]s.spec.initContainers : []) + %[1]s.spec.containers`, t)
	}
	return []admission.Variable{
		variable("t", template("object")),
		variable("a", annotations("variables.t")),
		variable("c", containers("variables.t")),
		variable("own", annotations("object")),
		variable("old", `oldObject == null ? object : oldObject`),
		variable("ot", template("variables.old")),
		variable("oa", annotations("variables.ot")),
		variable("oc", containers("variables.ot")),
		variable("oldOwn", annotations("variables.old")),
		variable("plainInit", `has(variables.t.spec.initContainers) ? variables.t.spec.initContainers.filter(c, !(has(c.restartPolicy) && c.restartPolicy == 'Always')).map(c, c.name) : []`),
		variable("floorCPU", `quantity(`+setting("floorCPU")+`)`),
		variable("floorMemory", `quantity(`+setting("floorMemory")+`)`),
		variable("ratioCPU", `quantity(`+setting("ratioCPU")+`).asApproximateFloat()`),
		variable("ratioMemory", `quantity(`+setting("ratioMemory")+`).asApproximateFloat()`),
		variable("maxProtection", `duration(`+setting("maxProtection")+`)`),
	}
}

// plainVariables are those of groups whose rules look at the object itself.
func plainVariables(annotations string) []admission.Variable {
	of := func(o string) string {
		path := strings.ReplaceAll(annotations, "$", o)
		parent := path[:strings.LastIndexByte(path, '.')]
		return fmt.Sprintf(`has(%s) && has(%s) ? %s : {}`, parent, path, path)
	}
	return []admission.Variable{
		variable("a", of("object")),
		variable("own", `has(object.metadata.annotations) ? object.metadata.annotations : {}`),
		variable("old", `oldObject == null ? object : oldObject`),
		variable("oa", of("variables.old")),
	}
}

func groups() []group {
	pool := ruleFor("karpenter.sh", "v1", written(), "nodepools")
	return []group{
		{
			name: "pods", about: "what pods and workloads ask for", namespaced: true, variables: podVariables(), checks: podChecks(),
			resources: []admission.NamedRuleWithOperations{
				ruleFor("", "v1", written(), "pods"), ruleFor("", "v1", []admission.OperationType{admission.Update}, "pods/resize"),
				ruleFor("apps", "v1", written(), "deployments", "replicasets", "statefulsets", "daemonsets"), ruleFor("batch", "v1", written(), "jobs", "cronjobs"),
			},
			match: podCondition,
		},
		{
			name: "budgets", about: "PodDisruptionBudgets", namespaced: true, variables: plainVariables("$.metadata.annotations"), checks: budgetChecks(),
			resources: []admission.NamedRuleWithOperations{ruleFor("policy", "v1", written(), "poddisruptionbudgets")},
		},
		{
			name: "nodepools", about: "NodePools", variables: plainVariables("$.metadata.annotations"), checks: poolChecks(),
			resources: []admission.NamedRuleWithOperations{pool},
		},
		{
			name: "pool-templates", about: "protection in NodePool templates", variables: plainVariables("$.spec.template.metadata.annotations"), checks: protectedNodes(),
			resources: []admission.NamedRuleWithOperations{pool},
		},
		{
			name: "protected-nodes", about: "protection on nodes and NodeClaims", variables: plainVariables("$.metadata.annotations"), checks: protectedNodes(),
			resources: []admission.NamedRuleWithOperations{ruleFor("karpenter.sh", "v1", written(), "nodeclaims"), ruleFor("", "v1", []admission.OperationType{admission.Update}, "nodes")},
			// A node is updated often; its annotations seldom.
			match: func(v1alpha1.RuleMode) []admission.MatchCondition {
				return []admission.MatchCondition{{Name: "annotations", Expression: `has(object.metadata.annotations) && ` + disrupt + ` in object.metadata.annotations && (oldObject == null || !has(oldObject.metadata.annotations) || object.metadata.annotations != oldObject.metadata.annotations)`}}
			},
		},
		{
			name: "nodeclasses", about: "EC2NodeClasses", variables: plainVariables("$.metadata.annotations"), checks: classChecks(),
			resources: []admission.NamedRuleWithOperations{ruleFor("karpenter.k8s.aws", "v1", written(), "ec2nodeclasses")},
		},
		{
			name: "nodeclaims", about: "NodeClaims written by hand", variables: plainVariables("$.metadata.annotations"), checks: claimChecks(),
			resources: []admission.NamedRuleWithOperations{ruleFor("karpenter.sh", "v1", written(), "nodeclaims")},
		},
		{
			name: "policies", about: "WorkloadPolicies", variables: plainVariables("$.metadata.annotations"), checks: policyChecks(),
			resources: []admission.NamedRuleWithOperations{ruleFor(v1alpha1.Group, "v1alpha1", []admission.OperationType{admission.Create, admission.Update, admission.Delete}, "workloadpolicies")},
		},
	}
}

// managed selects the namespaces that are looked at.
func managed() *metav1.LabelSelector {
	return &metav1.LabelSelector{
		MatchLabels: map[string]string{v1alpha1.ManagedLabel: "true"},
		MatchExpressions: []metav1.LabelSelectorRequirement{
			{Key: "kubernetes.io/metadata.name", Operator: metav1.LabelSelectorOpNotIn, Values: rules.SystemNamespaces()},
			{Key: v1alpha1.AdmissionLabel, Operator: metav1.LabelSelectorOpNotIn, Values: []string{"off"}},
		},
	}
}

// notOurs leaves Slipway's own objects alone.
func notOurs() *metav1.LabelSelector {
	return &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{{Key: v1alpha1.ComponentLabel, Operator: metav1.LabelSelectorOpDoesNotExist}}}
}
