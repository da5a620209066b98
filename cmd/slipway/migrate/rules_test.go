// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"slices"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

func theNames() Names {
	return Names{Slipway: "slipway-system", Lease: "karpenter-leader-election"}
}

// program is a Deployment as the charts make it, with one ready replica of two.
func program(name, namespace string, env map[string]string, args ...string) *appsv1.Deployment {
	labels := map[string]string{nameLabel: name}
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace, Labels: map[string]string{nameLabel: name, versionLabel: "1.14.1"}},
		Spec: appsv1.DeploymentSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: "registry.example/" + name + ":1", Args: args}}},
			},
		},
		Status: appsv1.DeploymentStatus{ReadyReplicas: 1},
	}
	for k, v := range env {
		c := &d.Spec.Template.Spec.Containers[0]
		c.Env = append(c.Env, corev1.EnvVar{Name: k, Value: v})
	}
	return d
}

// good is a cluster that can be moved: the objects of each are found by their names.
func good() map[string]client.Object {
	objects := map[string]client.Object{
		"karpenter": program("karpenter", "kube-system", map[string]string{"CLUSTER_NAME": "demo", "INTERRUPTION_QUEUE": "demo"}),
		"slipway": program("slipway", "slipway-system", map[string]string{"CLUSTER_NAME": "demo"},
			"--interruption-queue=demo", "--leader-election-namespace=kube-system", "--serve-schedulers=default-scheduler", "--disable-disruption"),
		"lease": &coordinationv1.Lease{
			ObjectMeta: metav1.ObjectMeta{Name: "karpenter-leader-election", Namespace: "kube-system"},
			Spec:       coordinationv1.LeaseSpec{HolderIdentity: new("karpenter-0")},
		},
		"pool":  stampedPool(),
		"claim": stampedClaim("default-1"),
		"pod":   builder.Pod("web").Scheduler("default-scheduler").On("node-default-1").Obj(),
	}
	for _, name := range definitions() {
		objects[name] = &apiextensionsv1.CustomResourceDefinition{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: apiextensionsv1.CustomResourceDefinitionSpec{
				Versions: []apiextensionsv1.CustomResourceDefinitionVersion{{Name: "v1", Served: true, Storage: true}},
			},
		}
	}
	return objects
}

func stampedPool() *karpv1.NodePool {
	return builder.NodePool("default").Ready().Annotation(karpv1.NodePoolHashVersionAnnotationKey, karpv1.NodePoolHashVersion).Obj()
}

func stampedClaim(name string) *karpv1.NodeClaim {
	return builder.NodeClaim(name).Pool("default").Launched("aws:///a/i-"+name, "m5.large", "a", "spot").Registered("node-"+name).
		Annotation(karpv1.NodePoolHashVersionAnnotationKey, karpv1.NodePoolHashVersion).
		Annotation(v1.AnnotationEC2NodeClassHashVersion, v1.EC2NodeClassHashVersion).Obj()
}

// world is a fake API server with the objects.
func world(t *testing.T, objects map[string]client.Object) *fake.ClientBuilder {
	t.Helper()
	scheme, err := NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	b := fake.NewClientBuilder().WithScheme(scheme).WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{})
	for _, o := range objects {
		b = b.WithObjects(o)
	}
	return b
}

// said are the findings of a level, as "rule: what".
func said(r *Report, levels ...Level) []string {
	var out []string
	for _, f := range r.Findings {
		if slices.Contains(levels, f.Level) {
			out = append(out, f.Rule+": "+f.What)
		}
	}
	return out
}

