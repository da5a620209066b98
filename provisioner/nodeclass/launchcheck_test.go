// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"errors"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/event"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Where another process launches, it asks EC2, and the class goes by what that was told.
func TestLaunchIsCheckedByTheProcessThatLaunches(t *testing.T) {
	b := newClassBench(t, class(nil))
	b.Launches, b.LaunchesElsewhere = nil, true
	scheduler := &LaunchChecker{Kube: b.Kube, Launches: b.cloud, Clock: b.clock}
	step := func(name string, do func(), asked int64, authorized, valid metav1.ConditionStatus, reason string) {
		t.Helper()
		do()
		before := b.cloud.launchCalls.Load()
		if err := scheduler.look(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := b.cloud.launchCalls.Load() - before; got != asked {
			t.Errorf("%s: asked %d times, want %d", name, got, asked)
		}
		got, _, err := b.run(t)
		if err != nil {
			t.Fatal(err)
		}
		is, v := condition(got.Status.Conditions, conditionAuthorized), condition(got.Status.Conditions, "ValidationSucceeded")
		if is.Status != authorized || v.Status != valid || v.Reason != reason {
			t.Errorf("%s: %s = %q, ValidationSucceeded = %s, %s, %q; want %q and %s, %s", name, conditionAuthorized, is.Status, v.Status, v.Reason, v.Message, authorized, valid, reason)
		}
		if ready := condition(got.Status.Conditions, "Ready"); ready.IsTrue() != (valid == metav1.ConditionTrue) {
			t.Errorf("%s: Ready = %s while ValidationSucceeded = %s", name, ready.Status, valid)
		}
	}
	nothing := func() {}
	edit := func() {
		c := &v1.EC2NodeClass{}
		if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, c); err != nil {
			t.Fatal(err)
		}
		c.Generation++
		c.Spec.Tags = map[string]string{"team": "a"}
		if err := b.Kube.Update(t.Context(), c); err != nil {
			t.Fatal(err)
		}
		if _, _, err := b.run(t); err != nil {
			t.Fatal(err)
		}
	}
	const unknown, yes, no = metav1.ConditionUnknown, metav1.ConditionTrue, metav1.ConditionFalse
	step("nothing is resolved yet: EC2 cannot be asked", nothing, 0, "", unknown, reasonDependencies)
	step("resolved", nothing, 1, yes, yes, "ValidationSucceeded")
	step("again", nothing, 0, yes, yes, "ValidationSucceeded")
	step("another spec, which EC2 refuses", func() { edit(); b.cloud.launchErr = denied("CreateFleet") }, 1, no, no, reasonNoFleet)
	step("a refusal is not asked about at once", nothing, 0, no, no, reasonNoFleet)
	step("a minute later EC2 does not answer: the refusal stands", func() {
		b.clock.Step(refreshEvery + time.Second)
		b.cloud.launchErr = &capacity.Error{Kind: capacity.Throttled, Code: "RequestLimitExceeded", Err: errors.New("no")}
	}, 1, no, no, reasonNoFleet)
	step("allowed", func() { b.clock.Step(refreshEvery + time.Second); b.cloud.launchErr = nil }, 1, yes, yes, "ValidationSucceeded")
	step("after half an hour it is asked again", func() { b.clock.Step(checkEvery + checkEvery/2) }, 1, yes, yes, "ValidationSucceeded")
	// One process for both from now on: what the other was told is void.
	b.Launches, b.LaunchesElsewhere = b.cloud, false
	if got, _, err := b.run(t); err != nil || authorized(got) != nil {
		t.Errorf("err %v, condition %+v; want none", err, authorized(got))
	}
}

// An answer that could not be written is asked for again with the next look.
func TestLaunchAnswerIsNotLost(t *testing.T) {
	b := newClassBench(t, class(nil))
	b.Launches, b.LaunchesElsewhere = nil, true
	if _, _, err := b.run(t); err != nil {
		t.Fatal(err)
	}
	scheduler := &LaunchChecker{Kube: b.Kube, Launches: b.cloud, Clock: b.clock}
	b.writes.conflicts = 1
	for range 3 {
		if err := scheduler.look(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	if n := b.cloud.launchCalls.Load(); n != 2 {
		t.Errorf("asked %d times, want twice: the first answer met a conflict", n)
	}
	got, _, err := b.run(t)
	if c := condition(got.Status.Conditions, "Ready"); err != nil || !c.IsTrue() {
		t.Errorf("err %v, Ready = %s, %q", err, c.Status, c.Message)
	}
}

func TestToldOtherwise(t *testing.T) {
	b := newClassBench(t, class(nil))
	before, _, err := b.run(t)
	if err != nil {
		t.Fatal(err)
	}
	if err := (&LaunchChecker{Kube: b.Kube, Launches: b.cloud, Clock: b.clock}).look(t.Context()); err != nil {
		t.Fatal(err)
	}
	after := &v1.EC2NodeClass{}
	if err := b.Kube.Get(t.Context(), client.ObjectKey{Name: "default"}, after); err != nil {
		t.Fatal(err)
	}
	p := toldOtherwise()
	if !p.Update(event.UpdateEvent{ObjectOld: before, ObjectNew: after}) || p.Update(event.UpdateEvent{ObjectOld: after, ObjectNew: after}) {
		t.Errorf("want the change of condition %s to pass, and nothing else", conditionAuthorized)
	}
}
