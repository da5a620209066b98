// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

func TestDaemonSets(t *testing.T) {
	rl := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	limitRange := func(version string, items ...corev1.LimitRangeItem) *corev1.LimitRange {
		return &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "lr", Namespace: "kube-system", UID: "lr", ResourceVersion: version}, Spec: corev1.LimitRangeSpec{Limits: items}}
	}
	container := func(request string) corev1.LimitRangeItem {
		return corev1.LimitRangeItem{Type: corev1.LimitTypeContainer, DefaultRequest: rl(request), Default: rl("4")}
	}
	for name, tc := range map[string]struct {
		pod    *builder.PodBuilder
		ranges []*corev1.LimitRange
		want   string
	}{
		"as the template says":                   {builder.Pod("d").CPU("1"), nil, "cpu=1 pods=1"},
		"a limit stands in for a request":        {builder.Pod("d").Limit("cpu", "2"), nil, "cpu=2 pods=1"},
		"the namespace's default request":        {builder.Pod("d"), []*corev1.LimitRange{limitRange("1", container("100m"))}, "cpu=100m pods=1"},
		"the own limit comes before the default": {builder.Pod("d").Limit("cpu", "2"), []*corev1.LimitRange{limitRange("1", container("100m"))}, "cpu=2 pods=1"},
		"the own request comes first":            {builder.Pod("d").CPU("1").Limit("cpu", "2"), []*corev1.LimitRange{limitRange("1", container("100m"))}, "cpu=1 pods=1"},
		"each container, init containers too":    {builder.Pod("d").Container("x", "0", "0").Sidecar("y", "1", "0"), []*corev1.LimitRange{limitRange("1", container("100m"))}, "cpu=1100m pods=1"},
		"limits of pods are no defaults":         {builder.Pod("d"), []*corev1.LimitRange{limitRange("1", corev1.LimitRangeItem{Type: corev1.LimitTypePod, DefaultRequest: rl("1")})}, "pods=1"},
		"another namespace's do not count":       {builder.Pod("d"), []*corev1.LimitRange{{ObjectMeta: metav1.ObjectMeta{Name: "lr", Namespace: "default"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{container("1")}}}}, "pods=1"},
	} {
		t.Run(name, func(t *testing.T) {
			objects := []runtime.Object{builder.DaemonSet("d").UID("d").Template(tc.pod).Obj()}
			for _, lr := range tc.ranges {
				objects = append(objects, lr)
			}
			if got := build(t, view.Pending{}, objects...).Pool("p").Daemons[0].Requests.String(); got != tc.want {
				t.Errorf("requests = %s, want %s", got, tc.want)
			}
		})
	}

	t.Run("changes are seen", func(t *testing.T) {
		ds := builder.DaemonSet("d").UID("d").Generation(1).Template(builder.Pod("d")).Obj()
		c := source.New(ds, builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
		b := view.New(c.Source())
		requests := func() string {
			v, err := b.Build(t.Context(), view.Pending{})
			if err != nil {
				t.Fatal(err)
			}
			return v.Pool("p").Daemons[0].Requests.String()
		}
		got := []string{requests()}
		c.Put(limitRange("1", container("100m")))
		got = append(got, requests())
		c.Put(limitRange("2", container("200m")))
		got = append(got, requests())
		ds = ds.DeepCopy()
		ds.Generation, ds.Spec.Template.Spec.Containers[0].Resources.Requests = 2, rl("3")
		c.Put(ds)
		got = append(got, requests())
		if diff := cmp.Diff([]string{"pods=1", "cpu=100m pods=1", "cpu=200m pods=1", "cpu=3 pods=1"}, got); diff != "" {
			t.Errorf("requests step by step (-want +got):\n%s", diff)
		}
	})

	t.Run("the controller's tolerations", func(t *testing.T) {
		host := builder.Pod("d").Obj()
		for _, network := range []bool{false, true} {
			ds := builder.DaemonSet("d").UID("d").Template(builder.Pod("d")).Obj()
			ds.Spec.Template.Spec = host.Spec
			ds.Spec.Template.Spec.HostNetwork = network
			d := build(t, view.Pending{}, ds).Pool("p").Daemons[0]
			for key, want := range map[string]bool{
				corev1.TaintNodeDiskPressure: true, corev1.TaintNodeUnschedulable: true, corev1.TaintNodeNetworkUnavailable: network, "other": false,
			} {
				if _, ok := d.Tolerates([]corev1.Taint{{Key: key, Effect: noSchedule}}); ok != want {
					t.Errorf("host network %v: tolerates %s: %v, want %v", network, key, ok, want)
				}
			}
		}
	})
}

