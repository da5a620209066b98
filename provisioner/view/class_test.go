// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// shape is a class in words, for comparison.
type shape struct {
	Requests string
	Terms    []string // "" is a term that asks nothing
	Ports    []string
	Spread   []string
	Near     []string
	Apart    []string
}

func shapeOf(c *capacity.Class) shape {
	s := shape{Requests: c.Requests.String()}
	for _, t := range c.Terms {
		s.Terms = append(s.Terms, t.String())
	}
	for _, p := range c.HostPorts {
		s.Ports = append(s.Ports, fmt.Sprintf("%s %s %d", p.IP, p.Protocol, p.Port))
	}
	for _, sp := range c.Spread {
		s.Spread = append(s.Spread, fmt.Sprintf("%s skew %d domains %d affinity %v taints %v: %s", sp.Key, sp.MaxSkew, sp.MinDomains, sp.HonorAffinity, sp.HonorTaints, sp.Selector))
	}
	terms := func(in []capacity.PodTerm) (out []string) {
		for _, t := range in {
			out = append(out, fmt.Sprintf("%s %s: %s", t.Key, strings.Join(sets.List(t.Namespaces), ","), t.Selector))
		}
		return out
	}
	s.Near, s.Apart = terms(c.Affinity), terms(c.AntiAffinity)
	return s
}

// asked is the shape of a pod that asks for nothing but what change adds.
func asked(change func(*shape)) shape {
	s := shape{Requests: "pods=1", Terms: []string{""}}
	change(&s)
	return s
}

