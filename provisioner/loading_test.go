// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"testing"
	"time"

	"github.com/slipway-sh/slipway/test/builder"
)

// TestPodsStayParkedWhileCatalogsLoad checks that a process that has just started refuses no pod, which other autoscalers would
// buy for, because it does not know yet what it can buy; and that pods do not wait for ever.
func TestPodsStayParkedWhileCatalogsLoad(t *testing.T) {
	for name, tc := range map[string]struct {
		loads time.Duration // after which the catalogue is there
		want  []string
	}{
		"loaded in a second": {time.Second, []string{"launch for default/x", "event x Normal Nominated "}},
		"never loaded":       {time.Hour, []string{"release x"}},
	} {
		t.Run(name, func(t *testing.T) {
			inBubble(t, nil, func(b *bed) {
				b.cluster.Sell(builder.DefaultClass, nil)
				b.run()
				b.offer(pod("x", "1"))
				b.pass(tc.loads - 10*time.Millisecond - time.Millisecond)
				if tc.loads < loadingPatience {
					b.did("while the catalogue is loading")
					b.cluster.Sell(builder.DefaultClass, shop())
					b.pass(2 * loadingPause)
				}
				got := b.take()
				if len(got) < len(tc.want) || got[0] != tc.want[0] {
					t.Errorf("did %q, want %q", got, tc.want)
				}
			})
		})
	}
}
