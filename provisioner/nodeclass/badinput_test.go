// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/reconcile"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// stored is an API server whose CRD lets any key of spec.kubelet through: some classes have keys the API package lacks.
type stored struct {
	client.Reader
	kubelet map[string]map[string]any // by class
}

func (s stored) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return s.Reader.Get(ctx, key, o, opts...)
	}
	u.Object = map[string]any{"spec": map[string]any{"kubelet": s.kubelet[key.Name]}}
	return nil
}

// every wrong input a class can have: a condition names the field and the remedy, another class is not touched by it, and the
// class is good again as soon as the input is.
func TestBadInput(t *testing.T) {
	archPool := func(arch ...string) *karpv1.NodePool {
		return builder.NodePool("p").Class("default").Require(builder.In(corev1.LabelArchStable, arch...)).Obj()
	}
	applied := func(c *v1.EC2NodeClass, kubelet string) {
		c.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: `{"kind":"EC2NodeClass","spec":{"kubelet":` + kubelet + `}}`}
	}
	unreadable := &capacity.Error{Kind: capacity.Invalid, Code: "InvalidParameterValue"}
	for name, tc := range map[string]struct {
		bad       func(*testing.T, *classBench, *v1.EC2NodeClass)
		mend      func(*testing.T, *classBench, *v1.EC2NodeClass)
		condition string
		reason    string
		message   []string // the field, and the remedy
	}{
		"selector EC2 refuses": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnetErr = unreadable },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnetErr = nil },
			condition: "SubnetsReady", reason: "SubnetsNotFound", message: []string{"spec.subnetSelectorTerms", "InvalidParameterValue", "correct"},
		},
		"no match: subnets": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnets = nil },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnets = healthyCloud().subnets },
			condition: "SubnetsReady", reason: "SubnetsNotFound", message: []string{"spec.subnetSelectorTerms", "check ids and tags"},
		},
		"no match: groups": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.groups = nil },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.groups = healthyCloud().groups },
			condition: "SecurityGroupsReady", reason: "SecurityGroupsNotFound", message: []string{"spec.securityGroupSelectorTerms", "check ids, names and tags"},
		},
		"no match: images": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.images = nil },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.images = healthyCloud().images },
			condition: "AMIsReady", reason: "AMINotFound", message: []string{"spec.amiSelectorTerms", "check ids, names, owners and tags"},
		},
		"wrong architecture, the pool is changed": {
			bad: func(t *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				if err := b.Kube.Create(t.Context(), archPool("arm64")); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				p := &karpv1.NodePool{}
				if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: "p"}, p); err != nil {
					t.Fatal(err)
				}
				p.Spec.Template.Spec.Requirements = archPool("arm64", "amd64").Spec.Template.Spec.Requirements
				if err := b.Kube.Update(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			},
			condition: "ValidationSucceeded", reason: "ArchitectureMismatch", message: []string{"spec.amiSelectorTerms", `"amd64"`, `"p"`, "arm64", "select images"},
		},
		"wrong architecture, another pool of the class is good": {
			bad: func(t *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				if err := b.Kube.Create(t.Context(), archPool("arm64")); err != nil {
					t.Fatal(err)
				}
			},
			mend: func(t *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				p := archPool("amd64")
				p.Name = "q"
				if err := b.Kube.Create(t.Context(), p); err != nil {
					t.Fatal(err)
				}
			},
			condition: "ValidationSucceeded", reason: "ArchitectureMismatch", message: []string{"spec.amiSelectorTerms"},
		},
		"user data over 16 KiB": {
			bad: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.UserData = new("#!" + strings.Repeat("x", 16384))
			},
			mend:      func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) { c.Spec.UserData = new("#!/bin/sh") },
			condition: "ValidationSucceeded", reason: "UserDataSizeLimitExceeded", message: []string{"spec.userData", "16384", "fetch the rest at boot"},
		},
		"unknown kubelet field that the CRD lets through": {
			bad: func(_ *testing.T, b *classBench, c *v1.EC2NodeClass) {
				c.Spec.Kubelet = &v1.KubeletConfiguration{}
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"maxPod": int64(5)}}}
			},
			mend: func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"maxPods": int64(5)}}}
			},
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:", "correct or remove"},
		},
		"kubelet field that EC2NodeClass does not have": {
			bad: func(_ *testing.T, b *classBench, c *v1.EC2NodeClass) {
				c.Spec.Kubelet = &v1.KubeletConfiguration{}
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"cpuManagerPolicy": "static"}}}
			},
			mend:      func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) { c.Spec.Kubelet = nil },
			condition: "ValidationSucceeded", reason: "UnsupportedKubeletConfiguration", message: []string{"spec.kubelet.cpuManagerPolicy", "spec.userData", "remove"},
		},
		"unknown kubelet field that the CRD drops": {
			bad:       func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(c, `{"maxPod":5}`) },
			mend:      func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(c, `{"maxPods":5}`) },
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:", corev1.LastAppliedConfigAnnotation, "apply the class again"},
		},
		"unknown kubelet field in user data": {
			bad: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.UserData = new("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPod: 5}}}\n")
			},
			mend: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.UserData = new("apiVersion: node.eks.aws/v1alpha1\nkind: NodeConfig\nspec: {kubelet: {config: {maxPods: 5, cpuManagerPolicy: static}}}\n")
			},
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.userData", "spec.kubelet.config.maxPod:", "correct or remove"},
		},
		"missing permission to launch": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.launchErr = denied("RunInstances") },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.launchErr = nil },
			condition: "ValidationSucceeded", reason: "RunInstancesAuthCheckFailed", message: []string{"ec2:RunInstances", "allow it in the policy"},
		},
		"missing permission to look": {
			bad:       func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnetErr = denied("DescribeSubnets") },
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.cloud.subnetErr = nil },
			condition: "SubnetsReady", reason: "ResolutionFailed", message: []string{"spec.subnetSelectorTerms", "ec2:DescribeSubnets", "allow"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := newClassBench(t, class(nil))
			change := func(how func(*testing.T, *classBench, *v1.EC2NodeClass)) {
				c := &v1.EC2NodeClass{}
				if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, c); err != nil {
					t.Fatal(err)
				}
				how(t, b, c)
				c.Generation++
				if err := b.Kube.Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			}
			change(tc.bad)
			got, _, _ := b.run(t)
			c := condition(got.Status.Conditions, tc.condition)
			if c.IsTrue() || c.Reason != tc.reason {
				t.Errorf("%s = %s, %s, %q; want %s", tc.condition, c.Status, c.Reason, c.Message, tc.reason)
			}
			for _, part := range tc.message {
				if !strings.Contains(c.Message, part) {
					t.Errorf("message %q lacks %q", c.Message, part)
				}
			}
			if ready := condition(got.Status.Conditions, "Ready"); ready.Status == metav1.ConditionTrue {
				t.Error("the class is ready in spite of it")
			}
			change(tc.mend)
			got, _, err := b.run(t)
			if ready := condition(got.Status.Conditions, "Ready"); err != nil || ready.Status != metav1.ConditionTrue {
				t.Errorf("mended: err %v, Ready = %s, %q; want True", err, ready.Status, ready.Message)
			}
		})
	}
}

