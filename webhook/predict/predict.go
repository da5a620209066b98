// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package predict

import (
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// Options are what a Predictor reads. All of it is local.
type Options struct {
	Policies    func() []*v1alpha1.WorkloadPolicy
	Namespaces  corelisters.NamespaceLister
	LimitRanges corelisters.LimitRangeLister
	// Siblings are the pods a controller has.
	Siblings func(controller types.UID) []*corev1.Pod
	// Namespace is Slipway's own, which admission never looks at.
	Namespace string
	Clock     clock.PassiveClock
}

// Predictor foretells admission. It is safe for concurrent use.
type Predictor struct {
	Options

	registry *rules.Registry
}

// New returns a predictor.
func New(o Options) *Predictor { return &Predictor{Options: o, registry: rules.NewRegistry()} }

// Version changes when what is foretold of a namespace's pods may change, as far as it does not depend on other pods.
func (p *Predictor) Version(namespace string) string {
	c, admission, looked := p.choice(namespace)
	if !looked {
		return ""
	}
	return c.Name + "/" + version(p.Policies(), c.Name) + "/" + admission
}

func version(policies []*v1alpha1.WorkloadPolicy, name string) string {
	for _, p := range policies {
		if p.Name == name {
			return string(p.UID) + "@" + p.ResourceVersion
		}
	}
	return ""
}

// choice is the policy of a namespace; looked is false where admission fills in nothing.
func (p *Predictor) choice(namespace string) (c rules.Choice, admission string, looked bool) {
	ns, err := p.Namespaces.Get(namespace)
	if err != nil || namespace == p.Namespace || slices.Contains(rules.SystemNamespaces(), namespace) || ns.Labels[v1alpha1.ManagedLabel] != "true" {
		return c, "", false
	}
	admission = ns.Labels[v1alpha1.AdmissionLabel]
	if admission == "off" {
		return c, "", false
	}
	c = rules.Choose(p.Policies(), namespace, ns.Labels)
	return c, admission, c.Name != ""
}

// Admit fills in the requests that a new pod with this spec gets; the pod must not be shared. controller makes the pod, nil for
// the one the pod names itself.
func (p *Predictor) Admit(pod *corev1.Pod, controller *metav1.OwnerReference) {
	if set := p.defaults(pod, controller); len(set) > 0 {
		rules.Apply(&pod.Spec, set)
	}
}

// Replacement is the pod that will take this one's place as admission makes it: the pod itself if that is the same.
func (p *Predictor) Replacement(pod *corev1.Pod) *corev1.Pod {
	set := p.defaults(pod, nil)
	if len(set) == 0 {
		return pod
	}
	out := pod.DeepCopy()
	rules.Apply(&out.Spec, set)
	return out
}

func (p *Predictor) defaults(pod *corev1.Pod, controller *metav1.OwnerReference) []rules.Default {
	if _, ours := pod.Labels[v1alpha1.ComponentLabel]; ours || complete(&pod.Spec) {
		return nil
	}
	c, admission, looked := p.choice(pod.Namespace)
	if !looked {
		return nil
	}
	s := &rules.Subject{Kind: rules.Pod, Operation: rules.Create, Meta: pod.ObjectMeta, Template: &corev1.PodTemplateSpec{ObjectMeta: pod.ObjectMeta, Spec: pod.Spec}}
	if controller != nil {
		s.Meta.OwnerReferences = []metav1.OwnerReference{*controller}
	}
	set, _ := p.registry.Requests(s, p.facts(&c), &c, admission)
	return set
}

// complete reports whether every container asks for CPU and memory, as nearly all do.
func complete(spec *corev1.PodSpec) bool {
	for _, list := range [][]corev1.Container{spec.InitContainers, spec.Containers} {
		for i := range list {
			r := list[i].Resources.Requests
			if _, cpu := r[corev1.ResourceCPU]; !cpu {
				return false
			}
			if _, memory := r[corev1.ResourceMemory]; !memory {
				return false
			}
		}
	}
	return true
}

// facts are what filling in requests asks for.
func (p *Predictor) facts(c *rules.Choice) *rules.Facts {
	f := &rules.Facts{Now: p.Clock.Now(), Policy: c.Spec}
	f.LimitRanges = func(namespace string) []*corev1.LimitRange {
		list, err := p.LimitRanges.LimitRanges(namespace).List(labels.Everything())
		if err != nil {
			return nil
		}
		slices.SortFunc(list, func(a, b *corev1.LimitRange) int { return strings.Compare(a.Name, b.Name) })
		return list
	}
	if p.Siblings == nil {
		return f
	}
	f.History = func(o rules.Owner, container string, name corev1.ResourceName) (rules.Known, bool) {
		for _, sibling := range p.Siblings(o.UID) {
			if _, given := rules.Recorded(sibling.Annotations[v1alpha1.DefaultedAnnotation], container, name); given {
				continue
			}
			if q := asked(sibling, container)[name]; !q.IsZero() {
				return rules.Known{Value: q.String(), Source: o.Workload}, true
			}
		}
		return rules.Known{}, false
	}
	period := time.Duration(0)
	if c.Spec.Requests.Sticky != nil {
		period = c.Spec.Requests.Sticky.Duration
	}
	f.Sticky = func(o rules.Owner, container string, name corev1.ResourceName) (out rules.Known, ok bool) {
		for _, sibling := range p.Siblings(o.UID) {
			if f.Now.Sub(sibling.CreationTimestamp.Time) >= period {
				continue
			}
			if out, ok = rules.Recorded(sibling.Annotations[v1alpha1.DefaultedAnnotation], container, name); ok {
				return out, true
			}
		}
		return rules.Known{}, false
	}
	return f
}

func asked(pod *corev1.Pod, container string) corev1.ResourceList {
	for _, list := range [][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			if list[i].Name == container {
				return list[i].Resources.Requests
			}
		}
	}
	return nil
}
