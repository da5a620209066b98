// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"fmt"
	"strings"
)

// names are how a check calls the parts of the object it looks at: of the object now, or before an update.
type names struct {
	// Object is the whole; T what pods are made from (a pod itself), A its annotations, C its containers, init ones first, and
	// Own the object's own annotations.
	Object, T, A, C, Own string
}

func now() names {
	return names{"object", "variables.t", "variables.a", "variables.c", "variables.own"}
}

func before() names {
	return names{"variables.old", "variables.ot", "variables.oa", "variables.oc", "variables.oldOwn"}
}

// check is a rule in CEL.
type check struct {
	rule string
	// bad is true for an object that breaks the rule. It never fails: absent fields are asked for first.
	bad func(n names) string
	// problem is a string in CEL that says what is wrong.
	problem string
	// strict is true where Enforce may refuse; where it is not, the finding is a warning. Empty for everywhere.
	strict string
}

const (
	disrupt = `'karpenter.sh/do-not-disrupt'`
	latency = `'slipway.sh/latency-class'`
	except  = `'slipway.sh/except'`
	// goDuration is the grammar of time.ParseDuration without a sign.
	goDuration = `'^[+]?(([0-9]+([.][0-9]*)?|[.][0-9]+)(ns|us|µs|ms|s|m|h))+$'`
	// devices matches keys of accelerators, as package rules knows them.
	devices = `'nvidia[.]com/|amd[.]com/gpu|aws[.]amazon[.]com/neuron|habana[.]ai/|/instance-gpu-|/instance-accelerator-'`
	// bare is true for pods without a controller; workload for what makes pods. Nothing else is refused.
	bare       = `(!has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller))`
	ofDaemon   = `(request.kind.kind == 'DaemonSet' || (has(object.metadata.ownerReferences) && object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller && o.kind == 'DaemonSet')))`
	refusable  = `(request.kind.kind != 'Pod' || ` + bare + `)`
	isResize   = `(has(request.subResource) && request.subResource == 'resize')`
	isCreation = `request.operation == 'CREATE'`
)

// of is a check that reads the object by its names.
func of(format string) func(names) string {
	return func(n names) string {
		return strings.NewReplacer("$O", n.Object, "$T", n.T, "$A", n.A, "$C", n.C, "$W", n.Own).Replace(format)
	}
}

// sets is true for a container with the resource in a list (requests or limits).
func sets(list, resource string) string {
	return fmt.Sprintf(`(has(c.resources) && has(c.resources.%s) && '%s' in c.resources.%s)`, list, resource, list)
}

func amount(list, resource string) string {
	return fmt.Sprintf(`quantity(string(c.resources.%s['%s']))`, list, resource)
}

func ratio(resource, variable string) string {
	return sets("limits", resource) + " && " + sets("requests", resource) + " && " + amount("requests", resource) + ".isGreaterThan(quantity('0')) && " +
		amount("limits", resource) + ".asApproximateFloat() > " + amount("requests", resource) + ".asApproximateFloat() * variables." + variable
}

func below(resource, variable string) string {
	return sets("requests", resource) + " && " + amount("requests", resource) + ".isLessThan(variables." + variable + ")"
}

// podless is true if the pod as a whole sets nothing of the resource.
func podless(resource string) string {
	return fmt.Sprintf(`!(has($T.spec.resources) && ((has($T.spec.resources.requests) && '%s' in $T.spec.resources.requests) || (has($T.spec.resources.limits) && '%s' in $T.spec.resources.limits)))`, resource, resource)
}

// unasked is true for a container that has to ask for the resource and does not. A limit is a request, except in a template
// of a DaemonSet, which others than the API server read.
func unasked(resource string) string {
	return podless(resource) + ` && $C.exists(c, !(c.name in variables.plainInit) && !` + sets("requests", resource) +
		` && (request.kind.kind == 'DaemonSet' || !` + sets("limits", resource) + `))`
}

