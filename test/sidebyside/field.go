// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
	"github.com/slipway-sh/slipway/test/peer"
)

//go:embed pools.yaml
var pools []byte

const namespace = "default"

// containerStart is what a container with its image present takes to start.
const containerStart = 700 * time.Millisecond

// contender is who is measured.
type contender struct {
	name, title string
	// scheduler is the schedulerName of its pods.
	scheduler string
	// settings and unlimited are passed to the peer; ours is Slipway.
	ours      bool
	settings  []string
	unlimited bool
}

func contenders() []contender {
	return []contender{
		{name: "slipway", title: "Slipway", scheduler: "slipway", ours: true},
		{name: "karpenter", title: "Karpenter", scheduler: corev1.DefaultSchedulerName},
		{
			name: "karpenter-tuned", title: "Karpenter, tuned", scheduler: corev1.DefaultSchedulerName, unlimited: true,
			settings: []string{"BATCH_IDLE_DURATION=10ms", "BATCH_MAX_DURATION=1s", "CPU_REQUESTS=8000", "KUBE_CLIENT_QPS=5000", "KUBE_CLIENT_BURST=10000"},
		},
	}
}

// setting is what the clusters of a part have in common.
type setting struct {
	emulator ec2emu.Options
	cluster  cluster.Options
}

// field is a cluster with one contender at work.
type field struct {
	bed   *bed.Bed
	watch *bed.Observer
	who   contender
	peer  *peer.Peer // nil for Slipway
}

// on brings up a cluster with the contender and the pools on it, and does something there.
func (r *run) on(ctx context.Context, who contender, s setting, do func(context.Context, *field) error) (err error) {
	s.emulator.Seed = 1
	s.cluster.Progress = func(string) {}
	b, err := bed.New(ctx, bed.Options{Binaries: r.opts.binaries, Emulator: s.emulator, Cluster: s.cluster, Kubelet: cluster.KubeletOptions{PodStart: containerStart}})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.Stop()) }()
	f := &field{bed: b, who: who}
	if f.watch, err = bed.NewObserver(ctx, b); err != nil {
		return err
	}
	defer f.watch.Stop()
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	if err := f.start(ctx, r.opts.peer, cancel); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.keep(r.opts.logs)) }()
	if err := do(ctx, f); err != nil {
		if ctx.Err() != nil {
			return context.Cause(ctx) // a process has died: that is the reason
		}
		return err
	}
	return r.ended(ctx, f)
}

// start starts the contender's processes, and waits until its class and pools are ready. A process that ends cancels.
func (f *field) start(ctx context.Context, o peer.Options, cancel context.CancelCauseFunc) error {
	if f.who.ours {
		if err := f.bed.StartSlipway(); err != nil {
			return err
		}
		go func() { cancel(f.bed.Wait(ctx)) }()
	} else {
		o.Settings, o.Unlimited = append([]string{"INTERRUPTION_QUEUE=" + f.bed.Emulator.QueueName()}, f.who.settings...), f.who.unlimited
		var err error
		if f.peer, err = peer.Start(f.bed, o); err != nil {
			return err
		}
		go func() {
			select {
			case <-f.peer.Process.Done():
				cancel(f.peer.Process.Err())
			case <-ctx.Done():
			}
		}()
		if err := f.peer.AwaitReady(ctx); err != nil {
			return err
		}
	}
	return f.prepare(ctx)
}

// prepare applies class and pools and waits until they are ready.
func (f *field) prepare(ctx context.Context) error {
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return err
	}
	ctx, done := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer done()
	// The class first: Karpenter logs errors about a NodePool whose class has no subnets yet.
	if err := f.bed.Cluster.Apply(ctx, class); err != nil {
		return err
	}
	if err := f.awaitClass(ctx); err != nil {
		return err
	}
	if err := f.bed.Cluster.Apply(ctx, pools); err != nil {
		return err
	}
	return bed.AwaitReadyPools(ctx, f.bed, "general", "small", "large")
}