func TestPodToClass(t *testing.T) {
	web := map[string]string{"app": "web"}
	honor, ignore := corev1.NodeInclusionPolicyHonor, corev1.NodeInclusionPolicyIgnore
	anti := func(term corev1.PodAffinityTerm) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{term}}}
		}
	}
	required := func(terms ...corev1.NodeSelectorTerm) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{NodeSelectorTerms: terms}}}
		}
	}
	named := func(names ...string) []corev1.NodeSelectorRequirement {
		return []corev1.NodeSelectorRequirement{builder.In("metadata.name", names...)}
	}
	for name, tc := range map[string]struct {
		pod    *builder.PodBuilder
		change func(*corev1.Pod)
		want   shape
	}{
		"nothing": {pod: builder.Pod("p"), want: asked(func(*shape) {})},
		"requests of all containers": {
			pod:  builder.Pod("p").CPU("1").Memory("1Gi").Request("nvidia.com/gpu", "1").Container("more", "500m", "1Gi"),
			want: asked(func(s *shape) { s.Requests = "cpu=1500m memory=2Gi pods=1 nvidia.com/gpu=1" }),
		},
		"the largest init container": {
			pod:  builder.Pod("p").CPU("1").Memory("1Gi").InitContainer("init", "4", "512Mi"),
			want: asked(func(s *shape) { s.Requests = "cpu=4 memory=1Gi pods=1" }),
		},
		"a sidecar counts beside": {
			pod:  builder.Pod("p").CPU("1").Memory("1Gi").Sidecar("proxy", "100m", "1Gi").InitContainer("init", "1", "1Gi"),
			want: asked(func(s *shape) { s.Requests = "cpu=1100m memory=2Gi pods=1" }),
		},
		"pod-level resources and overhead": {
			pod:  builder.Pod("p").CPU("1").PodRequest("cpu", "3").Overhead("cpu", "250m"),
			want: asked(func(s *shape) { s.Requests = "cpu=3250m pods=1" }),
		},
		"a node selector, old keys read as new": {
			pod:  builder.Pod("p").NodeSelector("beta.kubernetes.io/arch", "arm64").NodeSelector("team", "x"),
			want: asked(func(s *shape) { s.Terms = []string{"kubernetes.io/arch In [arm64], team In [x]"} }),
		},
		"all affinity terms, each with the node selector": {
			pod: builder.Pod("p").NodeSelector("team", "x").NodeAffinity(builder.In("a", "1"), builder.NotIn("b", "2")).
				NodeAffinity(builder.Requirement("gen", corev1.NodeSelectorOpGt, "4")),
			want: asked(func(s *shape) {
				s.Terms = []string{"a In [1], b NotIn [2], team In [x]", "gen Exists >=5, team In [x]"}
			}),
		},
		"preferences are not requirements": {pod: builder.Pod("p").PreferNodes(10, builder.In("a", "1")).PreferApart(10, "zone", web), want: asked(func(*shape) {})},
		"an empty term matches no node":    {pod: builder.Pod("p"), change: required(corev1.NodeSelectorTerm{}), want: asked(func(s *shape) { s.Terms = []string{"spec.affinity.nodeAffinity with no possible value"} })},
		"an invalid term matches no node": {
			pod:  builder.Pod("p").NodeAffinity(builder.Requirement("a", corev1.NodeSelectorOpGt, "many")).NodeAffinity(builder.In("b", "1")),
			want: asked(func(s *shape) { s.Terms = []string{"b In [1]"} }),
		},
		"a bound no label can have matches no node": {
			pod:  builder.Pod("p").NodeAffinity(builder.Requirement("gen", corev1.NodeSelectorOpGt, "-1")).NodeAffinity(builder.In("b", "no label!")),
			want: asked(func(s *shape) { s.Terms = []string{"spec.affinity.nodeAffinity with no possible value"} }),
		},
		"a node by name": {
			pod: builder.Pod("p"), change: required(corev1.NodeSelectorTerm{MatchFields: named("n1")}),
			want: asked(func(s *shape) { s.Terms = []string{"field:metadata.name In [n1]"} }),
		},
		"terms that name a node and terms that leave it open": {
			pod: builder.Pod("p"), change: required(corev1.NodeSelectorTerm{MatchFields: named("n1")}, corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{builder.In("a", "1")}}),
			want: asked(func(s *shape) { s.Terms = []string{"field:metadata.name In [n1]", "a In [1]"} }),
		},
		"two names at once are no node": {
			pod: builder.Pod("p"), change: required(corev1.NodeSelectorTerm{MatchFields: append(named("n1"), named("n2")...)}),
			want: asked(func(s *shape) { s.Terms = []string{"field:metadata.name with no possible value"} }),
		},
		"host ports of containers and sidecars": {
			pod: builder.Pod("p").HostPort(80).Sidecar("proxy", "1", "1").InitContainer("init", "1", "1"),
			change: func(p *corev1.Pod) {
				p.Spec.InitContainers[0].Ports = []corev1.ContainerPort{{HostPort: 90, HostIP: "10.0.0.1", Protocol: corev1.ProtocolUDP}, {ContainerPort: 91}}
				p.Spec.InitContainers[1].Ports = []corev1.ContainerPort{{HostPort: 92}}
				p.Spec.Containers[0].Ports = append(p.Spec.Containers[0].Ports, corev1.ContainerPort{HostPort: 93, HostIP: "0.0.0.0"})
			},
			want: asked(func(s *shape) {
				s.Requests, s.Ports = "cpu=2 memory=2 pods=1", []string{"10.0.0.1 UDP 90", " TCP 80", " TCP 93"}
			}),
		},
		"topology spread": {
			pod: builder.Pod("p").Label("app", "web").Label("v", "2").Constraint(corev1.TopologySpreadConstraint{
				TopologyKey: corev1.LabelFailureDomainBetaZone, MaxSkew: 2, MinDomains: new(int32(3)), WhenUnsatisfiable: corev1.DoNotSchedule,
				LabelSelector: &metav1.LabelSelector{MatchLabels: web}, MatchLabelKeys: []string{"v", "missing"},
				NodeAffinityPolicy: &ignore, NodeTaintsPolicy: &honor,
			}).NodeSpread(1, web),
			want: asked(func(s *shape) {
				s.Spread = []string{"topology.kubernetes.io/zone skew 2 domains 3 affinity false taints true: app=web,v in (2)", "kubernetes.io/hostname skew 1 domains 1 affinity true taints false: app=web"}
			}),
		},
		"soft spread is a preference": {
			pod:  builder.Pod("p").Constraint(corev1.TopologySpreadConstraint{TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: corev1.ScheduleAnyway}),
			want: asked(func(*shape) {}),
		},
		"affinity in the pod's namespace": {
			pod: builder.Pod("p").Namespace("shop").Near("zone", web).Apart(corev1.LabelHostname, web),
			want: asked(func(s *shape) {
				s.Near, s.Apart = []string{"zone shop: app=web"}, []string{"kubernetes.io/hostname shop: app=web"}
			}),
		},
		"affinity terms count only pods that satisfy all": {
			pod: builder.Pod("p").Near("zone", web).Near(corev1.LabelHostname, map[string]string{"v": "2"}),
			want: asked(func(s *shape) {
				s.Near = []string{"zone default: app=web,v=2", "kubernetes.io/hostname default: app=web,v=2"}
			}),
		},
		"anti-affinity terms stand alone": {
			pod:  builder.Pod("p").Apart("zone", web).Apart("zone", map[string]string{"v": "2"}),
			want: asked(func(s *shape) { s.Apart = []string{"zone default: app=web", "zone default: v=2"} }),
		},
		"affinity to named namespaces": {
			pod:    builder.Pod("p"),
			change: anti(corev1.PodAffinityTerm{TopologyKey: "zone", Namespaces: []string{"b", "a"}, LabelSelector: &metav1.LabelSelector{MatchLabels: web}}),
			want:   asked(func(s *shape) { s.Apart = []string{"zone a,b: app=web"} }),
		},
		"affinity to selected and named namespaces": {
			pod: builder.Pod("p"),
			change: anti(corev1.PodAffinityTerm{
				TopologyKey: "zone", Namespaces: []string{"z"},
				NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}}, LabelSelector: &metav1.LabelSelector{},
			}),
			want: asked(func(s *shape) { s.Apart = []string{"zone prod-1,prod-2,z: "} }),
		},
		"a selector that selects no namespace is not the pod's own": {
			pod: builder.Pod("p"),
			change: anti(corev1.PodAffinityTerm{
				TopologyKey: "zone", NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "none"}}, LabelSelector: &metav1.LabelSelector{},
			}),
			want: asked(func(s *shape) { s.Apart = []string{"zone : "} }),
		},
		"a missing label selector selects nothing": {
			pod: builder.Pod("p").Label("app", "web"), change: anti(corev1.PodAffinityTerm{TopologyKey: "zone"}),
			want: asked(func(s *shape) { s.Apart = []string{"zone default: "} }),
		},
	} {
		t.Run(name, func(t *testing.T) {
			b := view.New(source.New(namespace("prod-1", "prod"), namespace("prod-2", "prod"), namespace("dev", "dev")).Source())
			pod := tc.pod.UID("1").Obj()
			if tc.change != nil {
				tc.change(pod)
			}
			if diff := cmp.Diff(tc.want, shapeOf(b.Pod(pod).Class)); diff != "" {
				t.Errorf("class (-want +got):\n%s", diff)
			}
		})
	}
}

