// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	samples "github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// binaries is the folder of Slipway's processes, built by TestMain.
var binaries string

func TestMain(m *testing.M) {
	log.SetLogger(logr.Discard())
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, err := os.MkdirTemp("", "slipway-integration-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if err := bed.Build(context.Background(), dir); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	binaries = dir
	return m.Run()
}

// rig is a bed with Slipway running on it.
type rig struct {
	*bed.Bed
	t     *testing.T
	kube  client.Client
	watch *bed.Observer
	// refused says that the API server refuses requests in this test that the installation grants.
	refused bool
}

// start brings up a bed. Machines boot at once unless emu says otherwise.
func start(t *testing.T, emu ec2emu.Options) *rig {
	t.Helper()
	return startWith(t, bed.Options{Emulator: emu})
}

// startWith brings up a bed without leases, unless opts give them a duration: a process that was killed is followed at once.
func startWith(t *testing.T, opts bed.Options) *rig {
	t.Helper()
	opts.NoLeases = opts.LeaseDuration == 0
	// How many nodes there are says what was bought: tests of taking nodes away turn that on with --disable-disruption=false.
	opts.SchedulerArgs = append([]string{"--disable-disruption"}, opts.SchedulerArgs...)
	return startAs(t, opts)
}

// startAs brings up a bed as opts say.
func startAs(t *testing.T, opts bed.Options) *rig {
	t.Helper()
	r := prepare(t, opts)
	if err := r.StartSlipway(); err != nil {
		t.Fatal(err)
	}
	return r
}

// prepare brings up a bed without Slipway's processes. Tests run beside each other, each on a bed of its own: most of their
// time is waiting.
func prepare(t *testing.T, opts bed.Options) *rig {
	t.Helper()
	t.Parallel()
	emu := &opts.Emulator
	if emu.BootScale == 0 {
		emu.InstantBoot = true
	}
	ctx := t.Context()
	opts.Binaries = binaries
	b, err := bed.New(ctx, opts)
	if err != nil {
		t.Fatal(err)
	}
	r := &rig{Bed: b, t: t}
	t.Cleanup(func() {
		if !r.refused {
			checkRights(t, b)
		}
		if t.Failed() {
			dump(t, b)
			if r.kube != nil {
				r.dumpObjects()
			}
		}
		if err := b.Stop(); err != nil {
			t.Errorf("stopping: %v", err)
		}
	})
	if r.kube, err = client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme}); err != nil {
		t.Fatal(err)
	}
	if r.watch, err = bed.NewObserver(ctx, b); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.watch.Stop)
	return r
}

// checkRights fails the test if a process asked for more than the installation grants.
func checkRights(t *testing.T, b *bed.Bed) {
	for _, name := range []string{bed.Scheduler, bed.Standby, bed.Controller} {
		refused, err := b.Refused(name)
		if err != nil {
			t.Error(err)
		}
		if len(refused) > 0 {
			t.Errorf("%s did %d things that manifests/install does not grant (its source is manifests/helm/slipway/files/roles.yaml; then make manifests), first: %s", name, len(refused), refused[0])
		}
	}
}

// dump prints the end of the logs of a failed test, and which pods the control plane took away.
func dump(t *testing.T, b *bed.Bed) {
	for _, name := range []string{bed.Scheduler, bed.Standby, bed.Controller} {
		raw, err := os.ReadFile(filepath.Join(b.Cluster.Dir(), name+".log"))
		if err != nil {
			continue
		}
		t.Logf("end of the log of %s:\n%s", name, raw[max(0, len(raw)-20000):])
	}
	raw, err := os.ReadFile(filepath.Join(b.Cluster.Dir(), "kube-controller-manager.log"))
	if err != nil {
		return
	}
	for line := range strings.Lines(string(raw)) {
		if strings.Contains(line, "Deleting pod") || strings.Contains(line, "Evicting pod") {
			t.Logf("kube-controller-manager: %s", line)
		}
	}
}

