// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"net/http"
	"slices"
	"strings"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// maxWarnings is how many findings are shown of one object: the API server cuts warnings after 4096 runes in sum.
const maxWarnings = 8

// Names of audit annotations, below the webhook's own name.
const (
	auditRules     = "rules"
	auditPolicy    = "policy"
	auditDefaulted = "defaulted"
)

func allowed() *admissionv1.AdmissionResponse { return &admissionv1.AdmissionResponse{Allowed: true} }

// read decodes the object of a review; nil if no rule is about its kind or it is not to be looked at.
func (h *Handler) read(req *admissionv1.AdmissionRequest) (*rules.Subject, error) {
	kind := rules.Kind(req.Kind.Kind)
	if len(h.registry.Of(kind)) == 0 || slices.Contains(rules.SystemNamespaces(), req.Namespace) {
		return nil, nil //nolint:nilnil // nothing to look at is no error
	}
	raw := req.Object.Raw
	if req.Operation == admissionv1.Delete {
		raw = req.OldObject.Raw
	}
	if len(raw) == 0 {
		return nil, nil //nolint:nilnil // nothing to look at is no error
	}
	s, err := rules.Decode(kind, raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	s.Operation, s.User = rules.Operation(req.Operation), req.UserInfo.Username
	if req.SubResource == "resize" {
		s.Operation = rules.Resize
	}
	if s.Meta.Namespace == "" {
		s.Meta.Namespace = req.Namespace
	}
	if _, ours := s.Meta.Labels[v1alpha1.ComponentLabel]; ours {
		return nil, nil //nolint:nilnil // nothing to look at is no error
	}
	if req.Operation == admissionv1.Update && len(req.OldObject.Raw) > 0 {
		if s.Old, err = rules.Decode(kind, req.OldObject.Raw); err != nil {
			return nil, fmt.Errorf("%w: %w", errUnreadable, err)
		}
		s.Old.Operation, s.Old.User, s.Old.Meta.Namespace = rules.Update, s.User, s.Meta.Namespace
	}
	return s, nil
}

// mutate fills in what a pod needs to be provisioned, and judges it as it leaves it unless the validating hook will. Anything but
// the creation of a pod is left as it is.
func (h *Handler) mutate(req *admissionv1.AdmissionRequest, state *State) (*admissionv1.AdmissionResponse, error) {
	if req.Kind.Kind != string(rules.Pod) || req.Operation != admissionv1.Create || req.SubResource != "" {
		return allowed(), nil
	}
	s, err := h.read(req)
	if err != nil || s == nil || s.Static() {
		return allowed(), err
	}
	choice, admission := state.Choice(req.Namespace)
	facts := state.Facts(req.Namespace, h.Index, h.Clock.Now())
	resp := allowed()
	if choice.Name != "" {
		if err := h.change(req, &mutation{h: h, s: s, f: facts, choice: choice, admission: admission}, resp); err != nil {
			return nil, err
		}
	}
	if !validated(s) {
		h.judge(req.Namespace, s, facts, state, resp)
		if !resp.Allowed {
			resp.Patch, resp.PatchType = nil, nil
		}
	}
	resp.Warnings = first(resp.Warnings)
	return resp, nil
}

// validated reports whether the API server asks the validating hook about the new pod too; the hook's matchConditions say the
// same. Those are pods that somebody creates by hand, who reads warnings, and that lack nothing: they are judged in their last form.
// All others wait for one call only: those that something was filled in for, and those of controllers, which are created by the
// thousand. A call costs the API server about as much as everything else it does for a pod, and one that is lost its time-out.
func validated(s *rules.Subject) bool {
	if _, filled := s.Meta.Annotations[v1alpha1.DefaultedAnnotation]; filled || !s.Bare() {
		return false
	}
	spec := &s.Template.Spec
	return spec.Resources != nil || !slices.ContainsFunc(spec.Containers, func(c corev1.Container) bool {
		_, cpu := c.Resources.Requests[corev1.ResourceCPU]
		_, memory := c.Resources.Requests[corev1.ResourceMemory]
		return !cpu || !memory
	})
}

// change fills in and writes the patch; the subject is afterwards what the patch makes of it.
func (h *Handler) change(req *admissionv1.AdmissionRequest, m *mutation, resp *admissionv1.AdmissionResponse) (err error) {
	if m.p, err = newPatch(req.Object.Raw); err != nil {
		return fmt.Errorf("%w: %w", errUnreadable, err)
	}
	set, left := m.requests()
	if h.InjectScheduler && m.changes("S001") && rules.Scheduled(m.s) && m.choice.Spec.SchedulerName != "" {
		m.p.add(m.choice.Spec.SchedulerName, "spec", "schedulerName")
		m.s.Template.Spec.SchedulerName = m.choice.Spec.SchedulerName
	}
	m.latency()
	m.placement()
	m.cap()
	for _, x := range rules.Filled(m.s, set, left) {
		resp.Warnings = append(resp.Warnings, x.Message(m.choice.Name))
	}
	if len(set) > 0 {
		resp.AuditAnnotations = map[string]string{auditDefaulted: rules.Provenance("", set), auditPolicy: m.choice.Name}
	}
	if resp.Patch, err = m.p.bytes(); err != nil {
		return err
	}
	if resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	if req.DryRun == nil || !*req.DryRun {
		h.Index.Remember(rules.OwnerOf(m.s), set, h.Clock.Now())
		for _, d := range set {
			kind, _, _ := strings.Cut(d.Source, " ")
			h.Metrics.Defaulted.WithLabelValues(string(d.Resource), kind).Inc()
		}
	}
	return nil
}

// mutation is the work on one pod.
type mutation struct {
	h         *Handler
	s         *rules.Subject
	p         *patch
	f         *rules.Facts
	choice    *rules.Choice
	admission string
}

// changes reports whether a rule that changes objects is to do so for this pod.
func (m *mutation) changes(rule string) bool {
	return m.h.registry.Changes(rule, m.s, m.f, m.choice, m.admission)
}

func (m *mutation) requests() ([]rules.Default, []rules.Skipped) {
	set, left := m.h.registry.Requests(m.s, m.f, m.choice, m.admission)
	if len(set) > 0 {
		m.p.requests(set)
		rules.Apply(&m.s.Template.Spec, set)
		m.annotate(v1alpha1.DefaultedAnnotation, rules.Provenance(m.s.Meta.Annotations[v1alpha1.DefaultedAnnotation], set))
	}
	return set, left
}

// annotate sets an annotation in the patch and in the subject, whose pod and template are one.
func (m *mutation) annotate(key, value string) {
	m.p.annotate(key, value)
	if m.s.Meta.Annotations == nil {
		m.s.Meta.Annotations = map[string]string{}
	}
	m.s.Meta.Annotations[key] = value
	m.s.Template.Annotations = m.s.Meta.Annotations
}

// latency gives the pod the priority class of its latency class, unless it names one.
func (m *mutation) latency() {
	name := m.s.Meta.Annotations[v1alpha1.LatencyClassAnnotation]
	if name == "" || m.s.Template.Spec.PriorityClassName != "" || m.admission == "off" || m.admission == "audit" || m.admission == "warn" {
		return
	}
	for _, c := range m.choice.Spec.LatencyClasses {
		if c.Name == name && c.PriorityClassName != "" {
			m.p.prioritise(c.PriorityClassName)
			m.s.Template.Spec.PriorityClassName = c.PriorityClassName
		}
	}
}

func (m *mutation) placement() {
	place := m.choice.Spec.Placement
	if place == nil || m.s.OfDaemonSet() || !m.changes("S004") {
		return
	}
	spec := &m.s.Template.Spec
	for _, key := range sorted(place.NodeSelector) {
		if _, ok := spec.NodeSelector[key]; !ok {
			if spec.NodeSelector == nil {
				spec.NodeSelector = map[string]string{}
			}
			spec.NodeSelector[key] = place.NodeSelector[key]
			m.p.sel(key, place.NodeSelector[key])
		}
	}
	for _, t := range place.Tolerations {
		if !slices.ContainsFunc(spec.Tolerations, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			spec.Tolerations = append(spec.Tolerations, t)
			m.p.tolerate(t)
		}
	}
}

// cap bounds a protection without end, where the policy wants that.
func (m *mutation) cap() {
	most := m.choice.Spec.Disruption.MaxDoNotDisrupt
	if m.s.Meta.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" && most != nil && m.changes("D003") {
		m.annotate(karpv1.DoNotDisruptAnnotationKey, most.Duration.String())
	}
}

