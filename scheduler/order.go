// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"slices"
	"strconv"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
)

// ProvisionFirstAnnotation on a pod, "true" or "false", overrides the profile's
// provisionFirst. Any other value is as if it were not there.
const ProvisionFirstAnnotation = "slipway.sh/provision-first"

// ordered is a profile in which Slipway may go before preemption, pod by pod. The
// order of PostFilter plugins is the same for all pods of a profile, so the whole
// extension point is wrapped.
type ordered struct {
	framework.Framework
	plugin *Plugin
	first  bool
}

// hookOrder wraps the profiles that enable the plugin. Plugins keep the handle
// they were built with.
func hookOrder(sched *scheduler.Scheduler, core Core, profiles sets.Set[string]) {
	for name := range profiles {
		fw := sched.Profiles[name]
		sched.Profiles[name] = &ordered{Framework: fw, plugin: &Plugin{core: core, handle: fw}, first: core.Gate.provisionsFirst(name)}
	}
}

// RunPostFilterPlugins has a pod that is to provision first offered before the
// others are asked; they are only if nothing can be bought.
func (o *ordered) RunPostFilterPlugins(ctx context.Context, state fwk.CycleState, pod *corev1.Pod, nodes fwk.NodeToStatusReader) (*fwk.PostFilterResult, *fwk.Status) {
	if provisionFirst(pod, o.first) && pod.Spec.NodeName == "" && !o.plugin.waitsForVictims(pod) {
		if result, status, parked := o.plugin.postFilter(ctx, pod, nodes); parked {
			return result, status
		}
	}
	return o.Framework.RunPostFilterPlugins(ctx, state, pod, nodes)
}

func provisionFirst(pod *corev1.Pod, otherwise bool) bool {
	if first, err := strconv.ParseBool(pod.Annotations[ProvisionFirstAnnotation]); err == nil {
		return first
	}
	return otherwise
}

func (g *Gate) provisionFirst(profile string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.first == nil {
		g.first = map[string]bool{}
	}
	g.first[profile] = true
}

func (g *Gate) provisionsFirst(profile string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.first[profile]
}

// unreserved is a profile as it is without this package's own filter.
type unreserved struct{ framework.Framework }

// Unreserved returns the profile without the plugin's filter, for judging plans: whose room a node is has been taken care of
// by whoever plans.
func Unreserved(fw framework.Framework) framework.Framework { return unreserved{fw} }

// ListPlugins lists the profile's plugins without Slipway's filter.
func (u unreserved) ListPlugins() *schedulerapi.Plugins {
	plugins := u.Framework.ListPlugins().DeepCopy()
	for _, set := range []*schedulerapi.PluginSet{&plugins.PreFilter, &plugins.Filter} {
		set.Enabled = slices.DeleteFunc(set.Enabled, func(p schedulerapi.Plugin) bool { return p.Name == Name })
	}
	return plugins
}
