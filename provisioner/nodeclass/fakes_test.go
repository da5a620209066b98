// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync/atomic"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// cloud is an AWS account in fields: what it answers, and how often it was asked.
type cloud struct {
	subnets   []ec2.Subnet
	groups    []ec2.SecurityGroup
	images    []ec2.Image
	cluster   ec2.Cluster
	profile   string
	templates []ec2.StoredTemplate

	reservations []ec2.Reservation
	group        ec2.PlacementGroup

	subnetErr, groupErr, imageErr, clusterErr, profileErr, deleteErr, reservedErr, placedErr, launchErr error

	subnetCalls, groupCalls, imageCalls, profileCalls, launchCalls atomic.Int64
	deletedProfiles                                                int
	deletedTemplates                                               []string
	events                                                         []string
}

func (c *cloud) Subnets(context.Context, []v1.SubnetSelectorTerm) ([]ec2.Subnet, error) {
	c.subnetCalls.Add(1)
	return c.subnets, c.subnetErr
}

func (c *cloud) SecurityGroups(context.Context, []v1.SecurityGroupSelectorTerm) ([]ec2.SecurityGroup, error) {
	c.groupCalls.Add(1)
	return c.groups, c.groupErr
}

func (c *cloud) Images(context.Context, *v1.EC2NodeClass) ([]ec2.Image, error) {
	c.imageCalls.Add(1)
	return c.images, c.imageErr
}

func (c *cloud) Cluster(context.Context) (ec2.Cluster, error) { return c.cluster, c.clusterErr }

func (c *cloud) EnsureInstanceProfile(context.Context, *v1.EC2NodeClass) (string, error) {
	c.profileCalls.Add(1)
	return c.profile, c.profileErr
}

func (c *cloud) CapacityReservations(context.Context, []v1.CapacityReservationSelectorTerm) ([]ec2.Reservation, error) {
	return c.reservations, c.reservedErr
}

func (c *cloud) PlacementGroup(context.Context, *v1.PlacementGroupSelector) (ec2.PlacementGroup, error) {
	return c.group, c.placedErr
}

func (c *cloud) CheckLaunch(context.Context, *v1.EC2NodeClass) error {
	c.launchCalls.Add(1)
	return c.launchErr
}

func (c *cloud) DeleteInstanceProfiles(context.Context, *v1.EC2NodeClass) error {
	c.deletedProfiles++
	return c.deleteErr
}

func (c *cloud) Templates(context.Context) ([]ec2.StoredTemplate, error) { return c.templates, nil }

func (c *cloud) DeleteTemplate(_ context.Context, name string) error {
	c.deletedTemplates = append(c.deletedTemplates, name)
	return nil
}

func (c *cloud) Eventf(_, _ runtime.Object, _, reason, _, note string, args ...any) {
	c.events = append(c.events, reason+": "+fmt.Sprintf(note, args...))
}

// TestMain turns reserved capacity on, as the controller's command does.
func TestMain(m *testing.M) {
	v1.CapacityReservationsEnabled = true
	os.Exit(m.Run())
}

func healthyCloud() *cloud {
	return &cloud{
		// By free addresses, as EC2 answers are sorted.
		subnets: []ec2.Subnet{{ID: "subnet-2", Zone: "b", ZoneID: "az2", FreeAddresses: 20}, {ID: "subnet-1", Zone: "a", ZoneID: "az1", FreeAddresses: 10}},
		groups:  []ec2.SecurityGroup{{ID: "sg-1", Name: "nodes"}},
		images: []ec2.Image{{ID: "ami-1", Name: "image", Requirements: []corev1.NodeSelectorRequirement{
			{Key: v1.LabelInstanceGPUCount, Operator: corev1.NodeSelectorOpDoesNotExist},
			{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{"amd64"}},
		}}},
		cluster: ec2.Cluster{Name: "demo", Version: "1.37", Endpoint: "https://demo", CA: "QQ==", ServiceCIDR: "10.100.0.0/16"},
		profile: "demo_1",
	}
}

