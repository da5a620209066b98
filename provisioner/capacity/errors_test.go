// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"errors"
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestErrorKinds(t *testing.T) {
	cause := errors.New("quota is used up")
	type want struct {
		Kind  capacity.Kind
		Text  string
		Cause bool
	}
	for name, tc := range map[string]struct {
		err  error
		want want
	}{
		"foreign error":       {cause, want{capacity.Unknown, "quota is used up", true}},
		"kind alone":          {&capacity.Error{Kind: capacity.Throttled}, want{capacity.Throttled, "Throttled", false}},
		"kind and code":       {&capacity.Error{Kind: capacity.NoCapacity, Code: "InsufficientInstanceCapacity"}, want{capacity.NoCapacity, "NoCapacity: InsufficientInstanceCapacity", false}},
		"the cause speaks":    {&capacity.Error{Kind: capacity.NoCapacity, Code: "VcpuLimitExceeded", Err: cause}, want{capacity.NoCapacity, "quota is used up", true}},
		"wrapped":             {fmt.Errorf("launching: %w", &capacity.Error{Kind: capacity.Invalid, Err: cause}), want{capacity.Invalid, "launching: quota is used up", true}},
		"the outer kind wins": {&capacity.Error{Kind: capacity.NotReady, Err: &capacity.Error{Kind: capacity.NotFound, Err: cause}}, want{capacity.NotReady, "quota is used up", true}},
	} {
		t.Run(name, func(t *testing.T) {
			got := want{capacity.KindOf(tc.err), tc.err.Error(), errors.Is(tc.err, cause)}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("error (-want +got):\n%s", diff)
			}
		})
	}
	if got := capacity.KindOf(nil); got != capacity.Unknown {
		t.Errorf("KindOf(nil) = %q", got)
	}
}

func TestNodeAndView(t *testing.T) {
	web := builder.Class("web").CPU("1").Memory("1Gi").Obj()
	named := builder.CapacityNode("n1").CPU("1500m").Memory("8Gi").Pods(web, 2).Pool("p", "c1").Obj()
	if got := named.Free(); !got.Equal(capacity.Resources{CPU: -500, Memory: 6 << 30, Pods: 108}) {
		t.Errorf("Free() = %s", got)
	}
	planned := builder.CapacityNode("").Pool("p", "c2").Planned().Obj()
	v := capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("p", nil).Obj()}}
	got := []any{named.ID(), planned.ID(), named.Phase.String(), planned.Phase.String(), v.Pool("p") == v.Pools[0], v.Pool("q") == nil}
	if diff := cmp.Diff([]any{"n1", "c2", "Usable", "Planned", true, true}, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}
