// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// DefaultPolicy is the name of the policy that applies where no other does, and the only one whose clusterRules are read.
const DefaultPolicy = "default"

// BuiltinPolicy stands for the built-in behaviour where native policies ask which policy holds. A WorkloadPolicy of that name is
// taken for none.
const BuiltinPolicy = "slipway-builtin"

// NativeConfigMap is what native policies read, in Slipway's namespace: all WorkloadPolicies, as slipway-webhook writes them.
const NativeConfigMap = "slipway-policies"

// Labels of namespaces.
const (
	// ManagedLabel "true" puts a namespace's pods in Slipway's care.
	ManagedLabel = "slipway.sh/managed"
	// AdmissionLabel is the strictest mode rules may have in a namespace: off, audit, warn or enforce.
	AdmissionLabel = "slipway.sh/admission"
	// PolicyLabel names the WorkloadPolicy of a namespace, whatever the policies' selectors say.
	PolicyLabel = "slipway.sh/policy"
)

const (
	// SchedulerLabel "default" on a pod keeps schedulerName as it is.
	SchedulerLabel = "slipway.sh/scheduler"
	// ComponentLabel marks Slipway's own pods; admission never looks at them.
	ComponentLabel = "slipway.sh/component"
)

// Annotations.
const (
	// ExceptAnnotation lists the rules an object is excepted from, each with a reason and an end:
	// "S005=moves next sprint;until=2026-12-31, R005=batch;until=2026-10-01".
	ExceptAnnotation = "slipway.sh/except"
	// DefaultedAnnotation says on a pod which requests were filled in, with which value and from where.
	DefaultedAnnotation = "slipway.sh/defaulted"
	// LatencyClassAnnotation names one of the policy's latency classes.
	LatencyClassAnnotation = "slipway.sh/latency-class"
	// ConfirmDeleteAnnotation with the object's own name as its value allows the deletion of a NodePool that has nodes.
	ConfirmDeleteAnnotation = "slipway.sh/confirm-delete"
)
