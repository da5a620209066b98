// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/sets"

	"github.com/slipway-sh/slipway/test/builder"
)

// TestOtherSchedulersPods checks whose pods count as demand, and when.
func TestOtherSchedulersPods(t *testing.T) {
	of := func(scheduler string) *builder.PodBuilder {
		return builder.Pod("x").UID("x").CPU("1").Memory("1Gi").Created(builder.Epoch()).Scheduler(scheduler)
	}
	bought := []string{"launch for default/x", "event x Normal Nominated "}
	for name, tc := range map[string]struct {
		pod  *corev1.Pod
		want []string
	}{
		"served and unschedulable":       {of("default-scheduler").Unschedulable("0/3 nodes are available").Obj(), bought},
		"served and not tried yet":       {of("default-scheduler").Obj(), nil},
		"served, others are preempted":   {of("default-scheduler").Unschedulable("0/3 nodes are available").Nominated("n").Obj(), nil},
		"not served":                     {of("volcano").Unschedulable("0/3 nodes are available").Obj(), nil},
		"ours, offered by the scheduler": {of("slipway").Unschedulable("0/3 nodes are available").Obj(), nil},
		"served, being deleted":          {of("default-scheduler").Unschedulable("0/3 nodes are available").Deleted(builder.Epoch()).Obj(), nil},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.Serve = sets.New("default-scheduler")
				b.run()
				b.cluster.Put(tc.pod)
				b.onPod(b.ctx, tc.pod, false, true)
				b.pass(50 * time.Millisecond)
				b.did("seen", tc.want...)
				b.onPod(b.ctx, tc.pod, false, false)
				b.pass(50 * time.Millisecond)
				b.did("seen again")
			})
		})
	}
}

// TestStandbyServesNobody checks that served pods are demand from when this process leads, and all of them are then.
func TestStandbyServesNobody(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.Serve = sets.New("default-scheduler")
		x := builder.Pod("x").UID("x").CPU("1").Memory("1Gi").Created(builder.Epoch()).Scheduler("default-scheduler").Unschedulable("0/3").Obj()
		b.cluster.Put(x)
		b.onPod(b.ctx, x, false, true)
		b.pass(time.Minute)
		if n, _ := b.ledger.counts(); n != [3]int{} {
			t.Errorf("pods by state: %v in a process that does not lead", n)
		}
		began := time.Now()
		b.run()
		b.pass(50 * time.Millisecond)
		b.did("leading", "launch for default/x", "event x Normal Nominated ")
		offered, err := time.Parse(time.RFC3339Nano, b.claim().Annotations[OfferedAnnotation])
		if err != nil || offered.Before(began) {
			t.Errorf("offered at %v, %v; want no earlier than %v", offered, err, began)
		}
	})
}

// TestServedPodIsNotForgotten checks that a pod its scheduler does not bind to its node counts as demand again, and that
// nobody but its scheduler nominates it.
func TestServedPodIsNotForgotten(t *testing.T) {
	inBubble(t, nil, func(b *bed) {
		b.Serve = sets.New("default-scheduler")
		b.run()
		x := builder.Pod("x").UID("x").CPU("3").Memory("1Gi").Created(builder.Epoch()).Scheduler("default-scheduler").Unschedulable("0/3").Obj()
		b.cluster.Put(x)
		b.onPod(b.ctx, x, false, true)
		b.pass(50 * time.Millisecond)
		b.launched(b.claim(), builder.Node("n1").CPU("4").Memory("16Gi"))
		b.nominate(b.ctx, "n1", []*corev1.Pod{x})
		b.take()
		b.pass(servedGrace - time.Second)
		b.did("its scheduler may be backing off")
		b.pass(10 * time.Minute)
		b.did("its scheduler may be down")
		again := x.DeepCopy()
		again.Status.Conditions[0].Message = "0/4"
		b.onPod(b.ctx, again, false, false)
		b.pass(3 * time.Second)
		b.did("it did not fit on the node", "launch for default/x", "event x Normal Nominated ")
	})
}
