// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"fmt"
	"math/rand/v2"
	"time"
)

// randomInput is a drain with some of everything.
func randomInput(seed int) Input {
	r := rand.New(rand.NewPCG(uint64(seed), 1))
	in := Input{Now: epoch}
	if r.IntN(2) == 0 {
		in.Deadline = epoch.Add(time.Duration(r.IntN(120)-10) * time.Second)
	}
	for i := range 3 {
		in.Budgets = append(in.Budgets, pdb(fmt.Sprintf("b%d", i), fmt.Sprintf("app%d", i), int32(r.IntN(3)), 5, 3))
	}
	for i := range 1 + r.IntN(12) {
		p := pod(fmt.Sprintf("p%d", i), app(fmt.Sprintf("app%d", r.IntN(4))), graceOf(int64(r.IntN(90))))
		switch r.IntN(6) {
		case 0:
			critical(p)
		case 1:
			annotated("karpenter.sh/do-not-disrupt", "true")(p)
		case 2:
			deleted(epoch.Add(time.Duration(r.IntN(200)-100) * time.Second))(p)
		case 3:
			owned("DaemonSet")(p)
		case 4:
			owned("DaemonSet")(p)
			critical(p)
		}
		in.Pods = append(in.Pods, p)
	}
	return in
}
