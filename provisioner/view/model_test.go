// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// TestPreferencesAreKept checks that what a pod would like is told apart from what it needs.
func TestPreferencesAreKept(t *testing.T) {
	web := map[string]string{"app": "web"}
	pod := builder.Pod("p").UID("1").PreferNodes(10, builder.In("a", "1")).PreferApart(20, "zone", web).
		Constraint(corev1.TopologySpreadConstraint{TopologyKey: zoneLabel, MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: &metav1.LabelSelector{MatchLabels: web}}).Obj()
	pod.Spec.PreemptionPolicy = new(corev1.PreemptNever)
	pod.Spec.Affinity.PodAffinity = &corev1.PodAffinity{PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{
		{Weight: 5, PodAffinityTerm: corev1.PodAffinityTerm{TopologyKey: "rack", LabelSelector: &metav1.LabelSelector{MatchLabels: web}}},
	}}
	got := view.New(source.New().Source()).Pod(pod)
	var words []string
	for _, p := range got.Class.Preferred {
		words = append(words, fmt.Sprintf("%d %s", p.Weight, p.Requirements))
	}
	for _, p := range got.Class.PreferredAffinity {
		words = append(words, fmt.Sprintf("%d near %s %s", p.Weight, p.Key, p.Selector))
	}
	for _, p := range got.Class.PreferredAntiAffinity {
		words = append(words, fmt.Sprintf("%d apart %s %s", p.Weight, p.Key, p.Selector))
	}
	for _, sp := range got.Class.SoftSpread {
		words = append(words, "spread "+sp.Key)
	}
	want := []string{"10 a In [1]", "5 near rack app=web", "20 apart zone app=web", "spread " + zoneLabel}
	if diff := cmp.Diff(want, words); diff != "" {
		t.Errorf("preferences (-want +got):\n%s", diff)
	}
	if len(got.Class.Spread)+len(got.Class.Affinity)+len(got.Class.AntiAffinity) != 0 || !got.NeverPreempts {
		t.Errorf("pod = %+v, class = %+v: want no required rule and no preemption", got, got.Class)
	}
}

// TestAffinityLabelKeys checks that matchLabelKeys and mismatchLabelKeys count for pods of a template, and not a second time
// for pods into whose selectors the API server has merged them, whatever their labels have become since.
func TestAffinityLabelKeys(t *testing.T) {
	term := func(expressions ...metav1.LabelSelectorRequirement) corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{
			TopologyKey: "zone", MatchLabelKeys: []string{"rev", "missing"}, MismatchLabelKeys: []string{"tenant"},
			LabelSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: expressions},
		}
	}
	merged := term(
		metav1.LabelSelectorRequirement{Key: "rev", Operator: metav1.LabelSelectorOpIn, Values: []string{"0"}},
		metav1.LabelSelectorRequirement{Key: "tenant", Operator: metav1.LabelSelectorOpNotIn, Values: []string{"z"}},
	)
	for name, tc := range map[string]struct {
		term corev1.PodAffinityTerm
		want string
	}{
		"of a template":            {term(), "app=web,rev in (1),tenant notin (x)"},
		"merged by the API server": {merged, "app=web,rev in (0),tenant notin (z)"},
	} {
		t.Run(name, func(t *testing.T) {
			pod := builder.Pod("p").UID("1").Label("rev", "1").Label("tenant", "x").Obj()
			pod.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{tc.term}}}
			if got := view.New(source.New().Source()).Pod(pod).Class.AntiAffinity[0].Selector.String(); got != tc.want {
				t.Errorf("selector = %q, want %q", got, tc.want)
			}
		})
	}
}