// TestTermIDs checks that terms have the same ID exactly if they select the same pods.
func TestTermIDs(t *testing.T) {
	id := func(sel *metav1.LabelSelector, namespaces ...string) string {
		pod := builder.Pod("p").Apart("zone", nil).Obj()
		term := &pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0]
		term.LabelSelector, term.Namespaces = sel, namespaces
		return view.New(source.New().Source()).Pod(pod).Class.AntiAffinity[0].ID
	}
	web := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "web"}}
	ids := []string{id(nil), id(&metav1.LabelSelector{}), id(web), id(web, "other")}
	if n := len(sets.New(ids...)); n != len(ids) {
		t.Errorf("IDs of different terms: %q", ids)
	}
	if a, b := id(web, "a", "b"), id(web, "b", "a"); a != b {
		t.Errorf("IDs of equal terms: %q and %q", a, b)
	}
}

// TestSelectors checks the two selectors that print alike: a missing one selects no pod; the empty one selects every
// pod, but a spread does not count them (plugin PodTopologySpread).
func TestSelectors(t *testing.T) {
	for name, tc := range map[string]struct {
		selector     *metav1.LabelSelector
		term, spread bool // whether they match the pod itself
	}{"empty": {&metav1.LabelSelector{}, true, false}, "missing": {nil, false, false}} {
		pod := builder.Pod("p").Constraint(corev1.TopologySpreadConstraint{
			TopologyKey: "zone", MaxSkew: 1, WhenUnsatisfiable: corev1.DoNotSchedule, LabelSelector: tc.selector,
		}).Apart("zone", nil).Obj()
		pod.Spec.Affinity.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution[0].LabelSelector = tc.selector
		c := view.New(source.New().Source()).Pod(pod).Class
		if got := [2]bool{c.AntiAffinity[0].Matches(c), c.Spread[0].Matches("default", c)}; got != [2]bool{tc.term, tc.spread} {
			t.Errorf("%s selector: term and spread match = %v, want %v and %v", name, got, tc.term, tc.spread)
		}
	}
}

func namespace(name, env string) *corev1.Namespace {
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"env": env}}}
}

