// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// empty returns an object of the kind, nil if scenarios do not know it.
func empty(kind string) client.Object {
	switch kind {
	case "NodePool":
		return &karpv1.NodePool{}
	case "NodeClaim":
		return &karpv1.NodeClaim{}
	case "EC2NodeClass":
		return &v1.EC2NodeClass{}
	case "Node":
		return &corev1.Node{}
	case "Namespace":
		return &corev1.Namespace{}
	case "LimitRange":
		return &corev1.LimitRange{}
	case "PersistentVolume":
		return &corev1.PersistentVolume{}
	case "PersistentVolumeClaim":
		return &corev1.PersistentVolumeClaim{}
	case "StorageClass":
		return &storagev1.StorageClass{}
	case "RuntimeClass":
		return &nodev1.RuntimeClass{}
	case "CSINode":
		return &storagev1.CSINode{}
	case "DaemonSet":
		return &appsv1.DaemonSet{}
	case "Pod":
		return &corev1.Pod{}
	case "Deployment":
		return &appsv1.Deployment{}
	case "ReplicaSet":
		return &appsv1.ReplicaSet{}
	case "StatefulSet":
		return &appsv1.StatefulSet{}
	case "Job":
		return &batchv1.Job{}
	}
	return nil
}

// decode reads manifests. A field that a kind does not have is an error.
func decode(text string) ([]client.Object, error) {
	var out []client.Object
	for doc := range strings.SplitSeq("\n"+text, "\n---") {
		var meta metav1.TypeMeta
		if err := yaml.Unmarshal([]byte(doc), &meta); err != nil {
			return nil, fmt.Errorf("reading\n%s\n%w", doc, err)
		}
		if meta.Kind == "" && strings.TrimSpace(stripComments(doc)) == "" {
			continue
		}
		o := empty(meta.Kind)
		if o == nil {
			return nil, fmt.Errorf("scenarios do not know kind %q", meta.Kind)
		}
		if err := yaml.UnmarshalStrict([]byte(doc), o); err != nil {
			return nil, fmt.Errorf("reading %s %q: %w", meta.Kind, o.GetName(), err)
		}
		if o.GetName() == "" {
			return nil, fmt.Errorf("a %s has no name", meta.Kind)
		}
		o.SetUID(types.UID(cmp.Or(string(o.GetUID()), strings.ToLower(meta.Kind)+"/"+o.GetName())))
		if namespaced(o) && o.GetNamespace() == "" {
			o.SetNamespace(metav1.NamespaceDefault)
		}
		out = append(out, o)
	}
	return out, nil
}

func stripComments(text string) string {
	var out strings.Builder
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(strings.TrimSpace(line), "#") {
			out.WriteString(line)
		}
	}
	return out.String()
}

func namespaced(o client.Object) bool {
	switch o.(type) {
	case *karpv1.NodePool, *karpv1.NodeClaim, *v1.EC2NodeClass, *corev1.Node, *corev1.Namespace, *corev1.PersistentVolume, *storagev1.StorageClass, *storagev1.CSINode, *nodev1.RuntimeClass:
		return false
	}
	return true
}

// over replaces objects of base by those of the same type and name in changes, and adds the rest.
func over(base, changes []client.Object) []client.Object {
	key := func(o client.Object) string { return fmt.Sprintf("%T %s/%s", o, o.GetNamespace(), o.GetName()) }
	out := slices.DeleteFunc(slices.Clone(base), func(o client.Object) bool {
		return slices.ContainsFunc(changes, func(c client.Object) bool { return key(c) == key(o) })
	})
	return append(out, changes...)
}

// pods are the pods that the object stands for, none if it is no pod or workload.
func pods(o client.Object) []*corev1.Pod {
	switch o := o.(type) {
	case *corev1.Pod:
		return []*corev1.Pod{o}
	case *appsv1.Deployment:
		return replicas(o, int(value(o.Spec.Replicas)), &o.Spec.Template, nil)
	case *appsv1.ReplicaSet:
		return replicas(o, int(value(o.Spec.Replicas)), &o.Spec.Template, nil)
	case *appsv1.StatefulSet:
		return replicas(o, int(value(o.Spec.Replicas)), &o.Spec.Template, o.Spec.VolumeClaimTemplates)
	case *batchv1.Job:
		return replicas(o, int(value(o.Spec.Parallelism)), &o.Spec.Template, nil)
	}
	return nil
}

func value(n *int32) int32 {
	if n == nil {
		return 1
	}
	return *n
}

func replicas(o client.Object, n int, t *corev1.PodTemplateSpec, claims []corev1.PersistentVolumeClaim) []*corev1.Pod {
	out := make([]*corev1.Pod, n)
	for i := range out {
		p := &corev1.Pod{ObjectMeta: *t.DeepCopy().ObjectMeta.DeepCopy(), Spec: *t.Spec.DeepCopy()}
		p.Name, p.Namespace = fmt.Sprintf("%s-%d", o.GetName(), i), o.GetNamespace()
		for _, c := range claims {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: c.Name, VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: c.Name + "-" + p.Name},
			}})
		}
		out[i] = p
	}
	return out
}