func podChecks() []check {
	floor := of(`$C.exists(c, (` + below("cpu", "floorCPU") + `) || (` + below("memory", "floorMemory") + `))`)
	return []check{
		{
			rule:    "R003",
			bad:     of(`has($T.spec.volumes) && $T.spec.volumes.exists(v, has(v.emptyDir) && !has(v.emptyDir.sizeLimit) && !(has(v.emptyDir.medium) && v.emptyDir.medium == 'Memory')) && ` + podless("ephemeral-storage") + ` && !$C.exists(c, ` + sets("requests", "ephemeral-storage") + " || " + sets("limits", "ephemeral-storage") + ")"),
			problem: `'spec.volumes: emptyDir has no sizeLimit and no container requests ephemeral-storage'`,
		},
		{
			rule:    "R004",
			bad:     of(`$C.exists(c, ` + sets("requests", "memory") + ` && (!` + sets("limits", "memory") + ` || ` + amount("limits", "memory") + `.compareTo(` + amount("requests", "memory") + `) != 0))`),
			problem: `'spec.containers: memory request and limit differ'`,
		},
		{
			rule:    "R005",
			bad:     of(`$C.exists(c, (` + ratio("cpu", "ratioCPU") + `) || (` + ratio("memory", "ratioMemory") + `))`),
			problem: `'spec.containers: a limit is more than ' + string(variables.ratioCPU) + ' times (CPU) or ' + string(variables.ratioMemory) + ' times (memory) its request'`,
		},
		{rule: "R007", bad: of(`!` + isResize + ` && ` + floor(names{C: "$C"})), problem: `'spec.containers: a request is below the floor'`},
		{
			rule: "R008",
			bad: of(`!` + ofDaemon + ` && !has($T.spec.resourceClaims) && ((has($T.spec.tolerations) && $T.spec.tolerations.exists(t, has(t.key) && t.key.find(` + devices + `) != '')) || ` +
				`(has($T.spec.nodeSelector) && $T.spec.nodeSelector.exists(k, k.find(` + devices + `) != ''))) && ` +
				`!$C.exists(c, has(c.resources) && ((has(c.resources.requests) && c.resources.requests.exists(k, k.find(` + devices + `) != '')) || (has(c.resources.limits) && c.resources.limits.exists(k, k.find(` + devices + `) != ''))))`),
			problem: `'spec: tolerates or selects accelerator nodes, but no container asks for an accelerator'`,
		},
		{rule: "R009", bad: of(isResize + ` && ` + floor(names{C: "$C"})), problem: `'spec.containers: resize to a request below the floor'`},
		{rule: "R010", bad: of(`request.kind.kind != 'Pod' && ((` + unasked("cpu") + `) || (` + unasked("memory") + `))`), problem: `'a container has no cpu or memory request'`},
		{
			rule:    "D001",
			bad:     of(disrupt + ` in $A && !($A[` + disrupt + `] in ['true', 'false', '']) && !($A[` + disrupt + `].matches(` + goDuration + `) && $A[` + disrupt + `].matches('[1-9]'))`),
			problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: "' + variables.a[` + disrupt + `] + '" is not "true" or a duration such as 4h; it would be ignored'`,
			strict:  refusable,
		},
		{
			rule: "D002", bad: of(`'karpenter.sh/do-not-evict' in $A || 'karpenter.sh/do-not-consolidate' in $A`),
			problem: `'metadata.annotations: karpenter.sh/do-not-evict and do-not-consolidate are no longer read'`,
		},
		{
			rule: "D003", bad: of(disrupt + ` in $A && $A[` + disrupt + `] == 'true' && !(request.kind.kind == 'Pod' && ` + bare + `)`),
			problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: "true" never ends'`, strict: refusable,
		},
		{
			rule: "D004", bad: of(disrupt + ` in $A && $A[` + disrupt + `].matches(` + goDuration + `) && duration($A[` + disrupt + `]) > variables.maxProtection`),
			problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: ' + variables.a[` + disrupt + `] + ' is longer than the maximum ' + string(variables.maxProtection)`,
			strict:  refusable,
		},
		{
			rule: "D005", bad: of(disrupt + ` in $A && $A[` + disrupt + `] != 'false' && (request.kind.kind != 'Pod' || ` + bare + `) && !authorizer.group('slipway.sh').resource('disruptions').namespace(request.namespace).check('protect').allowed()`),
			problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: you may not protect pods in this namespace'`,
		},
		{
			rule: "D006", bad: of(`request.kind.kind == 'Pod' && ` + bare + ` && ` + disrupt + ` in $A && $A[` + disrupt + `] == 'true'`),
			problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: a pod without a controller holds its node for good'`,
		},
		{
			rule: "S002", bad: of(`request.kind.kind == 'Pod' && ` + isCreation + ` && !` + ofDaemon + ` && ` + setting("schedulerName") + ` != '' && $T.spec.schedulerName != ` + setting("schedulerName") + ` && !(has($O.metadata.labels) && 'slipway.sh/scheduler' in $O.metadata.labels && $O.metadata.labels['slipway.sh/scheduler'] == 'default')`),
			problem: `'spec.schedulerName: is "' + variables.t.spec.schedulerName + '" in a namespace managed by Slipway'`,
		},
		{
			rule: "S003", bad: of(latency + ` in $A && ` + setting("latencyClasses") + ` != '' && !` + setting("latencyClasses") + `.contains(',' + $A[` + latency + `] + ',')`),
			problem: `'metadata.annotations[slipway.sh/latency-class]: "' + variables.a[` + latency + `] + '" is not one of ' + ` + setting("latencyClasses") + `.replace(',,', ', ').replace(',', ' ').trim()`,
			strict:  refusable,
		},
		{
			rule: "S007", bad: of(isCreation + ` && !` + ofDaemon + ` && has($T.spec.nodeName) && $T.spec.nodeName != ''`),
			problem: `'spec.nodeName: is set, so no scheduler sees the pod'`,
		},
		{
			rule: "S009", bad: of(`!` + ofDaemon + ` && has($T.spec.tolerations) && $T.spec.tolerations.exists(t, (!has(t.effect) || t.effect in ['', 'NoSchedule']) && ((has(t.key) && t.key == 'karpenter.sh/disrupted') || ((!has(t.key) || t.key == '') && has(t.operator) && t.operator == 'Exists')))`),
			problem: `'spec.tolerations: tolerates karpenter.sh/disrupted, so draining a node does not move the pod'`,
		},
		{
			rule: "G002", bad: of(`[$A, $W].exists(m, ` + except + ` in m && !m[` + except + `].split(',').all(e, e.trim() == '' || e.trim().matches(` + exception() + `)))`),
			problem: `'metadata.annotations[slipway.sh/except]: is not RULE=reason;until=YYYY-MM-DD'`,
			strict:  refusable,
		},
	}
}

