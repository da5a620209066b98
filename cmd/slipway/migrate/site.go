// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"fmt"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Names are how things are called in a cluster; the defaults are those of the charts.
type Names struct {
	// Karpenter is the namespace of Karpenter's Deployment; every namespace is searched if it is empty.
	Karpenter string
	// Slipway is the namespace of Slipway's Deployments.
	Slipway string
	// Lease is the name of Karpenter's leader lease.
	Lease string
}

const (
	nameLabel      = "app.kubernetes.io/name"
	componentLabel = "app.kubernetes.io/component"
	versionLabel   = "app.kubernetes.io/version"
	karpenterName  = "karpenter"
	slipwayName    = "slipway"
	// ownGroup is the API group of classes that are always Slipway's.
	ownGroup = "slipway.sh"
)

// Site is what a cluster has that matters to a move.
type Site struct {
	Names
	// Minor is that of the API server's version, 1.Minor.
	Minor string
	// Definitions are the custom resource definitions of Karpenter's kinds that are there.
	Definitions []apiextensionsv1.CustomResourceDefinition
	// Karpenter are Deployments of Karpenter's, Slipway those of the scheduler and the controller.
	Karpenter, Slipway []appsv1.Deployment
	Leases             []coordinationv1.Lease
	Pools              []karpv1.NodePool
	Classes            []v1.EC2NodeClass
	Claims             []karpv1.NodeClaim
	Pods               []corev1.Pod
	Namespaces         []corev1.Namespace
}

// definitions are the kinds that both look after.
func definitions() []string {
	return []string{"ec2nodeclasses.karpenter.k8s.aws", "nodeclaims.karpenter.sh", "nodepools.karpenter.sh"}
}

// NewScheme has the kinds that a move reads and writes.
func NewScheme() (*runtime.Scheme, error) {
	s := runtime.NewScheme()
	for _, add := range []func(*runtime.Scheme) error{scheme.AddToScheme, apiextensionsv1.AddToScheme} {
		if err := add(s); err != nil {
			return nil, fmt.Errorf("registering kinds: %w", err)
		}
	}
	// Karpenter's API packages register themselves in client-go's scheme only.
	for gvk := range scheme.Scheme.AllKnownTypes() {
		if strings.HasPrefix(gvk.Group, "karpenter.") && !s.Recognizes(gvk) {
			o, err := scheme.Scheme.New(gvk)
			if err != nil {
				return nil, fmt.Errorf("registering kinds: %w", err)
			}
			s.AddKnownTypeWithName(gvk, o)
		}
	}
	return s, nil
}

// Gather reads the cluster. minor is that of the API server's version.
func Gather(ctx context.Context, kube client.Reader, minor string, n Names) (*Site, error) {
	s := &Site{Names: n, Minor: minor}
	for _, name := range definitions() {
		var d apiextensionsv1.CustomResourceDefinition
		err := kube.Get(ctx, client.ObjectKey{Name: name}, &d)
		if client.IgnoreNotFound(err) != nil {
			return nil, fmt.Errorf("reading custom resource definition %q: %w", name, err)
		}
		if err == nil {
			s.Definitions = append(s.Definitions, d)
		}
	}
	if err := s.deployments(ctx, kube); err != nil {
		return nil, err
	}
	var leases coordinationv1.LeaseList
	var pods corev1.PodList
	var namespaces corev1.NamespaceList
	lists := []client.ObjectList{&leases, &pods, &namespaces}
	var pools karpv1.NodePoolList
	var claims karpv1.NodeClaimList
	var classes v1.EC2NodeClassList
	if len(s.Definitions) == len(definitions()) {
		lists = append(lists, &pools, &claims, &classes)
	}
	for _, list := range lists {
		if err := kube.List(ctx, list); err != nil {
			return nil, fmt.Errorf("reading the cluster: %w", err)
		}
	}
	s.Leases = slices.DeleteFunc(leases.Items, func(l coordinationv1.Lease) bool { return l.Name != n.Lease })
	s.Pods, s.Namespaces = pods.Items, namespaces.Items
	s.Pools, s.Claims, s.Classes = pools.Items, claims.Items, classes.Items
	return s, nil
}

