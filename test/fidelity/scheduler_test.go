// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/nodevolumelimits"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"
	"k8s.io/kubernetes/pkg/scheduler/metrics"

	"github.com/slipway-sh/slipway/test/builder"
)

// filters are the in-tree plugins whose rules the planner has to know.
func filters() []schedulerapi.Plugin {
	var out []schedulerapi.Plugin
	for _, name := range []string{
		names.NodeUnschedulable, names.NodeName, names.TaintToleration, names.NodeAffinity, names.NodePorts, names.NodeResourcesFit,
		names.PodTopologySpread, names.InterPodAffinity, names.VolumeRestrictions, names.VolumeZone, names.NodeVolumeLimits, names.VolumeBinding,
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

// newStock builds the plugins over a cluster that has the objects, apart from nodes and pods.
func newStock(t testing.TB, objects ...runtime.Object) *stock {
	t.Helper()
	ctx := quiet(t.Context())
	metrics.Register()
	// The planner knows Lt and Gt, which are off by default: while they are, the API server lets no such toleration in.
	featuregatetesting.SetFeatureGateDuringTest(t, utilfeature.DefaultFeatureGate, features.TaintTolerationComparisonOperators, true)
	client := fake.NewClientset(objects...)
	in := informers.NewSharedInformerFactory(client, 0)
	s := &stock{snapshot: &swap{cache.NewEmptySnapshot()}}
	registry := plugins.NewInTreeRegistry()
	standard, err := latest.Default()
	if err != nil {
		t.Fatal(err)
	}
	fw, err := frameworkruntime.NewFramework(ctx, registry, &schedulerapi.KubeSchedulerProfile{
		SchedulerName: "fidelity",
		Plugins: &schedulerapi.Plugins{
			QueueSort: schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.PrioritySort}}},
			Bind:      schedulerapi.PluginSet{Enabled: []schedulerapi.Plugin{{Name: names.DefaultBinder}}},
			PreFilter: schedulerapi.PluginSet{Enabled: filters()[3:]},
			Filter:    schedulerapi.PluginSet{Enabled: filters()},
		},
		PluginConfig: standard.Profiles[0].PluginConfig,
	}, frameworkruntime.WithInformerFactory(in), frameworkruntime.WithClientSet(client), frameworkruntime.WithSnapshotSharedLister(s.snapshot),
		frameworkruntime.WithSharedCSIManager(nodevolumelimits.NewCSIManager(in.Storage().V1().CSINodes().Lister())))
	if err != nil {
		t.Fatal(err)
	}
	s.framework = fw
	in.Start(ctx.Done())
	in.WaitForCacheSync(ctx.Done())
	s.settle(t, objects)
	return s
}

// settle waits until plugin VolumeBinding, which learns of claims and volumes by events, knows all of storage, if the
// objects have it.
func (s *stock) settle(t testing.TB, objects []runtime.Object) {
	t.Helper()
	if len(objects) == 0 {
		return
	}
	for _, ns := range namespaces() {
		for _, k := range claimKinds() {
			zone := "a"
			if strings.HasSuffix(k.name, "-b") || strings.HasSuffix(k.name, "-b-or-c") {
				zone = "b"
			}
			n := builder.Node("settled").Zone(zone).CPU("1").Obj()
			pod := builder.Pod("p").Namespace(ns.Name).Volume(k.name).Obj()
			for !strings.HasPrefix(k.name, "unbound") && s.fits(t.Context(), pod, []*corev1.Node{n}, nil)[n.Name] != "" {
				if t.Context().Err() != nil {
					t.Fatal(t.Context().Err())
				}
				time.Sleep(time.Millisecond)
			}
		}
	}
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
