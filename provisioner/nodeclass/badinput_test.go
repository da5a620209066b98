// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"encoding/json"
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

// stored is an API server with a later CRD: classes have keys the API package lacks.
type stored struct {
	client.Reader
	spec map[string]map[string]any // by class
}

// withKubelet is such a server whose class "default" has the keys in spec.kubelet.
func (s stored) withKubelet(kubelet map[string]any) stored {
	s.spec = map[string]map[string]any{"default": {"kubelet": kubelet}}
	return s
}

func (s stored) Get(ctx context.Context, key client.ObjectKey, o client.Object, opts ...client.GetOption) error {
	u, ok := o.(*unstructured.Unstructured)
	if !ok {
		return s.Reader.Get(ctx, key, o, opts...)
	}
	u.Object = map[string]any{"spec": s.spec[key.Name]}
	return nil
}

// every wrong input a class can have: a condition names the field and the remedy, another class is not touched by it, and the
// class is good again as soon as the input is.
func TestBadInput(t *testing.T) {
	archPool := func(arch ...string) *karpv1.NodePool {
		return builder.NodePool("p").Class("default").Require(builder.In(corev1.LabelArchStable, arch...)).Obj()
	}
	// applied is what is left of kubectl apply --validate=false: the API server drops what its CRD does not know.
	applied := func(t *testing.T, c *v1.EC2NodeClass, kubelet string) {
		c.Spec.Kubelet = &v1.KubeletConfiguration{}
		if err := json.Unmarshal([]byte(kubelet), c.Spec.Kubelet); err != nil {
			t.Fatal(err)
		}
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
				b.Live = stored{Reader: b.Kube}.withKubelet(map[string]any{"maxPod": int64(5)})
			},
			mend: func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				b.Live = stored{Reader: b.Kube}.withKubelet(map[string]any{"maxPods": int64(5)})
			},
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:", "correct or remove"},
		},
		"kubelet field that EC2NodeClass does not have": {
			bad: func(_ *testing.T, b *classBench, c *v1.EC2NodeClass) {
				c.Spec.Kubelet = &v1.KubeletConfiguration{}
				b.Live = stored{Reader: b.Kube}.withKubelet(map[string]any{"cpuManagerPolicy": "static"})
			},
			mend: func(_ *testing.T, b *classBench, c *v1.EC2NodeClass) {
				c.Spec.Kubelet, b.Live = nil, stored{Reader: b.Kube}
			},
			condition: "ValidationSucceeded", reason: "UnsupportedKubeletConfiguration", message: []string{"spec.kubelet.cpuManagerPolicy", "spec.userData", "remove"},
		},
		"unknown kubelet field that the CRD drops": {
			bad:       func(t *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(t, c, `{"maxPod":5}`) },
			mend:      func(t *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(t, c, `{"maxPods":5}`) },
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:", corev1.LastAppliedConfigAnnotation, "apply the class again"},
		},
		"unknown kubelet field that the CRD drops, mended without kubectl apply": {
			bad: func(t *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(t, c, `{"maxPod":5,"podsPerCore":4}`) },
			mend: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.Kubelet.MaxPods = new(int32(5))
			},
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:", "remove the annotation"},
		},
		"unknown kubelet field that the CRD drops, spec.kubelet is taken away": {
			bad:       func(t *testing.T, _ *classBench, c *v1.EC2NodeClass) { applied(t, c, `{"maxPod":5}`) },
			mend:      func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) { c.Spec.Kubelet = nil },
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.kubelet.maxPod:"},
		},
		"field of a later CRD": {
			bad: func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"enclaveOptions": map[string]any{"enabled": true}}}}
			},
			mend: func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"role": "role"}}}
			},
			condition: "ValidationSucceeded", reason: "NodeClassValidationFailed", message: []string{"spec.enclaveOptions:", "remove it"},
		},
		"field of a later CRD, further down": {
			bad: func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) {
				b.Live = stored{b.Kube, map[string]map[string]any{"default": {"blockDeviceMappings": []any{map[string]any{"ebs": map[string]any{"tier": "fast"}}}}}}
			},
			mend:      func(_ *testing.T, b *classBench, _ *v1.EC2NodeClass) { b.Live = stored{Reader: b.Kube} },
			condition: "ValidationSucceeded", reason: "NodeClassValidationFailed", message: []string{"spec.blockDeviceMappings[0].ebs.tier:", "remove it"},
		},
		"unknown kubelet field in Bottlerocket's settings": {
			bad: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.AMISelectorTerms = []v1.AMISelectorTerm{{Alias: "bottlerocket@latest"}}
				c.Spec.UserData = new("[settings.kubernetes]\nmax-pod = 5\n")
			},
			mend: func(_ *testing.T, _ *classBench, c *v1.EC2NodeClass) {
				c.Spec.UserData = new("[settings]\nmotd = 'hi'\n[settings.kubernetes]\nmax-pods = 5\nkubelet-extra-config = 'e30='\n")
			},
			condition: "ValidationSucceeded", reason: "InvalidKubeletConfiguration", message: []string{"spec.userData", "settings.kubernetes.max-pod:", "correct or remove"},
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

