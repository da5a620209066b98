// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"slices"
	"strings"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// Inputs are the objects a state is made from. None of them is modified.
type Inputs struct {
	Namespaces  []*corev1.Namespace
	Policies    []*v1alpha1.WorkloadPolicy
	LimitRanges []*corev1.LimitRange
	Budgets     []*policyv1.PodDisruptionBudget
	Scalers     []*autoscalingv2.HorizontalPodAutoscaler
	// Workloads make pods: Deployments, StatefulSets, and ReplicaSets nobody owns.
	Workloads []Workload
	// Recommenders are VerticalPodAutoscalers, whose API is not part of Kubernetes.
	Recommenders []*unstructured.Unstructured
	Pools        []*karpv1.NodePool
	Claims       []*karpv1.NodeClaim
	Classes      []*v1.EC2NodeClass
	// Catalog is what a class can buy, nil if that is not known.
	Catalog func(class string) *capacity.Catalog
	// Oracle answers whether pods can ever run; nil if that cannot be said.
	Oracle *Oracle
}

// Workload is a workload of a namespace.
type Workload struct {
	Namespace string
	rules.Workload
}

// State is what is known of the cluster at one instant, arranged for reviews. It is immutable; a new one takes its place
// when something changes.
type State struct {
	in         Inputs
	cluster    rules.Choice
	outside    namespace // of namespaces that are not known
	namespaces map[string]*namespace
	classes    map[string]*v1.EC2NodeClass
	claims     map[string][]*karpv1.NodeClaim
	vocabulary map[string][]string
}

type namespace struct {
	choice       rules.Choice
	admission    string
	limitRanges  []*corev1.LimitRange
	budgets      []*policyv1.PodDisruptionBudget
	workloads    []rules.Workload
	recommenders map[string]rules.Recommendation // by kind/name
}

