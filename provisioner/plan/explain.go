// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
)

// explain gives every stuck pod its reason.
func (s *solver) explain() {
	for _, st := range s.stuck {
		pool, why, detail := st.pool, st.why, st.detail
		if why == "" || pool == "" {
			p, w, t := s.nearest(st.d)
			if why == "" {
				why = w
			}
			pool = p
			if detail == "" {
				detail = t
			}
		}
		if why == TopologyBlocks && detail == "" {
			detail = topologyDetail(st.d)
		}
		if st.item != nil {
			st.pods = st.item.pods
		}
		for _, p := range st.pods {
			s.out.Unplaced = append(s.out.Unplaced, Unplaced{Pod: p, Pool: pool, Reason: why, Detail: detail})
		}
	}
}

// nearest is the pool whose check failed last, and that check.
func (s *solver) nearest(d *demand) (pool string, why Reason, detail string) {
	if len(s.pools) == 0 {
		return "", NoPools, "there is no NodePool"
	}
	best := -1
	for i, f := range d.pools {
		w := f.why
		if f.ok {
			return s.pools[i].Name, TopologyBlocks, topologyDetail(d)
		}
		if best < 0 || w.rank() > d.pools[best].why.rank() {
			best = i
		}
	}
	return s.pools[best].Name, d.pools[best].why, d.pools[best].detail
}

// topologyDetail names the class's topology rules that no domain satisfies any more.
func topologyDetail(d *demand) string {
	for _, r := range d.rules {
		switch r.kind {
		case spread:
			if len(r.domains) > 0 || r.key != "kubernetes.io/hostname" {
				return fmt.Sprintf("topology spread over %s (maxSkew %d) leaves no domain: fewest pods in a domain %d", r.key, r.maxSkew, r.least())
			}
		case affinity:
			if r.counter.total == 0 && !r.self {
				return fmt.Sprintf("pod affinity over %s: no pod it selects is in the cluster", r.key)
			}
		case anti:
			if r.counter.total > 0 {
				return fmt.Sprintf("pod anti-affinity over %s excludes every domain that could be used", r.key)
			}
		}
	}
	return "no domain satisfies all topology rules at once"
}
