// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// everything is a pod with every field that decides where it may go.
func everything() *corev1.Pod {
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}, MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "v", Operator: metav1.LabelSelectorOpIn, Values: []string{"1", "2"}}}}
	term := func() corev1.PodAffinityTerm {
		return corev1.PodAffinityTerm{TopologyKey: "zone", LabelSelector: web.DeepCopy(), Namespaces: []string{"a"}}
	}
	p := builder.Pod("p").UID("p").Label("app", "web").CPU("1").Memory("1Gi").Request("nvidia.com/gpu", "1").NodeSelector("a", "1").
		NodeAffinity(builder.In("b", "1", "2")).PreferNodes(5, builder.In("c", "1")).HostPort(80).
		Tolerate(corev1.Toleration{Key: "t", Value: "v", Effect: noSchedule}).
		Constraint(corev1.TopologySpreadConstraint{TopologyKey: zoneLabel, MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: web.DeepCopy(), MatchLabelKeys: []string{"v"}}).Obj()
	p.Spec.Affinity.PodAffinity = &corev1.PodAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term()},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term()}},
	}
	p.Spec.Affinity.PodAntiAffinity = &corev1.PodAntiAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution:  []corev1.PodAffinityTerm{term()},
		PreferredDuringSchedulingIgnoredDuringExecution: []corev1.WeightedPodAffinityTerm{{Weight: 3, PodAffinityTerm: term()}},
	}
	return p
}

// TestClassIDs checks that pods are of one class if and only if they do not differ in anything that decides where they may go.
func TestClassIDs(t *testing.T) {
	id := func(change func(*corev1.Pod)) string {
		p := everything()
		if change != nil {
			change(p)
		}
		return view.New(source.New().Source()).Pod(p).Class.ID
	}
	honor := corev1.NodeInclusionPolicyHonor
	spread := func(p *corev1.Pod) *corev1.TopologySpreadConstraint { return &p.Spec.TopologySpreadConstraints[0] }
	required := func(p *corev1.Pod) *corev1.NodeSelectorTerm {
		return &p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution.NodeSelectorTerms[0]
	}
	seen := map[string]string{id(nil): "nothing"}
	for name, change := range map[string]func(*corev1.Pod){
		"namespace": func(p *corev1.Pod) { p.Namespace = "other" },
		"a label":   func(p *corev1.Pod) { p.Labels["x"] = "y" },
		"CPU":       func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("2") },
		"a device": func(p *corev1.Pod) {
			p.Spec.Containers[0].Resources.Requests["nvidia.com/gpu"] = resource.MustParse("2")
		},
		"another device":    func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["amd.com/gpu"] = resource.MustParse("1") },
		"node selector":     func(p *corev1.Pod) { p.Spec.NodeSelector["a"] = "2" },
		"affinity key":      func(p *corev1.Pod) { required(p).MatchExpressions[0].Key = "z" },
		"affinity operator": func(p *corev1.Pod) { required(p).MatchExpressions[0].Operator = corev1.NodeSelectorOpNotIn },
		"affinity values":   func(p *corev1.Pod) { required(p).MatchExpressions[0].Values = []string{"12"} },
		"affinity field": func(p *corev1.Pod) {
			required(p).MatchFields = append(required(p).MatchFields, builder.In(metav1.ObjectNameField, "n"))
		},
		"a second affinity term": func(p *corev1.Pod) {
			r := p.Spec.Affinity.NodeAffinity.RequiredDuringSchedulingIgnoredDuringExecution
			r.NodeSelectorTerms = append(r.NodeSelectorTerms, *required(p))
		},
		"preference": func(p *corev1.Pod) {
			p.Spec.Affinity.NodeAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight = 6
		},
		"toleration key":          func(p *corev1.Pod) { p.Spec.Tolerations[0].Key = "u" },
		"toleration operator":     func(p *corev1.Pod) { p.Spec.Tolerations[0].Operator = corev1.TolerationOpExists },
		"toleration value":        func(p *corev1.Pod) { p.Spec.Tolerations[0].Value = "w" },
		"toleration effect":       func(p *corev1.Pod) { p.Spec.Tolerations[0].Effect = "" },
		"host port":               func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostPort = 81 },
		"host IP":                 func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].HostIP = "10.0.0.1" },
		"protocol":                func(p *corev1.Pod) { p.Spec.Containers[0].Ports[0].Protocol = corev1.ProtocolUDP },
		"spread key":              func(p *corev1.Pod) { spread(p).TopologyKey = "rack" },
		"spread skew":             func(p *corev1.Pod) { spread(p).MaxSkew = 2 },
		"soft spread":             func(p *corev1.Pod) { spread(p).WhenUnsatisfiable = corev1.ScheduleAnyway },
		"spread domains":          func(p *corev1.Pod) { spread(p).MinDomains = new(int32(2)) },
		"spread affinity policy":  func(p *corev1.Pod) { spread(p).NodeAffinityPolicy = &honor },
		"spread taints policy":    func(p *corev1.Pod) { spread(p).NodeTaintsPolicy = &honor },
		"spread selector":         func(p *corev1.Pod) { spread(p).LabelSelector.MatchLabels["app"] = "db" },
		"spread without selector": func(p *corev1.Pod) { spread(p).LabelSelector = nil },
		"spread label keys":       func(p *corev1.Pod) { spread(p).MatchLabelKeys = nil },
		"affinity topology": func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].TopologyKey = "rack"
		},
		"affinity namespaces": func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].Namespaces = []string{"a", "b"}
		},
		"affinity selector": func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector.MatchExpressions[0].Values = []string{"1"}
		},
		"anti-affinity, not near": func(p *corev1.Pod) {
			a := p.Spec.Affinity
			a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		},
		"near, not anti-affinity": func(p *corev1.Pod) {
			a := p.Spec.Affinity
			a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution = nil
		},
		"preferred affinity": func(p *corev1.Pod) {
			p.Spec.Affinity.PodAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight = 4
		},
		"preferred anti-affinity": func(p *corev1.Pod) {
			p.Spec.Affinity.PodAntiAffinity.PreferredDuringSchedulingIgnoredDuringExecution[0].Weight = 4
		},
		"a gate": func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "g"}} },
	} {
		got := id(change)
		if other, ok := seen[got]; ok {
			t.Errorf("a pod that differs in %s is of the same class as one that differs in %s", name, other)
		}
		seen[got] = name
	}
	for name, change := range map[string]func(*corev1.Pod){
		"its name":                     func(p *corev1.Pod) { p.Name = "other" },
		"its annotations":              func(p *corev1.Pod) { p.Annotations = map[string]string{"a": "b"} },
		"its image":                    func(p *corev1.Pod) { p.Spec.Containers[0].Image = "other" },
		"how a quantity is written":    func(p *corev1.Pod) { p.Spec.Containers[0].Resources.Requests["cpu"] = resource.MustParse("1000m") },
		"the number of a StatefulSet":  func(p *corev1.Pod) { p.Labels["apps.kubernetes.io/pod-index"] = "3" },
		"how long it tolerates taints": func(p *corev1.Pod) { p.Spec.Tolerations[0].TolerationSeconds = new(int64(5)) },
	} {
		if got := id(change); seen[got] != "nothing" {
			t.Errorf("a pod that differs in %s is of another class", name)
		}
	}
}
