// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// blocks answers with reservations and notes what it is asked for.
type blocks struct {
	have  []ec2.Reservation
	err   error
	asked [][]string
}

func (b *blocks) ReservationsByID(_ context.Context, ids []string) ([]ec2.Reservation, error) {
	b.asked = append(b.asked, ids)
	return b.have, b.err
}

func block(id string, state v1.CapacityReservationState, end time.Time) ec2.Reservation {
	return ec2.Reservation{CapacityReservation: v1.CapacityReservation{ID: id, State: state, EndTime: &metav1.Time{Time: end}, ReservationType: v1.CapacityReservationTypeCapacityBlock}}
}

// inBlock is a node with its claim in a capacity block.
func inBlock(n int, id string) []client.Object {
	claim, node := spot(n)
	claim.Labels[karpv1.CapacityTypeLabelKey] = karpv1.CapacityTypeReserved
	claim.Labels[v1.LabelCapacityReservationID] = id
	claim.Labels[v1.LabelCapacityReservationType] = string(v1.CapacityReservationTypeCapacityBlock)
	return []client.Object{claim, node, pod(node.Name, "web-"+node.Name, "1").Obj()}
}

// The nodes of a block that is about to end are replaced, elsewhere, and drained until EC2 takes them; others stay.
func TestEndingBlock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		end := time.Now().Add(38 * time.Minute).UTC().Truncate(time.Second)
		ordinary, node := spot(3)
		ordinary.Labels[v1.LabelCapacityReservationID] = "cr-default"
		ordinary.Labels[v1.LabelCapacityReservationType] = string(v1.CapacityReservationTypeDefault)
		r := newRig(t, append(append(inBlock(1, "cr-ending"), inBlock(2, "cr-lasting")...), ordinary, node)...)
		b := &blocks{have: []ec2.Reservation{
			block("cr-ending", v1.CapacityReservationStateExpiring, end), block("cr-lasting", v1.CapacityReservationStateActive, end.Add(time.Hour)),
		}}
		w := NewBlockWatcher(r.Reactor, b)
		for range 2 { // the second look finds it done
			if err := w.look(logr.NewContext(t.Context(), logr.Discard())); err != nil {
				t.Fatal(err)
			}
		}
		c := r.get("claim-1")
		if c.DeletionTimestamp == nil || r.get("claim-2").DeletionTimestamp != nil || r.get("claim-3").DeletionTimestamp != nil {
			t.Error("not the claim of the ending block, and no other, is deleted")
		}
		if got, want := c.Annotations[karpv1.NodeClaimTerminationTimestampAnnotationKey], end.Add(-30*time.Minute).Format(time.RFC3339); got != want {
			t.Errorf("the node is drained until %s, want %s", got, want)
		}
		replacements := r.replacements()
		if len(replacements) != 1 {
			t.Fatalf("%d replacements, want 1", len(replacements))
		}
		if want := "m5.large/us-east-1a/reserved/cr-ending"; replacements[0].Annotations[capacity.AvoidAnnotation] != want {
			t.Errorf("the replacement avoids %q, want %q", replacements[0].Annotations[capacity.AvoidAnnotation], want)
		}
		if d := cmp.Diff([]string{"CapacityBlockEnding claim", "CapacityBlockEnding node", "TerminatingOnInterruption claim", "TerminatingOnInterruption node"}, r.events.reasons); d != "" {
			t.Errorf("events (-want +got):\n%s", d)
		}
		if d := cmp.Diff([][]string{{"cr-ending", "cr-lasting"}, {"cr-lasting"}}, b.asked); d != "" {
			t.Errorf("asked for (-want +got):\n%s", d)
		}
	})
}

func TestBlocksAreAskedForOnlyIfUsed(t *testing.T) {
	claim, node := spot(1)
	b := &blocks{}
	if err := NewBlockWatcher(newRig(t, claim, node).Reactor, b).look(t.Context()); err != nil || len(b.asked) != 0 {
		t.Errorf("err %v, asked %v; want no question without nodes in blocks", err, b.asked)
	}
}

// EC2's failure to answer ends no node, and the next look goes on.
func TestBlocksAreLookedAtAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, inBlock(1, "cr-ending")...)
		b := &blocks{err: errors.New("unavailable")}
		ctx, cancel := context.WithCancel(logr.NewContext(t.Context(), logr.Discard()))
		ended := make(chan error)
		go func() { ended <- NewBlockWatcher(r.Reactor, b).Start(ctx) }()
		synctest.Wait()
		if r.get("claim-1").DeletionTimestamp != nil {
			t.Error("the claim is deleted without an answer of EC2")
		}
		b.err, b.have = nil, []ec2.Reservation{block("cr-ending", v1.CapacityReservationStateExpiring, time.Now().Add(38*time.Minute))}
		time.Sleep(blocksEvery + time.Minute/2)
		synctest.Wait()
		if r.get("claim-1").DeletionTimestamp == nil {
			t.Error("the claim is not deleted at the next look")
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}
