// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"k8s.io/client-go/util/workqueue"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// appear shows the launcher claims as its watch does.
func (r *rig) appear(t *testing.T, initial bool, claims ...*karpv1.NodeClaim) {
	t.Helper()
	queue := workqueue.NewTypedDelayingQueue[string]()
	t.Cleanup(queue.ShutDown)
	h := r.claimHandler(quiet(t.Context()), queue)
	for _, c := range claims {
		h.OnAdd(c, initial)
	}
}

func sized(n int) []*karpv1.NodeClaim {
	out := claims(n, "group")
	for _, c := range out {
		c.Annotations[capacity.LaunchGroupSizeAnnotation] = strconv.Itoa(n)
	}
	return out
}

func TestClaimsOfOthersAreLaunchedWhenTheyAppear(t *testing.T) {
	planned := claims(1, "")
	planned[0].Annotations = map[string]string{capacity.PlannedAnnotation: "now"}
	tests := []struct {
		name    string
		claims  []*karpv1.NodeClaim
		initial bool
		late    int // of the claims come a second later
		want    []string
	}{
		{name: "alone", claims: claims(1, ""), want: []string{"uid-claim-0×1"}},
		{name: "a group waits for its size", claims: sized(3), want: []string{"group×3"}},
		{name: "a group that is not complete goes on without the rest, which comes later", claims: sized(3), late: 1, want: []string{"group×2", "group-2×1"}},
		{name: "of a plan: the process that made it hands it over", claims: planned},
		{name: "there before this process led: EC2 is looked at first", claims: claims(1, ""), initial: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				var all []*karpv1.NodeClaim
				for _, c := range tc.claims {
					all = append(all, create(t, kube, c.DeepCopy())...)
				}
				first := len(all) - tc.late
				r.appear(t, tc.initial, all[:first]...)
				time.Sleep(time.Second)
				r.appear(t, tc.initial, all[first:]...)
				time.Sleep(100 * time.Millisecond)
				synctest.Wait()
				if d := cmp.Diff(tc.want, tokens(r.cloud.sent)); d != "" {
					t.Errorf("calls (-want +got):\n%s", d)
				}
				owner := map[string]string{}
				for _, c := range all {
					id := get(t, kube, c.Name).Status.ProviderID
					if other := owner[id]; id != "" && other != "" {
						t.Errorf("claims %s and %s have the same instance %s", other, c.Name, id)
					}
					owner[id] = c.Name
				}
				if tc.want != nil && owner[""] != "" {
					t.Errorf("claim %s has no instance", owner[""])
				}
			})
		})
	}
}

func TestAnnouncedOfferingsAreAvoided(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		avoid := key("m6g.large", "a", "spot")
		c := claims(2, "")
		for _, c := range c {
			c.Annotations = map[string]string{capacity.AvoidAnnotation: avoid.String()}
		}
		c[1].CreationTimestamp.Time = time.Now().Add(-time.Hour)
		c[1].Annotations[capacity.AvoidAnnotation] = key("m6g.large", "b", "spot").String() // long over
		r.appear(t, false, create(t, kube, c[1])...)
		r.appear(t, false, create(t, kube, c[0])...)
		synctest.Wait()
		if !r.out.Out(avoid) || r.out.Out(key("m6g.large", "b", "spot")) {
			t.Errorf("remembered as out: %v, want %v", r.out.out, avoid)
		}
		last := r.cloud.sent[len(r.cloud.sent)-1]
		for _, o := range last.Overrides {
			if o.InstanceType == avoid.InstanceType && o.Zone == avoid.Zone {
				t.Errorf("the replacement may be what EC2 has just taken back: %+v", o)
			}
		}
	})
}
