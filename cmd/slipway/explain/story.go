// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Story is what happened, in order of time, and what holds now.
type Story struct {
	// Subject is the object: its kind and name.
	Subject string   `json:"subject"`
	Moments []Moment `json:"moments"`
	Now     string   `json:"now"`
}

// Moment is one thing that happened.
type Moment struct {
	At time.Time `json:"at"`
	// Object is what it happened to, if that is not the subject.
	Object string `json:"object,omitempty"`
	What   string `json:"what"`
	// Times is how often, up to At.
	Times int32 `json:"times,omitempty"`
}

// Tell makes the story of the facts; now is the time "since" counts to.
func (f *Facts) Tell(now time.Time) Story {
	s := Story{}
	switch {
	case f.Pod != nil:
		s.Subject = "pod " + f.Pod.Namespace + "/" + f.Pod.Name
		s.Moments = podMoments(f.Pod)
		s.Now = f.podNow(now)
	case f.Pool != nil:
		s.Subject = "nodepool " + f.Pool.Name
		s.Moments = append([]Moment{{At: f.Pool.CreationTimestamp.Time, What: "created"}}, conditionMoments(f.Pool.GetConditions(), s.Subject)...)
		s.Now = f.poolNow()
	case f.Node != nil && len(f.Claims) == 0:
		s.Subject = "node " + f.Node.Name
		s.Moments = []Moment{{At: f.Node.CreationTimestamp.Time, What: "joined"}}
		s.Now = "No NodeClaim stands for it: Slipway has not bought it and leaves it alone."
	default:
		s.Subject = "nodeclaim " + f.Claims[0].Name
		s.Now = f.claimNow(f.Claims[0], now)
	}
	if f.Pool == nil {
		for _, c := range f.Claims {
			s.Moments = append(s.Moments, claimMoments(c)...)
		}
	}
	for _, e := range f.Events {
		s.Moments = append(s.Moments, eventMoment(e))
	}
	s.Moments = slices.DeleteFunc(s.Moments, func(m Moment) bool { return m.At.IsZero() })
	for i := range s.Moments {
		if s.Moments[i].Object == s.Subject {
			s.Moments[i].Object = ""
		}
	}
	slices.SortStableFunc(s.Moments, func(a, b Moment) int { return a.At.Compare(b.At) })
	return s
}

func podMoments(p *corev1.Pod) []Moment {
	out := []Moment{{At: p.CreationTimestamp.Time, What: "created for scheduler " + p.Spec.SchedulerName}}
	for _, c := range p.Status.Conditions {
		if c.Status == corev1.ConditionTrue && (c.Type == corev1.PodScheduled || c.Type == corev1.PodReady) {
			what := "ready"
			if c.Type == corev1.PodScheduled {
				what = fmt.Sprintf("bound to node %s", p.Spec.NodeName)
			}
			out = append(out, Moment{At: c.LastTransitionTime.Time, What: what})
		}
	}
	if p.DeletionTimestamp != nil {
		out = append(out, Moment{At: p.DeletionTimestamp.Time, What: "has to be gone (deleted, with its grace period)"})
	}
	return out
}

func claimMoments(c *karpv1.NodeClaim) []Moment {
	object := "nodeclaim " + c.Name
	what := fmt.Sprintf("written for NodePool %s", c.Labels[karpv1.NodePoolLabelKey])
	if price := c.Annotations[provisioner.PriceAnnotation]; price != "" {
		what += fmt.Sprintf(", planned at $%s an hour", price)
	}
	if pods := c.Annotations[provisioner.PodsAnnotation]; pods != "" {
		what += ", for " + short(strings.Split(pods, ","))
	}
	if old := c.Annotations[capacity.ReplacesAnnotation]; old != "" {
		what += ", in place of nodeclaim " + old
	}
	at := c.CreationTimestamp.Time
	// Slipway's own note is finer than the API server's seconds.
	if planned, err := time.Parse(time.RFC3339Nano, c.Annotations[capacity.PlannedAnnotation]); err == nil {
		at = planned
	}
	out := []Moment{{At: at, Object: object, What: what}}
	out = append(out, conditionMoments(c.GetConditions(), object)...)
	if c.DeletionTimestamp != nil {
		out = append(out, Moment{At: c.DeletionTimestamp.Time, Object: object, What: "deleted: its node is drained and its instance ended"})
	}
	return out
}

