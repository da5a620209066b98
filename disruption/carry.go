// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/launch"
)

// replaceTimeout is how long replacements are waited for. Their own time limits (launch 5 m, registration 15 m) end most sooner.
const replaceTimeout = 20 * time.Minute

// step is what there is to do next for a command that was begun.
type step int

const (
	// wait for replacements, or for admission to be healthy.
	wait step = iota
	// finish: every replacement is there, or no node stays.
	finish
	// resume: begun by a process that is gone, before anything was bought.
	resume
	// giveUp: it cannot be finished.
	giveUp
)

// staying are the nodes of a command that are not being deleted, by whomever: an interruption or a person may delete one node of
// many, which says nothing about the others.
func (s *Snapshot) staying(going []*Node) []*Node {
	return slices.DeleteFunc(slices.Clone(going), func(n *Node) bool { return n.Leaving() || s.overdue(n) })
}

// overdue reports whether a node of a command has reached the end of its life meanwhile.
func (s *Snapshot) overdue(n *Node) bool {
	at, ok := expireAt(n)
	return ok && !s.Now.Before(at)
}

// next says what there is to do for the command of these nodes. claims are all NodeClaims, by name.
func next(s *Snapshot, r *Record, going []*Node, claims map[string]*Node) (step, failure) {
	left := s.staying(going)
	if len(left) == 0 {
		return finish, failure{}
	}
	for _, n := range left {
		if n.Pool == nil || n.Pool.DeletionTimestamp != nil {
			return giveUp, failure{failedChurn, fmt.Sprintf("NodePool not found (NodePool=%s)", n.PoolName())}
		}
	}
	switch {
	case len(r.Nodes) == 0, len(r.Replacements) == 0 && len(left) < len(r.Nodes):
		return giveUp, failure{failedChurn, "Not all of the command's NodeClaims are there"}
	case len(r.Replacements) == 0:
		return resume, failure{}
	}
	ready := true
	for _, name := range r.Replacements {
		n := claims[name]
		switch _, coming := s.unseen[name]; {
		case n == nil && coming:
			ready = false
		case n == nil || n.Leaving():
			return giveUp, failure{failedReplacement, fmt.Sprintf("Replacement NodeClaim %q is gone", name)}
		case !n.Claim.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue():
			ready = false
		}
	}
	moves := slices.ContainsFunc(left, func(n *Node) bool { return len(n.Moving) > 0 })
	paused := ready && s.Paused != "" && moves && r.Reason != ReasonUnhealthy
	switch {
	case ready && !paused:
		return finish, failure{}
	case paused && s.Now.Sub(r.Since) > replaceTimeout:
		return giveUp, failure{failedBlocked, s.Paused}
	case s.Now.Sub(r.Since) > replaceTimeout:
		return giveUp, failure{failedTimeout, fmt.Sprintf("Replacements were not ready in %s", replaceTimeout)}
	}
	return wait, failure{}
}

// carryOn does the next step of every command that was begun, and clears what a lost command has left.
func (c *Controller) carryOn(ctx context.Context, s *Snapshot) {
	claims := make(map[string]*Node, len(s.Nodes))
	of := map[string][]*Node{}
	var order []*Record
	var overdue []*Node
	for _, n := range s.Nodes {
		claims[n.Claim.Name] = n
		if n.Record == nil {
			continue
		}
		if s.overdue(n) {
			overdue = append(overdue, n)
		}
		if of[n.Record.ID] == nil {
			order = append(order, n.Record)
		}
		of[n.Record.ID] = append(of[n.Record.ID], n)
	}
	// A node whose time is over waits for nothing any more. What its command has bought is what its pods need.
	each(overdue, func(n *Node) {
		r := *n.Record
		r.Reason, r.Saving = ReasonExpired, 0 // it was not for the money
		c.end(ctx, &r, []*Node{n})
	})
	var again []*Command
	each(order, func(r *Record) {
		going := of[r.ID]
		switch todo, f := next(s, r, going, claims); todo {
		case finish:
			c.finish(ctx, s, r, going)
		case giveUp:
			if f.kind == failedReplacement || f.kind == failedTimeout {
				c.memory.Failed(going[0].PoolName(), r.Reason, s.Now)
			}
			c.takeBack(ctx, r, going, f)
		case resume, wait:
		}
	})
	for _, r := range order {
		if todo, _ := next(s, r, of[r.ID], claims); todo == resume {
			again = append(again, c.resumed(s, r, of[r.ID]))
		}
	}
	c.hold(s, order, of, claims) // before more is bought: that adds to it
	c.proceedResumed(ctx, again)
	c.clear(ctx, s)
}

// resumed is the command a record speaks of.
func (c *Controller) resumed(s *Snapshot, r *Record, going []*Node) *Command {
	cmd := &Command{Record: *r, Going: slices.Clone(going), pools: s.Pools}
	if going[0].Pool.Static() && r.Reason == karpv1.DisruptionReasonDrifted {
		cmd.Copies = []*Pool{going[0].Pool}
	}
	return cmd
}