// Who has written spec.kubelet since kubectl noted what it applied is known from managedFields alone, where the value is the same.
func TestRewrittenSinceKubectl(t *testing.T) {
	at := func(second int64) *metav1.Time { return new(metav1.Unix(1e9+second, 0)) }
	entry := func(by string, operation metav1.ManagedFieldsOperationType, second int64, fields string) metav1.ManagedFieldsEntry {
		return metav1.ManagedFieldsEntry{Manager: by, Operation: operation, Time: at(second), FieldsV1: metav1.NewFieldsV1(fields)}
	}
	const (
		update, apply = metav1.ManagedFieldsOperationUpdate, metav1.ManagedFieldsOperationApply
		note          = `"f:metadata":{"f:annotations":{".":{},"f:kubectl.kubernetes.io/last-applied-configuration":{}}}`
	)
	kubectl := entry("kubectl-client-side-apply", update, 5, `{`+note+`,"f:spec":{".":{},"f:kubelet":{}}}`)
	ofStatus := entry("slipway-controller", update, 9, `{"f:status":{"f:conditions":{}}}`)
	ofStatus.Subresource = "status"
	for name, tc := range map[string]struct {
		fields []metav1.ManagedFieldsEntry
		want   bool
	}{
		"kubectl alone":            {fields: []metav1.ManagedFieldsEntry{kubectl}},
		"unknown":                  {},
		"our own writes":           {fields: []metav1.ManagedFieldsEntry{kubectl, ofStatus, entry("slipway-controller", update, 8, `{"f:metadata":{"f:finalizers":{}}}`)}},
		"edited elsewhere":         {fields: []metav1.ManagedFieldsEntry{kubectl, entry("kubectl-edit", update, 8, `{"f:spec":{"f:tags":{}}}`)}},
		"edited":                   {fields: []metav1.ManagedFieldsEntry{kubectl, entry("kubectl-edit", update, 8, `{"f:spec":{"f:kubelet":{"f:podsPerCore":{}}}}`)}, want: true},
		"edited before":            {fields: []metav1.ManagedFieldsEntry{entry("kubectl-edit", update, 4, `{"f:spec":{"f:kubelet":{"f:podsPerCore":{}}}}`), kubectl}},
		"applied on the server":    {fields: []metav1.ManagedFieldsEntry{kubectl, entry("flux", apply, 8, `{"f:spec":{"f:role":{}}}`)}, want: true},
		"labelled on the server":   {fields: []metav1.ManagedFieldsEntry{kubectl, entry("flux", apply, 8, `{"f:metadata":{"f:labels":{}}}`)}},
		"nothing of kubectl's own": {fields: []metav1.ManagedFieldsEntry{entry("flux", apply, 8, `{"f:spec":{"f:kubelet":{}}}`)}},
		"cannot be read":           {fields: []metav1.ManagedFieldsEntry{kubectl, entry("x", apply, 8, `[]`), {Manager: "y", Time: at(9)}}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := rewritten(tc.fields); got != tc.want {
				t.Errorf("rewritten = %v, want %v", got, tc.want)
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
