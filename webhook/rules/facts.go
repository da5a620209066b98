// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Facts are what is known beside the object. A nil function, and a false second answer, mean "not known": rules that need
// it are silent. Functions read memory only and may be called by many at once.
type Facts struct {
	// Now is the time of the review.
	Now time.Time
	// Policy holds the parameters of the namespace's policy, or the built-in ones.
	Policy v1alpha1.WorkloadPolicySpec

	LimitRanges func(namespace string) []*corev1.LimitRange
	Budgets     func(namespace string) []*policyv1.PodDisruptionBudget
	Workloads   func(namespace string) []Workload
	// Protected counts the pods of a namespace that nobody may disrupt, and all of them.
	Protected func(namespace string) (protected, all int)
	// Recommended is what a VerticalPodAutoscaler says about a workload.
	Recommended func(namespace string, owner metav1.OwnerReference) (Recommendation, bool)
	// History and Sticky know earlier requests of an owner's containers; see Sources.
	History func(owner Owner, container string, name corev1.ResourceName) (Known, bool)
	Sticky  func(owner Owner, container string, name corev1.ResourceName) (Known, bool)

	// Pools lists all NodePools; Class finds the class of a pool, nil if there is none; Claims counts a pool's nodes.
	Pools  func() []*karpv1.NodePool
	Class  func(name string) *v1.EC2NodeClass
	Claims func(pool string) []*karpv1.NodeClaim
	// Catalog is what a class can buy, nil while that is not known.
	Catalog func(class string) *capacity.Catalog
	// Vocabulary are the values each node label has somewhere: on nodes, in pools, in the catalogue. nil if not known.
	Vocabulary func() map[string][]string
	// Feasible says whether pods made from a template can ever run.
	Feasible func(namespace string, t *corev1.PodTemplateSpec) Feasibility
	// Where says it with the pools, which takes longer.
	Where func(namespace string, t *corev1.PodTemplateSpec) Feasibility
}

// Workload is what makes pods, as far as budgets care.
type Workload struct {
	Kind, Name string
	// Labels are its pods' labels.
	Labels map[string]string
	// Replicas is what its spec asks for, Least what an autoscaler may bring it down to (equal if there is none).
	Replicas, Least int32
	// Scaler is the name of that autoscaler, empty if there is none.
	Scaler string
}

// Owner identifies who makes the pods whose requests should be equal: the controller, and the workload above it by name.
type Owner struct {
	Namespace string
	// UID is the controller's, for instance a ReplicaSet's.
	UID types.UID
	// Workload is the name that stays when a new revision comes, for instance a Deployment's.
	Workload string
}

// Known is a request from earlier, with the place it came from.
type Known struct {
	Value  string
	Source string
}

// Recommendation is what a VerticalPodAutoscaler says about a workload.
type Recommendation struct {
	Name string
	// Active says that the autoscaler sets requests itself; nobody else should.
	Active bool
	// Target is the recommendation by container.
	Target map[string]corev1.ResourceList
	// Skips are containers the autoscaler leaves alone (mode Off).
	Skips map[string]bool
}

// Answer is yes, no or not known.
type Answer string

// Answers.
const (
	Yes     Answer = "yes"
	No      Answer = "no"
	Unknown Answer = "unknown"
)

// Feasibility says whether a pod can ever run.
type Feasibility struct {
	Answer Answer
	// Pools are those it could run on, by name. They, OnlySpot and Zones are told by Where alone.
	Pools []string
	// OnlySpot says that all it can get is spot capacity.
	OnlySpot bool
	// Nearest is the pool that came nearest, and Reason the one thing that blocks there; of a No.
	Nearest, Reason string
	// Zones is the largest number of zones one pool can buy in, 0 if not known.
	Zones int
}

// Builtin are the parameters that hold without a policy: the defaults of the policy's schema.
func Builtin() v1alpha1.WorkloadPolicySpec {
	day := &metav1.Duration{Duration: 24 * time.Hour}
	return v1alpha1.WorkloadPolicySpec{
		SchedulerName: "slipway",
		Requests: v1alpha1.Requests{
			Sources:    []v1alpha1.RequestSource{v1alpha1.FromLimitRange, v1alpha1.FromVPA, v1alpha1.FromHistory, v1alpha1.FromFallback},
			Fallback:   amounts("100m", "256Mi"),
			Floor:      amounts("10m", "32Mi"),
			MaxRatio:   amounts("10", "2"),
			DaemonSets: v1alpha1.DaemonSetsDefaultOnly,
			Sticky:     day,
		},
		Disruption: v1alpha1.Disruption{
			MaxDoNotDisrupt: day, Indefinite: v1alpha1.IndefiniteWarn, MaxProtectedPods: "10%",
		},
		Grandfather:   v1alpha1.OwnersBeforePolicy,
		Compatibility: v1alpha1.SlipwayRules,
		Exceptions: v1alpha1.Exceptions{
			MaxLifetime: &metav1.Duration{Duration: 720 * time.Hour}, RequireReason: new(true),
		},
	}
}
