// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demo

import (
	"context"
	"fmt"
	"io"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/cmd/slipway/htmlreport"
	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Options configure a demo.
type Options struct {
	// Binaries is the folder with Slipway's binaries.
	Binaries string
	// Seed decides boot times, prices and everything else that is drawn.
	Seed uint64
	// Speed is how much faster than measured EC2 boot times the emulated machines boot; 1 is real time.
	Speed float64
	// Replicas of the second Deployment.
	Replicas int32
	// Keep leaves everything running until ctx ends.
	Keep bool
	// Log receives the narration, Out the final table (JSON if JSON is set).
	Log, Out io.Writer
	JSON     bool
	// Page is where the run is drawn, nil for nowhere.
	Page *htmlreport.File
}

// deadline bounds one scale-up, in seconds of real boot time; divided by Speed, with a floor.
const deadline = 3 * time.Minute

// Run runs the demo. The error says which pods are not running and why.
func Run(ctx context.Context, o Options) (err error) {
	say := newTeller(o.Log)
	say.linef("Slipway demo: a real Kubernetes control plane, an emulated AWS account, no cloud.")
	say.linef("EC2 machines boot %gx faster than in the table of measured boot times (docs/architecture.md); --speed=1 is real time.", o.Speed)
	b, err := bed.New(ctx, bed.Options{
		Binaries: o.Binaries,
		Emulator: ec2emu.Options{Seed: o.Seed, BootScale: 1 / o.Speed, LaunchLatency: 1 / o.Speed},
		Cluster:  cluster.Options{Progress: func(line string) { say.linef("%s", line) }},
	})
	if err != nil {
		return err
	}
	defer func() {
		if e := b.Stop(); err == nil {
			err = e
		}
	}()
	say.linef("control plane %s and EC2 emulator %s are up", b.Cluster.Config().Host, b.Emulator.URL())
	watch, err := bed.NewObserver(ctx, b)
	if err != nil {
		return err
	}
	defer watch.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.StartSlipway(); err != nil {
		return err
	}
	go func() { cancel(b.Wait(ctx)) }()
	d := &demo{Options: o, bed: b, watch: watch, say: say}
	if err := d.run(ctx); err != nil {
		if ctx.Err() != nil { // a process of the bed has died; that is the reason, whatever was going on
			return context.Cause(ctx)
		}
		return err
	}
	if err := d.report(ctx); err != nil {
		return err
	}
	if o.Keep {
		say.linef("")
		say.linef("Left running (KEEP). In another terminal:  export KUBECONFIG=%s; kubectl get nodes,nodeclaims,pods", b.Cluster.Kubeconfig())
		say.linef("Ctrl-C ends it and removes everything.")
		<-ctx.Done()
	}
	return nil
}

// demo is one run.
type demo struct {
	Options
	bed   *bed.Bed
	watch *bed.Observer
	say   *teller
	steps []step
}

// step is one scale-up of the demo.
type step struct {
	name     string
	prefix   string
	replicas int
	took     time.Duration
}

func (d *demo) run(ctx context.Context) error {
	go d.say.narrate(ctx, d.bed, d.watch)
	for _, f := range []string{"general/ec2nodeclass.yaml", "general/nodepools.yaml"} {
		if err := d.apply(ctx, f); err != nil {
			return err
		}
	}
	if err := d.awaitPools(ctx); err != nil {
		return err
	}
	d.say.linef("")
	d.say.linef("Deployment web-api: 0 → 6 replicas (2 CPU, 4 GiB, spread over zones), schedulerName slipway, no node in the cluster")
	if err := d.scale(ctx, step{name: "web-api 0 → 6", prefix: "web-api-", replicas: 6}, func(ctx context.Context) error {
		return d.apply(ctx, "general/deployment.yaml")
	}); err != nil {
		return err
	}
	if err := d.createWorkers(ctx); err != nil {
		return err
	}
	d.say.linef("")
	d.say.linef("Deployment worker: 0 → %d replicas (500m CPU, 1 GiB)", d.Replicas)
	return d.scale(ctx, step{name: fmt.Sprintf("worker 0 → %d", d.Replicas), prefix: "worker-", replicas: int(d.Replicas)}, func(ctx context.Context) error {
		_, err := d.bed.Client.AppsV1().Deployments("default").UpdateScale(ctx, "worker", &autoscalingv1.Scale{
			ObjectMeta: metav1.ObjectMeta{Name: "worker", Namespace: "default"}, Spec: autoscalingv1.ScaleSpec{Replicas: d.Replicas},
		}, metav1.UpdateOptions{})
		return err
	})
}

func (d *demo) apply(ctx context.Context, file string) error {
	raw, err := samples.Files.ReadFile(file)
	if err != nil {
		return err
	}
	d.say.linef("applying manifests/samples/%s", file)
	return d.bed.Cluster.Apply(ctx, raw)
}

// awaitPools waits until the pools of the samples are ready, which takes EC2 a few calls.
func (d *demo) awaitPools(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, time.Minute, fmt.Errorf("NodePools are not ready after a minute; log of the controller: %s", d.bed.Cluster.Dir()))
	defer cancel()
	if err := bed.AwaitReadyPools(ctx, d.bed, "default", "stable", "gpu"); err != nil {
		return err
	}
	d.say.linef("NodePools default, stable and gpu are ready: subnets, security groups, images and instance profile found")
	n := d.templates()
	return bed.Eventually(ctx, "launch templates", func(ctx context.Context) (bool, error) {
		select { // made in one go: when a second brings no more, all are there
		case <-ctx.Done():
			return false, nil
		case <-time.After(time.Second):
		}
		before := n
		if n = d.templates(); n == 0 || n != before {
			return false, nil
		}
		d.say.linef("%d launch templates are made, ahead of any launch", n)
		return true, nil
	})
}