// A class with a fault of its own stops no other.
func TestBadClassStopsOnlyItself(t *testing.T) {
	other := class(func(c *v1.EC2NodeClass) { c.Name, c.UID = "other", "other-uid" })
	b := newClassBench(t, class(func(c *v1.EC2NodeClass) { c.Spec.UserData = new("#!" + strings.Repeat("x", 16384)) }), other)
	if got, _, err := b.run(t); err != nil || condition(got.Status.Conditions, "Ready").Status == metav1.ConditionTrue {
		t.Fatalf("err %v, conditions %+v; want a class that is not ready", err, got.Status.Conditions)
	}
	if _, err := b.Reconcile(t.Context(), reconcile.Request{NamespacedName: client.ObjectKeyFromObject(other)}); err != nil {
		t.Fatal(err)
	}
	if err := b.Kube.Get(t.Context(), client.ObjectKeyFromObject(other), other); err != nil {
		t.Fatal(err)
	}
	if c := condition(other.Status.Conditions, "Ready"); !c.IsTrue() {
		t.Errorf("the other class: Ready = %s, %q", c.Status, c.Message)
	}
}

func TestAskedArchitecture(t *testing.T) {
	in := func(values ...string) karpv1.NodeSelectorRequirementWithMinValues {
		return karpv1.NodeSelectorRequirementWithMinValues{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: values}
	}
	for name, tc := range map[string]struct {
		label    string
		requires []karpv1.NodeSelectorRequirementWithMinValues
		amd, ok  bool
	}{
		"nothing":           {},
		"a label":           {label: "amd64", amd: true, ok: true},
		"the beta key":      {requires: []karpv1.NodeSelectorRequirementWithMinValues{{Key: "beta.kubernetes.io/arch", Operator: corev1.NodeSelectorOpIn, Values: []string{"arm64"}}}, ok: true},
		"not arm":           {requires: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpNotIn, Values: []string{"arm64"}}}, amd: true, ok: true},
		"two that agree":    {requires: []karpv1.NodeSelectorRequirementWithMinValues{in("amd64", "arm64"), in("arm64")}, ok: true},
		"a contradiction":   {label: "amd64", requires: []karpv1.NodeSelectorRequirementWithMinValues{in("arm64")}},
		"cannot be read":    {requires: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelArchStable, Operator: "Near"}}},
		"of something else": {requires: []karpv1.NodeSelectorRequirementWithMinValues{{Key: corev1.LabelOSStable, Operator: corev1.NodeSelectorOpExists}}},
	} {
		t.Run(name, func(t *testing.T) {
			p := builder.NodePool("p").Obj()
			p.Spec.Template.Spec.Requirements = tc.requires
			if tc.label != "" {
				p.Spec.Template.Labels = map[string]string{corev1.LabelArchStable: tc.label}
			}
			got, ok := asked(p)
			if ok != tc.ok || ok && got.Has("amd64") != tc.amd {
				t.Errorf("asked = %s, %v; want %v and amd64 allowed: %v", got, ok, tc.ok, tc.amd)
			}
		})
	}
}
