// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/events"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/judge"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// The cluster the judge is measured in, and the batch it judges.
const (
	judgedNodes = 1000
	podsANode   = 5
	judgedPods  = 1000
	batches     = 7
)

// judge measures what judging a batch costs, for each pod and beside everything else a batch takes: the provisioner's own
// path, from the first pod's offer to the hand-over of the last claim to the launcher, over a cluster of 1,000 nodes: batching,
// the view, classes, the plan and the claims. The API server answers at once: what writing claims and launching takes is not
// in it, nor are the scheduling cycles that lead to the offers, all of which would make the share smaller.
func (r *report) judge(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	nodes, pods := standing()
	j, err := judge.New(ctx, append(slices.Clone(nodes), pods...)...)
	if err != nil {
		return fmt.Errorf("building a judge: %w", err)
	}
	defer j.Close()
	var each, share []time.Duration
	fmt.Printf("judge: %d pods in a cluster of %d nodes with %d pods each\n", judgedPods, judgedNodes, podsANode)
	for range batches {
		j.Took, j.Trials, j.Refused = 0, 0, 0
		whole, claims, err := runBatch(ctx, j, r.maker.Catalog, append(slices.Clone(nodes), pods...))
		if err != nil {
			return err
		}
		if j.Refused > 0 || j.Trials != judgedPods {
			return fmt.Errorf("the judge saw %d pods and refused %d of them, it should accept %d", j.Trials, j.Refused, judgedPods)
		}
		fmt.Printf("  batch %8.2f ms, of which judging %8.2f ms; %d nodes\n", ms(whole), ms(j.Took), claims)
		each = append(each, j.Took/judgedPods)
		// In parts of 10^9, so that a duration can hold it.
		share = append(share, time.Duration(float64(j.Took)/float64(whole-j.Took)*float64(time.Second)))
	}
	slices.Sort(each)
	slices.Sort(share)
	r.figure("judge-pod", float64(each[batches/2])/float64(time.Microsecond), "us")
	r.figure("judge-share", share[batches/2].Seconds(), "ratio")
	return nil
}

// standing are the nodes and pods that are there already.
func standing() (nodes, pods []runtime.Object) {
	for i := range judgedNodes {
		n := builder.Node(fmt.Sprintf("old-%d", i)).CPU("16").Memory("64Gi").Zone("us-east-1" + string(rune('a'+i%3))).Obj()
		n.UID = types.UID(n.Name)
		nodes = append(nodes, n)
		for k := range podsANode {
			p := builder.Pod(fmt.Sprintf("old-%d-%d", i, k)).CPU("3").Memory("8Gi").Obj()
			p.UID, p.Spec.NodeName, p.Status.Phase = types.UID(p.Name), n.Name, corev1.PodRunning
			pods = append(pods, p)
		}
	}
	return nodes, pods
}

// arriving are pods of ten workloads without topology rules.
func arriving() []*corev1.Pod {
	var out []*corev1.Pod
	for w := range 10 {
		cpu, mem := fmt.Sprintf("%dm", 250*(1+w%4)), fmt.Sprintf("%dMi", 512*(1+w%5))
		for i := range judgedPods / 10 {
			p := builder.Pod(fmt.Sprintf("new-%d-%d", w, i)).Label("app", fmt.Sprintf("new-%d", w)).CPU(cpu).Memory(mem).Obj()
			p.UID = types.UID(p.Name)
			out = append(out, p)
		}
	}
	return out
}

// runBatch has a new provisioner plan one batch and returns how long it took and how many claims it wrote.
func runBatch(ctx context.Context, asked provisioner.Judge, cat *capacity.Catalog, objects []runtime.Object) (time.Duration, int, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	pool, class := builder.NodePool("p").UID("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj()
	cluster := source.New(append(objects, pool, class)...)
	cluster.Sell(builder.DefaultClass, cat)
	pods := arriving()
	for _, p := range pods {
		cluster.Put(p)
	}
	launched := make(launcher, judgedPods) // each group of claims is handed over as soon as it is written
	p := provisioner.New(provisioner.Options{
		Kube: interceptor.NewClient(cluster.Client, interceptor.Funcs{Create: written}), Pods: cluster.Pods(), Views: view.New(cluster.Source()), Gate: nobody{}, Nominator: nobody{}, Events: &events.FakeRecorder{},
		Launcher: launched, Judge: asked, Clock: clock.RealClock{}, Logger: logr.Discard(),
		Batch: demand.Options{MaxAge: time.Minute, MaxSize: 10 * judgedPods},
	})
	start := time.Now()
	for _, pod := range pods {
		p.Offer(pod, nil)
	}
	p.Drained()
	p.Leading()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	claims, served := 0, 0
	for served < judgedPods {
		select {
		case group := <-launched:
			for _, c := range group {
				claims++
				served += strings.Count(c.Annotations[provisioner.PodsAnnotation], ",") + 1
			}
		case err := <-ended:
			return 0, 0, cmp.Or(err, errors.New("the provisioner ended without a plan"))
		}
	}
	took := time.Since(start)
	cancel()
	return took, claims, <-ended
}

// written is an API server that answers at once.
func written(_ context.Context, _ client.WithWatch, o client.Object, _ ...client.CreateOption) error {
	o.SetUID(types.UID(o.GetName()))
	return nil
}

// nobody is told things.
type nobody struct{}

func (nobody) Release(...types.UID)           {}
func (nobody) Reserve(types.UID, string) bool { return false }

// Parked implements provisioner.Gate.
func (nobody) Parked(time.Duration) []types.UID { return nil }

func (nobody) Nominate(context.Context, types.NamespacedName, types.UID, string) error {
	return nil
}

// launcher passes on the claims handed to it.
type launcher chan []*karpv1.NodeClaim

func (l launcher) Launch(_ context.Context, claims []*karpv1.NodeClaim) { l <- claims }