// awaitClass waits until the class has been resolved.
func (f *field) awaitClass(ctx context.Context) error {
	kube, err := client.New(f.bed.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	return bed.Eventually(ctx, "the EC2NodeClass to be ready", func(ctx context.Context) (bool, error) {
		var class v1.EC2NodeClass
		err := kube.Get(ctx, client.ObjectKey{Name: "default"}, &class)
		return err == nil && class.StatusConditions().Root().IsTrue(), client.IgnoreNotFound(err)
	})
}

// ended takes what a cluster knows before it goes: pods off plan, and what real EC2 would not have had Karpenter log.
func (r *run) ended(ctx context.Context, f *field) error {
	if f.who.ours {
		n, err := f.bed.Count(ctx, bed.Scheduler, "slipway_provisioner_off_plan_total")
		r.offPlan[f.who.name] += n
		return err
	}
	told, elsewhere, err := f.nominations(ctx)
	if err != nil {
		return err
	}
	r.note("%s: of the %d pods it named a NodeClaim for in an event (it sends at most 5 a second), %d landed elsewhere", f.who.title, told, elsewhere)
	complaints, err := f.peer.Complaints()
	if err != nil {
		return err
	}
	if len(complaints) == 0 {
		r.note("%s: no error in its log", f.who.title)
	}
	for _, c := range complaints {
		r.note("%s: in its log: %s", f.who.title, c)
	}
	return nil
}

// keep copies the logs of the contender's processes and its events into a folder, if one is given.
func (f *field) keep(folder string) error {
	if folder == "" {
		return nil
	}
	folder = filepath.Join(folder, f.who.name)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return fmt.Errorf("keeping logs: %w", err)
	}
	events, err := f.bed.Client.CoreV1().Events(metav1.NamespaceAll).List(context.Background(), metav1.ListOptions{})
	if err != nil {
		return fmt.Errorf("keeping events: %w", err)
	}
	var lines strings.Builder
	for i := range events.Items {
		e := &events.Items[i]
		fmt.Fprintln(&lines, e.CreationTimestamp.Format(time.TimeOnly), e.InvolvedObject.Kind, e.InvolvedObject.Name, e.Reason, e.Message)
	}
	errs := []error{os.WriteFile(filepath.Join(folder, "events.txt"), []byte(lines.String()), 0o600)}
	for _, name := range []string{bed.Scheduler, bed.Controller, "karpenter", "kube-scheduler"} {
		raw, err := os.ReadFile(filepath.Join(f.bed.Cluster.Dir(), name+".log"))
		if errors.Is(err, fs.ErrNotExist) {
			continue // of the other contender
		}
		errs = append(errs, err, os.WriteFile(filepath.Join(folder, name+".log"), raw, 0o600))
	}
	return errors.Join(errs...)
}

// nominations counts the pods for which Karpenter's last event named a NodeClaim, and those of them that landed on the node
// of another.
func (f *field) nominations(ctx context.Context) (told, elsewhere int, err error) {
	events, err := f.bed.Client.CoreV1().Events(namespace).List(ctx, metav1.ListOptions{FieldSelector: "reason=Nominated"})
	if err != nil {
		return 0, 0, err
	}
	type word struct {
		at          time.Time
		claim, node string
	}
	last := map[string]word{}
	for i := range events.Items {
		e := &events.Items[i]
		// "Pod should schedule on: nodeclaim/general-x, node/ip-…", the node only if there is one by then.
		w := word{at: e.LastTimestamp.Time}
		_, places, _ := strings.Cut(e.Message, ": ")
		for place := range strings.SplitSeq(places, ", ") {
			if claim, ok := strings.CutPrefix(place, "nodeclaim/"); ok {
				w.claim = claim
			}
			if node, ok := strings.CutPrefix(place, "node/"); ok {
				w.node = node
			}
		}
		if !w.at.Before(last[e.InvolvedObject.Name].at) {
			last[e.InvolvedObject.Name] = w
		}
	}
	claims := f.watch.NodesOfClaims()
	for _, t := range f.watch.Pods("") {
		w, ok := last[t.Pod.Name]
		if !ok || t.Node == "" {
			continue
		}
		told++
		if w.node != t.Node && claims[w.claim] != t.Node {
			elsewhere++
		}
	}
	return told, elsewhere, nil
}

// requested says for each node when the CreateFleet request that brought it arrived at EC2.
func (f *field) requested() map[string]time.Time {
	nodes := map[string]string{} // by instance
	for _, i := range f.bed.Emulator.Instances() {
		nodes[i.ID] = i.NodeName
	}
	out := map[string]time.Time{}
	for _, q := range f.bed.Emulator.Requests() {
		if q.Action != "CreateFleet" {
			continue
		}
		for _, id := range q.Instances {
			out[nodes[id]] = q.At
		}
	}
	return out
}

// quiet is how long nothing may have happened before the next single pod is created.
const quiet = 150 * time.Millisecond

// rest waits until nothing has changed for a while.
func (f *field) rest(ctx context.Context) error {
	for {
		changed := f.watch.Changed()
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-changed:
		case <-time.After(quiet):
			return nil
		}
	}
}

// limit bounds each wait; reaching it is a failure, not a figure.
const limit = 5 * time.Minute

// await waits until n pods with the name prefix run.
func (f *field) await(ctx context.Context, prefix string, n int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("not within %v", limit))
	defer cancel()
	for {
		changed := f.watch.Changed()
		pods, bound, running := f.watch.Counts(prefix)
		if pods >= n && running >= n {
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%d pods %s*: %d created, %d bound, %d running: %w", n, prefix, pods, bound, running, context.Cause(ctx))
		case <-changed:
		}
	}
}