// validate judges the object as it will be stored.
func (h *Handler) validate(req *admissionv1.AdmissionRequest, state *State) (*admissionv1.AdmissionResponse, error) {
	s, err := h.read(req)
	if err != nil || s == nil {
		return allowed(), err
	}
	resp := allowed()
	h.judge(req.Namespace, s, state.Facts(req.Namespace, h.Index, h.Clock.Now()), state, resp)
	resp.Warnings = first(resp.Warnings)
	return resp, nil
}

// judge adds to the answer what the rules say of the subject. A warning that is there already is not repeated.
func (h *Handler) judge(namespace string, s *rules.Subject, facts *rules.Facts, state *State, resp *admissionv1.AdmissionResponse) {
	choice, admission := state.Choice(namespace)
	in := &rules.Setting{Namespace: *choice, Cluster: *state.Cluster(), Admission: admission, Keep: h.keep}
	if c := s.Controller(); c != nil {
		in.OwnerSince, in.OwnerRan = h.Index.Controller(c.UID, h.Clock.Now())
	}
	v := h.registry.Judge(s, facts, in)
	h.count(&v)
	for _, x := range v.Warned {
		if text := x.Message(in.PolicyOf(x)); !slices.Contains(resp.Warnings, text) {
			resp.Warnings = append(resp.Warnings, text)
		}
	}
	if ids := v.Rules(); len(ids) > 0 {
		if resp.AuditAnnotations == nil {
			resp.AuditAnnotations = map[string]string{}
		}
		resp.AuditAnnotations[auditRules], resp.AuditAnnotations[auditPolicy] = strings.Join(ids, ","), choice.Name
	}
	if !v.Allowed() {
		resp.Allowed = false
		resp.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: rules.Denial(v.Denied, in.PolicyOf(v.Denied[0])),
		}
	}
}

// keep leaves the native policies' rules to them.
func (h *Handler) keep(r *rules.Rule) bool {
	if r.On(rules.CRD) {
		return false
	}
	return r.On(rules.Webhook) || !h.Native
}

func (h *Handler) count(v *rules.Verdict) {
	for action, list := range map[string][]rules.Finding{"denied": v.Denied, "warned": v.Warned, "audited": v.Audited} {
		for _, x := range list {
			h.Metrics.Findings.WithLabelValues(x.Rule, action).Inc()
		}
	}
	for _, id := range v.Spared {
		h.Metrics.Grandfathered.WithLabelValues(id).Inc()
	}
}

// first bounds the warnings and says how many are left out.
func first(warnings []string) []string {
	if len(warnings) <= maxWarnings {
		return warnings
	}
	return append(warnings[:maxWarnings:maxWarnings], fmt.Sprintf("slipway: and %d more; slipway lint shows all.", len(warnings)-maxWarnings))
}