// proceedResumed carries on commands of an earlier process that had marked their nodes and not bought anything yet. Marking them
// again completes what may be missing.
func (c *Controller) proceedResumed(ctx context.Context, commands []*Command) {
	if len(commands) == 0 {
		return
	}
	log.FromContext(ctx).Info("resuming disruptions that were begun", "commands", len(commands))
	var good []*Command
	for _, cmd := range commands {
		if err := c.mark(ctx, cmd); err != nil {
			c.takeBack(ctx, &cmd.Record, cmd.Going, failure{failedAPI, err.Error()})
			continue
		}
		good = append(good, cmd)
	}
	c.proceed(ctx, good)
}

// finish deletes the claims of a command whose replacements are there, unless a pod asks at the last moment not to be
// disrupted.
func (c *Controller) finish(ctx context.Context, s *Snapshot, r *Record, going []*Node) {
	left := s.staying(going)
	for _, n := range left {
		why, err := c.lastLook(ctx, s, r, n)
		if err != nil {
			log.FromContext(ctx).Error(err, "looking at a node for the last time; it is done again", "nodeClaim", n.Claim.Name)
			return // what was bought for it is there and not to be given up for that
		}
		if why != "" {
			c.takeBack(ctx, r, left, failure{failedBlocked, why})
			return
		}
	}
	if len(left) > 0 && len(r.Replacements) > 0 {
		c.memory.Succeeded(left[0].PoolName(), r.Reason)
	}
	c.end(ctx, r, left)
}

// lastLook reads a node's pods once more. Budgets of pods are not asked again: the drain waits for those.
func (c *Controller) lastLook(ctx context.Context, s *Snapshot, r *Record, n *Node) (why string, err error) {
	cmd := Command{Record: *r}
	if cmd.class(n) != graceful || n.Node == nil {
		return "", nil
	}
	if n.doNotDisrupt() {
		return fmt.Sprintf("Disruption is blocked through the %q annotation", karpv1.DoNotDisruptAnnotationKey), nil
	}
	var list corev1.PodList
	if err := c.Live.List(ctx, &list, client.MatchingFields{"spec.nodeName": n.Node.Name}); err != nil {
		return "", fmt.Errorf("listing the pods of node %q: %w", n.Node.Name, err)
	}
	for i := range list.Items {
		if p := &list.Items[i]; active(p) && protected(p, s.Now) {
			return fmt.Sprintf("Pod has %q annotation (Pod=%s)", karpv1.DoNotDisruptAnnotationKey, client.ObjectKeyFromObject(p)), nil
		}
	}
	return "", nil
}

// clear takes taints off nodes that no command and no deletion stands behind: the process that put them there died between
// its steps. The claim is read from the API server: the cache of Nodes may be ahead of that of NodeClaims.
func (c *Controller) clear(ctx context.Context, s *Snapshot) {
	for _, n := range s.Nodes {
		if n.Node == nil || n.Disrupted() || !slices.ContainsFunc(n.Node.Spec.Taints, disruptedTaint) {
			continue
		}
		claim := &karpv1.NodeClaim{}
		if err := c.Live.Get(ctx, client.ObjectKeyFromObject(n.Claim), claim); err != nil || claim.DeletionTimestamp != nil || claim.Annotations[RecordAnnotation] != "" {
			continue
		}
		if err := c.untaint(ctx, n.Node.Name); err != nil {
			log.FromContext(ctx).Error(err, "clearing a left over taint", "node", n.Node.Name)
			continue
		}
		if err := c.setReason(ctx, n, ""); err != nil {
			log.FromContext(ctx).Error(err, "clearing a left over condition", "nodeClaim", n.Claim.Name)
		}
		log.FromContext(ctx).Info("cleared a left over disruption taint", "node", n.Node.Name)
	}
}

// scale writes the claims static pools lack and ends those they have too many.
func (c *Controller) scale(ctx context.Context, s *Snapshot) {
	lacking, surplus := Scale(s)
	for p, k := range lacking {
		for range k {
			claim := launch.FromTemplate(p.NodePool)
			c.mu.Lock()
			c.written[claim.Name] = writtenClaim{pool: p.Name, at: c.Clock.Now()}
			c.mu.Unlock()
			if err := c.Kube.Create(ctx, claim); err != nil {
				log.FromContext(ctx).Error(err, "creating a NodeClaim of a static pool", "nodePool", p.Name, "nodeClaim", claim.Name)
				break
			}
			c.Seats.Bought(claim)
		}
	}
	for _, n := range surplus {
		if err := c.remove(ctx, n); err != nil {
			log.FromContext(ctx).Error(err, "deleting a NodeClaim of a static pool", "nodePool", n.PoolName(), "nodeClaim", n.Claim.Name)
		}
	}
	if len(surplus) > 0 {
		names := make([]string, len(surplus))
		for i, n := range surplus {
			names[i] = n.Claim.Name
		}
		log.FromContext(ctx).Info("static pools had too many nodes", "nodeClaims", strings.Join(names, ","))
	}
}
