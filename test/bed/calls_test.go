// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"os"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/test/cluster"
)

func TestCallsBetween(t *testing.T) {
	var o cluster.Options
	c, err := RecordCalls(&o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if len(o.APIServerArgs) != 2 {
		t.Fatalf("flags of the API server: %q", o.APIServerArgs)
	}
	const user = `"user":{"username":"system:serviceaccount:slipway-system:slipway-scheduler"}`
	log := `{"requestReceivedTimestamp":"2026-01-01T00:00:09.000000Z","verb":"get",` + user + `,"objectRef":{"resource":"nodes"}}
{"requestReceivedTimestamp":"2026-01-01T00:00:10.000000Z","verb":"update",` + user + `,"objectRef":{"resource":"leases"}}
{"requestReceivedTimestamp":"2026-01-01T00:00:12.000000Z","verb":"update",` + user + `,"objectRef":{"resource":"leases"}}
{"requestReceivedTimestamp":"2026-01-01T00:00:13.000000Z","verb":"patch",` + user + `,"objectRef":{"resource":"pods","subresource":"status"}}
{"requestReceivedTimestamp":"2026-01-01T00:00:14.000000Z","verb":"get",` + user + `,"requestURI":"/api?timeout=32s"}
{"requestReceivedTimestamp":"2026-01-01T00:00:20.000000Z","verb":"get",` + user + `,"objectRef":{"resource":"nodes"}}
`
	if err := os.WriteFile(c.log(), []byte(log), 0o600); err != nil {
		t.Fatal(err)
	}
	at := func(second int) time.Time { return time.Date(2026, 1, 1, 0, 0, second, 0, time.UTC) }
	got, err := c.Between(at(10), at(20))
	if err != nil {
		t.Fatal(err)
	}
	want := map[Call]int{
		{"slipway-scheduler", "update", "leases"}: 2, {"slipway-scheduler", "patch", "pods/status"}: 1, {"slipway-scheduler", "get", "/api"}: 1,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
}
