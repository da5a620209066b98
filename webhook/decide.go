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

// mutate fills in what a pod needs to be provisioned. Anything but the creation of a pod is left as it is.
func (h *Handler) mutate(req *admissionv1.AdmissionRequest, state *State) (*admissionv1.AdmissionResponse, error) {
	if req.Kind.Kind != string(rules.Pod) || req.Operation != admissionv1.Create || req.SubResource != "" {
		return allowed(), nil
	}
	s, err := h.read(req)
	if err != nil || s == nil || s.Static() {
		return allowed(), err
	}
	choice, admission := state.Choice(req.Namespace)
	if choice.Name == "" {
		return allowed(), nil
	}
	p, err := newPatch(req.Object.Raw)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errUnreadable, err)
	}
	m := &mutation{h: h, s: s, p: p, f: state.Facts(req.Namespace, h.Index, h.Clock.Now()), choice: choice, admission: admission}
	resp := allowed()
	set, left := m.requests()
	if h.InjectScheduler && m.changes("S001") && rules.Scheduled(s) && choice.Spec.SchedulerName != "" {
		p.add(choice.Spec.SchedulerName, "spec", "schedulerName")
	}
	m.latency()
	m.placement()
	m.cap()
	for _, x := range rules.Filled(s, set, left) {
		resp.Warnings = append(resp.Warnings, x.Message(choice.Name))
	}
	resp.Warnings = first(resp.Warnings)
	if len(set) > 0 {
		resp.AuditAnnotations = map[string]string{auditDefaulted: rules.Provenance("", set), auditPolicy: choice.Name}
	}
	if resp.Patch, err = p.bytes(); err != nil {
		return nil, err
	}
	if resp.Patch != nil {
		resp.PatchType = new(admissionv1.PatchTypeJSONPatch)
	}
	if req.DryRun == nil || !*req.DryRun {
		h.Index.Remember(rules.OwnerOf(s), set, h.Clock.Now())
		for _, d := range set {
			kind, _, _ := strings.Cut(d.Source, " ")
			h.Metrics.Defaulted.WithLabelValues(string(d.Resource), kind).Inc()
		}
	}
	return resp, nil
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
		m.p.annotate(v1alpha1.DefaultedAnnotation, rules.Provenance(m.s.Meta.Annotations[v1alpha1.DefaultedAnnotation], set))
	}
	return set, left
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
		}
	}
}

func (m *mutation) placement() {
	place := m.choice.Spec.Placement
	if place == nil || m.s.OfDaemonSet() || !m.changes("S004") {
		return
	}
	for _, key := range sorted(place.NodeSelector) {
		m.p.sel(key, place.NodeSelector[key])
	}
	for _, t := range place.Tolerations {
		if !slices.ContainsFunc(m.s.Template.Spec.Tolerations, func(have corev1.Toleration) bool { return have.MatchToleration(&t) }) {
			m.p.tolerate(t)
		}
	}
}

// cap bounds a protection without end, where the policy wants that.
func (m *mutation) cap() {
	most := m.choice.Spec.Disruption.MaxDoNotDisrupt
	if m.s.Meta.Annotations[karpv1.DoNotDisruptAnnotationKey] == "true" && most != nil && m.changes("D003") {
		m.p.annotate(karpv1.DoNotDisruptAnnotationKey, most.Duration.String())
	}
}

// validate judges the object as it will be stored.
func (h *Handler) validate(req *admissionv1.AdmissionRequest, state *State) (*admissionv1.AdmissionResponse, error) {
	s, err := h.read(req)
	if err != nil || s == nil {
		return allowed(), err
	}
	choice, admission := state.Choice(req.Namespace)
	in := &rules.Setting{Namespace: *choice, Cluster: *state.Cluster(), Admission: admission, Keep: h.keep}
	if c := s.Controller(); c != nil {
		in.OwnerSince, in.OwnerRan = h.Index.Controller(c.UID, h.Clock.Now())
	}
	v := h.registry.Judge(s, state.Facts(req.Namespace, h.Index, h.Clock.Now()), in)
	h.count(&v)
	resp := allowed()
	for _, x := range v.Warned {
		resp.Warnings = append(resp.Warnings, x.Message(in.PolicyOf(x)))
	}
	resp.Warnings = first(resp.Warnings)
	if ids := v.Rules(); len(ids) > 0 {
		resp.AuditAnnotations = map[string]string{auditRules: strings.Join(ids, ","), auditPolicy: choice.Name}
	}
	if !v.Allowed() {
		resp.Allowed = false
		resp.Result = &metav1.Status{
			Status: metav1.StatusFailure, Code: http.StatusForbidden, Reason: metav1.StatusReasonForbidden, Message: rules.Denial(v.Denied, in.PolicyOf(v.Denied[0])),
		}
	}
	return resp, nil
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
