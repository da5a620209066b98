// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"testing"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	featuregatetesting "k8s.io/component-base/featuregate/testing"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/features"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/backend/cache"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"
)

// filters are the in-tree plugins whose rules the planner has to know.
func filters() []schedulerapi.Plugin {
	var out []schedulerapi.Plugin
	for _, name := range []string{
		names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
		names.PodTopologySpread, names.InterPodAffinity,
	} {
		out = append(out, schedulerapi.Plugin{Name: name})
	}
	return out
}

// stock is kube-scheduler as far as it decides where a pod fits.
type stock struct {
	framework framework.Framework
	snapshot  *swap
}

// swap is a shared lister whose snapshot can be replaced under a running framework.
type swap struct{ fwk.SharedLister }

func newStock(t testing.TB, namespaces ...*corev1.Namespace) *stock {
	t.Helper()
	metrics.Register()
	// The planner knows Lt and Gt, which are off by default: while they are, the API server lets no such toleration in.
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.TaintTolerationComparisonOperators, true)
	in := informers.NewSharedInformerFactory(fake.NewClientset(), 0)
	for _, ns := range namespaces {
		if err := in.Core().V1().Namespaces().Informer().GetIndexer().Add(ns); err != nil {
			t.Fatal(err)
		}
	}
	s := &stock{snapshot: &swap{cache.NewEmptySnapshot()}}
	registry := plugins.NewInTreeRegistry()
	standard, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	fw, err := frameworkruntime.NewFramework(quiet(t.Context()), registry, &schedulerapi.KubeSchedulerProfile{
		SchedulerName: "fidelity",
		Plugins: &schedulerapi.Plugins{
			QueueSort: schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.PrioritySort}}},
			Bind:      schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.DefaultBinder}}},
			PreFilter: schedulerapi.PluginSet{Enabled: filters()[3:]},
			Filter:    schedulerapi.PluginSet{Enabled: filters()},
		},
		PluginConfig: standard.Profiles[0].PluginConfig,
	}, frameworkruntime.WithInformerFactory(in), frameworkruntime.WithClientSet(fake.NewClientset()), frameworkruntime.WithSnapshotSharedLister(s.snapshot))
	if err != nil {
		t.Fatal(err)
	}
	s.framework = fw
	return s
}

// quiet keeps plugins from reporting every generated value they cannot parse.
func quiet(ctx context.Context) context.Context { return klog.NewContext(ctx, logr.Discard()) }

// fits returns, for each node, "" if the pod fits beside the pods that are bound, else the plugin that refuses it.
func (s *stock) fits(ctx context.Context, pod *corev1.Pod, nodes []*corev1.Node, bound []*corev1.Pod) map[string]string {
	ctx = quiet(ctx)
	snapshot := cache.NewSnapshot(bound, nodes)
	s.snapshot.SharedLister = snapshot
	state := framework.NewCycleState()
	out := make(map[string]string, len(nodes))
	result, status, _ := s.framework.RunPreFilterPlugins(ctx, state, pod)
	for _, n := range nodes {
		switch {
		case !status.IsSuccess():
			out[n.Name] = status.Plugin()
		case !result.AllNodes() && !result.NodeNames.Has(n.Name):
			out[n.Name] = "PreFilter"
		default:
			info, err := snapshot.NodeInfos().Get(n.Name)
			if err != nil {
				out[n.Name] = err.Error()
				continue
			}
			if st := s.framework.RunFilterPlugins(ctx, state, pod, info); !st.IsSuccess() {
				out[n.Name] = st.Plugin()
			} else {
				out[n.Name] = ""
			}
		}
	}
	return out
}
