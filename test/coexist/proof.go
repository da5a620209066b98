// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/peer"
)

//go:embed pools.yaml
var pools []byte

const (
	namespace = "default"
	// karpentersName is what Karpenter takes for the cluster's name, see the package's description.
	karpentersName = "karpenter"
	// slowAnswer is how long EC2 takes to answer while pods wait for the names of their nodes: long enough for Karpenter to
	// wait for more pods (its batch, a second) and to plan.
	slowAnswer = 25 * time.Second
)

// proof is one run.
type proof struct {
	bed       *bed.Bed
	kube      client.Client
	opts      options
	say       func(string)
	karpenter *peer.Peer
	// beside and served are what must be 0, see the package's description.
	beside, served int
}

// lastWords is the end of the logs of the processes that are judged.
func (p *proof) lastWords() string {
	var out strings.Builder
	for _, name := range []string{bed.Scheduler, "karpenter"} {
		if raw, err := os.ReadFile(filepath.Join(p.bed.Cluster.Dir(), name+".log")); err == nil {
			fmt.Fprintf(&out, "\nend of the log of %s:\n%s", name, raw[max(0, len(raw)-4000):])
		}
	}
	return out.String()
}

// until polls, and fails at once if Karpenter has ended by itself.
func (p *proof) until(ctx context.Context, what string, ok func(context.Context) (bool, error)) error {
	if p.karpenter == nil {
		return bed.Eventually(ctx, what, ok)
	}
	return p.karpenter.Until(ctx, what, ok)
}

// start starts the stock programs, and waits until Karpenter has resolved the class and its pool.
func (p *proof) start(ctx context.Context) error {
	o := p.opts.peer
	o.ClusterName, o.Election = karpentersName, true
	var err error
	if p.karpenter, err = peer.Start(p.bed, o); err != nil {
		return err
	}
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	for _, manifest := range [][]byte{class, pools} {
		if err := p.bed.Cluster.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	if err := bed.AwaitReadyPools(ctx, p.bed, "theirs"); err != nil {
		var found v1.EC2NodeClass
		return errors.Join(err, p.kube.Get(context.WithoutCancel(ctx), client.ObjectKey{Name: "default"}, &found), fmt.Errorf("conditions of its class: %v", found.Status.Conditions))
	}
	return nil
}

// pod creates a pod of which one fits on a node of either pool.
func (p *proof) pod(ctx context.Context, name, scheduler string, change ...func(*corev1.Pod)) error {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}, Spec: corev1.PodSpec{
		SchedulerName: scheduler, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{
			Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("2500m")},
		}}},
	}}
	for _, c := range change {
		c(pod)
	}
	if err := p.kube.Create(ctx, pod); err != nil {
		return fmt.Errorf("creating pod %q: %w", name, err)
	}
	return nil
}

func (p *proof) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	err := p.kube.List(ctx, &list)
	return list.Items, err
}

// able has Karpenter buy for a pod, and leaves nothing of it behind.
func (p *proof) able(ctx context.Context) error {
	if err := p.pod(ctx, "able", corev1.DefaultSchedulerName); err != nil {
		return err
	}
	err := p.until(ctx, "Karpenter's node", func(ctx context.Context) (bool, error) {
		claims, err := p.claims(ctx)
		return len(claims) == 1 && claims[0].Status.ProviderID != "", err
	})
	if err != nil {
		return err
	}
	if err := p.kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "able", Namespace: namespace}}); err != nil {
		return err
	}
	if err := p.kube.DeleteAllOf(ctx, &karpv1.NodeClaim{}); err != nil {
		return err
	}
	return p.until(ctx, "the end of Karpenter's node", func(ctx context.Context) (bool, error) {
		claims, err := p.claims(ctx)
		if err != nil || len(claims) > 0 {
			return false, err
		}
		for _, i := range p.bed.Emulator.Instances() {
			if i.State != "terminated" {
				return false, nil
			}
		}
		return true, nil
	})
}

// planned has Karpenter plan once more: it does for a pod that its pools cannot hold, and says so. What it plans for at the
// same time are all pods that it takes for its own.
func (p *proof) planned(ctx context.Context, name string) error {
	err := p.pod(ctx, name, corev1.DefaultSchedulerName, func(pod *corev1.Pod) {
		pod.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "nowhere"}
	})
	if err != nil {
		return err
	}
	err = p.until(ctx, "Karpenter's word about pod "+name, func(ctx context.Context) (bool, error) {
		events, err := p.bed.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "involvedObject.name=" + name})
		if err != nil {
			return false, err
		}
		for i := range events.Items {
			if e := &events.Items[i]; e.Reason == "FailedScheduling" && strings.Contains(e.Source.Component+e.ReportingController, "karpenter") {
				return true, nil
			}
		}
		return false, nil
	})
	if err != nil {
		return err
	}
	return p.kube.Delete(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace}})
}

