// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/json" // keys as they are written, like the API server
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// Kind is a kind of object that rules are about, by its Kubernetes name.
type Kind string

// Kinds.
const (
	Pod            Kind = "Pod"
	Deployment     Kind = "Deployment"
	ReplicaSet     Kind = "ReplicaSet"
	StatefulSet    Kind = "StatefulSet"
	DaemonSet      Kind = "DaemonSet"
	Job            Kind = "Job"
	CronJob        Kind = "CronJob"
	Budget         Kind = "PodDisruptionBudget"
	NodePool       Kind = "NodePool"
	NodeClass      Kind = "EC2NodeClass"
	NodeClaim      Kind = "NodeClaim"
	Node           Kind = "Node"
	WorkloadPolicy Kind = "WorkloadPolicy"
	Definition     Kind = "CustomResourceDefinition"
)

func workloads() []Kind { return []Kind{Deployment, ReplicaSet, StatefulSet, DaemonSet, Job, CronJob} }

func podsAndWorkloads() []Kind { return append([]Kind{Pod}, workloads()...) }

// Operation is what is being done to the object.
type Operation string

// Operations, as admission reviews call them, and Resize for the pods/resize subresource.
const (
	Create Operation = "CREATE"
	Update Operation = "UPDATE"
	Delete Operation = "DELETE"
	Resize Operation = "RESIZE"
)

// Subject is one object under review, decoded once. Of the pointers only those of its kind are set.
type Subject struct {
	Kind      Kind
	Operation Operation
	Meta      metav1.ObjectMeta
	// Template is the pod itself, or what a workload makes its pods from; Path is where it is in the object, with a trailing
	// dot unless it is empty.
	Template *corev1.PodTemplateSpec
	Path     string
	// Replicas is the number of pods a workload asks for, nil if its kind has none.
	Replicas *int32
	Budget   *policyv1.PodDisruptionBudget
	Pool     *karpv1.NodePool
	Class    *v1.EC2NodeClass
	Claim    *karpv1.NodeClaim
	Policy   *v1alpha1.WorkloadPolicy
	// Raw is the object as it came, for fields the types do not have.
	Raw []byte
	// User is who asks, empty if that is not known.
	User string
	// Old is the object before an update, nil otherwise.
	Old *Subject
}

// Decode reads an object of the kind. Kinds without rules give an error.
func Decode(kind Kind, raw []byte) (*Subject, error) {
	s := &Subject{Kind: kind, Raw: raw, Operation: Create}
	read, ok := decoders()[kind]
	if !ok {
		return nil, fmt.Errorf("no rule is about objects of kind %q", kind)
	}
	if err := read(s); err != nil {
		return nil, fmt.Errorf("reading %s: %w", kind, err)
	}
	return s, nil
}

func decoders() map[Kind]func(*Subject) error {
	return map[Kind]func(*Subject) error{
		Pod: func(s *Subject) error {
			var o corev1.Pod
			err := json.Unmarshal(s.Raw, &o)
			s.Meta, s.Template = o.ObjectMeta, &corev1.PodTemplateSpec{ObjectMeta: o.ObjectMeta, Spec: o.Spec}
			return err
		},
		Deployment: func(s *Subject) error {
			var o appsv1.Deployment
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.Template, "spec.template.", replicas(o.Spec.Replicas))
			return err
		},
		ReplicaSet: func(s *Subject) error {
			var o appsv1.ReplicaSet
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.Template, "spec.template.", replicas(o.Spec.Replicas))
			return err
		},
		StatefulSet: func(s *Subject) error {
			var o appsv1.StatefulSet
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.Template, "spec.template.", replicas(o.Spec.Replicas))
			return err
		},
		DaemonSet: func(s *Subject) error {
			var o appsv1.DaemonSet
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.Template, "spec.template.", nil)
			return err
		},
		Job: func(s *Subject) error {
			var o batchv1.Job
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.Template, "spec.template.", nil)
			return err
		},
		CronJob: func(s *Subject) error {
			var o batchv1.CronJob
			err := json.Unmarshal(s.Raw, &o)
			s.template(o.ObjectMeta, &o.Spec.JobTemplate.Spec.Template, "spec.jobTemplate.spec.template.", nil)
			return err
		},
		Budget: func(s *Subject) error {
			s.Budget = &policyv1.PodDisruptionBudget{}
			err := json.Unmarshal(s.Raw, s.Budget)
			s.Meta = s.Budget.ObjectMeta
			return err
		},
		NodePool: func(s *Subject) error {
			s.Pool = &karpv1.NodePool{}
			err := json.Unmarshal(s.Raw, s.Pool)
			s.Meta = s.Pool.ObjectMeta
			return err
		},
		NodeClass: func(s *Subject) error {
			s.Class = &v1.EC2NodeClass{}
			err := json.Unmarshal(s.Raw, s.Class)
			s.Meta = s.Class.ObjectMeta
			return err
		},
		NodeClaim: func(s *Subject) error {
			s.Claim = &karpv1.NodeClaim{}
			err := json.Unmarshal(s.Raw, s.Claim)
			s.Meta = s.Claim.ObjectMeta
			return err
		},
		WorkloadPolicy: func(s *Subject) error {
			s.Policy = &v1alpha1.WorkloadPolicy{}
			err := json.Unmarshal(s.Raw, s.Policy)
			s.Meta = s.Policy.ObjectMeta
			return err
		},
		Node:       (*Subject).metadata,
		Definition: (*Subject).metadata,
	}
}

