// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// tags records CreateTags calls and fails the first ones.
type tags struct {
	mu    sync.Mutex
	fail  int
	calls int
	set   map[string]map[string]string
	last  time.Time
}

func (s *tags) Tag(_ context.Context, id string, set map[string]string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.calls++
	s.last = time.Now()
	if s.calls <= s.fail {
		return failure(capacity.Throttled, "RequestLimitExceeded")
	}
	s.set[id] = set
	return nil
}

func TestTagger(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &tags{fail: 2, set: map[string]map[string]string{}}
		ctx, cancel := context.WithCancel(quiet(t.Context()))
		defer cancel()
		tagger := NewTagger(s)
		began := time.Now()
		for i := range 100 {
			tagger.add(ec2.Instance{ID: fmt.Sprintf("i-%d", i), PrivateDNSName: fmt.Sprintf("ip-%d", i)}, fmt.Sprintf("claim-%d", i), "demo")
		}
		go tagger.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		want := map[string]string{"Name": "ip-7", "karpenter.sh/nodeclaim": "claim-7", "eks:eks-cluster-name": "demo"}
		if d := cmp.Diff(want, s.set["i-7"]); d != "" || len(s.set) != 100 {
			t.Errorf("%d instances tagged, i-7 with (-want +got):\n%s", len(s.set), d)
		}
		// 102 calls, 50 at once and 5 a second after that.
		if took := s.last.Sub(began); took < 10*time.Second || took > 15*time.Second {
			t.Errorf("102 calls took %s, want the rate of 5 a second after a burst of 50", took)
		}
	})
}

// A Name that the class gives its instances stays, whether or not EC2 has told their tags.
func TestNameOfTheClassStays(t *testing.T) {
	for name, told := range map[string]bool{"described": true, "not described in time": false} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				class := readyClass()
				class.Spec.Tags = map[string]string{"Name": "workers"}
				kube, cloud, s := newKube(t, class), newCloud(), &tags{set: map[string]map[string]string{}}
				if !told {
					cloud.hide = 1000
				}
				r := newRig(kube, cloud)
				r.Tagger = NewTagger(s)
				ctx, cancel := context.WithCancel(quiet(t.Context()))
				defer cancel()
				go r.Tagger.Run(ctx)
				r.Launch(ctx, create(t, kube, claims(1, "group")...))
				time.Sleep(time.Minute)
				synctest.Wait()
				s.mu.Lock()
				defer s.mu.Unlock()
				if len(s.set) != 1 {
					t.Fatalf("%d instances tagged, want 1", len(s.set))
				}
				for id, set := range s.set {
					if v, ok := set[ec2.TagName]; ok || set[ec2.TagNodeClaim] != "claim-0" {
						t.Errorf("%s was tagged %v: Name %q in place of the class's", id, set, v)
					}
				}
			})
		})
	}
}

// everything is EC2 as a list of instances.
type everything []ec2.Instance

func (e everything) ClusterInstances(context.Context) ([]ec2.Instance, error) { return e, nil }

// A process that ends between a launch and its tags loses none: what names the instance until then is the launch tag, and the
// next process goes on.
func TestTagsSurviveARestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.Launch(quiet(t.Context()), create(t, kube, claims(3, "group")...))
		time.Sleep(time.Second)
		synctest.Wait()
		foreign := ec2.Instance{ID: "i-karpenters", Tags: map[string]string{ec2.TagNodePool: "default"}}
		orphan := ec2.Instance{ID: "i-orphan", Tags: map[string]string{ec2.TagLaunch: "gone"}}
		instances := append(everything{foreign, orphan}, r.cloud.instances...)
		done := instances[2]
		instances[2].Tags = map[string]string{ec2.TagLaunch: "group", ec2.TagNodeClaim: "claim-0"} // the first process got as far

		s := &tags{set: map[string]map[string]string{}}
		next := NewTagger(s)
		if err := next.Resume(t.Context(), instances, kube, "demo"); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(quiet(t.Context()))
		defer cancel()
		go next.Run(ctx)
		time.Sleep(time.Minute)
		synctest.Wait()
		s.mu.Lock()
		defer s.mu.Unlock()
		got := map[string]string{}
		for id, set := range s.set {
			got[id] = set[ec2.TagNodeClaim]
		}
		want := map[string]string{}
		for i := range 3 {
			c := get(t, kube, fmt.Sprintf("claim-%d", i))
			if id := instanceID(c.Status.ProviderID); id != done.ID {
				want[id] = c.Name
			}
		}
		if d := cmp.Diff(want, got); d != "" || len(got) != 2 {
			t.Errorf("claims by instance (-want +got):\n%s", d)
		}
	})
}
