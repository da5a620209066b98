// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view_test

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// FuzzPod reads pods from text, valid or not: each becomes a class with at least one alternative, requests that are not
// negative, and the same identity when it is read again. It never panics.
func FuzzPod(f *testing.F) {
	for _, seed := range []string{
		"{}",
		"spec: {containers: [{name: a, resources: {requests: {cpu: 1e30, memory: -5, x/y: 9e99}}}]}",
		"spec: {nodeSelector: {'': '', topology.kubernetes.io/zone: a}, affinity: {nodeAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: [{}, {matchExpressions: [{key: k, operator: Near, values: [a]}]}, {matchFields: [{key: metadata.name, operator: In, values: [n]}]}]}}}}",
		"spec: {topologySpreadConstraints: [{topologyKey: '', maxSkew: -1, minDomains: -3, whenUnsatisfiable: DoNotSchedule, matchLabelKeys: [a, ''], labelSelector: {matchExpressions: [{key: '!', operator: Nope}]}}]}",
		"metadata: {labels: {a: b}}\nspec: {affinity: {podAntiAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, mismatchLabelKeys: [a], labelSelector: {}, namespaceSelector: {matchExpressions: [{key: x, operator: In}]}}]}, podAffinity: {}}}",
		"spec: {initContainers: [{name: s, restartPolicy: Always, ports: [{hostPort: 80, hostIP: '::'}], resources: {requests: {cpu: 1}}}], resources: {limits: {cpu: 2, hugepages-2Mi: 4Mi}}, overhead: {cpu: -3}}",
		"spec: {volumes: [{name: v, persistentVolumeClaim: {}}, {name: w, ephemeral: {}}, {name: x, ephemeral: {volumeClaimTemplate: {spec: {storageClassName: s}}}}], resourceClaims: [{name: g}]}",
		"spec: {nodeName: n, tolerations: [{operator: Gt, value: '007'}]}\nstatus: {containerStatuses: [{name: a, allocatedResources: {cpu: 1}}]}",
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		pod := &corev1.Pod{}
		if yaml.Unmarshal(raw, pod) != nil {
			return
		}
		b := view.New(source.New().Source())
		pod.UID = "1"
		c := b.Pod(pod).Class
		if len(c.Terms) == 0 || len(c.NodeTerms) == 0 {
			t.Errorf("no alternative: %+v", c)
		}
		if r := c.Requests; r.CPU < 0 || r.Memory < 0 || r.Ephemeral < 0 || r.Pods != 1 {
			t.Errorf("requests %s make room", r)
		}
		for _, q := range c.Requests.Extended {
			if q.Value < 0 {
				t.Errorf("requests %s make room", c.Requests)
			}
		}
		again := pod.DeepCopy()
		again.UID = "2"
		if b.Pod(again).Class != c {
			t.Error("an equal pod is of another class")
		}
		// As the pods of a DaemonSet, and on a node.
		ds := builder.DaemonSet("d").UID("d").Obj()
		ds.Spec.Template.ObjectMeta.Labels, ds.Spec.Template.Spec = pod.Labels, pod.Spec
		bound := pod.DeepCopy()
		bound.Name, bound.Namespace, bound.Spec.NodeName = "p", "default", "n"
		objects := []runtime.Object{ds, bound, builder.Node("n").CPU("4").Obj(), builder.NodePool("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj()}
		cluster := source.New(objects...)
		cluster.Sell(builder.DefaultClass, shop())
		v, err := view.New(cluster.Source()).Build(t.Context(), view.Pending{})
		if err != nil {
			t.Fatal(err)
		}
		p := v.Pool("p")
		for _, typ := range p.Catalog.Types {
			p.Overhead(typ, nil)
		}
		v.Nodes[0].Satisfies(c.Terms)
	})
}
