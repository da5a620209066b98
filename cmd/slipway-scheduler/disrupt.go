// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	utilfeature "k8s.io/apiserver/pkg/util/feature"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/disruption"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/scheduler/simulate"
)

// moves lets disruption ask the judge whether pods would be scheduled where they are to move.
type moves struct {
	judge *simulate.Judge
	prov  *provisioner.Provisioner
}

// Refused implements disruption.Judge.
func (m moves) Refused(ctx context.Context, v *capacity.View, gone []string, r *plan.Result, pods map[types.UID]*corev1.Pod) (map[types.UID]string, error) {
	nodes, placed := m.prov.Hypotheses(v, r, provisioner.Pods{Wanting: pods})
	refusals, err := m.judge.VerifyWithout(ctx, gone, nodes, placed)
	if err != nil {
		return nil, err
	}
	known := make(map[*corev1.Pod]types.UID, len(pods))
	for uid, p := range pods {
		known[p] = uid
	}
	out := make(map[types.UID]string, len(refusals))
	for _, r := range refusals {
		out[known[r.Pod]] = fmt.Sprintf("%s/%s => %s: %s", r.Pod.Namespace, r.Pod.Name, r.Plugin, r.Reason)
	}
	return out, nil
}

// settle bounds the wait for pods that the scheduler is binding to nodes which were just tainted: bindings take milliseconds.
const settle = 2 * time.Second

// newDisruption builds what takes nodes away and connects it with the informers, which are not started yet.
func newDisruption(ctx context.Context, d dependencies, prov *provisioner.Provisioner, cloud *ec2.Client, objects cache.Cache) (*disruption.Controller, error) {
	core := d.config.InformerFactory.Core().V1()
	pods := core.Pods().Informer()
	if err := pods.AddIndexers(disruption.Indexers()); err != nil {
		return nil, fmt.Errorf("indexing pods by node: %w", err)
	}
	j, ok := prov.Judge.(*simulate.Judge)
	if !ok {
		return nil, fmt.Errorf("the provisioner's judge is a %T, which cannot judge moves", prov.Judge)
	}
	var admission disruption.Admission
	if d.options.admissionNamespace != "" {
		admission = &disruption.AdmissionLease{Live: d.live, Namespace: d.options.admissionNamespace, Clock: clock.RealClock{}}
	}
	var replacement func(*corev1.Pod) *corev1.Pod
	if d.foretold != nil {
		replacement = d.foretold.Replacement
	}
	var other disruption.Rival
	if d.rival != nil {
		other = d.rival
	}
	c := disruption.New(disruption.Options{
		Rival: other,
		Kube:  prov.Kube, Live: d.live, Pods: pods.GetIndexer(), Nodes: core.Nodes().Lister(),
		PDBs:  d.config.InformerFactory.Policy().V1().PodDisruptionBudgets().Lister(),
		Views: prov, Seats: prov, Buffers: prov, Judge: moves{j, prov}, Instances: cloud,
		Admission: admission, Replacement: replacement,
		Events: d.config.EventBroadcaster.NewRecorder("karpenter"), Clock: clock.RealClock{}, Metrics: disruption.NewMetrics(),
		Repair: utilfeature.DefaultFeatureGate.Enabled(nodeRepair), Settle: settle,
	})
	if _, err := pods.AddEventHandler(c.PodEvents()); err != nil {
		return nil, fmt.Errorf("watching Pods: %w", err)
	}
	changed := toolscache.ResourceEventHandlerFuncs{
		AddFunc: func(any) { c.Changed() }, UpdateFunc: func(_, _ any) { c.Changed() }, DeleteFunc: func(any) { c.Changed() },
	}
	if _, err := core.Nodes().Informer().AddEventHandler(changed); err != nil {
		return nil, fmt.Errorf("watching Nodes: %w", err)
	}
	for _, o := range []client.Object{&karpv1.NodeClaim{}, &karpv1.NodePool{}} {
		informer, err := objects.GetInformer(ctx, o, cache.BlockUntilSynced(false))
		if err != nil {
			return nil, fmt.Errorf("watching %T: %w", o, err)
		}
		if _, err := informer.AddEventHandler(changed); err != nil {
			return nil, fmt.Errorf("watching %T: %w", o, err)
		}
	}
	for _, m := range c.Metrics.Collectors() {
		if err := register(m); err != nil {
			return nil, err
		}
	}
	return c, nil
}
