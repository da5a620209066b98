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