func budgetChecks() []check {
	return []check{
		{
			rule: "B001", bad: of(`has($O.spec) && ((has($O.spec.maxUnavailable) && string($O.spec.maxUnavailable) in ['0', '0%']) || (has($O.spec.minAvailable) && string($O.spec.minAvailable) == '100%'))`),
			problem: `'spec: never allows an eviction'`,
		},
		{
			rule: "B005", bad: of(`!has($O.spec) || !has($O.spec.unhealthyPodEvictionPolicy) || $O.spec.unhealthyPodEvictionPolicy != 'AlwaysAllow'`),
			problem: `'spec.unhealthyPodEvictionPolicy: is not AlwaysAllow'`,
		},
	}
}

// known are the values of requirements that exist, whatever is sold.
const known = `{'kubernetes.io/os': ['linux', 'windows'], 'kubernetes.io/arch': ['amd64', 'arm64'], 'karpenter.sh/capacity-type': ['on-demand', 'reserved', 'spot']}`

func poolChecks() []check {
	strange := func(n names, some string) string {
		return of(`has($O.spec.template.spec.requirements) && $O.spec.template.spec.requirements.exists(r, r.operator == 'In' && has(r.values) && r.key in ` + known + ` && ` + some + `)`)(n)
	}
	missing := func(key string) string {
		return `(!$O.spec.template.spec.requirements.exists(r, r.key == '` + key + `') && !(has($O.spec.template.metadata) && has($O.spec.template.metadata.labels) && '` + key + `' in $O.spec.template.metadata.labels))`
	}
	spec := `$O.spec.template.spec`
	return []check{
		{
			rule: "N004", bad: func(n names) string { return strange(n, `r.values.exists(v, !(v in `+known+`[r.key]))`) },
			problem: `'spec.template.spec.requirements: an unknown operating system, architecture or capacity type'`,
			strict:  strange(now(), `r.values.all(v, !(v in `+known+`[r.key]))`),
		},
		{rule: "N006", bad: of(`!has($O.spec.replicas) && (!has($O.spec.limits) || size($O.spec.limits) == 0)`), problem: `'spec.limits: no limits: a mistake in a workload can buy any number of nodes'`},
		{
			rule: "N008", bad: of(`has(` + spec + `.expireAfter) && ` + spec + `.expireAfter != 'Never' && !has(` + spec + `.terminationGracePeriod)`),
			problem: `'spec.template.spec: expireAfter ' + object.spec.template.spec.expireAfter + ' without terminationGracePeriod: one protected pod keeps an expired node for ever'`,
		},
		{
			rule: "N009", bad: of(`has(` + spec + `.requirements) && (` + missing("kubernetes.io/os") + " || " + missing("kubernetes.io/arch") + " || " + missing("karpenter.sh/capacity-type") + `)`),
			problem: `'spec.template.spec.requirements: nothing on operating system, architecture or capacity type: all that fit are bought, by price'`,
		},
		{
			rule: "N010", bad: of(`has($O.spec.disruption) && has($O.spec.disruption.consolidateAfter) && $O.spec.disruption.consolidateAfter == '0s' && !(has($O.spec.disruption.consolidationPolicy) && $O.spec.disruption.consolidationPolicy == 'WhenEmpty')`),
			problem: `'spec.disruption.consolidateAfter: 0s consolidates with every change'`,
		},
		{
			rule: "N013", bad: of(`(has(` + spec + `.taints) && ` + spec + `.taints.exists(t, ` + spec + `.taints.filter(u, u.key == t.key && u.effect == t.effect).size() > 1)) || (has(` + spec + `.startupTaints) && ` + spec + `.startupTaints.exists(t, ` + spec + `.startupTaints.filter(u, u.key == t.key && u.effect == t.effect).size() > 1))`),
			problem: `'spec.template.spec.taints: a key and effect are there twice'`,
		},
		{
			rule: "N014", bad: of(`has($O.spec.limits) && has($O.status) && has($O.status.resources) && $O.spec.limits.exists(k, k in $O.status.resources && quantity(string($O.status.resources[k])).isGreaterThan(quantity(string($O.spec.limits[k]))))`),
			problem: `'spec.limits: below what the nodes of the pool have'`,
		},
	}
}

