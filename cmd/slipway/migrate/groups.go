// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

// groupLabels are the labels that say which node group a node is of, the first one first.
func groupLabels() []string {
	return []string{"eks.amazonaws.com/nodegroup", "alpha.eksctl.io/nodegroup-name", "kops.k8s.io/instancegroup", "node.kubernetes.io/instancegroup"}
}

const (
	evictAnnotation     = "cluster-autoscaler.kubernetes.io/safe-to-evict"
	scaleDownAnnotation = "cluster-autoscaler.kubernetes.io/scale-down-disabled"
	statusConfigMap     = "cluster-autoscaler-status"
)

// Group is a node group, with what to do with it.
type Group struct {
	Name  string `json:"name"`
	Nodes int    `json:"nodes"`
	// Min and Max are the group's bounds by Cluster Autoscaler's status, nil if that does not tell.
	Min *int `json:"min,omitempty"`
	Max *int `json:"max,omitempty"`
	// Pods are those that have to move: no daemonset's, none that has ended.
	Pods int `json:"pods"`
	// Order is when to cordon it, from 1; 0 for a group to keep.
	Order int `json:"order"`
	// Floor is the minimum to set: 0, or what the pods that stay need.
	Floor int      `json:"floor"`
	Why   []string `json:"why"`

	names  map[string]bool // of its nodes
	labels map[string]string
	stay   corev1.ResourceList // requested by pods that stay
	least  corev1.ResourceList // allocatable of its smallest node
	blocks int                 // pods whose labels no pool gives
	sticky int                 // pods that resist
}

// GroupSite is what a cluster has that matters to a move from Cluster Autoscaler.
type GroupSite struct {
	Names      Names
	Nodes      []corev1.Node
	Pods       []corev1.Pod
	Pools      []karpv1.NodePool
	Slipway    []appsv1.Deployment
	Autoscaler []appsv1.Deployment
	// Status is the text of Cluster Autoscaler's ConfigMap, empty if there is none.
	Status string
}

// GatherGroups reads the cluster. NodePools are none if their kind is not there yet.
func GatherGroups(ctx context.Context, kube client.Reader, n Names) (*GroupSite, error) {
	var nodes corev1.NodeList
	var pods corev1.PodList
	var deployments appsv1.DeploymentList
	for _, list := range []client.ObjectList{&nodes, &pods, &deployments} {
		if err := kube.List(ctx, list); err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
	}
	s := &GroupSite{Names: n, Nodes: nodes.Items, Pods: pods.Items}
	for i := range deployments.Items {
		d := &deployments.Items[i]
		switch {
		case autoscaler(d):
			s.Autoscaler = append(s.Autoscaler, *d)
		case d.Namespace == n.Slipway && d.Labels[nameLabel] == slipwayName && d.Spec.Template.Labels[componentLabel] != "webhook":
			s.Slipway = append(s.Slipway, *d)
		}
	}
	var pools karpv1.NodePoolList
	if err := kube.List(ctx, &pools); !absent(err) && err != nil {
		return nil, fmt.Errorf("listing NodePools: %w", err)
	}
	s.Pools = pools.Items
	for i := range s.Autoscaler {
		var status corev1.ConfigMap
		err := kube.Get(ctx, client.ObjectKey{Namespace: s.Autoscaler[i].Namespace, Name: statusConfigMap}, &status)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading Cluster Autoscaler's status: %w", err)
		}
		s.Status = cmp.Or(s.Status, status.Data["status"])
	}
	return s, nil
}

// autoscaler tells Cluster Autoscaler by its image: charts and manifests label it in different ways.
func autoscaler(d *appsv1.Deployment) bool {
	return slices.ContainsFunc(d.Spec.Template.Spec.Containers, func(c corev1.Container) bool {
		image, _, _ := strings.Cut(c.Image, "@")
		return strings.Contains(image[strings.LastIndexByte(image, '/')+1:], "cluster-autoscaler")
	})
}

// bounds are the sizes of a node group by the status that Cluster Autoscaler writes.
type bounds struct {
	Name   string `json:"name"`
	Health struct {
		Min int `json:"minSize"`
		Max int `json:"maxSize"`
	} `json:"health"`
}

