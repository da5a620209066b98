// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// cloud is EC2: instances by id.
type cloud struct {
	mu         sync.Mutex
	instances  map[string]ec2.Instance
	terminated []string
	calls      []string
	refuses    error // what Terminate answers instead of terminating
}

func (c *cloud) Describe(_ context.Context, ids []string) ([]ec2.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("Describe %v", ids))
	var out []ec2.Instance
	for _, id := range ids {
		if i, ok := c.instances[id]; ok {
			out = append(out, i)
		}
	}
	if len(out) < len(ids) {
		return out, &capacity.Error{Kind: capacity.NotFound}
	}
	return out, nil
}

func (c *cloud) DescribeByTag(_ context.Context, key string, values []string) ([]ec2.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("DescribeByTag %v", values))
	var out []ec2.Instance
	for _, i := range c.instances {
		if slices.Contains(values, i.Tags[key]) {
			out = append(out, i)
		}
	}
	return out, nil
}

func (c *cloud) Terminate(_ context.Context, ids []string) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.calls = append(c.calls, fmt.Sprintf("Terminate %v", ids))
	if c.refuses != nil {
		return c.refuses
	}
	c.terminated = append(c.terminated, ids...)
	for _, id := range ids {
		c.setState(id, "shutting-down")
	}
	return nil
}

func (c *cloud) ClusterInstances(context.Context) ([]ec2.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []ec2.Instance
	for _, i := range c.instances {
		if i.State != "terminated" {
			out = append(out, i)
		}
	}
	return out, nil
}

func (c *cloud) setState(id, state string) {
	i := c.instances[id]
	i.State = state
	c.instances[id] = i
}

// gone ends an instance for good.
func (c *cloud) gone(id string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.setState(id, "terminated")
}

func instance(id, launch string, launched time.Time) ec2.Instance {
	return ec2.Instance{ID: id, Zone: "us-east-1a", State: "running", LaunchTime: launched, Tags: map[string]string{ec2.TagLaunch: launch}}
}

// inventory lists instances.
type inventory func() []ec2.Instance

func (f inventory) ClusterInstances(context.Context) ([]ec2.Instance, error) { return f(), nil }

type events struct{ reasons []string }

func (e *events) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.reasons = append(e.reasons, reason)
}

// drainer is a drain: how far it is at each question, and volumes that are attached.
type drainer struct {
	// drains are the answers to come; the last one stays, and without any there is nothing to drain.
	drains    []Drainage
	attached  []string
	asked     int
	deadlines []*time.Time
}

func (d *drainer) Drain(_ context.Context, _ *karpv1.NodeClaim, _ *corev1.Node, deadline *time.Time) (Drainage, error) {
	d.asked++
	d.deadlines = append(d.deadlines, deadline)
	if len(d.drains) == 0 {
		return Drainage{}, nil
	}
	out := d.drains[0]
	if len(d.drains) > 1 {
		d.drains = d.drains[1:]
	}
	return out, nil
}

func (d *drainer) Attached(context.Context, *corev1.Node) ([]string, error) { return d.attached, nil }

// rig has the reconcilers over a fake API server and EC2.
type rig struct {
	*Reconciler
	t       *testing.T
	kube    client.Client
	cloud   *cloud
	events  *events
	clock   *clocktesting.FakeClock
	drainer *drainer
	writes  []string // status patches of claims and patches of Nodes
	taints  []string // the Node's taints after each patch
}

func newRig(t *testing.T, objects ...client.Object) *rig {
	t.Helper()
	r := &rig{
		t: t, cloud: &cloud{instances: map[string]ec2.Instance{}}, events: &events{}, drainer: &drainer{},
		clock: clocktesting.NewFakeClock(time.Now().Truncate(time.Second)),
	}
	b := fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&karpv1.NodeClaim{}, &corev1.Node{})
	for _, i := range Indexes() {
		b = b.WithIndex(i.Object, i.Field, i.Extract)
	}
	r.kube = b.WithInterceptorFuncs(interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			r.writes = append(r.writes, fmt.Sprintf("%T %s", o, sub))
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
			r.writes = append(r.writes, fmt.Sprintf("%T", o))
			if n, ok := o.(*corev1.Node); ok {
				var taints []string
				for _, t := range n.Spec.Taints {
					taints = append(taints, taintString(t))
				}
				r.taints = append(r.taints, strings.Join(taints, " "))
			}
			return c.Patch(ctx, o, p, opts...)
		},
	}).Build()
	r.Reconciler = New(r.options())
	return r
}

func (r *rig) options() Options {
	return Options{Kube: r.kube, Cloud: r.cloud, Drainer: r.drainer, Events: r.events, Clock: r.clock}
}

func (r *rig) ctx() context.Context { return logr.NewContext(r.t.Context(), logr.Discard()) }

// reconcile reconciles the claim once.
func (r *rig) reconcile(name string) reconcile.Result {
	r.t.Helper()
	result, err := r.Reconcile(r.ctx(), reconcile.Request{NamespacedName: client.ObjectKey{Name: name}})
	if err != nil {
		r.t.Fatal(err)
	}
	return result
}

func (r *rig) claim(name string) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{}
	if err := r.kube.Get(r.ctx(), client.ObjectKey{Name: name}, c); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		r.t.Fatal(err)
	}
	return c
}

func (r *rig) node(name string) *corev1.Node {
	n := &corev1.Node{}
	if err := r.kube.Get(r.ctx(), client.ObjectKey{Name: name}, n); err != nil {
		if apierrors.IsNotFound(err) {
			return nil
		}
		r.t.Fatal(err)
	}
	return n
}

func (r *rig) delete(o client.Object) {
	r.t.Helper()
	if err := r.kube.Delete(r.ctx(), o); err != nil {
		r.t.Fatal(err)
	}
}