// protectedNodes is D008, which is about objects of three kinds.
func protectedNodes() []check {
	return []check{{
		rule: "D008", bad: of(disrupt + ` in $A && !($A[` + disrupt + `] in ['true', 'false'])`),
		problem: `'metadata.annotations[karpenter.sh/do-not-disrupt]: "' + variables.a[` + disrupt + `] + '" is ignored on a node, only "true" counts'`,
	}}
}

func classChecks() []check {
	mixed := func(list, others string) string {
		return `(has($O.spec.` + list + `) && $O.spec.` + list + `.exists(t, has(t.id) && t.id != '' && (` + others + `)))`
	}
	meta := `$O.spec.metadataOptions`
	return []check{
		{
			rule: "C001", bad: of(strings.Join([]string{
				mixed("subnetSelectorTerms", "has(t.tags)"), mixed("securityGroupSelectorTerms", "has(t.tags) || has(t.name)"),
				mixed("capacityReservationSelectorTerms", "has(t.tags) || has(t.ownerID)"), mixed("amiSelectorTerms", "has(t.tags) || has(t.name) || has(t.owner) || has(t.alias)"),
			}, " || ")),
			problem: `'spec: a selector term mixes id with other selectors'`,
		},
		{
			rule: "C002", bad: of(`has($O.spec.amiSelectorTerms) && $O.spec.amiSelectorTerms.exists(t, has(t.alias) && t.alias.endsWith('@latest'))`),
			problem: `'spec.amiSelectorTerms: an alias @latest follows every new image'`,
		},
		{
			rule: "C007", bad: of(`has(` + meta + `) && ((has(` + meta + `.httpTokens) && ` + meta + `.httpTokens != 'required') || (has(` + meta + `.httpPutResponseHopLimit) && ` + meta + `.httpPutResponseHopLimit > 1))`),
			problem: `'spec.metadataOptions: lets pods take the credentials of the node'`,
		},
	}
}

func claimChecks() []check {
	return []check{{
		rule: "K002", bad: of(`!request.userInfo.username.startsWith('system:serviceaccount:') && !request.userInfo.username.startsWith('system:kube-')`),
		problem: `'NodeClaims are written by controllers; this buys or changes an instance'`,
	}}
}

func policyChecks() []check {
	return []check{{
		rule: "G001", bad: of(`!authorizer.group('slipway.sh').resource('workloadpolicies').check('administer').allowed()`),
		problem: `'you may not change policies'`,
	}}
}
