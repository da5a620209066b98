// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package native

import "strings"

// podCondition is the one condition under which pods and workloads are looked at. The API server evaluates all conditions of a
// policy, each for itself, so there is one.
func podCondition() string {
	return strings.Join([]string{
		`(!has(object.metadata.annotations) || !('kubernetes.io/config.mirror' in object.metadata.annotations))`,
		// What a workload of ours or of others makes has been looked at there.
		`(request.kind.kind == 'Pod' || !has(object.metadata.ownerReferences) || !object.metadata.ownerReferences.exists(o, has(o.controller) && o.controller))`,
		// Of a pod that exists only its annotations and its size can change.
		`(request.kind.kind != 'Pod' || ` + isCreation + ` || ` + isResize + ` || (has(object.metadata.annotations) && (!has(oldObject.metadata.annotations) || object.metadata.annotations != oldObject.metadata.annotations)))`,
		`(request.kind.kind != 'Pod' || ` + isResize + ` || !(` + isKnown + `) || ` + suspect() + `)`,
	}, " && ")
}

// suspect is true for every pod that a rule of podChecks may be about, under any policy, and false for most pods that are in
// order: it is evaluated for each of them, once a mode, while validations, messages and variables are not. Its parts are
// the checks without what takes time.
func suspect() string {
	on := func(rule string) string {
		var some []string
		for _, letter := range []string{"a", "e", "w"} {
			some = append(some, `params.data['bounds'].contains('`+rule+letter+`')`)
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
		// S002, S007.
		`(params.data['schedulerNames'] != '' && has(object.spec.schedulerName) && params.data['schedulerNames'] != object.spec.schedulerName && ` + on("S002") + `)`,
		`(has(object.spec.nodeName) && object.spec.nodeName != '')`,
		// R008, S009.
		`(has(object.spec.tolerations) && object.spec.tolerations.exists(t, !has(t.key) || t.key == '' || t.key == 'karpenter.sh/disrupted' || t.key.find(` + devices + `) != ''))`,
		`(has(object.spec.nodeSelector) && object.spec.nodeSelector.exists(k, k.find(` + devices + `) != ''))`,
		// R003.
		`(has(object.spec.volumes) && object.spec.volumes.exists(v, has(v.emptyDir) && !has(v.emptyDir.sizeLimit)))`,
		// R004, R005, R007.
		`object.spec.containers.exists(c, ` + inBounds(least, most) + `)`,
		`(has(object.spec.initContainers) && object.spec.initContainers.exists(c, ` + inBounds(least, most) + `))`,
		`(` + on("R004") + ` && (object.spec.containers.exists(c, ` + differ + `) || (has(object.spec.initContainers) && object.spec.initContainers.exists(c, ` + differ + `))))`,
	}, " || ") + ")"
}

// inBounds is true for a container c that breaks a bound.
func inBounds(least, most func(resource, key string) string) string {
	return `has(c.resources) && (` + strings.Join([]string{
		least("cpu", "floorCPU"), least("memory", "floorMemory"), most("cpu", "ratioCPU"), most("memory", "ratioMemory"),
	}, " || ") + `)`
}
