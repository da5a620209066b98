// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import (
	"strings"

	admission "k8s.io/api/admissionregistration/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// podCondition is the one condition under which the policy of a mode looks at pods and workloads. The API server evaluates all
// conditions of a policy, each for itself, so there is one.
func podCondition(mode v1alpha1.RuleMode) []admission.MatchCondition {
	return []admission.MatchCondition{{Name: "something-to-find", Expression: strings.Join([]string{
		`(!has(object.metadata.annotations) || !('kubernetes.io/config.mirror' in object.metadata.annotations))`,
		// What a workload of ours or of others makes has been looked at there.
		`(request.kind.kind == 'Pod' || !has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller))`,
		// Of a pod that exists only its annotations and its size can change.
		`(request.kind.kind != 'Pod' || ` + isCreation + ` || ` + isResize + ` || (has(object.metadata.annotations) && (!has(oldObject.metadata.annotations) || object.metadata.annotations != oldObject.metadata.annotations)))`,
		`(request.kind.kind != 'Pod' || ` + isResize + ` || !(` + isKnown + `) || ` + suspect(mode) + `)`,
	}, " && ")}}
}

// suspect is true for every pod of which the policy of the mode may have something to say, under any WorkloadPolicy, and false for
// most pods that are in order: it is evaluated for each of them, while validations, messages and variables are not. Its parts
// are the checks without what takes time, and a part whose rules have the mode nowhere is not evaluated. An excepted finding is
// noted whatever its mode, so the policy that notes looks at every pod with annotations of ours.
func suspect(mode v1alpha1.RuleMode) string {
	on := func(some ...string) string {
		for i, rule := range some {
			some[i] = `params.data['on.` + string(mode) + `'].contains('` + rule + `')`
		}
		return "(" + strings.Join(some, " || ") + ")"
	}
	bound := func(key string) string { return `quantity(params.data['` + key + `'])` }
	least := func(resource, key string) string {
		return "(" + sets("requests", resource) + " && " + amount("requests", resource) + ".isLessThan(" + bound(key) + "))"
	}
	most := func(resource, key string) string {
		return "(" + sets("limits", resource) + " && " + sets("requests", resource) + " && " + amount("limits", resource) + ".asApproximateFloat() > " +
			amount("requests", resource) + ".asApproximateFloat() * " + bound(key) + ".asApproximateFloat())"
	}
	differ := sets("requests", "memory") + " && (!" + sets("limits", "memory") + " || " + amount("limits", "memory") + ".compareTo(" + amount("requests", "memory") + ") != 0)"
	return "(" + strings.Join([]string{
		// D001 to D006, S003, G002.
		`(has(object.metadata.annotations) && object.metadata.annotations.exists(k, k in [` + disrupt + `, 'karpenter.sh/do-not-evict', 'karpenter.sh/do-not-consolidate', ` + latency + `, ` + except + `]))`,
		`(` + on("S002") + ` && params.data['schedulerNames'] != '' && has(object.spec.schedulerName) && params.data['schedulerNames'] != object.spec.schedulerName)`,
		`(` + on("S007") + ` && has(object.spec.nodeName) && object.spec.nodeName != '')`,
		`(` + on("R008", "S009") + ` && has(object.spec.tolerations) && object.spec.tolerations.exists(t, !has(t.key) || t.key == '' || t.key == 'karpenter.sh/disrupted' || t.key.find(` + devices + `) != ''))`,
		`(` + on("R008") + ` && has(object.spec.nodeSelector) && object.spec.nodeSelector.exists(k, k.find(` + devices + `) != ''))`,
		`(` + on("R003") + ` && has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.emptyDir) && !has(v.emptyDir.sizeLimit)))`,
		`(` + on("R005", "R007") + ` && (object.spec.containers.exists(c, ` + inBounds(least, most) + `) || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, ` + inBounds(least, most) + `))))`,
		`(` + on("R004") + ` && (object.spec.containers.exists(c, ` + differ + `) || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, ` + differ + `))))`,
	}, " || ") + ")"
}

// inBounds is true for a container c that breaks a bound.
func inBounds(least, most func(resource, key string) string) string {
	return `has(c.resources) && (` + strings.Join([]string{
		least("cpu", "floorCPU"), least("memory", "floorMemory"), most("cpu", "ratioCPU"), most("memory", "ratioMemory"),
	}, " || ") + `)`
}
