// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"cmp"
	"context"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
)

const (
	// atOnce bounds the commands being written at a time.
	atOnce = 32
	// startTimeout bounds the start of a pass's commands: an API server that hangs must not hold what runs already.
	startTimeout = time.Minute
)

// each does something with every item, some at a time. It panics itself if one of them does, when all are done: a panic in a
// goroutine of its own would end the process, whatever the caller recovers from.
func each[T any](items []T, do func(T)) {
	sem := make(chan struct{}, atOnce)
	var wg sync.WaitGroup
	var panicked atomic.Pointer[string]
	for _, item := range items {
		sem <- struct{}{}
		wg.Go(func() {
			defer func() {
				if r := recover(); r != nil {
					panicked.CompareAndSwap(nil, new(fmt.Sprintf("%v\n%s", r, debug.Stack())))
				}
				<-sem
			}()
			do(item)
		})
	}
	wg.Wait()
	if p := panicked.Load(); p != nil {
		panic(*p)
	}
}

// start carries out new commands up to where they wait for replacements, or to their end.
func (c *Controller) start(ctx context.Context, commands []*Command) {
	if len(commands) == 0 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	log.FromContext(ctx).Info("disrupting nodes", "commands", len(commands))
	// 1. Record and taint.
	c.claimAll(commands)
	failed := make([]error, len(commands))
	indexes := make([]int, len(commands))
	for i := range indexes {
		indexes[i] = i
	}
	each(indexes, func(i int) { failed[i] = c.mark(ctx, commands[i]) })
	var good []*Command
	for i, cmd := range commands {
		if failed[i] != nil {
			c.takeBack(ctx, &cmd.Record, cmd.Going, failure{failedAPI, failed[i].Error()})
			continue
		}
		good = append(good, cmd)
	}
	c.proceed(ctx, good)
}

// claimAll notes that this process has written the records, before it does.
func (c *Controller) claimAll(commands []*Command) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, cmd := range commands {
		for _, n := range cmd.Going {
			r := cmd.Record
			r.Replacements = nil
			c.mine[n.Claim.Name] = &r
		}
	}
}

// proceed looks again at marked commands and carries them out as far as they go.
func (c *Controller) proceed(ctx context.Context, commands []*Command) {
	// 2. Look again, now that no pod can come any more.
	commands = c.lookAgain(ctx, commands)
	// 3. Buy, or 4. end.
	each(commands, func(cmd *Command) {
		if err := c.buy(ctx, cmd); err != nil {
			c.takeBack(ctx, &cmd.Record, cmd.Going, failure{failedAPI, err.Error()})
			return
		}
		c.Metrics.performed(cmd)
		if len(cmd.Replacements) == 0 || cmd.Forced {
			c.end(ctx, &cmd.Record, cmd.Going)
		}
	})
}

// mark writes a command's record on its claims and takes their nodes out of service.
func (c *Controller) mark(ctx context.Context, cmd *Command) error {
	r := cmd.Record
	r.Replacements = nil // not written yet
	for _, n := range cmd.Going {
		if err := c.record(ctx, n, &r); err != nil {
			return err
		}
		if err := c.setReason(ctx, n, cmd.Reason); err != nil {
			return err
		}
		if n.Node == nil {
			continue
		}
		if err := c.taint(ctx, n); err != nil {
			return err
		}
		c.teller.node(n, "DisruptionTerminating", "Disrupting", string(cmd.Reason))
	}
	return nil
}

// record writes the annotation, or takes it off if r is nil.
func (c *Controller) record(ctx context.Context, n *Node, r *Record) error {
	claim := n.Claim.DeepCopy()
	before := claim.DeepCopy()
	if r == nil {
		delete(claim.Annotations, RecordAnnotation)
		if before.Annotations == nil {
			before.Annotations = map[string]string{}
		}
		before.Annotations[RecordAnnotation] = "written" // the cache may lag behind
	} else {
		if claim.Annotations == nil {
			claim.Annotations = map[string]string{}
		}
		claim.Annotations[RecordAnnotation] = r.String()
	}
	if err := c.Kube.Patch(ctx, claim, client.MergeFrom(before)); err != nil {
		return fmt.Errorf("recording the disruption of NodeClaim %q: %w", claim.Name, err)
	}
	return nil
}

// setReason sets condition DisruptionReason, by which the drain tells what is voluntary; an empty reason takes it off.
func (c *Controller) setReason(ctx context.Context, n *Node, reason karpv1.DisruptionReason) error {
	return c.updateStatus(ctx, n.Claim.Name, func(claim *karpv1.NodeClaim) bool {
		conditions := claim.StatusConditions(status.WithClock(c.Clock))
		if reason != "" {
			return conditions.SetTrueWithReason(karpv1.ConditionTypeDisruptionReason, string(reason), string(reason))
		}
		had := conditions.Get(karpv1.ConditionTypeDisruptionReason) != nil
		return had && conditions.Clear(karpv1.ConditionTypeDisruptionReason) == nil
	})
}

