// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// conditionAuthorized says what EC2 answered to dry runs of a process that launches, where that is not the process of
// [ClassReconciler]. Ready does not depend on it: ClassReconciler takes it over into ValidationSucceeded.
const conditionAuthorized = "LaunchAuthorized"

const (
	// lookEvery is how often a [LaunchChecker] looks for classes that have changed.
	lookEvery = time.Second
	// checkLimit bounds one check: half a dozen calls.
	checkLimit = time.Minute
)

// LaunchChecker asks EC2 by dry runs whether this process may launch instances of each class, and writes the answer into the
// class's condition LaunchAuthorized. It is for the process that launches where that has a role of its own: what another
// role may do says nothing about the launch.
type LaunchChecker struct {
	// Kube reads classes from a cache.
	Kube     client.Client
	Launches Launches
	Clock    clock.Clock

	allowed permits
	mu      sync.Mutex
	next    map[string]time.Time // by class: when one that was refused is asked about again
}

// Run checks until ctx ends. Only the leader may run it.
func (c *LaunchChecker) Run(ctx context.Context) {
	for {
		if err := c.look(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("checking whether instances may be launched will be tried again", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return
		case <-c.Clock.After(lookEvery):
		}
	}
}

// look checks the classes that are due, side by side: none waits for another's answers longer than checkLimit.
func (c *LaunchChecker) look(ctx context.Context) error {
	var classes v1.EC2NodeClassList
	if err := c.Kube.List(ctx, &classes); err != nil {
		return fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	var checking sync.WaitGroup
	for i := range classes.Items {
		class := &classes.Items[i]
		if !c.due(class) {
			continue
		}
		checking.Go(func() {
			ctx, cancel := context.WithTimeout(log.IntoContext(ctx, log.FromContext(ctx).WithValues("nodeClass", class.Name)), checkLimit)
			defer cancel()
			if err := c.check(ctx, class); err != nil {
				log.FromContext(ctx).V(1).Info("whether instances may be launched is not known", "reason", err.Error())
			}
		})
	}
	checking.Wait()
	return nil
}

// due reports whether everything a launch of the class needs has been found, and EC2 has not answered for it a while ago.
func (c *LaunchChecker) due(class *v1.EC2NodeClass) bool {
	if class.DeletionTimestamp != nil || waiting(class.StatusConditions(status.WithObservedOnly())) != nil {
		return false
	}
	now, asked := c.Clock.Now(), launchDigest(class)
	has := authorized(class)
	if has != nil && has.ObservedGeneration == class.Generation && c.allowed.fresh(class.UID, asked, now) {
		return false
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	key := string(class.UID) + asked
	if now.Before(c.next[key]) {
		return false
	}
	for k, at := range c.next {
		if now.After(at) {
			delete(c.next, k)
		}
	}
	if c.next == nil {
		c.next = map[string]time.Time{}
	}
	c.next[key] = now.Add(refreshEvery)
	return true
}

// check asks EC2 and writes the condition. A question that got no answer leaves an earlier answer for the same spec as it is.
func (c *LaunchChecker) check(ctx context.Context, class *v1.EC2NodeClass) error {
	asked := launchDigest(class)
	answer, err := judgeLaunch(c.Launches.CheckLaunch(ctx, class))
	is := status.Condition{Type: conditionAuthorized, Status: metav1.ConditionTrue, Reason: conditionAuthorized}
	switch {
	case err != nil:
		if has := authorized(class); has != nil && has.ObservedGeneration == class.Generation && has.Status != metav1.ConditionUnknown {
			return err
		}
		is.Status, is.Reason, is.Message = metav1.ConditionUnknown, reasonResolutionFailed, describe(err)
	case answer != nil:
		is.Status, is.Reason, is.Message = metav1.ConditionFalse, answer.reason, answer.message
	default:
		c.allowed.until(class.UID, asked, c.Clock.Now().Add(wait.Jitter(checkEvery, checkJitter)))
	}
	if e := c.write(ctx, class, is); e != nil {
		c.allowed.forget(class.UID)
		c.mu.Lock()
		delete(c.next, string(class.UID)+asked) // the answer is lost: ask again soon
		c.mu.Unlock()
		return e
	}
	return err
}

// write sets the condition and no other: what Ready depends on is the reconciler's to say.
func (c *LaunchChecker) write(ctx context.Context, class *v1.EC2NodeClass, is status.Condition) error {
	is.ObservedGeneration, is.LastTransitionTime = class.Generation, metav1.NewTime(c.Clock.Now())
	changed := class.DeepCopy()
	has := authorized(changed)
	if has == nil {
		changed.Status.Conditions = slices.Insert(changed.Status.Conditions, 0, is) // Ready stays last
	} else {
		if has.Status == is.Status {
			is.LastTransitionTime = has.LastTransitionTime
		}
		if *has == is {
			return nil
		}
		*has = is
	}
	patch := client.MergeFromWithOptions(class, client.MergeFromWithOptimisticLock{})
	if err := c.Kube.Status().Patch(ctx, changed, patch); err != nil {
		return fmt.Errorf("writing condition %s of EC2NodeClass %q: %w", conditionAuthorized, class.Name, err)
	}
	return nil
}

// authorized is the class's condition LaunchAuthorized, nil if it has none.
func authorized(class *v1.EC2NodeClass) *status.Condition {
	for i := range class.Status.Conditions {
		if class.Status.Conditions[i].Type == conditionAuthorized {
			return &class.Status.Conditions[i]
		}
	}
	return nil
}

// told is what the process that launches has been answered for the spec as it is.
func told(class *v1.EC2NodeClass) found {
	has := authorized(class)
	switch {
	case has == nil || has.ObservedGeneration != class.Generation:
		v := fails(reasonDependencies, "Awaiting the answer of EC2 to slipway-scheduler's dry runs")
		v.unknown = true
		return found{verdict: v}
	case has.Status == metav1.ConditionTrue:
		return found{}
	}
	return found{verdict: &verdict{reason: has.Reason, message: has.Message, unknown: has.Status == metav1.ConditionUnknown}}
}

// judgeLaunch is what an answer to dry runs says about the class: nothing, a verdict, or that there was no answer.
func judgeLaunch(err error) (*verdict, error) {
	switch capacity.KindOf(err) {
	case capacity.Unauthorized:
		action := ec2.Action(err)
		reason := map[string]string{
			"ec2:CreateLaunchTemplate": reasonNoTemplate, "ec2:CreateFleet": reasonNoFleet, "ec2:RunInstances": reasonNoRun,
		}[action]
		if reason == "" { // what a launch needs beside the three
			return nil, err
		}
		return fails(reason, "Controller isn't authorized to call %s: %s; allow it in the policy of Slipway's role (manifests/iam)", action, ec2.Denial(err)), nil
	case capacity.Invalid:
		return fails(reasonOf(err), "%s", describeInvalid("spec", err)), nil
	default: // success, or a failure to be retried
		return nil, err
	}
}
