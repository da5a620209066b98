// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/klog/v2"
	schedulerapi "k8s.io/kubernetes/pkg/scheduler/apis/config"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	frameworkruntime "k8s.io/kubernetes/pkg/scheduler/framework/runtime"

	"github.com/slipway-sh/slipway/provisioner/hypothesis"
)

// ErrNotSynced is the kind of error for a judge that has not seen the cluster yet.
var ErrNotSynced = errors.New("cluster state is not synced")

// Options are one profile of a Judge.
type Options struct {
	// Profile is the live profile with its defaults, for the plugins' arguments:
	// ComponentConfig.Profiles of the completed scheduler configuration.
	Profile schedulerapi.KubeSchedulerProfile
	// Live is the running framework of the same profile. It tells which plugins
	// run, in which order, and lends its client, informers and the managers that
	// can exist once a process only.
	Live framework.Framework
	// Registry has the factories of out-of-tree plugins, if there are any.
	Registry frameworkruntime.Registry
}

// Judge verifies plans. It is safe for concurrent use; verifications run one at a
// time.
type Judge struct {
	profiles map[string]filters // by scheduler name
	fallback filters            // for pods of other schedulers
	cluster  *cluster
	features []string

	mu      sync.Mutex
	overlay *overlay
	csi     *csiNodes
}

// filters are the plugins that pods of one scheduler name are judged by. Volumes that planned pods take are known within a
// profile: VolumeBinding keeps them in memory of its own.
type filters struct {
	framework framework.Framework
	foreign   sets.Set[string] // plugins that do not come with Kubernetes
	// incremental says that a PreFilter result can be carried on from pod to pod:
	// what all in-tree plugins support, and out-of-tree ones may not.
	incremental bool
}

// New builds a judge. Each pod is judged by the profile of its scheduler name, as it is scheduled: profiles may differ in
// filters and in their arguments. Pods of other schedulers are judged by the first one. Call it before the informers are
// started; ctx bounds the life of its background work.
func New(ctx context.Context, first Options, others ...Options) (*Judge, error) {
	cluster, err := newCluster(ctx, first.Live.SharedInformerFactory())
	if err != nil {
		return nil, err
	}
	j := &Judge{
		profiles: map[string]filters{}, cluster: cluster, overlay: &overlay{base: cluster.snapshot}, features: stockFeatures(),
		csi: newCSINodes(first.Live, cluster),
	}
	for _, o := range append([]Options{first}, others...) {
		f, err := newFramework(ctx, o, j.overlay, j.csi)
		if err != nil {
			return nil, err
		}
		plugins := o.Live.ListPlugins()
		j.profiles[o.Profile.SchedulerName] = filters{
			framework: f, foreign: outOfTree(plugins.PreFilter, plugins.Filter), incremental: outOfTree(plugins.PreFilter).Len() == 0,
		}
	}
	j.fallback = j.profiles[first.Profile.SchedulerName]
	return j, nil
}

// of is the profile the pod is judged by.
func (j *Judge) of(pod *corev1.Pod) filters {
	if p, ok := j.profiles[pod.Spec.SchedulerName]; ok {
		return p
	}
	return j.fallback
}

// HasSynced reports whether the judge has seen the cluster's nodes and pods.
func (j *Judge) HasSynced() bool { return j.cluster.hasSynced() }

// Verify places the pods of all trials one by one, PreFilter and Filter on the one
// node each is planned for, and returns those the scheduler would not have placed.
// All candidates are there from the start; rejected pods are not. A pod that only
// comes too early, because a topology rule wants others first, is tried again
// after them, as the scheduler would: a plan has no order of binding. Verify
// returns an error, and no verdict, only if a candidate has no node, ctx ends, the
// cluster is not synced or its snapshot cannot be taken.
func (j *Judge) Verify(ctx context.Context, candidates []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	return j.VerifyWithout(ctx, nil, candidates, trials)
}

// VerifyWithout is Verify on the cluster without some of its nodes and the pods on them: what would be if they were gone. A
// claim that only one pod may use counts as in use by a pod that is on them.
func (j *Judge) VerifyWithout(ctx context.Context, gone []string, candidates []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	if !j.HasSynced() {
		return nil, fmt.Errorf("verifying plan: %w", ErrNotSynced)
	}
	for i := range candidates {
		if candidates[i].Node == nil {
			return nil, fmt.Errorf("verifying plan: candidate %d of %d has no node", i, len(candidates))
		}
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	// The plugins log each rejection they find, and here rejections are answers.
	ctx = klog.NewContext(ctx, logr.Discard())
	if err := j.cluster.update(ctx); err != nil {
		return nil, fmt.Errorf("verifying plan: %w", err)
	}
	targets := j.lay(gone, candidates, trials)
	open := make([]trial, len(trials))
	for i, t := range trials {
		open[i] = trial{pod: t.Pod, name: t.Node, node: targets[t.Node]}
	}
	r := newRun(j)
	defer r.undo(ctx)
	rejected, err := r.verify(ctx, open)
	if err != nil {
		return nil, fmt.Errorf("verifying plan: %w", err)
	}
	rejections := make([]hypothesis.Refusal, 0, len(rejected))
	for _, t := range rejected {
		rejections = append(rejections, hypothesis.Refusal{Trial: hypothesis.Trial{Pod: t.pod, Node: t.name}, Plugin: t.status.Plugin(), Reason: t.status.Message()})
	}
	return rejections, nil
}

// lay puts the candidates' nodes and present pods into the overlay, with a copy of
// each node of the cluster that a trial names, and returns them by name.
func (j *Judge) lay(gone []string, candidates []hypothesis.Node, trials []hypothesis.Trial) map[string]*framework.NodeInfo {
	targets := make(map[string]*framework.NodeInfo, len(candidates))
	var added []*framework.NodeInfo
	j.csi.reset()
	for i := range candidates {
		c := &candidates[i]
		node, known := targets[c.Node.Name]
		if !known {
			if node = j.cluster.node(c.Node.Name); node == nil {
				node = framework.NewNodeInfo()
				node.SetNode(j.withFeatures(c.Node))
				added = append(added, node)
				j.csi.plan(c)
			}
			targets[c.Node.Name] = node
		}
		addPresent(node, c.Present)
	}
	for _, t := range trials {
		if _, known := targets[t.Node]; known {
			continue
		}
		if node := j.cluster.node(t.Node); node != nil {
			targets[t.Node] = node
		}
	}
	j.overlay.lay(sets.New(gone...), targets, added)
	return targets
}

// addPresent adds the pods that are not on the node yet.
func addPresent(node *framework.NodeInfo, pods []*corev1.Pod) {
	if len(pods) == 0 {
		return
	}
	there := sets.New[string]()
	for _, p := range node.GetPods() {
		there.Insert(string(p.GetPod().UID))
	}
	for _, pod := range pods {
		if pod.UID == "" || !there.Has(string(pod.UID)) {
			node.AddPod(pod)
		}
	}
}

// withFeatures completes a template that declares no features.
func (j *Judge) withFeatures(node *corev1.Node) *corev1.Node {
	if len(node.Status.DeclaredFeatures) > 0 || len(j.features) == 0 {
		return node
	}
	complete := *node
	complete.Status.DeclaredFeatures = j.features
	return &complete
}
