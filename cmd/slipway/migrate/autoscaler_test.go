// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/test/builder"
)

const groupLabel = "eks.amazonaws.com/nodegroup"

func groupNode(name, group string) *builder.NodeBuilder {
	return builder.Node(name).CPU("4").Memory("16Gi").Label(groupLabel, group).Label("team", group)
}

// owned is a pod of a ReplicaSet on the node.
func owned(name, node string) *builder.PodBuilder {
	return builder.Pod(name).CPU("1").Memory("1Gi").On(node).OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, "rs", "rs")
}

// grouped is a cluster of Cluster Autoscaler's with three groups.
func grouped() map[string]client.Object {
	return map[string]client.Object{
		"ca":       program("cluster-autoscaler", "kube-system", nil),
		"pool":     builder.NodePool("default").Ready().NodeLabel("team", "general").Obj(),
		"system":   groupNode("system-1", "system").Obj(),
		"general":  groupNode("general-1", "general").Obj(),
		"general2": groupNode("general-2", "general").Obj(),
		"batch":    groupNode("batch-1", "batch").Obj(),
		"dns":      owned("dns", "system-1").Namespace("kube-system").Obj(),
		"web":      owned("web", "general-1").Obj(),
		"web2":     owned("web2", "general-2").Obj(),
		"job":      owned("job", "batch-1").Obj(),
		"status": &corev1.ConfigMap{
			ObjectMeta: metav1.ObjectMeta{Name: statusConfigMap, Namespace: "kube-system"},
			Data:       map[string]string{"status": "nodeGroups:\n- name: eks-general-1c2d\n  health: {minSize: 2, maxSize: 9}\n"},
		},
	}
}

func TestCheckAutoscaler(t *testing.T) {
	selects := func(key, value string) *corev1.Pod {
		p := owned("picky", "general-1").Obj()
		p.Spec.NodeSelector = map[string]string{key: value}
		return p
	}
	tests := map[string]struct {
		change func(map[string]client.Object)
		blocks string
		warns  string
		order  []string
	}{
		"ready": {order: []string{"batch", "general", "system"}},
		"no NodePool": {
			change: func(o map[string]client.Object) { delete(o, "pool") },
			blocks: "pools: there is no NodePool yet", order: []string{"batch", "general", "system"},
		},
		"a label a pool gives": {
			change: func(o map[string]client.Object) { o["picky"] = selects("team", "general") }, order: []string{"batch", "general", "system"},
		},
		"a well-known label": {
			change: func(o map[string]client.Object) { o["picky"] = selects("kubernetes.io/arch", "amd64") }, order: []string{"batch", "general", "system"},
		},
		"the group's own label": {
			change: func(o map[string]client.Object) { o["picky"] = selects(groupLabel, "general") },
			blocks: "labels: 1 pod selects " + groupLabel + "=general, which no NodePool gives: default/picky", order: []string{"batch", "general", "system"},
		},
		"a label no pool gives": {
			change: func(o map[string]client.Object) {
				p := owned("picky", "batch-1").Obj()
				p.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
					NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{{Key: "team", Operator: "In", Values: []string{"batch", "other"}}}}},
				}}}
				o["picky"] = p
			},
			blocks: "labels: 1 pod selects team=batch, which no NodePool gives: default/picky", order: []string{"general", "batch", "system"},
		},
		"pods that resist": {
			change: func(o map[string]client.Object) {
				o["job"] = owned("job", "batch-1").Annotation(evictAnnotation, "false").Obj()
			},
			warns: "annotations: 1 pod has " + evictAnnotation, order: []string{"general", "batch", "system"},
		},
		"a node that is held": {
			change: func(o map[string]client.Object) {
				o["batch"] = groupNode("batch-1", "batch").Annotation(scaleDownAnnotation, "true").Obj()
			},
			warns: "annotations: 1 node has " + scaleDownAnnotation, order: []string{"batch", "general", "system"},
		},
		"both would buy": {
			change: func(o map[string]client.Object) {
				o["slipway"] = program("slipway", "slipway-system", nil, "--serve-schedulers=default-scheduler")
			},
			blocks: "schedulers: Slipway serves default-scheduler while Cluster Autoscaler runs", order: []string{"batch", "general", "system"},
		},
		"nothing to keep": {
			change: func(o map[string]client.Object) { delete(o, "dns") },
			blocks: "floor: no node group would be kept", order: []string{"system", "batch", "general"},
		},
		"no autoscaler": {
			change: func(o map[string]client.Object) { delete(o, "ca") },
			warns:  "autoscaler: no Deployment runs an image called cluster-autoscaler", order: []string{"batch", "general", "system"},
		},
		"nodes of NodePools are no group": {
			change: func(o map[string]client.Object) { o["bought"] = builder.Node("bought").Pool("default").Obj() }, order: []string{"batch", "general", "system"},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			objects := grouped()
			if tt.change != nil {
				tt.change(objects)
			}
			s, err := GatherGroups(t.Context(), world(t, objects).Build(), theNames())
			if err != nil {
				t.Fatal(err)
			}
			r := CheckAutoscaler(s)
			for level, want := range map[Level]string{Blocks: tt.blocks, Warns: tt.warns} {
				got := said(r, level)
				if (want == "") != (len(got) == 0) || (want != "" && !slices.ContainsFunc(got, func(f string) bool { return strings.HasPrefix(f, want) })) {
					t.Errorf("%s: %q, want %q", level, got, want)
				}
			}
			var got []string
			for _, g := range r.Groups {
				got = append(got, g.Name)
			}
			if diff := cmp.Diff(tt.order, got); diff != "" {
				t.Errorf("order (-want +got):\n%s", diff)
			}
		})
	}
}

func TestGroups(t *testing.T) {
	objects := grouped()
	for _, name := range []string{"a", "b", "c", "d", "e", "f", "g", "h", "i"} { // 10 CPU with dns, on nodes of 4
		objects[name] = owned(name, "system-1").Namespace("kube-system").Obj()
	}
	s, err := GatherGroups(t.Context(), world(t, objects).Build(), theNames())
	if err != nil {
		t.Fatal(err)
	}
	r := CheckAutoscaler(s)
	var out bytes.Buffer
	if err := r.Write(&out); err != nil {
		t.Fatal(err)
	}
	want := strings.TrimLeft(`
CORDON   NODE GROUP   NODES   MIN   MAX   PODS   NEW MIN   WHY
1        batch        1       ?     ?     1      0         nothing holds it
2        general      2       2     9     2      0         nothing holds it
keep     system       1       ?     ?     10     3         keeps Slipway, Cluster Autoscaler or pods of kube-system
`, "\n")
	if !strings.Contains(out.String(), want) {
		t.Errorf("it says\n%s\nwant\n%s", out.String(), want)
	}
}
