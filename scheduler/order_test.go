// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestProvisionFirst checks who goes first for a pod that could preempt, and that preemption still helps when nothing can
// be bought.
func TestProvisionFirst(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation string
		refuse     bool
		preempts   bool
		offered    bool
	}{
		"preemption by default":                       {preempts: true},
		"asked for by the pod":                        {annotation: "true", offered: true},
		"asked for by the pod, nothing can be bought": {annotation: "true", refuse: true, preempts: true, offered: true},
		"no boolean":                                  {annotation: "perhaps", preempts: true},
	} {
		t.Run(name, func(t *testing.T) {
			victim := podWith("victim", "3")
			victim.Spec.NodeName = "full"
			victim.Spec.Priority = new(int32)
			h := startHost(t, &fakeSink{refuse: tc.refuse}, node("full", "4"), victim)
			urgent := podWith("urgent", "3")
			urgent.Spec.Priority = new(int32(1000))
			if tc.annotation != "" {
				urgent.Annotations = map[string]string{ProvisionFirstAnnotation: tc.annotation}
			}
			h.create(urgent)
			if tc.preempts {
				h.eventually("the preemptor is bound", func() bool { return h.pod("urgent").Spec.NodeName == "full" })
			} else {
				h.eventually("the pod is parked", func() bool { return h.gate.Closed() == 1 })
				if h.pod("victim").DeletionTimestamp != nil {
					t.Error("a pod was preempted for one that is to provision first")
				}
			}
			if got := h.sink.count("urgent") > 0; got != tc.offered {
				t.Errorf("offered: %v, want %v", got, tc.offered)
			}
		})
	}
}

func TestProvisionFirstOfAProfile(t *testing.T) {
	for name, tc := range map[string]struct {
		profile    bool
		annotation string
		want       bool
	}{
		"neither":              {false, "", false},
		"profile":              {true, "", true},
		"pod against profile":  {true, "false", false},
		"pod beyond profile":   {false, "true", true},
		"profile, pod unclear": {true, "yes please", true},
	} {
		t.Run(name, func(t *testing.T) {
			pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{ProvisionFirstAnnotation: tc.annotation}}}
			if got := provisionFirst(pod, tc.profile); got != tc.want {
				t.Errorf("provisionFirst() = %v, want %v", got, tc.want)
			}
		})
	}
}

// TestPreemptorBuysNothing checks that a pod whose victims are still ending, and that fails again meanwhile, is not offered.
func TestPreemptorBuysNothing(t *testing.T) {
	victim := podWith("victim", "3")
	victim.Spec.NodeName = "full"
	victim.Spec.Priority = new(int32)
	victim.Finalizers = []string{"example.com/slow"}
	victim.DeletionTimestamp = new(metav1.Now())
	victim.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: corev1.PodReasonPreemptionByScheduler}}
	urgent := podWith("urgent", "3")
	urgent.Spec.Priority = new(int32(1000))
	urgent.Status.NominatedNodeName = "full"
	h := startHost(t, &fakeSink{}, node("full", "4"), victim, urgent)
	h.eventually("the pod has failed", func() bool { return len(h.pod("urgent").Status.Conditions) > 0 })
	if got := h.sink.count("urgent"); got != 0 {
		t.Errorf("the preemptor was offered %d times while its victims end, want 0", got)
	}
	if got := h.pod("urgent").Status.NominatedNodeName; got != "full" {
		t.Errorf("nominatedNodeName = %q, want it kept", got)
	}
}

// TestUnreserved checks that a judge built from the profile does not have the filter, and everything else.
func TestUnreserved(t *testing.T) {
	h := startHost(t, &fakeSink{})
	live := h.sched.Profiles[corev1.DefaultSchedulerName]
	all, judged := live.ListPlugins(), Unreserved(live).ListPlugins()
	if !lists(all.Filter) || !lists(all.PreFilter) {
		t.Fatal("the plugin does not filter")
	}
	if lists(judged.Filter) || lists(judged.PreFilter) || !lists(judged.PostFilter) {
		t.Errorf("plugins %+v: want all but the filter", judged)
	}
	if got, want := len(judged.Filter.Enabled), len(all.Filter.Enabled)-1; got != want {
		t.Errorf("%d filters, want %d", got, want)
	}
}
