// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
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
		{name: "a group that does not say its size is waited for", claims: claims(3, "group"), want: []string{"group×3"}},
		{name: "a group that does not say its size goes on without what comes late", claims: claims(3, "group"), late: 1, want: []string{"group×2", "group-2×1"}},
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

// The claims of a group come one after the other, as a client writes them.
func TestGroupsAreGathered(t *testing.T) {
	tests := []struct {
		name  string
		n     int
		apart time.Duration
		want  []string
	}{
		{"each comes soon after the one before", 5, gatherFor - time.Millisecond, []string{"group×5"}},
		{"a pause ends the wait", 2, gatherFor + time.Millisecond, []string{"group×1", "group-2×1"}},
		{"a stream of claims does not keep the first waiting", 13, gatherFor - time.Millisecond, []string{"group×11", "group-2×2"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				for _, c := range claims(tc.n, "group") {
					r.appear(t, false, create(t, kube, c)...)
					time.Sleep(tc.apart)
				}
				time.Sleep(gatherMost)
				synctest.Wait()
				if d := cmp.Diff(tc.want, tokens(r.cloud.sent)); d != "" {
					t.Errorf("calls (-want +got):\n%s", d)
				}
			})
		})
	}
}

// What happens to a claim while its group is waited for holds: it is not launched as it was when it came.
func TestGatheredClaimsThatAreDoneWithAreNotLaunched(t *testing.T) {
	tests := []struct {
		name string
		end  func(t *testing.T, h toolscache.ResourceEventHandler, r *rig, c *karpv1.NodeClaim)
		want []string
	}{
		{"launched by its creator and complete", func(t *testing.T, h toolscache.ResourceEventHandler, r *rig, c *karpv1.NodeClaim) {
			r.Launch(quiet(t.Context()), []*karpv1.NodeClaim{c})
			synctest.Wait()
			h.OnUpdate(c, get(t, r.kube, c.Name))
		}, []string{"group×1", "group-2×1"}},
		{"being deleted", func(_ *testing.T, h toolscache.ResourceEventHandler, _ *rig, c *karpv1.NodeClaim) {
			going := c.DeepCopy()
			going.DeletionTimestamp = new(metav1.Now())
			h.OnUpdate(c, going)
		}, []string{"group×1"}},
		{"gone", func(_ *testing.T, h toolscache.ResourceEventHandler, _ *rig, c *karpv1.NodeClaim) { h.OnDelete(c) }, []string{"group×1"}},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				queue := workqueue.NewTypedDelayingQueue[string]()
				t.Cleanup(queue.ShutDown)
				h := r.claimHandler(quiet(t.Context()), queue)
				made := create(t, kube, claims(2, "group")...)
				for _, c := range made {
					h.OnAdd(c, false)
				}
				tc.end(t, h, r, made[0])
				time.Sleep(gatherMost)
				synctest.Wait()
				if d := cmp.Diff(tc.want, tokens(r.cloud.sent)); d != "" {
					t.Errorf("calls (-want +got):\n%s", d)
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

// asked is EC2 to a launcher that something else happens to while it waits for an answer about tags.
type asked struct {
	*cloud
	meanwhile func()
}

func (a asked) DescribeByTag(ctx context.Context, key string, values []string) ([]ec2.Instance, error) {
	found, err := a.cloud.DescribeByTag(ctx, key, values)
	a.meanwhile()
	return found, err
}

// A claim that is launched by its creator, complete and forgotten between the look at EC2 and what follows from it is not
// launched again.
func TestAdoptionComesTooLate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		queue := workqueue.NewTypedDelayingQueue[string]()
		t.Cleanup(queue.ShutDown)
		h := r.claimHandler(quiet(t.Context()), queue)
		c := create(t, kube, claims(1, "")...)[0]
		r.Cloud = asked{r.cloud, func() {
			r.Launch(quiet(t.Context()), []*karpv1.NodeClaim{c})
			synctest.Wait()
			h.OnUpdate(c, get(t, kube, c.Name))
		}}
		if _, err := r.adopt(quiet(t.Context()), []string{c.Name}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		if d := cmp.Diff([]string{"uid-claim-0×1"}, tokens(r.cloud.sent)); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
	})
}

func TestMemoryForgets(t *testing.T) {
	m := memory{at: map[types.UID]time.Time{}}
	now := time.Unix(1e9, 0)
	m.add("old", now)
	m.add("young", now.Add(pastFor))
	m.add("new", now.Add(pastFor+1))
	if m.has("old") || !m.has("young") || !m.has("new") {
		t.Errorf("remembered: %v, want young and new", m.at)
	}
}

// TestClaimsOfARival checks that claims are left to whoever acts on their class, and are adopted when nobody does any more.
func TestClaimsOfARival(t *testing.T) {
	ours, planned := claims(1, ""), claims(1, "")
	ours[0].Spec.NodeClassRef.Group = v1alpha1.Group
	planned[0].Annotations = map[string]string{capacity.PlannedAnnotation: "now"}
	for _, tc := range []struct {
		name         string
		claims       []*karpv1.NodeClaim
		beside, then []string // requests while there is a rival, and afterwards in all
	}{
		{"the rival's", claims(1, ""), nil, []string{"uid-claim-0×1"}},
		{"of Slipway's own group", ours, []string{"uid-claim-0×1"}, []string{"uid-claim-0×1"}},
		{"of a plan made before: what was begun is finished", planned, []string{"uid-claim-0×1"}, []string{"uid-claim-0×1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				rival := "lease x is held by karpenter"
				r.Rival = func() string { return rival }
				c := create(t, kube, tc.claims[0].DeepCopy())
				adopt := func() []string {
					later, err := r.adopt(quiet(t.Context()), []string{c[0].Name})
					if err != nil {
						t.Fatal(err)
					}
					time.Sleep(100 * time.Millisecond)
					synctest.Wait()
					return later
				}
				r.appear(t, false, c...)
				time.Sleep(time.Second)
				if later := adopt(); (len(later) == 0) != (tc.beside != nil) {
					t.Errorf("to be looked at again: %v", later)
				}
				if d := cmp.Diff(tc.beside, tokens(r.cloud.sent)); d != "" {
					t.Errorf("calls beside a rival (-want +got):\n%s", d)
				}
				rival = ""
				if later := adopt(); len(later) > 0 {
					t.Errorf("without a rival, to be looked at again: %v", later)
				}
				if d := cmp.Diff(tc.then, tokens(r.cloud.sent)); d != "" {
					t.Errorf("calls (-want +got):\n%s", d)
				}
			})
		})
	}
}