// conditionMoments are the conditions that hold or that, with a reason, do not. Each remembers its last change only.
func conditionMoments(list []status.Condition, object string) []Moment {
	var out []Moment
	for _, c := range list {
		if c.LastTransitionTime.IsZero() || c.Type == status.ConditionReady {
			continue
		}
		what := c.Type
		switch {
		case c.Status == metav1.ConditionTrue && (c.Reason == "" || c.Reason == c.Type):
		case c.Status == metav1.ConditionTrue:
			what += " (" + c.Reason + ")"
		default:
			what = fmt.Sprintf("%s is %s: %s", c.Type, strings.ToLower(string(c.Status)), cmp.Or(c.Message, c.Reason))
		}
		out = append(out, Moment{At: c.LastTransitionTime.Time, Object: object, What: what})
	}
	return out
}

// eventMoment is an event at its last occurrence. Events of the newer API leave the older times empty.
func eventMoment(e *corev1.Event) Moment {
	m := Moment{At: e.LastTimestamp.Time, Times: e.Count, What: e.Reason + ": " + strings.TrimSpace(e.Message)}
	if m.At.IsZero() {
		m.At = e.EventTime.Time
	}
	if e.Series != nil {
		m.At, m.Times = e.Series.LastObservedTime.Time, e.Series.Count
	}
	if m.At.IsZero() {
		m.At = e.CreationTimestamp.Time
	}
	name := e.InvolvedObject.Name
	if e.InvolvedObject.Namespace != "" && e.InvolvedObject.Kind == "Pod" {
		name = e.InvolvedObject.Namespace + "/" + name
	}
	m.Object = strings.ToLower(e.InvolvedObject.Kind) + " " + name
	return m
}

// podNow says where the pod stands.
func (f *Facts) podNow(now time.Time) string {
	p := f.Pod
	if p.Spec.NodeName != "" {
		text := fmt.Sprintf("It is on node %s", p.Spec.NodeName)
		if f.Node != nil {
			text += " (" + machine(f.Node.Labels) + ")"
		}
		if bound := condition(p, corev1.PodScheduled); bound != nil {
			text += fmt.Sprintf(", %s after it was created", since(p.CreationTimestamp.Time, bound.LastTransitionTime.Time))
		}
		return text + "."
	}
	waited := since(p.CreationTimestamp.Time, now)
	for _, c := range f.Claims {
		if c.DeletionTimestamp.IsZero() {
			return fmt.Sprintf("It has waited %s and waits for its node: %s", waited, claimState(c, now))
		}
	}
	if why := condition(p, corev1.PodScheduled); why != nil && why.Message != "" {
		return fmt.Sprintf("It has waited %s, and no node is on its way for it: %s", waited, f.lastWord("FailedScheduling", why.Message))
	}
	return fmt.Sprintf("It has waited %s, and scheduler %q has not said anything about it: is it running?", waited, p.Spec.SchedulerName)
}

// lastWord is the message of the latest event with the reason, or otherwise.
func (f *Facts) lastWord(reason, otherwise string) string {
	var last *corev1.Event
	for _, e := range f.Events {
		if e.Reason == reason && e.Message != "" && (last == nil || eventMoment(e).At.After(eventMoment(last).At)) {
			last = e
		}
	}
	if last == nil {
		return otherwise
	}
	return last.Message
}

// claimNow says where a claim stands and what keeps its node.
func (f *Facts) claimNow(c *karpv1.NodeClaim, now time.Time) string {
	text := claimState(c, now)
	if f.Node != nil {
		text += fmt.Sprintf(" Pods on its node: %d.", len(f.On))
	}
	if why := f.lastWord("DisruptionBlocked", ""); why != "" {
		text += " What keeps it: " + why + "."
	}
	return text
}

