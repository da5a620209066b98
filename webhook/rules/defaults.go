// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// Default is a request that is filled in.
type Default struct {
	// Init and Index find the container in spec.initContainers or spec.containers; Container is its name.
	Init      bool
	Index     int
	Container string
	Resource  corev1.ResourceName
	Value     resource.Quantity
	// Source says where the value is from, for instance `limitRange base`.
	Source string
}

// Skipped is a request that is missing and stays so.
type Skipped struct {
	Path, Container string
	Resource        corev1.ResourceName
	Why             string
}

// defaulted are the resources requests are filled in for, in this order.
func defaulted() []corev1.ResourceName {
	return []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory}
}

// Defaults says which requests the subject's pods get that ask for none: for each container without a request the value
// of the first source that knows one, within the container's own limit and the namespace's LimitRanges. It never adds or
// changes a limit, and never touches a resource that the pod as a whole or an active VerticalPodAutoscaler sets.
//
// App containers are filled first, then sidecars. A plain init container gets a value only from sources that know this
// container, and only if it would ask for more than the others together: else the value would change nothing.
//
// Limits count as requests, because the API server makes them requests of pods; templates are read the same way.
func Defaults(s *Subject, f *Facts) ([]Default, []Skipped) {
	if s.Template == nil || s.Static() || (s.OfDaemonSet() && f.Policy.Requests.DaemonSets == v1alpha1.DaemonSetsIgnore) {
		return nil, nil
	}
	d := &defaulter{s: s, f: f, owner: OwnerOf(s), ranges: newRanges(s.Meta.Namespace, f)}
	d.vpa, d.advised = d.recommendation()
	spec := &s.Template.Spec
	for _, name := range defaulted() {
		if podLevel(spec, name) {
			continue
		}
		d.total = resource.Quantity{}
		for i := range spec.Containers {
			d.fill(&spec.Containers[i], false, i, name)
		}
		for i := range spec.InitContainers {
			if restarts(&spec.InitContainers[i]) {
				d.fill(&spec.InitContainers[i], true, i, name)
			}
		}
		for i := range spec.InitContainers {
			if !restarts(&spec.InitContainers[i]) {
				d.fillInit(&spec.InitContainers[i], i, name)
			}
		}
	}
	return d.set, d.left
}

// defaulter is one run of Defaults.
type defaulter struct {
	s       *Subject
	f       *Facts
	owner   Owner
	ranges  ranges
	vpa     Recommendation
	advised bool
	// total is what the containers that run together ask for of the resource at hand.
	total resource.Quantity
	set   []Default
	left  []Skipped
}

func (d *defaulter) recommendation() (Recommendation, bool) {
	if d.f.Recommended == nil {
		return Recommendation{}, false
	}
	ref := metav1.OwnerReference{Kind: string(d.s.Kind), Name: d.s.Meta.Name, UID: d.s.Meta.UID}
	if c := d.s.Controller(); c != nil {
		ref = *c
	}
	return d.f.Recommended(d.s.Meta.Namespace, ref)
}

// asked is the container's own request, a limit counting as one.
func asked(c *corev1.Container, name corev1.ResourceName) (resource.Quantity, bool) {
	if q, ok := c.Resources.Requests[name]; ok {
		return q, true
	}
	q, ok := c.Resources.Limits[name]
	return q, ok
}

func (d *defaulter) fill(c *corev1.Container, init bool, i int, name corev1.ResourceName) {
	if q, ok := asked(c, name); ok {
		d.total.Add(q)
		return
	}
	if d.vpa.sets(c.Name) {
		return
	}
	value, source := d.find(c, name, d.f.Policy.Requests.Sources)
	if source == "" {
		return
	}
	d.put(c, Default{Init: init, Index: i, Container: c.Name, Resource: name, Value: value, Source: source})
}

func (d *defaulter) fillInit(c *corev1.Container, i int, name corev1.ResourceName) {
	if _, ok := asked(c, name); ok || d.vpa.sets(c.Name) {
		return
	}
	var known []v1alpha1.RequestSource
	for _, s := range d.f.Policy.Requests.Sources {
		if s == v1alpha1.FromHistory || s == v1alpha1.FromLimitRange {
			known = append(known, s)
		}
	}
	value, source := d.find(c, name, known)
	if source == "" || value.Cmp(d.total) <= 0 {
		return
	}
	total := d.total // an init container runs before the others, not beside them
	d.total = resource.Quantity{}
	d.put(c, Default{Init: true, Index: i, Container: c.Name, Resource: name, Value: value, Source: source})
	d.total = total
}

// sets reports whether the autoscaler writes the container's requests itself.
func (r *Recommendation) sets(container string) bool { return r.Active && !r.Skips[container] }

// find asks the sources in their order; what an owner's pods got lately comes first.
func (d *defaulter) find(c *corev1.Container, name corev1.ResourceName, sources []v1alpha1.RequestSource) (resource.Quantity, string) {
	if d.f.Sticky != nil {
		if k, ok := d.f.Sticky(d.owner, c.Name, name); ok {
			if q, err := resource.ParseQuantity(k.Value); err == nil {
				return q, k.Source
			}
		}
	}
	for _, s := range sources {
		if q, source, ok := d.ask(s, c, name); ok && q.Sign() > 0 {
			return q, source
		}
	}
	return resource.Quantity{}, ""
}