func TestUnsupported(t *testing.T) {
	waits := storagev1.VolumeBindingWaitForFirstConsumer
	late := storageClass("late")
	late.VolumeBindingMode = &waits
	lost, leaving := claim("data", "pv", ""), claim("data", "pv", "")
	lost.Status.Phase = corev1.ClaimLost
	leaving.DeletionTimestamp = new(metav1.NewTime(builder.Epoch()))
	pvc := func() *builder.PodBuilder { return builder.Pod("p").Volume("data") }
	for name, tc := range map[string]struct {
		pod     *builder.PodBuilder
		change  func(*corev1.Pod)
		objects []runtime.Object
		want    string
	}{
		"devices through claims": {
			pod: builder.Pod("p"), change: func(p *corev1.Pod) { p.Spec.ResourceClaims = []corev1.PodResourceClaim{{Name: "gpu"}} },
			want: `the pod asks for devices through resource claims (spec.resourceClaims, "gpu" first), for which no node is bought`,
		},
		"a scheduling gate": {
			pod: builder.Pod("p"), change: func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "quota"}} },
			want: `the pod is held back by scheduling gate "quota" (spec.schedulingGates)`,
		},
		"no claim":                {pod: pvc(), want: `PersistentVolumeClaim "default/data" (spec.volumes) does not exist`},
		"claim without a volume":  {pod: pvc(), objects: []runtime.Object{lost}, want: `PersistentVolumeClaim "default/data" (spec.volumes) has lost its volume`},
		"claim being deleted":     {pod: pvc(), objects: []runtime.Object{leaving}, want: `PersistentVolumeClaim "default/data" (spec.volumes) is being deleted`},
		"no storage class":        {pod: pvc(), objects: []runtime.Object{claim("data", "", "fast")}, want: `PersistentVolumeClaim "default/data" (spec.volumes) is not bound and its StorageClass "fast" does not exist`},
		"binds immediately":       {pod: pvc(), objects: []runtime.Object{claim("data", "", "now"), storageClass("now")}, want: `PersistentVolumeClaim "default/data" (spec.volumes) is not bound, and is to be before its pod is scheduled`},
		"binds with its pod":      {pod: pvc(), objects: []runtime.Object{claim("data", "", "late"), late}},
		"bound":                   {pod: pvc(), objects: []runtime.Object{claim("data", "pv", ""), volume("pv")}},
		"a pod that has its node": {pod: pvc().On("n")},
	} {
		t.Run(name, func(t *testing.T) {
			pod := tc.pod.UID("1").Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			if got := view.New(source.New(tc.objects...).Source()).Pod(pod).Class.Unsupported; got != tc.want {
				t.Errorf("Unsupported = %q, want %q", got, tc.want)
			}
		})
	}
}

// TestDaemonPodsShareAClass checks that the node name every daemonset pod carries does not make each a class of its own.
func TestDaemonPodsShareAClass(t *testing.T) {
	b := view.New(source.New().Source())
	pod := func(node string) *corev1.Pod {
		p := builder.Pod("cni-"+node).UID("cni-"+node).On(node).OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "DaemonSet"}, "cni", "cni").Obj()
		p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchFields: []corev1.NodeSelectorRequirement{builder.In("metadata.name", node)}}},
		}}}
		return p
	}
	if b.Pod(pod("a")).Class != b.Pod(pod("b")).Class {
		t.Error("two pods of a daemonset are of different classes")
	}
}

// TestNegativeRequestsMakeNoRoom is about pods that did not come through the API server's validation.
func TestNegativeRequestsMakeNoRoom(t *testing.T) {
	got := view.New(source.New().Source()).Pod(builder.Pod("p").CPU("-1").Memory("1Gi").Obj()).Class.Requests.String()
	if want := "memory=1Gi pods=1"; got != want {
		t.Errorf("requests = %q, want %q", got, want)
	}
}

// TestMemoForgets checks that a builder that has seen many pods come and go still gives right answers.
func TestMemoForgets(t *testing.T) {
	c := source.New(builder.Node("n").CPU("64").Obj())
	b := view.New(c.Source())
	for round := range 5 {
		for i := range 400 {
			b.Pod(builder.Pod("gone").UID(fmt.Sprintf("%d-%d", round, i)).CPU("1").Obj())
		}
		c.Put(builder.Pod("stays").UID("stays").CPU("2").On("n").Obj())
		v, err := b.Build(t.Context(), view.Pending{})
		if err != nil {
			t.Fatal(err)
		}
		if got := v.Nodes[0].Used.String(); got != "cpu=2 pods=1" {
			t.Fatalf("round %d: used = %s", round, got)
		}
	}
}