// updateStatus changes a claim's status as the API server has it. Conditions are one list with several writers: a change that was
// based on an old state is made again.
func (c *Controller) updateStatus(ctx context.Context, name string, change func(*karpv1.NodeClaim) bool) error {
	for try := 0; ; try++ {
		claim := &karpv1.NodeClaim{}
		if err := c.Live.Get(ctx, client.ObjectKey{Name: name}, claim); err != nil {
			return fmt.Errorf("reading NodeClaim %q: %w", name, err)
		}
		before := claim.DeepCopy()
		if !change(claim) {
			return nil
		}
		err := c.Kube.Status().Patch(ctx, claim, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil || !apierrors.IsConflict(err) || try == 3 {
			if err != nil {
				return fmt.Errorf("writing the status of NodeClaim %q: %w", name, err)
			}
			return nil
		}
	}
}

// taint closes the node for new pods. The node it is based on may be old: a change of other taints in between is not undone.
func (c *Controller) taint(ctx context.Context, n *Node) error {
	return c.updateTaints(ctx, n.Node.Name, func(taints []corev1.Taint) []corev1.Taint {
		if slices.ContainsFunc(taints, disruptedTaint) {
			return taints
		}
		return append(taints, karpv1.DisruptedNoScheduleTaint)
	})
}

func (c *Controller) untaint(ctx context.Context, name string) error {
	return c.updateTaints(ctx, name, func(taints []corev1.Taint) []corev1.Taint { return slices.DeleteFunc(taints, disruptedTaint) })
}

func disruptedTaint(t corev1.Taint) bool { return t.MatchTaint(&karpv1.DisruptedNoScheduleTaint) }

func (c *Controller) updateTaints(ctx context.Context, name string, change func([]corev1.Taint) []corev1.Taint) error {
	for try := 0; ; try++ {
		node := &corev1.Node{}
		if err := c.Live.Get(ctx, client.ObjectKey{Name: name}, node); err != nil {
			return fmt.Errorf("reading node %q: %w", name, err)
		}
		before := node.DeepCopy()
		node.Spec.Taints = change(node.Spec.Taints)
		if len(before.Spec.Taints) == len(node.Spec.Taints) {
			return nil
		}
		err := c.Kube.Patch(ctx, node, client.MergeFromWithOptions(before, client.MergeFromWithOptimisticLock{}))
		if err == nil {
			return nil
		}
		if !apierrors.IsConflict(err) || try == 3 {
			return fmt.Errorf("writing the taints of node %q: %w", name, err)
		}
	}
}

// buy writes the replacements of a command, and their names on its claims first.
func (c *Controller) buy(ctx context.Context, cmd *Command) error {
	claims, err := c.replacements(cmd)
	if err != nil {
		return err
	}
	cmd.Replacements = nil
	if len(claims) == 0 {
		return nil
	}
	for _, claim := range claims {
		cmd.Replacements = append(cmd.Replacements, claim.Name)
	}
	r := cmd.Record
	c.mu.Lock()
	for _, n := range cmd.Going {
		c.mine[n.Claim.Name] = &r
	}
	for _, claim := range claims {
		c.written[claim.Name] = writtenClaim{pool: claim.Labels[karpv1.NodePoolLabelKey], at: c.Clock.Now()}
	}
	c.mu.Unlock()
	for _, n := range cmd.Going {
		if err := c.record(ctx, n, &r); err != nil {
			return err
		}
	}
	c.holdMore(cmd.Going, claims)
	for _, claim := range claims {
		switch err := c.Kube.Create(ctx, claim); {
		case err == nil:
			c.Seats.Bought(claim)
		case !apierrors.IsAlreadyExists(err):
			return fmt.Errorf("creating NodeClaim %q: %w", claim.Name, err)
		}
		c.teller.claim(claim, "DisruptionLaunching", "Launch", "Launching NodeClaim: "+string(cmd.Reason))
	}
	for _, n := range cmd.Going {
		c.teller.claim(n.Claim, "DisruptionWaitingReadiness", "Wait", "Waiting on readiness to continue disruption")
	}
	return nil
}

// replacements are the claims a command buys, named after it; an error if a pool to buy from is gone.
func (c *Controller) replacements(cmd *Command) ([]*karpv1.NodeClaim, error) {
	var out []*karpv1.NodeClaim
	var names []string
	for _, n := range cmd.Going {
		names = append(names, n.Claim.Name)
	}
	name := func(claim *karpv1.NodeClaim, pool string) {
		claim.Name = replacementName(pool, cmd.ID, len(out))
		claim.Annotations[capacity.ReplacesAnnotation] = strings.Join(names, ",")
		claim.Annotations[ReplacedForAnnotation] = cmp.Or(cmd.Drift, string(cmd.Reason))
		out = append(out, claim)
	}
	for i := range cmd.Launches {
		l := &cmd.Launches[i]
		p := cmd.pools[l.Pool.Name]
		if p == nil {
			return nil, fmt.Errorf("replacing NodeClaims %s: NodePool %q is gone", strings.Join(names, ","), l.Pool.Name)
		}
		claim := launch.NewClaim(p.NodePool, *l)
		moving := make([]string, len(l.Pods))
		for k, pod := range l.Pods {
			moving[k] = pod.String()
		}
		claim.Annotations[MovingAnnotation] = strings.Join(moving, ",")
		name(claim, l.Pool.Name)
	}
	for _, p := range cmd.Copies {
		name(launch.FromTemplate(p.NodePool), p.Name)
	}
	return out, nil
}

// end deletes the claims of a command; what follows is package claim's.
func (c *Controller) end(ctx context.Context, r *Record, going []*Node) {
	for _, n := range going {
		if n.deleted || n.Claim.DeletionTimestamp != nil {
			continue
		}
		err := error(nil)
		if r.Reason == ReasonUnhealthy {
			err = c.bound(ctx, n)
		}
		if err == nil {
			err = c.remove(ctx, n)
		}
		if err != nil {
			// The record stays: the next pass tries again.
			log.FromContext(ctx).Error(err, "deleting a NodeClaim that is disrupted", "nodeClaim", n.Claim.Name, "reason", string(r.Reason))
			continue
		}
		log.FromContext(ctx).Info("disrupted a node", "nodeClaim", n.Claim.Name, "nodePool", n.PoolName(), "reason", string(r.Reason), "pods", len(n.Moving), "price", n.Price())
		c.Metrics.disrupted(r, n)
	}
}

// remove deletes a node's claim. Until the cache shows that, passes go by what is noted here.
func (c *Controller) remove(ctx context.Context, n *Node) error {
	if err := c.Kube.Delete(ctx, n.Claim, client.Preconditions{UID: &n.Claim.UID}); client.IgnoreNotFound(err) != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.deleted[n.Claim.UID] = true
	return nil
}

// failure is why a command was taken back; kind is a metric's label.
type failure struct{ kind, why string }

// Kinds of failures; budget, scheduling and churn are Karpenter's.
const (
	failedAPI         = "api"
	failedBudget      = "budget"
	failedScheduling  = "scheduling"
	failedChurn       = "churn"
	failedBlocked     = "blocked"
	failedReplacement = "replacement"
	failedTimeout     = "timeout"
)

// takeBack undoes what was begun: taint, condition, and last the record, so that it is undone to the end by whoever finds it.
func (c *Controller) takeBack(ctx context.Context, r *Record, going []*Node, f failure) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), startTimeout)
	defer cancel()
	whole := true
	for _, n := range going {
		stays, err := c.restore(ctx, n)
		if err != nil {
			whole = false
			log.FromContext(ctx).Error(err, "taking a disruption back; it is tried again", "nodeClaim", n.Claim.Name)
			continue
		}
		c.mu.Lock()
		delete(c.mine, n.Claim.Name)
		c.mu.Unlock()
		if !stays {
			continue
		}
		c.memory.takenBack(n, f, c.Clock.Now())
		c.teller.node(n, eventBlocked, "Disrupt", f.why)
	}
	if whole {
		c.mu.Lock()
		c.dropped[r.ID] = c.Clock.Now()
		c.mu.Unlock()
	}
	c.Metrics.failed(r, f.kind)
	log.FromContext(ctx).Info("disruption was taken back", "command", r.ID, "nodes", len(going), "reason", f.why)
}

// restore puts one node back into service. One that is being deleted stays as it is: it drains, and pods must not come back.
func (c *Controller) restore(ctx context.Context, n *Node) (stays bool, err error) {
	live := &karpv1.NodeClaim{}
	switch err := c.Live.Get(ctx, client.ObjectKeyFromObject(n.Claim), live); {
	case apierrors.IsNotFound(err):
		return false, nil
	case err != nil:
		return true, fmt.Errorf("reading NodeClaim %q: %w", n.Claim.Name, err)
	case live.UID != n.Claim.UID || live.DeletionTimestamp != nil:
		return false, nil
	}
	if n.Node != nil {
		if err := c.untaint(ctx, n.Node.Name); err != nil && !apierrors.IsNotFound(err) {
			return true, err
		}
	}
	if err := c.setReason(ctx, n, ""); err != nil && !apierrors.IsNotFound(err) {
		return true, err
	}
	return true, client.IgnoreNotFound(c.record(ctx, n, nil))
}
