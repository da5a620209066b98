// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/manifests/samples"
	"github.com/slipway-sh/slipway/test/bed"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

const (
	namespace = "default"
	// mostNodes is the limit of the pool that comes first; the other has none, so that limits are no reason to wait.
	mostNodes = 12
)

// pools are what the storm buys from: spot first, and on-demand for what spot has not.
func pools() string {
	var text strings.Builder
	for _, p := range []struct {
		name, capacity, limits string
		weight                 int
	}{{"first", "spot", fmt.Sprintf("{nodes: %d}", mostNodes), 50}, {"second", "on-demand", "{}", 1}} {
		fmt.Fprintf(&text, `---
apiVersion: karpenter.sh/v1
kind: NodePool
metadata: {name: %s}
spec:
  weight: %d
  limits: %s
  disruption: {consolidationPolicy: WhenEmptyOrUnderutilized, consolidateAfter: 2s, budgets: [{nodes: "50%%"}]}
  template:
    spec:
      nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}
      requirements:
      - {key: karpenter.sh/capacity-type, operator: In, values: [%s]}
      - {key: karpenter.k8s.aws/instance-category, operator: In, values: [c, m, r]}
      - {key: karpenter.k8s.aws/instance-cpu, operator: Lt, values: ["33"]}
`, p.name, p.weight, p.limits, p.capacity)
	}
	return text.String()
}

// prepare applies class and pools and starts Slipway.
func (w *world) prepare(ctx context.Context) error {
	class, err := samples.Files.ReadFile("general/ec2nodeclass.yaml")
	if err != nil {
		return fmt.Errorf("reading the node class: %w", err)
	}
	for _, manifest := range []string{string(class), pools()} {
		if err := w.Cluster.Apply(ctx, []byte(manifest)); err != nil {
			return fmt.Errorf("applying pools: %w", err)
		}
	}
	if err := w.StartSlipway(); err != nil {
		return err
	}
	return bed.AwaitReadyPools(ctx, w.Bed, "first", "second")
}

// action is something that happens in a storm.
type action struct {
	name string
	do   func(*world, context.Context) error
}

// steps are the actions, those that happen more often more than once.
func (w *world) steps() []action {
	up, scale := action{"scale up", (*world).scaleUp}, action{"scale", (*world).scale}
	return []action{
		up, up, up, scale, scale, scale,
		{"single pods", (*world).singlePods},
		{"delete pods", (*world).deletePods},
		{"kill the scheduler", func(w *world, _ context.Context) error { return w.kill(bed.Scheduler) }},
		{"kill the controller", func(w *world, _ context.Context) error { return w.kill(bed.Controller) }},
		{"kill both", func(w *world, _ context.Context) error {
			if err := w.kill(bed.Controller); err != nil {
				return err
			}
			return w.kill(bed.Scheduler)
		}},
		{"kill after a request", (*world).killAfterRequest},
		{"delete a claim", (*world).deleteClaim},
		{"delete a node", (*world).deleteNode},
		{"end an instance", (*world).endInstance},
		{"reclaim spot instances", (*world).reclaim},
		{"EC2 fails", (*world).fail},
		{"EC2 is out of stock", (*world).runOut},
	}
}

// scaleUp creates a Deployment.
func (w *world) scaleUp(ctx context.Context) error {
	name := fmt.Sprintf("web-%d", len(w.deployments))
	replicas := int32(1 + w.rand.IntN(25))
	cpu := []string{"200m", "900m", "3"}[w.rand.IntN(3)]
	spread := ""
	if w.rand.IntN(3) == 0 {
		spread = fmt.Sprintf("topologySpreadConstraints: [{maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule, labelSelector: {matchLabels: {app: %s}}}]", name)
	}
	w.deployments[name] = replicas
	w.Log("   %s: %d pods of %s CPU %s", name, replicas, cpu, spread)
	return w.Cluster.Apply(ctx, fmt.Appendf(nil, `apiVersion: apps/v1
kind: Deployment
metadata: {name: %[1]s}
spec:
  replicas: %[2]d
  selector: {matchLabels: {app: %[1]s}}
  template:
    metadata: {labels: {app: %[1]s}}
    spec:
      schedulerName: slipway
      terminationGracePeriodSeconds: 0
      containers: [{name: c, image: registry.example/c:1, resources: {requests: {cpu: %[3]q, memory: 500Mi}}}]
      %[4]s
`, name, replicas, cpu, spread))
}

// scale changes a Deployment's replicas.
func (w *world) scale(ctx context.Context) error {
	names := slices.Sorted(maps.Keys(w.deployments))
	if len(names) == 0 {
		return nil
	}
	name := names[w.rand.IntN(len(names))]
	w.deployments[name] = int32(w.rand.IntN(25))
	w.Log("   %s: %d", name, w.deployments[name])
	d, err := w.Client.AppsV1().Deployments(namespace).GetScale(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	d.ResourceVersion = "" // the surge of a drain may write between
	d.Spec.Replicas = w.deployments[name]
	_, err = w.Client.AppsV1().Deployments(namespace).UpdateScale(ctx, name, d, metav1.UpdateOptions{})
	return err
}

// singlePods creates pods without an owner.
func (w *world) singlePods(ctx context.Context) error {
	for range 1 + w.rand.IntN(4) {
		w.singles++
		p := &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("single-%d", w.singles), Namespace: namespace},
			Spec: corev1.PodSpec{
				SchedulerName: "slipway", TerminationGracePeriodSeconds: new(int64(0)),
				Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{
					Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("700m"), corev1.ResourceMemory: resource.MustParse("1Gi")},
				}}},
			},
		}
		if err := w.kube.Create(ctx, p); err != nil {
			return err
		}
	}
	return nil
}

