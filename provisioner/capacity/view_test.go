// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestHolders(t *testing.T) {
	web, db, gone := builder.Class("web").Obj(), builder.Class("db").Obj(), builder.Class("gone").Obj()
	v := &capacity.View{Nodes: []*capacity.Node{
		builder.CapacityNode("a").Pods(web, 2).Pods(db, 1).Obj(),
		builder.CapacityNode("b").Pods(gone, 0).Obj(),
		builder.CapacityNode("c").Terminating(web, 1).Obj(),
	}}
	got := map[string][]string{}
	for c, nodes := range v.Holders() {
		for _, n := range nodes {
			got[c.ID] = append(got[c.ID], n.Name)
		}
	}
	if diff := cmp.Diff(map[string][]string{"web": {"a", "c"}, "db": {"a"}}, got); diff != "" {
		t.Errorf("holders (-want +got):\n%s", diff)
	}
}
