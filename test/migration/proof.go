// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/cluster"
)

//go:embed pools.yaml
var pools []byte

const (
	namespace = "default"
	web       = "web"
)

// outcome is what a direction did to the cluster.
type outcome struct {
	took                 time.Duration
	drifted, interrupted int
}

// proof is one run.
type proof struct {
	bed         *bed.Bed
	kube        client.Client
	opts        options
	say         func(string)
	before      state
	forth, back outcome
}

// state is what is there: pods and nodes by name, claims with their instances.
type state struct {
	pods, nodes map[string]types.UID
	claims      map[string]string
}

// lastWords is the end of the logs of the processes that are judged.
func (p *proof) lastWords() string {
	var out strings.Builder
	for _, name := range []string{bed.Scheduler, bed.Controller, karpenter} {
		if raw, err := os.ReadFile(filepath.Join(p.bed.Cluster.Dir(), name+".log")); err == nil {
			fmt.Fprintf(&out, "\nend of the log of %s:\n%s", name, raw[max(0, len(raw)-3000):])
		}
	}
	return out.String()
}

// start starts Karpenter and a stock kube-scheduler, and waits for the pools.
func (p *proof) start(ctx context.Context) error {
	port, err := freePort()
	if err != nil {
		return err
	}
	c := p.bed.Cluster
	_, err = c.Run(cluster.Command{Name: "kube-scheduler", Path: p.opts.scheduler, Args: []string{
		"--kubeconfig=" + c.Kubeconfig(), "--authentication-kubeconfig=" + c.Kubeconfig(), "--authorization-kubeconfig=" + c.Kubeconfig(),
		"--leader-elect=false", "--bind-address=127.0.0.1", "--secure-port=" + port, "--cert-dir=" + c.Dir(),
	}})
	if err != nil {
		return err
	}
	queue := "--interruption-queue=" + p.bed.Emulator.QueueName()
	if err := p.kube.Create(ctx, deployment(karpenter, "kube-system", queue, "--leader-election-namespace="+bed.Namespace)); err != nil {
		return fmt.Errorf("installing Karpenter: %w", err)
	}
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	for _, manifest := range [][]byte{class, pools} {
		if err := c.Apply(ctx, manifest); err != nil {
			return err
		}
	}
	return bed.AwaitReadyPools(ctx, p.bed, "main", "forth", "back")
}

// fill has a pod on each of the nodes, and one on a node of each pool that is changed later.
func (p *proof) fill(ctx context.Context) error {
	pod := builder.Pod(web).CPU("1500m").Scheduler(corev1.DefaultSchedulerName)
	d := builder.Deployment(web).Replicas(int32(p.opts.nodes)).Template(pod).Obj() //nolint:gosec // a number of pods
	d.Spec.Template.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: "main"}
	if err := p.kube.Create(ctx, d); err != nil {
		return fmt.Errorf("creating deployment %q: %w", web, err)
	}
	for _, pool := range []string{"forth", "back"} {
		own := builder.Pod(pool).CPU("1500m").Scheduler(corev1.DefaultSchedulerName).Obj()
		own.Spec.NodeSelector = map[string]string{karpv1.NodePoolLabelKey: pool}
		if err := p.kube.Create(ctx, own); err != nil {
			return fmt.Errorf("creating pod %q: %w", pool, err)
		}
	}
	return p.runs(ctx, p.opts.nodes)
}

// runs waits until n pods of the Deployment and the two others run, on nodes that are initialized.
func (p *proof) runs(ctx context.Context, n int) error {
	return bed.Eventually(ctx, fmt.Sprintf("%d pods to run", n), func(ctx context.Context) (bool, error) {
		var list corev1.PodList
		if err := p.kube.List(ctx, &list, client.InNamespace(namespace)); err != nil {
			return false, err
		}
		running := 0
		for i := range list.Items {
			if list.Items[i].Status.Phase == corev1.PodRunning {
				running++
			}
		}
		var claims karpv1.NodeClaimList
		if err := p.kube.List(ctx, &claims); err != nil {
			return false, err
		}
		for i := range claims.Items {
			if !claims.Items[i].StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
				return false, nil
			}
		}
		return running == n+2, nil
	})
}

// install installs Slipway beside Karpenter and waits until its pod is ready, which it is without the lease.
func (p *proof) install(ctx context.Context) error {
	d := deployment(slipway, bed.Namespace, serve, "--leader-election-namespace="+bed.Namespace, "--interruption-queue="+p.bed.Emulator.QueueName())
	if err := p.kube.Create(ctx, d); err != nil {
		return fmt.Errorf("installing Slipway: %w", err)
	}
	err := bed.Eventually(ctx, "Slipway's pod", func(ctx context.Context) (bool, error) {
		var now appsv1.Deployment
		err := p.kube.Get(ctx, client.ObjectKeyFromObject(d), &now)
		return now.Status.ReadyReplicas == 1, err
	})
	if err != nil {
		return err
	}
	p.before, err = p.state(ctx)
	if err != nil {
		return err
	}
	return p.slipway(ctx, "migrate", "check")
}