func (d *defaulter) ask(s v1alpha1.RequestSource, c *corev1.Container, name corev1.ResourceName) (resource.Quantity, string, bool) {
	switch s {
	case v1alpha1.FromLimitRange:
		q, lr, ok := d.ranges.request(name)
		return q, "limitRange " + lr, ok
	case v1alpha1.FromVPA:
		q, ok := d.vpa.Target[c.Name][name]
		return d.floored(q, name), "vpa " + d.vpa.Name, ok && d.advised
	case v1alpha1.FromHistory:
		if d.f.History == nil {
			return resource.Quantity{}, "", false
		}
		k, ok := d.f.History(d.owner, c.Name, name)
		q, err := resource.ParseQuantity(k.Value)
		return d.floored(q, name), "history " + k.Source, ok && err == nil
	case v1alpha1.FromFallback:
		if q := d.f.Policy.Requests.Fallback.Of(name); q != nil {
			return *q, "fallback", true
		}
	}
	return resource.Quantity{}, "", false
}

func (d *defaulter) floored(q resource.Quantity, name corev1.ResourceName) resource.Quantity {
	if floor := d.f.Policy.Requests.Floor.Of(name); floor != nil && q.Cmp(*floor) < 0 {
		return *floor
	}
	return q
}

// put clamps the value into what LimitRanges allow, or leaves the request out if nothing is allowed.
func (d *defaulter) put(c *corev1.Container, x Default) {
	value, why := d.ranges.clamp(x.Value, x.Resource, d.total)
	if why != "" {
		list := "containers"
		if x.Init {
			list = "initContainers"
		}
		path := fmt.Sprintf("%sspec.%s[%s].resources.requests.%s", d.s.Path, list, c.Name, x.Resource)
		d.left = append(d.left, Skipped{Path: path, Container: c.Name, Resource: x.Resource, Why: why})
		return
	}
	x.Value = value
	d.total.Add(value)
	d.set = append(d.set, x)
}

// Requests are the defaults that the subject's pods get under the choice: those of [Defaults] whose rules change objects there.
// left are those that R006 speaks of. admission is the namespace's label.
func (r *Registry) Requests(s *Subject, f *Facts, c *Choice, admission string) (set []Default, left []Skipped) {
	all, left := Defaults(s, f)
	for _, d := range all {
		rule := map[corev1.ResourceName]string{corev1.ResourceCPU: "R001", corev1.ResourceMemory: "R002"}[d.Resource]
		if r.Changes(rule, s, f, c, admission) {
			set = append(set, d)
		}
	}
	if !r.Changes("R006", s, f, c, admission) {
		left = nil
	}
	return set, left
}

// Changes reports whether a rule that changes objects does so for the subject.
func (r *Registry) Changes(rule string, s *Subject, f *Facts, c *Choice, admission string) bool {
	return c.Mode(r.Rule(rule), admission) == v1alpha1.Default && !Excepted(s, f, rule)
}

// Apply fills the requests into a pod's spec, which must not be shared.
func Apply(spec *corev1.PodSpec, set []Default) {
	for _, x := range set {
		var c *corev1.Container
		if x.Init {
			c = &spec.InitContainers[x.Index]
		} else {
			c = &spec.Containers[x.Index]
		}
		if c.Resources.Requests == nil {
			c.Resources.Requests = corev1.ResourceList{}
		}
		c.Resources.Requests[x.Resource] = x.Value
	}
}

// Provenance is the value of slipway.sh/defaulted that records the defaults, after what was recorded before:
// "container/resource=value:source", separated by commas.
func Provenance(before string, set []Default) string {
	var out []string
	if before != "" {
		out = append(out, before)
	}
	for _, x := range set {
		out = append(out, fmt.Sprintf("%s/%s=%s:%s", x.Container, x.Resource, x.Value.String(), x.Source))
	}
	return strings.Join(out, ",")
}

// Recorded reads a value of slipway.sh/defaulted back: what one container was given of one resource.
func Recorded(provenance, container string, name corev1.ResourceName) (Known, bool) {
	prefix := container + "/" + string(name) + "="
	for entry := range strings.SplitSeq(provenance, ",") {
		if rest, ok := strings.CutPrefix(entry, prefix); ok {
			value, source, _ := strings.Cut(rest, ":")
			return Known{Value: value, Source: source}, true
		}
	}
	return Known{}, false
}

// OwnerOf says who makes the subject's pods. A Deployment's pods have the same workload in every revision, and a
// CronJob's in every run.
func OwnerOf(s *Subject) Owner {
	out := Owner{Namespace: s.Meta.Namespace, UID: s.Meta.UID, Workload: s.Meta.Name}
	ref := s.Controller()
	if ref == nil {
		return out
	}
	out.UID, out.Workload = ref.UID, ref.Name
	if hash := s.Meta.Labels["pod-template-hash"]; ref.Kind == string(ReplicaSet) && hash != "" {
		out.Workload = strings.TrimSuffix(ref.Name, "-"+hash)
	}
	if ref.Kind == string(Job) {
		if i := strings.LastIndexByte(ref.Name, '-'); i > 0 && strings.Trim(ref.Name[i+1:], "0123456789") == "" {
			out.Workload = ref.Name[:i]
		}
	}
	return out
}