// templates counts the launch templates made so far.
func (d *demo) templates() int {
	n := 0
	for _, r := range d.bed.Emulator.Requests() {
		if r.Action == "CreateLaunchTemplate" && r.Code == "" {
			n++
		}
	}
	return n
}

func (d *demo) createWorkers(ctx context.Context) error {
	labels := map[string]string{"app": "worker"}
	_, err := d.bed.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "worker"},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(0)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					SchedulerName: "slipway",
					Containers: []corev1.Container{{
						Name: "work", Image: "registry.example/worker:1",
						Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
							corev1.ResourceCPU: resource.MustParse("500m"), corev1.ResourceMemory: resource.MustParse("1Gi"),
						}},
					}},
				},
			},
		},
	}, metav1.CreateOptions{})
	return err
}

// scale starts a scale-up and waits until its pods run.
func (d *demo) scale(ctx context.Context, s step, begin func(context.Context) error) error {
	limit := max(time.Duration(float64(deadline)/d.Speed), 45*time.Second)
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	start := time.Now()
	if err := begin(ctx); err != nil {
		return err
	}
	for {
		changed := d.watch.Changed()
		if pods, _, running := d.watch.Counts(s.prefix); pods == s.replicas && running == s.replicas {
			s.took = time.Since(start)
			d.steps = append(d.steps, s)
			return nil
		}
		select {
		case <-ctx.Done():
			return d.failure(s, limit, context.Cause(ctx))
		case <-changed:
		}
	}
}

// failure names the pods that do not run, with the reason Kubernetes has for each.
func (d *demo) failure(s step, limit time.Duration, cause error) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	_, bound, running := d.watch.Counts(s.prefix)
	msg := fmt.Sprintf("%s: %d of %d pods are bound and %d run after %v (%v)", s.name, bound, s.replicas, running, limit, cause)
	if pods, err := d.bed.Client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{}); err == nil {
		for _, p := range pods.Items {
			for _, c := range p.Status.Conditions {
				if c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
					return fmt.Errorf("%s; for instance pod %s: %s", msg, p.Name, c.Message)
				}
			}
		}
	}
	return fmt.Errorf("%s", msg)
}
