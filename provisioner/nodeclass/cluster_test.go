// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass_test

import (
	"context"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"github.com/go-logr/logr"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/nodeclass"
	"github.com/slipway-sh/slipway/test/cluster"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

const classes = `
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: default
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  role: KarpenterNodeRole-demo
---
apiVersion: karpenter.k8s.aws/v1
kind: EC2NodeClass
metadata:
  name: lost
spec:
  amiSelectorTerms: [{alias: al2023@latest}]
  subnetSelectorTerms: [{tags: {karpenter.sh/discovery: elsewhere}}]
  securityGroupSelectorTerms: [{tags: {karpenter.sh/discovery: demo}}]
  role: KarpenterNodeRole-demo
`

func nodePool(name, class string) *karpv1.NodePool {
	p := &karpv1.NodePool{ObjectMeta: metav1.ObjectMeta{Name: name}}
	p.Spec.Template.Spec.NodeClassRef = &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: class}
	p.Spec.Template.Spec.Requirements = []karpv1.NodeSelectorRequirementWithMinValues{{Key: "kubernetes.io/os", Operator: "In", Values: []string{"linux"}}}
	return p
}

// bed is a control plane and an account with both reconcilers running.
func bed(t *testing.T) (client.Client, *ec2emu.Emulator) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane")
	}
	c := cluster.Start(t, cluster.Options{})
	if err := c.ApplyCRDs(t.Context()); err != nil {
		t.Fatal(err)
	}
	emu, err := ec2emu.Start(t.Context(), ec2emu.Options{
		Seed: 1, ClusterName: "demo", ClusterEndpoint: c.Config().Host, ClusterCA: c.Config().CAData, Roles: []string{"KarpenterNodeRole-demo"},
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(emu.Close)
	cloud := ec2.New(emu.AWSConfig(), ec2.Options{ClusterName: "demo"})
	log.SetLogger(logr.Discard())
	m, err := ctrl.NewManager(c.Config(), ctrl.Options{Scheme: clientgoscheme.Scheme, Metrics: server.Options{BindAddress: "0"}})
	if err != nil {
		t.Fatal(err)
	}
	ca := base64.StdEncoding.EncodeToString(c.Config().CAData)
	if err := (&nodeclass.ClassReconciler{
		Kube: m.GetClient(), Network: cloud, Images: cloud, Profiles: cloud, Templates: cloud, Reserved: cloud, Launches: cloud,
		Events: m.GetEventRecorder("karpenter"), Clock: clock.RealClock{}, CABundle: &ca,
	}).SetupWithManager(m); err != nil {
		t.Fatal(err)
	}
	if err := (&nodeclass.PoolReconciler{Kube: m.GetClient(), Events: m.GetEventRecorder("karpenter"), Clock: clock.RealClock{}}).SetupWithManager(m); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	ctx, stop := context.WithCancel(t.Context())
	go func() { done <- m.Start(ctx) }()
	t.Cleanup(func() {
		stop()
		if err := <-done; err != nil {
			t.Errorf("running the manager: %v", err)
		}
	})
	if err := c.Apply(t.Context(), []byte(classes)); err != nil {
		t.Fatal(err)
	}
	kube, err := client.New(c.Config(), client.Options{Scheme: clientgoscheme.Scheme})
	if err != nil {
		t.Fatal(err)
	}
	return kube, emu
}

// await reads an object until it is as wanted; why says what is missing.
func await(t *testing.T, kube client.Client, o client.Object, why func() string) {
	t.Helper()
	missing := "it does not exist"
	err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		if err := kube.Get(ctx, client.ObjectKeyFromObject(o), o); err != nil {
			return false, client.IgnoreNotFound(err)
		}
		missing = why()
		return missing == "", nil
	})
	if err != nil {
		t.Fatalf("waiting for %T %q: %v (%s)", o, o.GetName(), err, missing)
	}
}

