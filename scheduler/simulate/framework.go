// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/version"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/component-base/featuregate"
	baseversion "k8s.io/component-base/version"
	ndf "k8s.io/component-helpers/nodedeclaredfeatures"
	fwk "k8s.io/kube-scheduler/framework"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkplugins "k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// profileSuffix keeps the judge's share of the scheduler's metrics apart from the
// live profile's.
const profileSuffix = "/judge"

// newFramework builds the plugins that decide where a pod fits, and no others:
// what only scores, preempts or binds has no place in a simulation.
// QueueSort and Bind have one plugin each because a framework must have them.
// VolumeBinding also reserves, in memory of its own: volumes that one planned pod
// takes are then not there for the next.
func newFramework(ctx context.Context, o Options, lister fwk.SharedLister, csi fwk.CSIManager) (framework.Framework, error) {
	metrics.Register() // the framework observes them; the live scheduler registers the same set
	registry := frameworkplugins.NewInTreeRegistry()
	if err := registry.Merge(o.Registry); err != nil {
		return nil, fmt.Errorf("building judge for profile %q: %w", o.Profile.SchedulerName, err)
	}
	plugins := o.Live.ListPlugins()
	profile := &schedulerapi.KubeSchedulerProfile{
		SchedulerName: o.Profile.SchedulerName + profileSuffix,
		Plugins: &schedulerapi.Plugins{
			QueueSort: schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.PrioritySort}}},
			PreFilter: schedulerapi.PluginSet{Enabled: without(plugins.PreFilter.Enabled, slipway)},
			Filter:    schedulerapi.PluginSet{Enabled: without(plugins.Filter.Enabled, slipway)},
			Reserve:   schedulerapi.PluginSet{Enabled: only(plugins.Reserve.Enabled, names.VolumeBinding)},
			Bind:      schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.DefaultBinder}}},
		},
		PluginConfig: o.Profile.PluginConfig,
	}
	f, err := frameworkruntime.NewFramework(ctx, registry, profile,
		frameworkruntime.WithKubeConfig(o.Live.KubeConfig()),
		frameworkruntime.WithClientSet(o.Live.ClientSet()),
		frameworkruntime.WithInformerFactory(o.Live.SharedInformerFactory()),
		frameworkruntime.WithSnapshotSharedLister(lister),
		frameworkruntime.WithSharedDRAManager(o.Live.SharedDRAManager()),
		frameworkruntime.WithSharedCSIManager(csi),
	)
	if err != nil {
		return nil, fmt.Errorf("building judge for profile %q: %w", o.Profile.SchedulerName, err)
	}
	return f, nil
}

// slipway is the plugin of package scheduler: it keeps pods off room that plans have taken, and plans are judged by what the
// cluster would be with them.
const slipway = "Slipway"

// without returns the plugins but for that name.
func without(enabled []schedulerapi.Plugin, name string) []schedulerapi.Plugin {
	return slices.DeleteFunc(slices.Clone(enabled), func(p schedulerapi.Plugin) bool { return p.Name == name })
}

// only returns the plugin of that name, if it is enabled.
func only(enabled []schedulerapi.Plugin, name string) []schedulerapi.Plugin {
	var out []schedulerapi.Plugin
	for _, p := range enabled {
		if p.Name == name {
			out = append(out, p)
		}
	}
	return out
}

// outOfTree returns the plugins of the sets that do not come with Kubernetes, but for Slipway's own.
func outOfTree(plugins ...schedulerapi.PluginSet) sets.Set[string] {
	registry := frameworkplugins.NewInTreeRegistry()
	found := sets.New[string]()
	for _, set := range plugins {
		for _, p := range without(set.Enabled, slipway) {
			if _, ok := registry[p.Name]; !ok {
				found.Insert(p.Name)
			}
		}
	}
	return found
}

// mayChange reports whether placing other pods can lift the rejection. Pods take
// room, ports and volumes; only topology rules may want them there. Of out-of-tree
// plugins nothing is known, and they are asked again.
func (p filters) mayChange(status *fwk.Status) bool {
	switch plugin := status.Plugin(); plugin {
	case "":
		return false
	case names.PodTopologySpread, names.InterPodAffinity:
		return true
	default:
		return p.foreign.Has(plugin)
	}
}

// stockFeatures are the features a kubelet of this version declares with its
// default feature gates and a container runtime without extras.
func stockFeatures() []string {
	v, err := version.Parse(baseversion.Get().String())
	if err != nil {
		return nil // an unversioned build: the plugin refuses to start, too
	}
	return ndf.DefaultFramework.DiscoverNodeFeatures(&ndf.NodeConfiguration{FeatureGates: gates{}, Version: v})
}

// gates reads this process's feature gates, which know the kubelet's as well.
type gates struct{}

func (gates) Enabled(name string) bool {
	gate := featuregate.Feature(name)
	if _, known := utilfeature.DefaultMutableFeatureGate.GetAll()[gate]; !known {
		return false
	}
	return utilfeature.DefaultFeatureGate.Enabled(gate)
}