// TestDaemonPodsAreMadeAsTheClusterMakesThem is about what the API server adds to a pod that a template does not say.
func TestDaemonPodsAreMadeAsTheClusterMakesThem(t *testing.T) {
	q := func(cpu string) corev1.ResourceList { return corev1.ResourceList{"cpu": resource.MustParse(cpu)} }
	gvisor := &nodev1.RuntimeClass{
		ObjectMeta: metav1.ObjectMeta{Name: "gvisor"}, Handler: "runsc", Overhead: &nodev1.Overhead{PodFixed: q("250m")},
		Scheduling: &nodev1.Scheduling{NodeSelector: map[string]string{"sandbox": "yes"}, Tolerations: []corev1.Toleration{{Key: "sandbox", Operator: corev1.TolerationOpExists}}},
	}
	bad := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "kube-system"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, DefaultRequest: q("-5")}, {Type: "Nonsense", DefaultRequest: q("9")},
	}}}
	several := &corev1.LimitRange{ObjectMeta: metav1.ObjectMeta{Name: "b", Namespace: "kube-system"}, Spec: corev1.LimitRangeSpec{Limits: []corev1.LimitRangeItem{
		{Type: corev1.LimitTypeContainer, DefaultRequest: q("1")}, {Type: corev1.LimitTypeContainer, DefaultRequest: q("2")},
	}}}
	podLimits := func(limit string) func(*corev1.PodSpec) {
		return func(s *corev1.PodSpec) { s.Resources = &corev1.ResourceRequirements{Limits: q(limit)} }
	}
	for name, tc := range map[string]struct {
		pod     *builder.PodBuilder
		change  func(*corev1.PodSpec)
		objects []runtime.Object
		want    string // requests, terms and ports
	}{
		"pod-level limits alone are its requests":            {pod: builder.Pod("d"), change: podLimits("2"), want: "cpu=2 pods=1 [] []"},
		"pod-level limits and containers that ask":           {pod: builder.Pod("d").CPU("500m").Sidecar("s", "100m", "0"), change: podLimits("2"), want: "cpu=600m pods=1 [] []"},
		"pod-level requests stand":                           {pod: builder.Pod("d").CPU("500m").PodRequest("cpu", "3"), change: func(s *corev1.PodSpec) { s.Resources.Limits = q("4") }, want: "cpu=3 pods=1 [] []"},
		"an absurd request stays absurd":                     {pod: builder.Pod("d").CPU("1e30"), want: "cpu=9223372036854775807m pods=1 [] []"},
		"a negative default gives nothing, others do":        {pod: builder.Pod("d"), objects: []runtime.Object{bad, several}, want: "cpu=2 pods=1 [] []"},
		"ports of the host network":                          {pod: builder.Pod("d"), change: hostNetwork, want: "pods=1 [] [{ TCP 9100}]"},
		"a runtime class":                                    {pod: builder.Pod("d").CPU("1"), change: inSandbox, objects: []runtime.Object{gvisor}, want: "cpu=1250m pods=1 [sandbox In [yes]] []"},
		"a runtime class that is not there":                  {pod: builder.Pod("d").CPU("1"), change: inSandbox, want: "cpu=1 pods=1 [] []"},
		"a node by name":                                     {pod: builder.Pod("d").On("n1"), want: "pods=1 [field:metadata.name In [n1]] []"},
		"a node by name, with terms":                         {pod: builder.Pod("d").NodeAffinity(builder.In("a", "1")).On("n1"), want: "pods=1 [a In [1], field:metadata.name In [n1]] []"},
		"volumes of an own claim are counted with their pod": {pod: builder.Pod("d").Volume("data"), objects: []runtime.Object{csiIn("data", "kube-system")[0], csiIn("data", "kube-system")[1]}, want: "pods=1 volumes/ebs.csi.aws.com=1 [] []"},
	} {
		t.Run(name, func(t *testing.T) {
			ds := builder.DaemonSet("d").UID("d").Template(tc.pod).Obj()
			if tc.change != nil {
				tc.change(&ds.Spec.Template.Spec)
			}
			d := build(t, view.Pending{}, append(tc.objects, ds)...).Pool("p").Daemons[0]
			if got := fmt.Sprintf("%s %v %v", d.Requests, d.Terms, d.HostPorts); got != tc.want {
				t.Errorf("class = %s, want %s", got, tc.want)
			}
		})
	}
	t.Run("tolerations of the runtime class are not the controller's", func(t *testing.T) {
		ds := builder.DaemonSet("d").UID("d").Obj()
		inSandbox(&ds.Spec.Template.Spec)
		d := build(t, view.Pending{}, ds, gvisor).Pool("p").Daemons[0]
		if _, ok := d.Tolerates([]corev1.Taint{{Key: "sandbox", Effect: noSchedule}}); ok {
			t.Error("counts on a node for which the controller makes no pod")
		}
	})
}

func hostNetwork(s *corev1.PodSpec) {
	s.HostNetwork = true
	s.Containers[0].Ports = []corev1.ContainerPort{{ContainerPort: 9100}}
}

func inSandbox(s *corev1.PodSpec) { s.RuntimeClassName = new("gvisor") }

// csiIn is a claim in a namespace and the EBS volume it is bound to.
func csiIn(name, namespace string) []runtime.Object {
	c := claim(name, "pv-"+name, "")
	c.Namespace = namespace
	return []runtime.Object{c, csi("pv-"+name, "ebs.csi.aws.com")}
}
