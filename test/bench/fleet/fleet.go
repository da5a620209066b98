// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fleet

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/manifests/install"
	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// Label is what pods select to land on nodes of pool i: its value is "pool-<i>".
const Label = "bench"

// Limit bounds every wait; reaching it is a failure, not a figure.
const Limit = 15 * time.Minute

// silence is how long a node may be silent. The kubelets of this process renew leases as late as the machine is busy, and a node that
// was given up does not come back.
const silence = 10 * time.Minute

// Processes are those whose use is measured.
func Processes() []string { return []string{bed.Scheduler, bed.Controller, bed.Webhook} }

// Options say how large the cluster's world is.
type Options struct {
	// Binaries is the folder of Slipway's binaries.
	Binaries string
	// Pools is how many NodePools there are, at least 1. All pods of the benchmarks ask for the first.
	Pools int
	// Kubelet plays the nodes; the zero value renews leases every 10 s, as kubelets do.
	Kubelet cluster.KubeletOptions
}

// Fleet is the cluster.
type Fleet struct {
	*bed.Bed

	Watch *bed.Observer
	Calls *bed.Calls

	fail    context.CancelCauseFunc
	unguard context.CancelFunc
}

// Restart ends scheduler and controller as a kubelet does and starts them again. elect has them elect leaders, as installed; the ones
// that On starts do not: while a small machine buys nodes by the hundred, leases of 15 s are not always renewed in time.
func (f *Fleet) Restart(ctx context.Context, elect bool) error {
	f.unguard()
	scheduler, controller := f.Process(bed.Scheduler), f.Process(bed.Controller)
	if err := errors.Join(scheduler.Terminate(), controller.Terminate()); err != nil {
		return err
	}
	<-scheduler.Done()
	<-controller.Done()
	f.Options().NoLeases = !elect
	if err := f.StartSlipway(); err != nil {
		return err
	}
	f.guard(ctx)
	return nil
}

// guard ends the cluster's context when a process of Slipway's or of the control plane ends, until unguard is called.
func (f *Fleet) guard(ctx context.Context) {
	ctx, f.unguard = context.WithCancel(ctx)
	go func() {
		if err := f.Wait(ctx); ctx.Err() == nil {
			f.fail(err)
		}
	}()
}

// On starts a cluster without nodes, with Slipway ready to buy, and does something there. If a process of Slipway's ends, so does the context.
func On(ctx context.Context, o Options, do func(context.Context, *Fleet) error) (err error) {
	settings := cluster.Options{NodeMonitorGracePeriod: silence}
	calls, err := bed.RecordCalls(&settings)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, calls.Close()) }()
	b, err := bed.New(ctx, bed.Options{
		Binaries: o.Binaries, Installation: install.Admission, Emulator: ec2emu.Options{Seed: 1, InstantBoot: true}, Cluster: settings, Kubelet: o.Kubelet, NoLeases: true,
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	f := &Fleet{Bed: b, Calls: calls}
	if f.Watch, err = bed.NewObserver(ctx, b); err != nil {
		return err
	}
	defer f.Watch.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := b.InstallAdmission(ctx); err != nil {
		return err
	}
	if err := errors.Join(b.StartSlipway(), b.StartWebhook()); err != nil {
		return err
	}
	f.fail = cancel
	f.guard(ctx)
	defer func() { f.unguard() }()
	if err := f.ready(ctx, o, do); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx) // a process has died: that is the reason
		}
		return err
	}
	return nil
}

func (f *Fleet) ready(ctx context.Context, o Options, do func(context.Context, *Fleet) error) error {
	if err := f.pools(ctx, o.Pools); err != nil {
		return err
	}
	return do(ctx, f)
}

// pool is a pool whose nodes have four cores, so that each holds one of the large pods. Its nodes are never too young for consolidation.
const pool = `---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata:
  name: pool-%[1]d
  annotations: {slipway.sh/min-node-age: 0s}
spec:
  disruption:
    consolidationPolicy: WhenEmptyOrUnderutilized
    consolidateAfter: 10s
    budgets: [{nodes: "10%%"}]
  template:
    metadata:
      labels: {bench: pool-%[1]d}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: node.kubernetes.io/instance-type, operator: In, values: [c5.xlarge, c5a.xlarge, c6i.xlarge, c6a.xlarge, c7i.xlarge, m5.xlarge, m5a.xlarge, m6i.xlarge, m6a.xlarge]}
`

func (f *Fleet) pools(ctx context.Context, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("not within %v", Limit))
	defer cancel()
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	text := slices.Concat(class, []byte{'\n'})
	names := make([]string, n)
	for i := range n {
		names[i] = fmt.Sprintf("pool-%d", i)
		text = fmt.Appendf(text, pool, i)
	}
	if err := f.Cluster.Apply(ctx, text); err != nil {
		return err
	}
	return bed.AwaitReadyPools(ctx, f.Bed, names...)
}

// Spec is that of a pod that asks for nodes of the first pool.
func Spec(cpu, memory string) corev1.PodSpec {
	return corev1.PodSpec{
		SchedulerName: "slipway", NodeSelector: map[string]string{Label: "pool-0"}, TerminationGracePeriodSeconds: new(int64(0)),
		Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
			corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse(memory),
		}}}},
	}
}

// Large is the spec of a pod of which a node holds one and no more.
func Large() corev1.PodSpec { return Spec("3", "1Gi") }

// Deploy creates a Deployment and waits until its pods run.
func (f *Fleet) Deploy(ctx context.Context, name string, n int, spec corev1.PodSpec) error {
	labels := map[string]string{"app": name}
	_, err := f.Client.AppsV1().Deployments("default").Create(ctx, &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(n)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: spec},
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("creating Deployment %q: %w", name, err)
	}
	return f.Await(ctx, name+"-", n)
}

// chunk is how many nodes are bought at a time, so that the API server of a small machine answers within a few seconds.
const chunk = 200

// Buy has Slipway buy n nodes, with a large pod each. The Deployments of its pods have the prefix.
func (f *Fleet) Buy(ctx context.Context, prefix string, n int) error {
	for from := 0; from < n; from += chunk {
		if err := f.Deploy(ctx, fmt.Sprintf("%s-%d", prefix, from), min(chunk, n-from), Large()); err != nil {
			return err
		}
	}
	return nil
}

// Await waits until n pods whose name has the prefix run.
func (f *Fleet) Await(ctx context.Context, prefix string, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("not within %v", Limit))
	defer cancel()
	for {
		changed := f.Watch.Changed()
		pods, bound, running := f.Watch.Counts(prefix)
		if running >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods %s*: %d created, %d bound, %d running: %w", n, prefix, pods, bound, running, context.Cause(ctx))
		case <-changed:
		}
		// With thousands of pods each look takes a while, and each pod changes several times.
		select {
		case <-ctx.Done():
		case <-time.After(min(100*time.Millisecond, time.Duration(pods)*time.Millisecond)):
		}
	}
}

// Rest waits until no pod, node or claim has changed for a while.
func (f *Fleet) Rest(ctx context.Context, calm time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, Limit, fmt.Errorf("not at rest within %v", Limit))
	defer cancel()
	for {
		changed := f.Watch.Changed()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-time.After(calm):
			return nil
		}
	}
}