func TestCheckTakeover(t *testing.T) {
	deployment := func(objects map[string]client.Object, name string) *appsv1.Deployment {
		return objects[name].(*appsv1.Deployment)
	}
	tests := map[string]struct {
		change func(map[string]client.Object)
		minor  string
		blocks string
		warns  string
	}{
		"nothing in the way": {},
		"a newer scheduler":  {minor: "36", blocks: "version: the API server is Kubernetes 1.36"},
		"an older scheduler": {minor: "38+"},
		"no definitions": {
			change: func(o map[string]client.Object) { delete(o, "nodepools.karpenter.sh") },
			blocks: "definitions: the custom resource definition nodepools.karpenter.sh is missing",
		},
		"stored as beta": {
			change: func(o map[string]client.Object) {
				o["nodepools.karpenter.sh"].(*apiextensionsv1.CustomResourceDefinition).Spec.Versions[0].Name = "v1beta1"
			},
			blocks: "definitions: nodepools.karpenter.sh is not stored as v1",
		},
		"converted by a webhook": {
			change: func(o map[string]client.Object) {
				o["nodeclaims.karpenter.sh"].(*apiextensionsv1.CustomResourceDefinition).Spec.Conversion = &apiextensionsv1.CustomResourceConversion{Strategy: "Webhook"}
			},
			blocks: "definitions: nodeclaims.karpenter.sh is converted by a webhook",
		},
		"no Karpenter": {
			change: func(o map[string]client.Object) { delete(o, "karpenter") },
			blocks: "karpenter: no Deployment has the label",
		},
		"two Karpenters": {
			change: func(o map[string]client.Object) { o["other"] = program("karpenter", "karpenter", nil) },
			blocks: "karpenter: there are several Karpenters: karpenter/karpenter, kube-system/karpenter",
		},
		"an old Karpenter": {
			change: func(o map[string]client.Object) { deployment(o, "karpenter").Labels[versionLabel] = "0.37.0" },
			blocks: "karpenter: Karpenter is version 0.37.0",
		},
		"no Slipway": {
			change: func(o map[string]client.Object) { delete(o, "slipway") },
			blocks: `slipway: namespace "slipway-system" has no Slipway`,
		},
		"Slipway not ready": {
			change: func(o map[string]client.Object) { deployment(o, "slipway").Status.ReadyReplicas = 0 },
			blocks: "slipway: no pod of Deployment slipway-system/slipway is ready",
		},
		"another lease": {
			change: func(o map[string]client.Object) { deployment(o, "karpenter").Namespace = "karpenter" },
			blocks: `lease: Slipway takes the lease in namespace "kube-system", Karpenter's is in "karpenter"`,
		},
		"Karpenter's lease elsewhere": {
			change: func(o map[string]client.Object) {
				k := deployment(o, "karpenter")
				k.Namespace = "karpenter"
				k.Spec.Template.Spec.Containers[0].Args = []string{"--leader-election-namespace=kube-system"}
			},
		},
		"another cluster": {
			change: func(o map[string]client.Object) {
				deployment(o, "slipway").Spec.Template.Spec.Containers[0].Env[0].Value = "prod"
			},
			blocks: `cluster: Slipway's cluster name is "prod", Karpenter's "demo"`,
		},
		"another queue": {
			change: func(o map[string]client.Object) {
				deployment(o, "slipway").Spec.Template.Spec.Containers[0].Args[0] = "--x"
			},
			warns: `settings: INTERRUPTION_QUEUE is "demo" for Karpenter and "" for Slipway`,
		},
		"nobody would buy": {
			change: func(o map[string]client.Object) {
				deployment(o, "slipway").Spec.Template.Spec.Containers[0].Args[2] = "--x"
			},
			blocks: `schedulers: 1 pod of scheduler "default-scheduler" on Karpenter's nodes or without one, for which Slipway would not buy: default/web`,
		},
		"only daemons are left": {
			change: func(o map[string]client.Object) {
				deployment(o, "slipway").Spec.Template.Spec.Containers[0].Args[2] = "--x"
				o["pod"].SetOwnerReferences([]metav1.OwnerReference{{Kind: "DaemonSet", Name: "d", Controller: new(true)}})
			},
		},
		"a gate of Karpenter's": {
			change: func(o map[string]client.Object) {
				deployment(o, "karpenter").Spec.Template.Spec.Containers[0].Args = []string{"--feature-gates=NodeOverlay=true, NodeRepair=true"}
			},
			warns: "gates: Karpenter repairs nodes",
		},
		"GitOps": {
			change: func(o map[string]client.Object) {
				deployment(o, "karpenter").Labels["argocd.argoproj.io/instance"] = "x"
			},
			warns: "gitops: Deployment kube-system/karpenter is kept by a GitOps tool",
		},
		"disruption at once": {
			change: func(o map[string]client.Object) {
				deployment(o, "slipway").Spec.Template.Spec.Containers[0].Args[3] = "--x"
			},
			warns: "disruption: Slipway consolidates as soon as",
		},
		"a pool that is not ready": {
			change: func(o map[string]client.Object) {
				o["pool"] = builder.NodePool("default").NotReady(karpv1.ConditionTypeNodeClassReady, "X", "no class").Obj()
			},
			warns: `pools: NodePool "default" is not ready: NodeClassReady=False`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects := good()
			if tt.change != nil {
				tt.change(objects)
			}
			if tt.minor == "" {
				tt.minor = "37"
			}
			s, err := Gather(t.Context(), world(t, objects).Build(), tt.minor, theNames())
			if err != nil {
				t.Fatal(err)
			}
			r := CheckTakeover(s)
			for level, want := range map[Level]string{Blocks: tt.blocks, Warns: tt.warns} {
				got := said(r, level)
				if (want == "") != (len(got) == 0) || (want != "" && !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, want) })) {
					t.Errorf("%s: %q, want %q", level, got, want)
				}
			}
		})
	}
}