func scheme(t *testing.T) *runtime.Scheme {
	t.Helper()
	s := runtime.NewScheme()
	if err := clientgoscheme.AddToScheme(s); err != nil {
		t.Fatal(err)
	}
	aws := schema.GroupVersion{Group: "karpenter.k8s.aws", Version: "v1"}
	core := schema.GroupVersion{Group: "karpenter.sh", Version: "v1"}
	s.AddKnownTypes(aws, &v1.EC2NodeClass{}, &v1.EC2NodeClassList{})
	s.AddKnownTypes(core, &karpv1.NodePool{}, &karpv1.NodePoolList{}, &karpv1.NodeClaim{}, &karpv1.NodeClaimList{})
	metav1.AddToGroupVersion(s, aws)
	metav1.AddToGroupVersion(s, core)
	return s
}

// writes counts what a reconciler wrote of its own object. Of its status writes, the first conflicts are refused.
type writes struct{ metadata, status, conflicts int }

func kube(t *testing.T, w *writes, objects ...client.Object) client.Client {
	t.Helper()
	return fake.NewClientBuilder().WithScheme(scheme(t)).WithObjects(objects...).
		WithStatusSubresource(&v1.EC2NodeClass{}, &karpv1.NodePool{}, &karpv1.NodeClaim{}, &corev1.Node{}).
		WithInterceptorFuncs(interceptor.Funcs{
			Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
				if _, ok := o.(*karpv1.NodeClaim); !ok {
					w.metadata++
				}
				return c.Patch(ctx, o, p, opts...)
			},
			SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
				if w.conflicts > 0 {
					w.conflicts--
					return apierrors.NewConflict(schema.GroupResource{}, o.GetName(), errors.New("too late"))
				}
				w.status++
				return c.SubResource(sub).Patch(ctx, o, p, opts...)
			},
		}).Build()
}

func class(change func(*v1.EC2NodeClass)) *v1.EC2NodeClass {
	c := &v1.EC2NodeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "default", UID: "class-uid", Generation: 1},
		Spec: v1.EC2NodeClassSpec{
			AMISelectorTerms:           []v1.AMISelectorTerm{{Alias: "al2023@latest"}},
			SubnetSelectorTerms:        []v1.SubnetSelectorTerm{{ID: "subnet-1"}},
			SecurityGroupSelectorTerms: []v1.SecurityGroupSelectorTerm{{ID: "sg-1"}},
			Role:                       "role",
		},
	}
	if change != nil {
		change(c)
	}
	return c
}

// classBench is a class reconciler with its surroundings.
type classBench struct {
	*ClassReconciler
	cloud  *cloud
	clock  *clocktesting.FakeClock
	writes writes
}

func newClassBench(t *testing.T, objects ...client.Object) *classBench {
	b := &classBench{cloud: healthyCloud(), clock: clocktesting.NewFakeClock(time.Unix(1e9, 0))}
	b.ClassReconciler = &ClassReconciler{
		Kube: kube(t, &b.writes, objects...), Network: b.cloud, Images: b.cloud, Profiles: b.cloud, Templates: b.cloud,
		Reserved: b.cloud, Launches: b.cloud, Events: b.cloud, Clock: b.clock,
	}
	return b
}

// run reconciles once and returns the class, nil if it is gone.
func (b *classBench) run(t *testing.T) (*v1.EC2NodeClass, reconcile.Result, error) {
	t.Helper()
	result, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKey{Name: "default"}})
	got := &v1.EC2NodeClass{}
	if e := b.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, got); e != nil {
		if client.IgnoreNotFound(e) != nil {
			t.Fatal(e)
		}
		return nil, result, err
	}
	return got, result, err
}

func claim(name, pool string, change func(*karpv1.NodeClaim)) *karpv1.NodeClaim {
	c := &karpv1.NodeClaim{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{karpv1.NodePoolLabelKey: pool}},
		Spec:       karpv1.NodeClaimSpec{NodeClassRef: &karpv1.NodeClassReference{Group: "karpenter.k8s.aws", Kind: "EC2NodeClass", Name: "default"}},
	}
	if change != nil {
		change(c)
	}
	return c
}