func (p *proof) takeover(ctx context.Context) error {
	began := time.Now()
	err := p.slipway(ctx, "migrate", "takeover", "--yes")
	p.forth.took = time.Since(began)
	return err
}

func (p *proof) handback(ctx context.Context) error {
	began := time.Now()
	err := p.slipway(ctx, "migrate", "handback", "--yes")
	p.back.took = time.Since(began)
	return err
}

// slipway runs the command, as people do.
func (p *proof) slipway(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, filepath.Join(p.opts.binaries, "slipway"), append(args, "--kubeconfig="+p.bed.Cluster.Kubeconfig())...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	for line := range strings.Lines(out.String()) {
		p.say("    " + strings.TrimRight(line, "\n"))
	}
	if err != nil {
		return fmt.Errorf("slipway %s: %w", strings.Join(args, " "), err)
	}
	return nil
}

// grow has the Deployment be larger by some pods, whose nodes the new owner buys, and changes the template of a pool, whose
// node has to be found drifted: then drift has been judged.
func (p *proof) grow(ctx context.Context, pool string, more int) error {
	d := &appsv1.Deployment{}
	if err := p.kube.Get(ctx, client.ObjectKey{Namespace: namespace, Name: web}, d); err != nil {
		return fmt.Errorf("reading deployment %q: %w", web, err)
	}
	stored := d.DeepCopy()
	d.Spec.Replicas = new(int32(p.opts.nodes + more)) //nolint:gosec // a number of pods
	if err := p.kube.Patch(ctx, d, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("scaling deployment %q: %w", web, err)
	}
	if err := p.runs(ctx, p.opts.nodes+more); err != nil {
		return err
	}
	np := &karpv1.NodePool{}
	if err := p.kube.Get(ctx, client.ObjectKey{Name: pool}, np); err != nil {
		return fmt.Errorf("reading NodePool %q: %w", pool, err)
	}
	was := np.DeepCopy()
	np.Spec.Template.Annotations = map[string]string{"example.com/changed": "true"}
	if err := p.kube.Patch(ctx, np, client.MergeFrom(was)); err != nil {
		return fmt.Errorf("changing NodePool %q: %w", pool, err)
	}
	return bed.Eventually(ctx, "the node of NodePool "+pool+" to have drifted", func(ctx context.Context) (bool, error) {
		var claims karpv1.NodeClaimList
		if err := p.kube.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: pool}); err != nil {
			return false, err
		}
		return len(claims.Items) == 1 && claims.Items[0].StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue(), nil
	})
}

func (p *proof) state(ctx context.Context) (state, error) {
	s := state{pods: map[string]types.UID{}, nodes: map[string]types.UID{}, claims: map[string]string{}}
	var pods corev1.PodList
	var nodes corev1.NodeList
	var claims karpv1.NodeClaimList
	for _, list := range []client.ObjectList{&pods, &nodes, &claims} {
		if err := p.kube.List(ctx, list); err != nil {
			return s, err
		}
	}
	for i := range pods.Items {
		if pod := &pods.Items[i]; pod.Namespace == namespace && pod.DeletionTimestamp == nil && pod.Status.Phase == corev1.PodRunning {
			s.pods[pod.Name] = pod.UID
		}
	}
	for i := range nodes.Items {
		n := &nodes.Items[i]
		disrupted := n.DeletionTimestamp != nil
		for _, taint := range n.Spec.Taints {
			disrupted = disrupted || taint.Key == karpv1.DisruptedTaintKey
		}
		if !disrupted {
			s.nodes[n.Name] = n.UID
		}
	}
	for i := range claims.Items {
		if c := &claims.Items[i]; c.DeletionTimestamp == nil {
			s.claims[c.Name] = c.Status.ProviderID
		}
	}
	return s, nil
}

// compare counts what is not as it was.
func (p *proof) compare(ctx context.Context, o *outcome) error {
	now, err := p.state(ctx)
	if err != nil {
		return err
	}
	for name, uid := range p.before.pods {
		if now.pods[name] != uid {
			o.interrupted++
			p.say("pod " + name + " is not the one from before")
		}
	}
	for name, uid := range p.before.nodes {
		if now.nodes[name] != uid {
			o.interrupted++
			p.say("node " + name + " is not the one from before")
		}
	}
	running := map[string]bool{}
	for _, i := range p.bed.Emulator.Instances() {
		running[i.ID] = i.State == "running"
	}
	var claims karpv1.NodeClaimList
	if err := p.kube.List(ctx, &claims, client.MatchingLabels{karpv1.NodePoolLabelKey: "main"}); err != nil {
		return err
	}
	for i := range claims.Items {
		if claims.Items[i].StatusConditions().Get(karpv1.ConditionTypeDrifted).IsTrue() {
			o.drifted++
			p.say("NodeClaim " + claims.Items[i].Name + " has drifted")
		}
	}
	for name, id := range p.before.claims {
		if now.claims[name] != id || !running[id[strings.LastIndexByte(id, '/')+1:]] {
			o.interrupted++
			p.say("NodeClaim " + name + " is not on its instance any more")
		}
	}
	return nil
}