// dumpObjects prints what the claims of a failed test say about themselves, and where its pods are.
func (r *rig) dumpObjects() {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second) // the test's own has ended
	defer cancel()
	var claims karpv1.NodeClaimList
	var pods corev1.PodList
	if err := errors.Join(r.kube.List(ctx, &claims), r.kube.List(ctx, &pods)); err != nil {
		r.t.Log(err)
	}
	for _, c := range claims.Items {
		said := ""
		for _, cond := range c.Status.Conditions {
			if cond.Status != metav1.ConditionTrue {
				said += fmt.Sprintf("\n\t%s is %s since %s: %s %s", cond.Type, cond.Status, cond.LastTransitionTime.Format(time.TimeOnly), cond.Reason, cond.Message)
			}
		}
		r.t.Logf("NodeClaim %s, node %q, deleted %v%s", c.Name, c.Status.NodeName, c.DeletionTimestamp, said)
	}
	for _, p := range pods.Items {
		r.t.Logf("pod %s/%s, node %q, %s, deleted %v", p.Namespace, p.Name, p.Spec.NodeName, p.Status.Phase, p.DeletionTimestamp)
	}
}

// applySample applies a file of manifests/samples.
func (r *rig) applySample(name string) {
	r.t.Helper()
	raw, err := samples.Files.ReadFile(name)
	if err != nil {
		r.t.Fatal(err)
	}
	r.apply(string(raw))
}

func (r *rig) apply(manifest string) {
	r.t.Helper()
	if err := r.Cluster.Apply(r.t.Context(), []byte(manifest)); err != nil {
		r.t.Fatal(err)
	}
}

// pool applies a NodePool of class default with requirements given as YAML flow lines, and waits until it is ready.
func (r *rig) pool(name string, weight int, requirements ...string) {
	r.t.Helper()
	r.apply(poolManifest(name, "default", weight, requirements...))
	r.awaitPools(name)
}

func poolManifest(name, class string, weight int, requirements ...string) string {
	w := ""
	if weight > 0 {
		w = fmt.Sprintf("  weight: %d\n", weight)
	}
	return fmt.Sprintf(`apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
%s  template:
    metadata: {labels: {pool: %s}}
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: %s}
      requirements:
      - {key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["4"]}
      %s
`, name, w, name, class, strings.Join(requirements, "\n      "))
}

func (r *rig) awaitPools(names ...string) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	if err := bed.AwaitReadyPools(ctx, r.Bed, names...); err != nil {
		r.t.Fatal(err)
	}
}

// pod creates a pod for schedulerName slipway.
func (r *rig) pod(name, cpu string, change ...func(*corev1.Pod)) *corev1.Pod {
	r.t.Helper()
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: "default"},
		Spec: corev1.PodSpec{
			SchedulerName: "slipway", TerminationGracePeriodSeconds: new(int64(0)),
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi"),
			}}}},
		},
	}
	for _, f := range change {
		f(p)
	}
	if err := r.kube.Create(r.t.Context(), p); err != nil {
		r.t.Fatal(err)
	}
	return p
}

// within fails the test if ok is not true in time.
func (r *rig) within(d time.Duration, what string, ok func(context.Context) (bool, error)) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), d)
	defer cancel()
	if err := bed.Eventually(ctx, what, ok); err != nil {
		r.t.Fatal(err)
	}
}

// running waits until n pods whose name has the prefix run.
func (r *rig) running(prefix string, n int) {
	r.t.Helper()
	r.within(90*time.Second, fmt.Sprintf("%d pods %s* to run", n, prefix), func(context.Context) (bool, error) {
		_, _, running := r.watch.Counts(prefix)
		return running == n, nil
	})
}

// alive are the instances that are not shutting down.
func (r *rig) alive() []ec2emu.Instance {
	var out []ec2emu.Instance
	for _, i := range r.Emulator.Instances() {
		if i.State == "pending" || i.State == "running" {
			out = append(out, i)
		}
	}
	return out
}

func (r *rig) claims() []karpv1.NodeClaim {
	r.t.Helper()
	var list karpv1.NodeClaimList
	if err := r.kube.List(r.t.Context(), &list); err != nil {
		r.t.Fatal(err)
	}
	return list.Items
}

// fleets are the CreateFleet requests so far that launched something.
func (r *rig) fleets() []ec2emu.Request {
	var out []ec2emu.Request
	for _, q := range r.Emulator.Requests() {
		if q.Action == "CreateFleet" && len(q.Instances) > 0 {
			out = append(out, q)
		}
	}
	return out
}

// kill ends a process as kill -9 does.
func (r *rig) kill(name string) {
	r.t.Helper()
	if err := r.Process(name).Kill(); err != nil {
		r.t.Fatal(err)
	}
}