func (s *Site) deployments(ctx context.Context, kube client.Reader) error {
	var list appsv1.DeploymentList
	if err := kube.List(ctx, &list, client.InNamespace(s.Names.Karpenter), client.MatchingLabels{nameLabel: karpenterName}); err != nil {
		return fmt.Errorf("looking for Karpenter: %w", err)
	}
	s.Karpenter = list.Items
	list = appsv1.DeploymentList{}
	if err := kube.List(ctx, &list, client.InNamespace(s.Names.Slipway), client.MatchingLabels{nameLabel: slipwayName}); err != nil {
		return fmt.Errorf("looking for Slipway: %w", err)
	}
	s.Slipway = slices.DeleteFunc(list.Items, func(d appsv1.Deployment) bool {
		return d.Spec.Template.Labels[componentLabel] == "webhook"
	})
	return nil
}

// holder is who holds Karpenter's lease in its namespace, empty if nobody.
func (s *Site) holder() string {
	for i := range s.Leases {
		l := &s.Leases[i]
		if len(s.Karpenter) == 1 && l.Namespace == s.leaseNamespace() && l.Spec.HolderIdentity != nil {
			return *l.Spec.HolderIdentity
		}
	}
	return ""
}

// leaseNamespace is where Karpenter keeps its lease.
func (s *Site) leaseNamespace() string {
	k := &s.Karpenter[0]
	for _, name := range []string{"LEADER_ELECTION_NAMESPACE", "SYSTEM_NAMESPACE"} {
		if v, ok := setting([]appsv1.Deployment{*k}, name); ok && v != "" {
			return v
		}
	}
	return k.Namespace
}

func ours(holder string) bool { return strings.HasPrefix(holder, capacity.LeaseHolderPrefix) }

// setting is the value a setting has in the containers of the Deployments, as a flag or a variable, both by the variable's name.
// ok is false if it is not set, or by a reference whose value is not looked up.
func setting(in []appsv1.Deployment, name string) (value string, ok bool) {
	all := settings(in, name)
	if len(all) == 0 {
		return "", false
	}
	return all[len(all)-1], true
}

// settings are all values of a setting that may be given more than once; flags come after variables.
func settings(in []appsv1.Deployment, name string) []string {
	flag := "--" + strings.ToLower(strings.ReplaceAll(name, "_", "-"))
	var variables, flags []string
	for i := range in {
		for _, c := range in[i].Spec.Template.Spec.Containers {
			for _, e := range c.Env {
				if e.Name == name && e.ValueFrom == nil {
					variables = append(variables, e.Value)
				}
			}
			for _, arg := range slices.Concat(c.Command, c.Args) {
				if v, found := strings.CutPrefix(arg, flag+"="); found {
					flags = append(flags, v)
				} else if arg == flag {
					flags = append(flags, "true")
				}
			}
		}
	}
	return append(variables, flags...)
}

// nameless are the claims that have no instance, and are not on their way out.
func nameless(claims []karpv1.NodeClaim, which func(*karpv1.NodeClaim) bool) []string {
	var out []string
	for i := range claims {
		if c := &claims[i]; c.Status.ProviderID == "" && c.DeletionTimestamp == nil && which(c) {
			out = append(out, c.Name)
		}
	}
	slices.Sort(out)
	return out
}

// shared reports whether a claim is of a class that both can look after.
func shared(c *karpv1.NodeClaim) bool {
	return c.Spec.NodeClassRef == nil || c.Spec.NodeClassRef.Group != ownGroup
}

func drifted(claims []karpv1.NodeClaim) []string {
	var out []string
	for i := range claims {
		for _, c := range claims[i].Status.Conditions {
			if c.Type == karpv1.ConditionTypeDrifted && c.Status == "True" {
				out = append(out, claims[i].Name)
			}
		}
	}
	slices.Sort(out)
	return out
}