// groups makes the groups of the nodes that no NodePool has, in order of name.
func (s *GroupSite) groups() []Group {
	found := map[string]*Group{}
	for i := range s.Nodes {
		n := &s.Nodes[i]
		if n.Labels[karpv1.NodePoolLabelKey] != "" || n.Labels["eks.amazonaws.com/compute-type"] == "fargate" {
			continue
		}
		name := "(no group label)"
		for _, key := range slices.Backward(groupLabels()) {
			name = cmp.Or(n.Labels[key], name)
		}
		g := found[name]
		if g == nil {
			g = &Group{Name: name, names: map[string]bool{}, labels: n.Labels, least: n.Status.Allocatable, stay: corev1.ResourceList{}}
			found[name] = g
		}
		g.take(n)
	}
	var status struct {
		NodeGroups []bounds `json:"nodeGroups"`
	}
	_ = yaml.Unmarshal([]byte(s.Status), &status) // before 1.30 it was prose, which tells nothing here
	out := make([]Group, 0, len(found))
	for _, g := range found {
		for _, b := range status.NodeGroups {
			// EKS calls the Auto Scaling group of a managed node group eks-NAME-ID.
			if b.Name == g.Name || strings.HasPrefix(b.Name, "eks-"+g.Name+"-") {
				g.Min, g.Max = new(b.Health.Min), new(b.Health.Max)
			}
		}
		out = append(out, *g)
	}
	slices.SortFunc(out, func(a, b Group) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// take adds a node: what all of the group's nodes have is what counts.
func (g *Group) take(n *corev1.Node) {
	g.Nodes++
	g.names[n.Name] = true
	if n.Status.Allocatable.Cpu().Cmp(*g.least.Cpu()) < 0 {
		g.least = n.Status.Allocatable
	}
	common := map[string]string{}
	for k, v := range g.labels {
		if n.Labels[k] == v {
			common[k] = v
		}
	}
	g.labels = common
}

// add counts a pod that is on a node of the group.
func (g *Group) add(p *corev1.Pod, stays bool, missing []string) {
	g.Pods++
	switch {
	case stays:
		for _, c := range p.Spec.Containers {
			for name, q := range c.Resources.Requests {
				sum := g.stay[name]
				sum.Add(q)
				g.stay[name] = sum
			}
		}
	case len(missing) > 0:
		g.blocks++
	case sticky(p) != "":
		g.sticky++
	}
}

// sticky says why a pod does not move by itself.
func sticky(p *corev1.Pod) string {
	switch {
	case p.Annotations[evictAnnotation] == "false":
		return "safe-to-evict is false"
	case p.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true":
		return "do-not-disrupt"
	case metav1.GetControllerOf(p) == nil:
		return "no controller"
	}
	return ""
}

// floor is the least number of nodes that hold what stays: two, so that one can fail, unless nothing stays.
func (g *Group) floor() int {
	if len(g.stay) == 0 {
		return 0
	}
	least := 2
	for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
		want, have := g.stay[name], g.least[name]
		if have.Cmp(resource.Quantity{}) > 0 {
			nodes := int(want.AsApproximateFloat64()/have.AsApproximateFloat64()) + 1
			least = max(least, nodes)
		}
	}
	return least
}

// order decides which groups stay and in which order the others are closed: what nothing holds first, then by how many pods
// resist, then by how many move.
func order(groups []Group) {
	for i := range groups {
		g := &groups[i]
		g.Floor = g.floor()
		if g.Floor > 0 {
			g.Why = append(g.Why, "keeps Slipway, Cluster Autoscaler or pods of kube-system")
		}
		if g.blocks > 0 {
			g.Why = append(g.Why, fmt.Sprintf("%s labels that no NodePool gives", count(g.blocks, "pod selects", "pods select")))
		}
		if g.sticky > 0 {
			g.Why = append(g.Why, fmt.Sprintf("%s not move by itself", count(g.sticky, "pod does", "pods do")))
		}
		if len(g.Why) == 0 {
			g.Why = append(g.Why, "nothing holds it")
		}
	}
	slices.SortStableFunc(groups, func(a, b Group) int {
		return cmp.Or(
			cmp.Compare(min(a.Floor, 1), min(b.Floor, 1)), cmp.Compare(a.blocks, b.blocks), cmp.Compare(a.sticky, b.sticky),
			cmp.Compare(a.Pods, b.Pods), strings.Compare(a.Name, b.Name),
		)
	})
	n := 0
	for i := range groups {
		if groups[i].Floor == 0 {
			n++
			groups[i].Order = n
		}
	}
}

func writeGroups(w io.Writer, groups []Group) error {
	if len(groups) == 0 {
		return nil
	}
	fmt.Fprintln(w)
	t := tabwriter.NewWriter(w, 0, 0, 3, ' ', 0)
	fmt.Fprintln(t, "CORDON\tNODE GROUP\tNODES\tMIN\tMAX\tPODS\tNEW MIN\tWHY")
	for i := range groups {
		g := &groups[i]
		when := "keep"
		if g.Order > 0 {
			when = fmt.Sprint(g.Order)
		}
		fmt.Fprintf(t, "%s\t%s\t%d\t%s\t%s\t%d\t%d\t%s\n", when, g.Name, g.Nodes, size(g.Min), size(g.Max), g.Pods, g.Floor, strings.Join(g.Why, "; "))
	}
	return t.Flush()
}

func size(n *int) string {
	if n == nil {
		return "?"
	}
	return fmt.Sprint(*n)
}