func (s *Subject) template(meta metav1.ObjectMeta, t *corev1.PodTemplateSpec, path string, n *int32) {
	s.Meta, s.Template, s.Path, s.Replicas = meta, t, path, n
}

// metadata reads objects of which only the metadata matters.
func (s *Subject) metadata() error {
	var o metav1.PartialObjectMetadata
	err := json.Unmarshal(s.Raw, &o)
	s.Meta = o.ObjectMeta
	return err
}

// replicas is the number asked for; the API server makes 1 of an absent one.
func replicas(n *int32) *int32 {
	if n == nil {
		return new(int32(1))
	}
	return n
}

// Controller is the object's controller, nil if it has none.
func (s *Subject) Controller() *metav1.OwnerReference { return metav1.GetControllerOf(&s.Meta) }

// Bare reports whether the subject is a pod nobody will create again.
func (s *Subject) Bare() bool { return s.Kind == Pod && s.Controller() == nil }

// OfDaemonSet reports whether the pods are a DaemonSet's.
func (s *Subject) OfDaemonSet() bool {
	if s.Kind == DaemonSet {
		return true
	}
	o := s.Controller()
	return o != nil && o.Kind == string(DaemonSet)
}

// Static reports whether the subject is the mirror of a static pod, which its kubelet owns.
func (s *Subject) Static() bool {
	_, ok := s.Meta.Annotations[corev1.MirrorPodAnnotationKey]
	return s.Kind == Pod && ok
}

// Name is how messages call the object.
func (s *Subject) Name() string {
	name := s.Meta.Name
	if name == "" {
		name = s.Meta.GenerateName
	}
	if s.Meta.Namespace != "" {
		name = s.Meta.Namespace + "/" + name
	}
	return fmt.Sprintf("%s %s", strings.ToLower(string(s.Kind)), name)
}

// container is one container of the subject's pods with its path.
type container struct {
	*corev1.Container
	path    string
	init    bool
	sidecar bool // an init container that keeps running
}

// containers lists init containers first, as they start.
func (s *Subject) containers() []container {
	if s.Template == nil {
		return nil
	}
	spec := &s.Template.Spec
	out := make([]container, 0, len(spec.InitContainers)+len(spec.Containers))
	for i := range spec.InitContainers {
		c := &spec.InitContainers[i]
		out = append(out, container{c, fmt.Sprintf("%sspec.initContainers[%s]", s.Path, c.Name), true, restarts(c)})
	}
	for i := range spec.Containers {
		c := &spec.Containers[i]
		out = append(out, container{c, fmt.Sprintf("%sspec.containers[%s]", s.Path, c.Name), false, false})
	}
	return out
}

func restarts(c *corev1.Container) bool {
	return c.RestartPolicy != nil && *c.RestartPolicy == corev1.ContainerRestartPolicyAlways
}

// podLevel reports whether the pod as a whole sets the resource, so that containers need not.
func podLevel(spec *corev1.PodSpec, name corev1.ResourceName) bool {
	if spec.Resources == nil {
		return false
	}
	_, request := spec.Resources.Requests[name]
	_, limit := spec.Resources.Limits[name]
	return request || limit
}