// deletePods deletes some pods, wherever they are on their way.
func (w *world) deletePods(ctx context.Context) error {
	var pods corev1.PodList
	if err := w.kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return err
	}
	for i := range pods.Items {
		if w.rand.IntN(4) == 0 {
			if err := client.IgnoreNotFound(w.kube.Delete(ctx, &pods.Items[i])); err != nil {
				return err
			}
		}
	}
	return nil
}

// killAfterRequest kills the process that makes it when a request has had its effect on EC2 and has not been answered.
func (w *world) killAfterRequest(ctx context.Context) error {
	actions := map[string]string{
		"CreateFleet": bed.Scheduler, "CreateLaunchTemplate": bed.Scheduler, "CreateTags": bed.Scheduler,
		"TerminateInstances": bed.Controller, "DescribeInstances": bed.Controller,
	}
	name := slices.Sorted(maps.Keys(actions))[w.rand.IntN(len(actions))]
	nth := 1 + w.rand.IntN(2)
	w.Log("   %s: after %s number %d", actions[name], name, nth)
	w.Emulator.SetHook(ec2emu.CrashAfter(name, nth, func() {
		if err := w.kill(actions[name]); err != nil {
			w.Log("   killing %s: %v", actions[name], err)
		}
	}))
	if name == "CreateFleet" {
		return w.scaleUp(ctx)
	}
	return nil
}

// deleteClaim deletes a NodeClaim by hand.
func (w *world) deleteClaim(ctx context.Context) error {
	var claims karpv1.NodeClaimList
	if err := w.kube.List(ctx, &claims); err != nil || len(claims.Items) == 0 {
		return err
	}
	c := &claims.Items[w.rand.IntN(len(claims.Items))]
	w.Log("   %s", c.Name)
	return client.IgnoreNotFound(w.kube.Delete(ctx, c))
}

// deleteNode deletes a Node by hand.
func (w *world) deleteNode(ctx context.Context) error {
	var nodes corev1.NodeList
	if err := w.kube.List(ctx, &nodes); err != nil || len(nodes.Items) == 0 {
		return err
	}
	n := &nodes.Items[w.rand.IntN(len(nodes.Items))]
	w.Log("   %s", n.Name)
	return client.IgnoreNotFound(w.kube.Delete(ctx, n))
}

// endInstance ends an instance in EC2's console.
func (w *world) endInstance(context.Context) error {
	if alive := w.alive(); len(alive) > 0 {
		id := alive[w.rand.IntN(len(alive))].ID
		w.Log("   %s", id)
		w.Emulator.Terminate(id)
	}
	return nil
}

// reclaim takes some spot instances back, with notice.
func (w *world) reclaim(context.Context) error {
	for _, i := range w.alive() {
		if i.CapacityType == karpv1.CapacityTypeSpot && w.rand.IntN(2) == 0 {
			w.Log("   %s", i.ID)
			if err := w.Emulator.InterruptSpot(i.ID); err != nil {
				return err
			}
		}
	}
	return nil
}

// fail makes EC2 refuse, lose or cut off some requests.
func (w *world) fail(context.Context) error {
	faults := []ec2emu.Fault{
		{Action: "CreateFleet", Code: "RequestLimitExceeded", Status: 503},
		{Action: "CreateFleet", Code: "InternalError", Status: 500},
		{Action: "CreateFleet", Cut: true, AfterEffect: true},
		{Action: "CreateFleet", Code: "VcpuLimitExceeded", Status: 400},
		{Action: "DescribeInstances", Code: "InternalError", Status: 500},
		{Action: "TerminateInstances", Cut: true},
		{Action: "*", Code: "RequestLimitExceeded", Status: 503},
	}
	f := faults[w.rand.IntN(len(faults))]
	f.Count = 1 + w.rand.IntN(5)
	w.Log("   %s: %s, cut %v, %d times", f.Action, f.Code, f.Cut, f.Count)
	w.Emulator.Inject(f)
	return nil
}

// runOut takes the stock of a zone or of all spot, or brings it back.
func (w *world) runOut(context.Context) error {
	zones := w.zones()
	pool := ec2emu.Pool{Zone: zones[w.rand.IntN(len(zones))]}
	if w.rand.IntN(2) == 0 {
		pool = ec2emu.Pool{Zone: "*", CapacityType: karpv1.CapacityTypeSpot}
	}
	left := []int{0, 0, -1}[w.rand.IntN(3)]
	w.Log("   %+v: %d left", pool, left)
	w.Emulator.SetStock(pool, left)
	w.Emulator.SetPartialFleets(float64(w.rand.IntN(2)) / 2)
	return nil
}

// zones are those the node class reaches.
func (w *world) zones() []string {
	return []string{w.Emulator.Region() + "a", w.Emulator.Region() + "b", w.Emulator.Region() + "c"}
}

// alive are the instances that run or are about to.
func (w *world) alive() []ec2emu.Instance {
	return slices.DeleteFunc(w.Emulator.Instances(), func(i ec2emu.Instance) bool { return i.State != "pending" && i.State != "running" })
}