func TestPodsOfOneTemplateShareAClass(t *testing.T) {
	const index, podName = "apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"
	base := func(n string) *builder.PodBuilder {
		return builder.Pod("db-"+n).UID(n).CPU("1").Label("app", "db").Label(index, n).Label(podName, "db-"+n)
	}
	for name, tc := range map[string]struct {
		a, b *builder.PodBuilder
		want bool // the same class
	}{
		"replicas of a StatefulSet":             {base("0"), base("1"), true},
		"priority is the pod's":                 {base("0"), base("1").Priority(10), true},
		"another request":                       {base("0"), base("1").CPU("2"), false},
		"another label":                         {base("0"), base("1").Label("app", "cache"), false},
		"another namespace":                     {base("0"), base("1").Namespace("other"), false},
		"terms that look at the pod's own name": {base("0").Apart("zone", map[string]string{podName: "db-0"}), base("1").Apart("zone", map[string]string{podName: "db-0"}), false},
		"spread over the pod's own index":       {base("0").ZoneSpread(1, map[string]string{index: "0"}), base("1").ZoneSpread(1, map[string]string{index: "0"}), false},
	} {
		t.Run(name, func(t *testing.T) {
			v := view.New(source.New().Source())
			if got := v.Pod(tc.a.Obj()).Class == v.Pod(tc.b.Obj()).Class; got != tc.want {
				t.Errorf("one class: %v, want %v", got, tc.want)
			}
		})
	}
	v := view.New(source.New().Source())
	p := v.Pod(base("0").Priority(7).Obj())
	if p.Priority != 7 || p.Name != "db-0" || p.Namespace != "default" || p.UID != "0" {
		t.Errorf("pod = %+v", p)
	}
}

// TestClassesFollowChanges converts a pod, changes something, and converts it again with the same builder, whose memo must
// not hide the change.
func TestClassesFollowChanges(t *testing.T) {
	gi := func(n string) corev1.ResourceList { return corev1.ResourceList{"memory": resource.MustParse(n)} }
	for name, tc := range map[string]struct {
		pod    *builder.PodBuilder
		change func(*source.Cluster, *corev1.Pod)
		want   func(*shape)
	}{
		"a label": {builder.Pod("p").Label("v", "1").ZoneSpread(1, nil), func(_ *source.Cluster, p *corev1.Pod) {
			p.Labels["v"] = "2"
			p.Spec.TopologySpreadConstraints[0].MatchLabelKeys = []string{"v"}
		}, func(s *shape) {
			s.Spread = []string{"topology.kubernetes.io/zone skew 1 domains 1 affinity true taints false: v in (2)"}
		}},
		"the spec": {builder.Pod("p").Memory("1Gi"), func(_ *source.Cluster, p *corev1.Pod) {
			p.Generation++
			p.Spec.Containers[0].Resources.Requests = gi("2Gi")
		}, func(s *shape) { s.Requests = "memory=2Gi pods=1" }},
		"a volume that gets bound": {builder.Pod("p").Volume("data"), func(c *source.Cluster, _ *corev1.Pod) {
			c.Put(volume("pv", builder.In(corev1.LabelTopologyZone, "a")))
			c.Put(claim("data", "pv", ""))
		}, func(s *shape) { s.Terms = []string{"topology.kubernetes.io/zone In [a]"} }},
		"a namespace that gets a label": {builder.Pod("p"), func(c *source.Cluster, _ *corev1.Pod) {
			c.Put(namespace("dev", "prod"))
		}, func(s *shape) { s.Near = []string{"zone dev,prod-1: "} }},
	} {
		t.Run(name, func(t *testing.T) {
			c := source.New(namespace("prod-1", "prod"), namespace("dev", "dev"), claim("data", "", ""))
			b, pod := view.New(c.Source()), tc.pod.UID("1").Generation(1).Obj()
			if strings.Contains(name, "namespace") {
				pod.Spec.Affinity = &corev1.Affinity{PodAffinity: &corev1.PodAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{
					TopologyKey: "zone", LabelSelector: &metav1.LabelSelector{}, NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"env": "prod"}},
				}}}}
			}
			before := shapeOf(b.Pod(pod).Class)
			pod = pod.DeepCopy()
			tc.change(c, pod)
			got := shapeOf(b.Pod(pod).Class)
			if diff := cmp.Diff(asked(tc.want), got); diff != "" {
				t.Errorf("class after the change (-want +got):\n%s", diff)
			}
			if cmp.Equal(before, got) {
				t.Error("the change changed nothing: the test has lost its subject")
			}
		})
	}
}

// TestResize checks that a running pod counts as the scheduler counts it while its kubelet resizes it.
func TestResize(t *testing.T) {
	cpu := func(n string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(n)} }
	pod := builder.Pod("p").UID("1").CPU("1").On("n1").Generation(2).Obj()
	has := func(n string) *corev1.Pod {
		p := pod.DeepCopy()
		p.Status.ContainerStatuses = []corev1.ContainerStatus{{Name: "app", AllocatedResources: cpu(n), Resources: &corev1.ResourceRequirements{Requests: cpu(n)}}}
		return p
	}
	b := view.New(source.New().Source())
	for _, step := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"shrinking from 4", has("4"), "cpu=4 pods=1"},
		{"shrunk", has("1"), "cpu=1 pods=1"},
	} {
		if got := b.Pod(step.pod).Class.Requests.String(); got != step.want {
			t.Errorf("%s: %s, want %s", step.name, got, step.want)
		}
	}
}