// waiting are the pods of Slipway's that have no node, and how many of them are nominated and have been told that they fit nowhere.
func (p *proof) waiting(ctx context.Context) (waiting, nominated, told int, err error) {
	var pods corev1.PodList
	if err := p.kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return 0, 0, 0, err
	}
	for i := range pods.Items {
		pod := &pods.Items[i]
		if pod.Spec.SchedulerName != "slipway" || pod.Spec.NodeName != "" {
			continue
		}
		waiting++
		if pod.Status.NominatedNodeName != "" {
			nominated++
		}
		if len(pod.Status.Conditions) > 0 {
			told++
		}
	}
	return waiting, nominated, told, nil
}

// count notes what Karpenter has bought by now: every claim here is for pods of Slipway's, so one that Slipway has not
// written is one too many.
func (p *proof) count(ctx context.Context) error {
	claims, err := p.claims(ctx)
	if err != nil {
		return err
	}
	n := 0
	for i := range claims {
		if claims[i].Annotations[provisioner.PodsAnnotation] == "" {
			n++
		}
	}
	p.beside = max(p.beside, n)
	return nil
}

// whileNameless has pods wait while EC2 does not answer.
func (p *proof) whileNameless(ctx context.Context) error {
	if err := p.bed.StartSlipway(); err != nil {
		return err
	}
	latency := ec2emu.Latency{P10: slowAnswer, P50: slowAnswer, P90: slowAnswer, P99: slowAnswer}
	if err := p.bed.Emulator.SetLatency("CreateFleet", latency); err != nil {
		return err
	}
	for i := range p.opts.pods {
		if err := p.pod(ctx, fmt.Sprintf("ours-%d", i), "slipway"); err != nil {
			return err
		}
	}
	err := p.until(ctx, "Slipway's NodeClaims", func(ctx context.Context) (bool, error) {
		claims, err := p.claims(ctx)
		return len(claims) >= p.opts.pods, err
	})
	if err != nil {
		return err
	}
	if err := p.planned(ctx, "first-look"); err != nil {
		return err
	}
	waiting, nominated, told, err := p.waiting(ctx)
	if err != nil {
		return err
	}
	p.say(fmt.Sprintf("%d pods of Slipway's wait; %d are nominated, %d have their condition", waiting, nominated, told))
	return p.count(ctx)
}

// whileBooting has them wait for their machines, which nobody registers: Karpenter holds the lease of whoever does.
func (p *proof) whileBooting(ctx context.Context) error {
	err := p.until(ctx, "the nomination of all pods", func(ctx context.Context) (bool, error) {
		waiting, nominated, _, err := p.waiting(ctx)
		return waiting == p.opts.pods && nominated == waiting, err
	})
	if err != nil {
		return err
	}
	if err := p.planned(ctx, "second-look"); err != nil {
		return err
	}
	return p.count(ctx)
}

// handOver ends Karpenter, so that slipway-controller takes the lease.
func (p *proof) handOver(ctx context.Context) error {
	stopped := p.karpenter
	p.karpenter = nil
	if err := stopped.Process.Terminate(); err != nil {
		return err
	}
	if err := p.bed.Emulator.SetLatency("CreateFleet", ec2emu.Latency{}); err != nil {
		return err
	}
	return p.until(ctx, "Slipway's pods to be bound", func(ctx context.Context) (bool, error) {
		waiting, _, _, err := p.waiting(ctx)
		return waiting == 0, err
	})
}

// unasked has a pod of default-scheduler be there that fits nowhere when Slipway plans.
func (p *proof) unasked(ctx context.Context) error {
	if err := p.pod(ctx, "theirs", corev1.DefaultSchedulerName); err != nil {
		return err
	}
	key := client.ObjectKey{Namespace: namespace, Name: "theirs"}
	err := p.until(ctx, "kube-scheduler's word about pod theirs", func(ctx context.Context) (bool, error) {
		var pod corev1.Pod
		if err := p.kube.Get(ctx, key, &pod); err != nil {
			return false, err
		}
		return len(pod.Status.Conditions) > 0, nil
	})
	if err != nil {
		return err
	}
	if err := p.pod(ctx, "own", "slipway"); err != nil {
		return err
	}
	return p.until(ctx, "Slipway's NodeClaim for its own pod", func(ctx context.Context) (bool, error) {
		claims, err := p.claims(ctx)
		if err != nil {
			return false, err
		}
		own := false
		p.served = 0
		for i := range claims {
			pods := claims[i].Annotations[provisioner.PodsAnnotation]
			own = own || strings.Contains(pods, namespace+"/own")
			if strings.Contains(pods, namespace+"/theirs") {
				p.served++
			}
		}
		return own, nil
	})
}