// completePod fills in what the API server and, for a bound pod, the kubelet would.
func completePod(p *corev1.Pod) {
	p.UID = types.UID(p.Namespace + "/" + p.Name)
	if len(p.Spec.Containers) == 0 {
		p.Spec.Containers = []corev1.Container{{Name: "main"}}
	}
	for _, list := range [][]corev1.Container{p.Spec.Containers, p.Spec.InitContainers} {
		for i := range list {
			c := &list[i].Resources
			for name, limit := range c.Limits { // the API server's defaulting
				if _, ok := c.Requests[name]; !ok {
					if c.Requests == nil {
						c.Requests = corev1.ResourceList{}
					}
					c.Requests[name] = limit
				}
			}
			for k := range list[i].Ports {
				port := &list[i].Ports[k]
				port.Protocol = cmp.Or(port.Protocol, corev1.ProtocolTCP)
				port.ContainerPort = cmp.Or(port.ContainerPort, port.HostPort)
			}
		}
	}
	p.Status.Phase = corev1.PodPending
	if p.Spec.NodeName != "" {
		p.Status.Phase = corev1.PodRunning
	}
}

// completeNode gives a node what its instance type has and what a kubelet reports.
func completeNode(n *corev1.Node, catalog *capacity.Catalog) error {
	if n.Labels == nil {
		n.Labels = map[string]string{}
	}
	own := maps.Clone(n.Labels)
	if name := n.Labels[corev1.LabelInstanceTypeStable]; name != "" {
		t := catalog.Type(name)
		if t == nil {
			return fmt.Errorf("node %q: the catalog has no type %q", n.Name, name)
		}
		maps.Copy(n.Labels, t.Labels)
		maps.Copy(n.Labels, own)
		if n.Status.Allocatable == nil {
			n.Status.Allocatable = t.Allocatable.List()
		}
		if n.Status.Capacity == nil {
			n.Status.Capacity = t.Capacity.List()
		}
	}
	if n.Labels[karpv1.NodePoolLabelKey] != "" { // it has been ready once, unless the file says otherwise
		for _, key := range []string{karpv1.NodeRegisteredLabelKey, karpv1.NodeInitializedLabelKey} {
			n.Labels[key] = cmp.Or(n.Labels[key], "true")
		}
	}
	n.Labels[corev1.LabelHostname] = cmp.Or(n.Labels[corev1.LabelHostname], n.Name)
	n.Labels[corev1.LabelOSStable] = cmp.Or(n.Labels[corev1.LabelOSStable], "linux")
	n.Labels[corev1.LabelArchStable] = cmp.Or(n.Labels[corev1.LabelArchStable], "amd64")
	n.Spec.ProviderID = cmp.Or(n.Spec.ProviderID, "aws:///"+n.Labels[corev1.LabelTopologyZone]+"/"+n.Name)
	if n.Spec.Unschedulable {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule})
	}
	if len(n.Status.Conditions) == 0 {
		n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.NewTime(builder.Epoch())}}
	}
	return nil
}

// claimOf is the claim of a node that the pool has bought: with the taints of the pool's template, and the size and the
// devices of the node's type, which a booting node may not report yet.
func claimOf(n *corev1.Node, pool *karpv1.NodePool, catalog *capacity.Catalog) *karpv1.NodeClaim {
	c := builder.NodeClaim("claim-" + n.Name).UID("nodeclaim/" + n.Name).Pool(n.Labels[karpv1.NodePoolLabelKey]).Obj()
	c.Status.ProviderID, c.Status.NodeName = n.Spec.ProviderID, n.Name
	c.Status.Capacity, c.Status.Allocatable = n.Status.Capacity, n.Status.Allocatable
	for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey} {
		c.Labels[key] = n.Labels[key]
	}
	if pool != nil {
		c.Spec.Taints, c.Spec.StartupTaints = pool.Spec.Template.Spec.Taints, pool.Spec.Template.Spec.StartupTaints
	}
	if t := catalog.Type(n.Labels[corev1.LabelInstanceTypeStable]); t != nil {
		c.Status.Capacity, c.Status.Allocatable = t.Capacity.List(), t.Allocatable.List()
		c.Spec.Resources.Requests = corev1.ResourceList{}
		for _, q := range t.Capacity.Extended {
			c.Spec.Resources.Requests[q.Name] = *resource.NewQuantity(q.Value, resource.DecimalSI)
		}
	}
	return c
}

// namespaces makes those that objects are in and the file does not define.
func namespaces(objects []client.Object) []client.Object {
	names, there := map[string]bool{}, map[string]bool{}
	for _, o := range objects {
		names[o.GetNamespace()] = true
		if ns, ok := o.(*corev1.Namespace); ok {
			there[ns.Name] = true
			metav1.SetMetaDataLabel(&ns.ObjectMeta, corev1.LabelMetadataName, ns.Name)
		}
	}
	var out []client.Object
	for _, name := range slices.Sorted(maps.Keys(names)) {
		if name != "" && !there[name] {
			out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{corev1.LabelMetadataName: name}}})
		}
	}
	return out
}

// deletedAt gives every object with a deletion time one that says so to fake clients, too, which refuse such an object
// without a finalizer.
func deletedAt(o client.Object) {
	if o.GetDeletionTimestamp() != nil && len(o.GetFinalizers()) == 0 {
		o.SetFinalizers([]string{"scenario/leaving"})
	}
}

// runtimeObjects changes the type of a list.
func runtimeObjects(list []client.Object) []runtime.Object {
	out := make([]runtime.Object, len(list))
	for i, o := range list {
		out[i] = o
	}
	return out
}
