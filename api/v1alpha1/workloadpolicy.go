// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// WorkloadPolicy says how the pods of some namespaces are made provisionable, and what happens with findings about them.
// Of the policies that match a namespace exactly one wins: the one its label slipway.sh/policy names, else the one with
// the highest priority (ties: by name), else the one named "default". Policies are never merged.
//
// +kubebuilder:object:root=true
// +kubebuilder:subresource:status
// +kubebuilder:resource:scope=Cluster,shortName=wp,categories=slipway
// +kubebuilder:printcolumn:name="Priority",type=integer,JSONPath=`.spec.priority`
// +kubebuilder:printcolumn:name="Scheduler",type=string,JSONPath=`.spec.schedulerName`
// +kubebuilder:printcolumn:name="Namespaces",type=integer,JSONPath=`.status.matchedNamespaces`
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`
// +kubebuilder:printcolumn:name="Conflicting",type=string,JSONPath=`.status.conditions[?(@.type=="Conflicting")].status`
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:validation:XValidation:rule="self.metadata.name == 'default' || !has(self.spec.clusterRules)",message="clusterRules are read from the policy named default only",fieldPath=".spec.clusterRules"
type WorkloadPolicy struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// +optional
	// +kubebuilder:default={}
	Spec   WorkloadPolicySpec   `json:"spec,omitempty"`
	Status WorkloadPolicyStatus `json:"status,omitempty"`
}

// WorkloadPolicyList is a list of policies.
//
// +kubebuilder:object:root=true
type WorkloadPolicyList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []WorkloadPolicy `json:"items"`
}

// WorkloadPolicySpec is what a policy asks for.
type WorkloadPolicySpec struct {
	// Priority decides between policies that select the same namespace: the highest wins.
	// +optional
	// +kubebuilder:default=0
	// +kubebuilder:validation:Minimum=-1000
	// +kubebuilder:validation:Maximum=1000000
	Priority int32 `json:"priority"`
	// NamespaceSelector selects the policy's namespaces by label. By default those labelled slipway.sh/managed=true. System
	// namespaces are never selected.
	// +optional
	NamespaceSelector *metav1.LabelSelector `json:"namespaceSelector,omitempty"`
	// SchedulerName is given to pods that ask for the default scheduler. Read from the policy named "default" by the
	// MutatingAdmissionPolicy, and from the namespace's own policy where the webhook does it.
	// +optional
	// +kubebuilder:default=slipway
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	SchedulerName string `json:"schedulerName,omitempty"`
	// Requests says how missing requests are filled in.
	// +optional
	// +kubebuilder:default={}
	Requests Requests `json:"requests,omitempty"`
	// Disruption bounds what pods may ask for with karpenter.sh/do-not-disrupt.
	// +optional
	// +kubebuilder:default={}
	Disruption Disruption `json:"disruption,omitempty"`
	// Placement is added to pods where they say nothing themselves (rule S004).
	// +optional
	Placement *Placement `json:"placement,omitempty"`
	// LatencyClasses are the values the annotation slipway.sh/latency-class may have. Without any every value is allowed.
	// +optional
	// +listType=map
	// +listMapKey=name
	// +kubebuilder:validation:MaxItems=16
	LatencyClasses []LatencyClass `json:"latencyClasses,omitempty"`
	// Grandfather says whether pods of owners that are older than the policy are never refused.
	// +optional
	// +kubebuilder:default=OwnersBeforePolicy
	Grandfather Grandfather `json:"grandfather,omitempty"`
	// Rules overrides modes of rules by id. docs/reference/admission.md lists them.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(id, id.matches('^[RDBS][0-9]{3}$'))",message="keys are ids of R, D, B and S rules such as R005; N, C, K and G rules belong in clusterRules"
	Rules map[string]RuleMode `json:"rules,omitempty"`
	// ClusterRules overrides modes of the N, C, K and G rules, which are about cluster-wide objects.
	// +optional
	// +kubebuilder:validation:MaxProperties=64
	// +kubebuilder:validation:XValidation:rule="self.all(id, id.matches('^[NCKG][0-9]{3}$'))",message="keys are ids of N, C, K and G rules such as N005; R, D, B and S rules belong in rules"
	ClusterRules map[string]RuleMode `json:"clusterRules,omitempty"`
	// Compatibility Karpenter lowers every Enforce to Warn, for clusters that are being migrated.
	// +optional
	// +kubebuilder:default=Slipway
	Compatibility Compatibility `json:"compatibility,omitempty"`
	// AllowNamespaceEscalation lets the label slipway.sh/admission=enforce of a namespace raise Warn to Enforce. Without it
	// the label can only lower modes.
	// +optional
	AllowNamespaceEscalation bool `json:"allowNamespaceEscalation,omitempty"`
	// Exceptions bounds the annotation slipway.sh/except.
	// +optional
	// +kubebuilder:default={}
	Exceptions Exceptions `json:"exceptions,omitempty"`
}

// RuleMode is what happens when a rule finds something. Default is for rules that change the object: they do.
// +kubebuilder:validation:Enum=Off;Audit;Warn;Enforce;Default
type RuleMode string

// Modes, from the mildest: nothing; counted and noted in the audit log; shown to the user; refused. Default is the mode
// of rules that change the object.
const (
	Off     RuleMode = "Off"
	Audit   RuleMode = "Audit"
	Warn    RuleMode = "Warn"
	Enforce RuleMode = "Enforce"
	Default RuleMode = "Default"
)

// Grandfather says whether owners older than the policy are spared.
// +kubebuilder:validation:Enum=OwnersBeforePolicy;None
type Grandfather string

// Whether owners that are older than the policy are spared.
const (
	OwnersBeforePolicy Grandfather = "OwnersBeforePolicy"
	GrandfatherNone    Grandfather = "None"
)

// Compatibility is how much of what Karpenter accepts may be refused.
// +kubebuilder:validation:Enum=Slipway;Karpenter
type Compatibility string

// Slipway refuses what could never work; Karpenter refuses nothing that Karpenter accepts.
const (
	SlipwayRules   Compatibility = "Slipway"
	KarpenterRules Compatibility = "Karpenter"
)

// RequestSource is a place a missing request may be taken from.
// +kubebuilder:validation:Enum=limitRange;vpa;history;fallback
type RequestSource string

// Sources of missing requests.
const (
	// FromLimitRange takes the defaultRequest (else default) of the namespace's LimitRanges.
	FromLimitRange RequestSource = "limitRange"
	// FromVPA takes the target of a VerticalPodAutoscaler that only recommends.
	FromVPA RequestSource = "vpa"
	// FromHistory takes what earlier pods of the same workload asked for themselves.
	FromHistory RequestSource = "history"
	// FromFallback takes the policy's fallback.
	FromFallback RequestSource = "fallback"
)

// Requests says how missing requests are filled in.
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || !has(self.floor) || !has(self.fallback.cpu) || !has(self.floor.cpu) || quantity(string(self.fallback.cpu)).compareTo(quantity(string(self.floor.cpu))) >= 0",message="fallback.cpu is below floor.cpu",fieldPath=".fallback"
// +kubebuilder:validation:XValidation:rule="!has(self.fallback) || !has(self.floor) || !has(self.fallback.memory) || !has(self.floor.memory) || quantity(string(self.fallback.memory)).compareTo(quantity(string(self.floor.memory))) >= 0",message="fallback.memory is below floor.memory",fieldPath=".fallback"
type Requests struct {
	// Sources are asked in their order; the first that knows a value decides.
	// +optional
	// +listType=set
	// +kubebuilder:default={limitRange,vpa,history,fallback}
	// +kubebuilder:validation:MaxItems=4
	Sources []RequestSource `json:"sources,omitempty"`
	// Fallback is the request of a container nothing else is known about.
	// +optional
	// +kubebuilder:default={cpu: "100m", memory: "256Mi"}
	Fallback Amounts `json:"fallback,omitempty"`
	// Floor is the least a request should be.
	// +optional
	// +kubebuilder:default={cpu: "10m", memory: "32Mi"}
	Floor Amounts `json:"floor,omitempty"`
	// MaxRatio is the largest limit in multiples of the request.
	// +optional
	// +kubebuilder:default={cpu: "10", memory: "2"}
	MaxRatio Amounts `json:"maxRatio,omitempty"`
	// DaemonSets says whether requests of DaemonSet pods are filled in.
	// +optional
	// +kubebuilder:default=DefaultOnly
	// +kubebuilder:validation:Enum=DefaultOnly;Ignore
	DaemonSets string `json:"daemonSets,omitempty"`
	// Sticky is how long the pods of one owner get the same values, whatever the sources say meanwhile. A Go duration.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	Sticky *metav1.Duration `json:"sticky,omitempty"`
}

// Values of Requests.DaemonSets.
const (
	DaemonSetsDefaultOnly = "DefaultOnly"
	DaemonSetsIgnore      = "Ignore"
)

// Amounts are quantities of the two resources every container uses.
// +kubebuilder:validation:XValidation:rule="!has(self.cpu) || quantity(string(self.cpu)).isGreaterThan(quantity('0'))",message="cpu has to be positive",fieldPath=".cpu"
// +kubebuilder:validation:XValidation:rule="!has(self.memory) || quantity(string(self.memory)).isGreaterThan(quantity('0'))",message="memory has to be positive",fieldPath=".memory"
type Amounts struct {
	// +optional
	CPU *resource.Quantity `json:"cpu,omitempty"`
	// +optional
	Memory *resource.Quantity `json:"memory,omitempty"`
}

// Of is the amount of a resource, nil if it is not given.
func (a Amounts) Of(name corev1.ResourceName) *resource.Quantity {
	switch name {
	case corev1.ResourceCPU:
		return a.CPU
	case corev1.ResourceMemory:
		return a.Memory
	default:
		return nil
	}
}

// Indefinite is what happens with a do-not-disrupt that never ends.
// +kubebuilder:validation:Enum=Allow;Warn;Deny;Cap
type Indefinite string

// What happens with a do-not-disrupt that never ends. Cap rewrites it to the maximum.
const (
	IndefiniteAllow Indefinite = "Allow"
	IndefiniteWarn  Indefinite = "Warn"
	IndefiniteDeny  Indefinite = "Deny"
	IndefiniteCap   Indefinite = "Cap"
)

// Disruption bounds what pods may ask for with karpenter.sh/do-not-disrupt.
type Disruption struct {
	// MaxDoNotDisrupt is the longest protection that is not reported. A Go duration.
	// +optional
	// +kubebuilder:default="24h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	MaxDoNotDisrupt *metav1.Duration `json:"maxDoNotDisrupt,omitempty"`
	// Indefinite says what happens with "true", which never ends.
	// +optional
	// +kubebuilder:default=Warn
	Indefinite Indefinite `json:"indefinite,omitempty"`
	// MaxProtectedPods is how many pods of a namespace may be protected at a time: a number or a percentage of its pods.
	// +optional
	// +kubebuilder:default="10%"
	// +kubebuilder:validation:Pattern=`^((100|[0-9]{1,2})%|[0-9]{1,6})$`
	MaxProtectedPods string `json:"maxProtectedPods,omitempty"`
	// Setters says who may protect pods.
	// +optional
	// +kubebuilder:default={}
	Setters Setters `json:"setters,omitempty"`
}

// Setters says who may protect pods.
type Setters struct {
	// Authorize asks RBAC for verb "protect" on disruptions.slipway.sh in the workload's namespace (rule D005).
	// +optional
	Authorize bool `json:"authorize,omitempty"`
}

// Placement is what pods get where they say nothing themselves.
type Placement struct {
	// NodeSelector holds labels for keys the pod does not select by.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Tolerations are added.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=16
	Tolerations []corev1.Toleration `json:"tolerations,omitempty"`
}

// LatencyClass is one value of the annotation slipway.sh/latency-class.
type LatencyClass struct {
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	// +kubebuilder:validation:Pattern=`^[a-z0-9]([-a-z0-9]*[a-z0-9])?$`
	Name string `json:"name"`
	// PriorityClassName is given to pods of the class that name none.
	// +optional
	// +kubebuilder:validation:MaxLength=253
	PriorityClassName string `json:"priorityClassName,omitempty"`
}

// Exceptions bounds the annotation slipway.sh/except.
type Exceptions struct {
	// MaxLifetime is how far ahead an exception's end may be. A Go duration.
	// +optional
	// +kubebuilder:default="720h"
	// +kubebuilder:validation:Type=string
	// +kubebuilder:validation:Pattern=`^([0-9]+(s|m|h))+$`
	MaxLifetime *metav1.Duration `json:"maxLifetime,omitempty"`
	// RequireReason refuses exceptions without a reason.
	// +optional
	// +kubebuilder:default=true
	RequireReason *bool `json:"requireReason,omitempty"`
}

// Condition types of a WorkloadPolicy.
const (
	// ConditionReady is True when the policy is in use as written.
	ConditionReady = "Ready"
	// ConditionConflicting is True when another policy of the same priority selects one of its namespaces; the message says
	// which one wins.
	ConditionConflicting = "Conflicting"
)

// WorkloadPolicyStatus is what the policy does.
type WorkloadPolicyStatus struct {
	// ObservedGeneration is the generation the status is about.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	// MatchedNamespaces is the number of namespaces the policy won.
	// +optional
	MatchedNamespaces int32 `json:"matchedNamespaces"`
	// Findings are mistakes in the policy that its schema cannot see.
	// +optional
	// +listType=atomic
	// +kubebuilder:validation:MaxItems=64
	Findings []string `json:"findings,omitempty"`
	// +optional
	// +listType=map
	// +listMapKey=type
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