func named[T client.Object](o T, name string) T {
	o.SetName(name)
	return o
}

func TestClassesAndPoolsOnARealControlPlane(t *testing.T) {
	kube, emu := bed(t)
	for _, p := range []*karpv1.NodePool{nodePool("good", "default"), nodePool("lost", "lost"), nodePool("orphan", "missing")} {
		if err := kube.Create(t.Context(), p); err != nil {
			t.Fatal(err)
		}
	}
	class := named(&v1.EC2NodeClass{}, "default")
	await(t, kube, class, func() string {
		if c := class.StatusConditions(status.WithObservedOnly()).Root(); !c.IsTrue() {
			return "it is not ready"
		}
		return ""
	})
	if len(class.Status.Subnets) == 0 || len(class.Status.AMIs) < 3 || class.Status.InstanceProfile == "" {
		t.Errorf("status = %+v, want subnets, images and a profile", class.Status)
	}
	ready := func(p *karpv1.NodePool, want metav1.ConditionStatus, message string) func() string {
		return func() string {
			root := p.StatusConditions(status.WithObservedOnly()).Root()
			c := p.StatusConditions(status.WithObservedOnly()).Get(karpv1.ConditionTypeNodeClassReady)
			if root == nil || c == nil || root.Status != want || !strings.Contains(c.Message, message) {
				return "its Ready is not " + string(want) + " or its NodeClassReady does not say " + message
			}
			return ""
		}
	}
	good, lost, orphan := named(&karpv1.NodePool{}, "good"), named(&karpv1.NodePool{}, "lost"), named(&karpv1.NodePool{}, "orphan")
	await(t, kube, good, ready(good, metav1.ConditionTrue, ""))
	await(t, kube, lost, ready(lost, metav1.ConditionFalse, `"lost" is not ready: SubnetsReady=False (spec.subnetSelectorTerms`))
	await(t, kube, orphan, ready(orphan, metav1.ConditionFalse, `"missing" does not exist`))

	quiet(t, kube, class, named(&v1.EC2NodeClass{}, "lost"), good, lost, orphan)

	// A class that appears makes its pool ready.
	late := &v1.EC2NodeClass{ObjectMeta: metav1.ObjectMeta{Name: "missing"}, Spec: class.Spec}
	if err := kube.Create(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	await(t, kube, orphan, ready(orphan, metav1.ConditionTrue, ""))

	// A class that is deleted says so to its pool, and leaves nothing behind.
	if err := kube.Delete(t.Context(), late); err != nil {
		t.Fatal(err)
	}
	await(t, kube, orphan, ready(orphan, metav1.ConditionFalse, `"missing"`))
	if err := wait.PollUntilContextTimeout(t.Context(), 20*time.Millisecond, 20*time.Second, true, func(ctx context.Context) (bool, error) {
		err := kube.Get(ctx, client.ObjectKeyFromObject(late), &v1.EC2NodeClass{})
		return apierrors.IsNotFound(err), client.IgnoreNotFound(err)
	}); err != nil {
		t.Fatalf("waiting for the class to be gone: %v", err)
	}
	deleted := 0
	for _, r := range emu.Requests() {
		if r.Action == "DeleteInstanceProfile" {
			deleted++
		}
	}
	if deleted != 1 {
		t.Errorf("%d instance profiles were deleted, want that of the class", deleted)
	}
}

// quiet checks that nothing is written while nothing changes: neither reconciler answers its own writes.
func quiet(t *testing.T, kube client.Client, objects ...client.Object) {
	t.Helper()
	read := func() string {
		var versions []string
		for _, o := range objects {
			await(t, kube, o, func() string { return "" })
			versions = append(versions, o.GetResourceVersion())
		}
		return strings.Join(versions, " ")
	}
	before := read()
	time.Sleep(time.Second) // the absence of writes cannot be waited for
	if after := read(); after != before {
		t.Errorf("versions went from %q to %q though nothing changed", before, after)
	}
}