func TestCheckTells(t *testing.T) {
	objects := good()
	objects["new"] = builder.NodeClaim("default-2").Pool("default").Obj()
	objects["old"] = builder.NodeClaim("default-3").Pool("default").Launched("aws:///a/i-3", "m5.large", "a", "spot").True(karpv1.ConditionTypeDrifted).Obj()
	s, err := Gather(t.Context(), world(t, objects).Build(), "37", theNames())
	if err != nil {
		t.Fatal(err)
	}
	got := strings.Join(said(CheckTakeover(s), Tells), "\n")
	for _, want := range []string{
		"karpenter: Karpenter is Deployment kube-system/karpenter with 2 replicas; its lease is held by karpenter-0",
		"launches: 1 NodeClaim has no instance yet: default-2",
		"drift: 1 NodeClaim has drifted already: default-3",
		"hashes: 2 NodeClaims have hashes of another version",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("told:\n%s\nwant %q in it", got, want)
		}
	}
}

func TestInstallCommand(t *testing.T) {
	objects := good()
	delete(objects, "slipway")
	s, err := Gather(t.Context(), world(t, objects).Build(), "37", theNames())
	if err != nil {
		t.Fatal(err)
	}
	got := s.install()
	for _, want := range []string{"--set clusterName=demo", "--set interruptionQueue=demo", "--set controller.leaderElectionNamespace=kube-system"} {
		if !strings.Contains(got, want) {
			t.Errorf("the command is %q, want %q in it", got, want)
		}
	}
}

func TestCheckHandback(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]client.Object)
		blocks string
		warns  string
	}{
		"nothing in the way": {},
		"a pod of Slipway's": {
			change: func(o map[string]client.Object) { o["pod"] = builder.Pod("web").Scheduler("slipway").Obj() },
			blocks: "schedulers: 1 pod names scheduler slipway, and their successors would have none: default/web",
		},
		"one that has ended": {
			change: func(o map[string]client.Object) {
				o["pod"] = builder.Pod("web").Scheduler("slipway").Phase(corev1.PodSucceeded).Obj()
			},
		},
		"a managed namespace": {
			change: func(o map[string]client.Object) {
				o["namespace"] = &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop", Labels: map[string]string{"slipway.sh/managed": "true"}}}
			},
			blocks: "admission: pods of managed namespaces may be given to Slipway by their WorkloadPolicies: shop",
		},
		"a pool of Slipway's own": {
			change: func(o map[string]client.Object) {
				o["pool"].(*karpv1.NodePool).Spec.Template.Spec.NodeClassRef.Group = "slipway.sh"
			},
			warns: "pools: NodePools of group slipway.sh stay behind, because Karpenter does not know it: default",
		},
		"no Karpenter": {
			change: func(o map[string]client.Object) { delete(o, "karpenter") },
			blocks: "karpenter: no Deployment has the label",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects := good()
			if tt.change != nil {
				tt.change(objects)
			}
			s, err := Gather(t.Context(), world(t, objects).Build(), "37", theNames())
			if err != nil {
				t.Fatal(err)
			}
			r := CheckHandback(s)
			for level, want := range map[Level]string{Blocks: tt.blocks, Warns: tt.warns} {
				got := said(r, level)
				if (want == "") != (len(got) == 0) || (want != "" && !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, want) })) {
					t.Errorf("%s: %q, want %q", level, got, want)
				}
			}
		})
	}
}