// NewState arranges the inputs.
func NewState(in Inputs) *State {
	s := &State{
		in: in, cluster: rules.ForCluster(in.Policies), namespaces: map[string]*namespace{},
		classes: map[string]*v1.EC2NodeClass{}, claims: map[string][]*karpv1.NodeClaim{},
	}
	s.outside.choice = rules.Choose(in.Policies, "", nil)
	for _, ns := range in.Namespaces {
		s.namespaces[ns.Name] = &namespace{choice: rules.Choose(in.Policies, ns.Name, ns.Labels), admission: ns.Labels[v1alpha1.AdmissionLabel]}
	}
	for _, lr := range in.LimitRanges {
		if ns := s.namespaces[lr.Namespace]; ns != nil {
			ns.limitRanges = append(ns.limitRanges, lr)
		}
	}
	for _, b := range in.Budgets {
		if ns := s.namespaces[b.Namespace]; ns != nil {
			ns.budgets = append(ns.budgets, b)
		}
	}
	for _, ns := range s.namespaces {
		slices.SortFunc(ns.limitRanges, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
		slices.SortFunc(ns.budgets, func(a, b *policyv1.PodDisruptionBudget) int { return strings.Compare(a.Name, b.Name) })
	}
	s.putWorkloads()
	s.putRecommenders()
	for _, c := range in.Classes {
		s.classes[c.Name] = c
	}
	for _, c := range in.Claims {
		pool := c.Labels[karpv1.NodePoolLabelKey]
		s.claims[pool] = append(s.claims[pool], c)
	}
	if in.Oracle != nil {
		s.vocabulary = in.Oracle.Vocabulary()
	}
	return s
}

func (s *State) putWorkloads() {
	type target struct{ namespace, kind, name string }
	scalers := map[target]*autoscalingv2.HorizontalPodAutoscaler{}
	for _, a := range s.in.Scalers {
		ref := a.Spec.ScaleTargetRef
		scalers[target{a.Namespace, ref.Kind, ref.Name}] = a
	}
	for _, w := range s.in.Workloads {
		ns := s.namespaces[w.Namespace]
		if ns == nil {
			continue
		}
		if a := scalers[target{w.Namespace, w.Kind, w.Name}]; a != nil {
			w.Least, w.Scaler = 1, a.Name
			if a.Spec.MinReplicas != nil {
				w.Least = *a.Spec.MinReplicas
			}
		}
		ns.workloads = append(ns.workloads, w.Workload)
	}
	for _, ns := range s.namespaces {
		slices.SortFunc(ns.workloads, func(a, b rules.Workload) int { return strings.Compare(a.Kind+"/"+a.Name, b.Kind+"/"+b.Name) })
	}
}

func (s *State) putRecommenders() {
	for _, u := range s.in.Recommenders {
		ns := s.namespaces[u.GetNamespace()]
		if ns == nil {
			continue
		}
		kind, _, _ := unstructured.NestedString(u.Object, "spec", "targetRef", "kind")
		name, _, _ := unstructured.NestedString(u.Object, "spec", "targetRef", "name")
		if ns.recommenders == nil {
			ns.recommenders = map[string]rules.Recommendation{}
		}
		ns.recommenders[kind+"/"+name] = recommendation(u)
	}
}

// Choice is the policy of a namespace and its label slipway.sh/admission. A namespace that is not known yet has what holds
// without any labels.
func (s *State) Choice(name string) (*rules.Choice, string) {
	ns := s.namespace(name)
	return &ns.choice, ns.admission
}

// Cluster is the choice for cluster-wide objects.
func (s *State) Cluster() *rules.Choice { return &s.cluster }

func (s *State) namespace(name string) *namespace {
	if ns, ok := s.namespaces[name]; ok {
		return ns
	}
	return &s.outside
}

// Facts are what rules may ask about a review in the namespace, which is empty for cluster-wide objects. index may be nil.
func (s *State) Facts(name string, index *Index, now time.Time) *rules.Facts {
	ns := s.namespace(name)
	f := &rules.Facts{Now: now, Policy: ns.choice.Spec}
	if name == "" {
		f.Policy = s.cluster.Spec
	}
	f.LimitRanges = func(string) []*corev1.LimitRange { return ns.limitRanges }
	f.Budgets = func(string) []*policyv1.PodDisruptionBudget { return ns.budgets }
	f.Workloads = func(string) []rules.Workload { return ns.workloads }
	f.Recommended = func(_ string, owner metav1.OwnerReference) (rules.Recommendation, bool) { return ns.recommended(owner) }
	f.Pools = func() []*karpv1.NodePool { return s.in.Pools }
	f.Class = func(class string) *v1.EC2NodeClass { return s.classes[class] }
	f.Claims = func(pool string) []*karpv1.NodeClaim { return s.claims[pool] }
	f.Catalog = s.in.Catalog
	if s.vocabulary != nil {
		f.Vocabulary = func() map[string][]string { return s.vocabulary }
	}
	if s.in.Oracle != nil {
		f.Feasible, f.Where = s.in.Oracle.Feasible, s.in.Oracle.Where
	}
	if index != nil {
		f.Protected, f.History = index.Protected, index.History
		if period := f.Policy.Requests.Sticky; period != nil && period.Duration > 0 {
			f.Sticky = func(o rules.Owner, container string, res corev1.ResourceName) (rules.Known, bool) {
				return index.Sticky(o, container, res, period.Duration, now)
			}
		}
	}
	return f
}

// recommended finds the autoscaler of an owner, or of the workload above it: a ReplicaSet's Deployment, a Job's CronJob.
func (ns *namespace) recommended(owner metav1.OwnerReference) (rules.Recommendation, bool) {
	if len(ns.recommenders) == 0 {
		return rules.Recommendation{}, false
	}
	if r, ok := ns.recommenders[owner.Kind+"/"+owner.Name]; ok {
		return r, true
	}
	above := map[string]string{"ReplicaSet": "Deployment", "Job": "CronJob"}[owner.Kind]
	if i := strings.LastIndexByte(owner.Name, '-'); above != "" && i > 0 {
		r, ok := ns.recommenders[above+"/"+owner.Name[:i]]
		return r, ok
	}
	return rules.Recommendation{}, false
}

// World is the state for rules that are evaluated outside of reviews: facts by namespace, the policies, and a namespace's
// labels, nil if it does not exist.
func (s *State) World(index *Index, now time.Time) (
	facts func(namespace string) *rules.Facts, policies []*v1alpha1.WorkloadPolicy, labels func(namespace string) map[string]string,
) {
	all := map[string]map[string]string{}
	for _, ns := range s.in.Namespaces {
		all[ns.Name] = ns.Labels
	}
	return func(name string) *rules.Facts { return s.Facts(name, index, now) }, s.in.Policies, func(name string) map[string]string { return all[name] }
}