// claimState is a sentence on how far a claim has come.
func claimState(c *karpv1.NodeClaim, now time.Time) string {
	name := "nodeclaim " + c.Name
	switch {
	case c.DeletionTimestamp != nil:
		return fmt.Sprintf("%s is being ended for %s.", name, since(c.DeletionTimestamp.Time, now))
	case c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue():
		return fmt.Sprintf("%s is node %s (%s), usable.", name, c.Status.NodeName, machine(c.Labels))
	}
	steps := []struct{ condition, done, next string }{
		{karpv1.ConditionTypeRegistered, fmt.Sprintf("has joined as node %s", c.Status.NodeName), "its node is not usable yet"},
		{karpv1.ConditionTypeLaunched, fmt.Sprintf("is instance %s (%s)", c.Status.ProviderID, machine(c.Labels)), "it boots and has not joined yet"},
	}
	for _, s := range steps {
		if at := c.StatusConditions().Get(s.condition); at.IsTrue() {
			return fmt.Sprintf("%s %s for %s; %s%s.", name, s.done, since(at.LastTransitionTime.Time, now), s.next, because(c))
		}
	}
	return fmt.Sprintf("%s is not launched yet, %s after it was written%s.", name, since(c.CreationTimestamp.Time, now), because(c))
}

// because is what a claim's conditions complain of, after a colon.
func because(c *karpv1.NodeClaim) string {
	if why := complaint(c.GetConditions()); why != "" {
		return ": " + strings.TrimRight(why, ".")
	}
	return ""
}

// complaint is the message of the first condition that is false. Ready only lists the others.
func complaint(list []status.Condition) string {
	for _, c := range list {
		if c.Status == metav1.ConditionFalse && c.Type != status.ConditionReady && c.Message != "" {
			return c.Message
		}
	}
	return ""
}

// poolNow says what a pool has and whether anything can be bought from it.
func (f *Facts) poolNow() string {
	p := f.Pool
	var on, leaving int
	for _, c := range f.Claims {
		if c.DeletionTimestamp.IsZero() {
			on++
		} else {
			leaving++
		}
	}
	text := fmt.Sprintf("NodeClaims: %d", on)
	if leaving > 0 {
		text += fmt.Sprintf(", and %d that are being ended", leaving)
	}
	if len(p.Spec.Limits) > 0 {
		var limits []string
		for name, limit := range p.Spec.Limits {
			used := p.Status.Resources[name]
			limits = append(limits, fmt.Sprintf("%s %s of %s", name, used.String(), limit.String()))
		}
		slices.Sort(limits)
		text += ". Used of its limits: " + strings.Join(limits, ", ")
	}
	ready := p.StatusConditions().Root()
	switch {
	case p.DeletionTimestamp != nil:
		text += ". It is being deleted, and nothing is bought from it"
	case ready.IsTrue():
		text += ". Nodes can be bought from it"
	default:
		text += ". Nothing is bought from it: " + cmp.Or(complaint(p.GetConditions()), "it has not been looked at yet; is slipway-controller running?")
	}
	return strings.TrimRight(text, ".?") + "."
}

func condition(p *corev1.Pod, t corev1.PodConditionType) *corev1.PodCondition {
	for i := range p.Status.Conditions {
		if p.Status.Conditions[i].Type == t {
			return &p.Status.Conditions[i]
		}
	}
	return nil
}

// machine is what a node is, from its labels or its claim's.
func machine(labels map[string]string) string {
	var parts []string
	for _, key := range []string{corev1.LabelInstanceTypeStable, corev1.LabelTopologyZone, karpv1.CapacityTypeLabelKey} {
		if v := labels[key]; v != "" {
			parts = append(parts, v)
		}
	}
	return cmp.Or(strings.Join(parts, ", "), "type unknown")
}

// short lists a few names and counts the rest.
func short(names []string) string {
	const most = 3
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more pods", strings.Join(names[:most], ", "), len(names)-most)
}

// since is a span for people: three figures at most below a minute.
func since(from, to time.Time) string {
	d := max(to.Sub(from), 0)
	switch {
	case d < 10*time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < time.Minute:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// Write prints the story for people, one moment a line, with the time since the first.
func (s Story) Write(w io.Writer) error {
	fmt.Fprintf(w, "%s\n", s.Subject)
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for i, m := range s.Moments {
		at := m.At.UTC().Format(time.DateTime)
		if i > 0 {
			at = "+" + since(s.Moments[0].At, m.At)
		}
		what := m.What
		if m.Times > 1 {
			what += fmt.Sprintf(" (%d times)", m.Times)
		}
		fmt.Fprintf(t, "  %s\t%s\t%s\n", at, m.Object, what)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	_, err := fmt.Fprintf(w, "%s\n", s.Now)
	return err
}
