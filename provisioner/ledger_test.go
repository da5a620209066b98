// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// TestLedger walks pods through their states. Each step says what is done and what it answers.
func TestLedger(t *testing.T) {
	type step struct {
		do   func(l *ledger, now time.Time) string
		at   time.Duration // since the first step
		want string
	}
	p, q := pod("p", "1"), pod("q", "1")
	offer := func(pod *corev1.Pod) func(*ledger, time.Time) string {
		return func(l *ledger, now time.Time) string {
			parked, node, fresh := l.offer(pod, now, nil)
			return fmt.Sprintf("parked %v node %q fresh %v", parked, node, fresh)
		}
	}
	names := func(pods []*corev1.Pod) string {
		out := make([]string, len(pods))
		for i, p := range pods {
			out[i] = p.Name
		}
		return strings.Join(out, " ")
	}
	assign := func(claim, node string, pods ...*corev1.Pod) func(*ledger, time.Time) string {
		return func(l *ledger, _ time.Time) string { l.assign(claim, node, pods); return names(l.podsOf(claim)) }
	}
	named := func(claim, node string) func(*ledger, time.Time) string {
		return func(l *ledger, _ time.Time) string { return names(l.named(claim, node)) }
	}
	usable := func(claim, node string) func(*ledger, time.Time) string {
		return func(l *ledger, now time.Time) string { return names(l.usable(claim, node, everybody, now)) }
	}
	lost := func(claim string) func(*ledger, time.Time) string {
		return func(l *ledger, _ time.Time) string { return names(l.lost(claim)) }
	}
	unplace := func(reason string) func(*ledger, time.Time) string {
		return func(l *ledger, now time.Time) string {
			news, _ := l.unplace(p.UID, reason, now)
			return fmt.Sprintf("news %v", news)
		}
	}
	due := func(all bool) func(*ledger, time.Time) string {
		return func(l *ledger, now time.Time) string { return names(l.due(now, all)) }
	}
	remove := func(pod *corev1.Pod) func(*ledger, time.Time) string {
		return func(l *ledger, _ time.Time) string { _, known := l.remove(pod.UID, ""); return fmt.Sprint(known) }
	}
	refused := func(l *ledger, _ time.Time) string {
		var out []string
		for pod, node := range l.refused() {
			out = append(out, pod.Name+" by "+node)
		}
		return strings.Join(out, " ")
	}
	intrude := func(claim string) func(*ledger, time.Time) string {
		return func(l *ledger, _ time.Time) string { return fmt.Sprint(l.intrude(claim)) }
	}
	counts := func(l *ledger, _ time.Time) string { n, _ := l.counts(); return fmt.Sprint(n) }
	const again, parked = `parked true node "" fresh true`, `parked true node "" fresh false`
	for name, steps := range map[string][]step{
		"a pod that is planned waits for its node and no longer counts as demand": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{offer(p), 1, parked},
			{named("c", "n"), 2, "p"},
			{offer(p), 3, `parked true node "n" fresh false`},
			{counts, 3, "[0 1 0]"},
		},
		"a usable node is news once, and the pod has a while to bind to it": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{usable("c", "n"), time.Second, "p"},
			{usable("c", "n"), 2 * time.Second, ""},
			{offer(p), 3 * time.Second, `parked false node "n" fresh false`},
			{offer(p), time.Second + bindGrace, again},
			{counts, time.Minute, "[1 0 0]"},
			{lost("c"), time.Minute, ""},
		},
		"a pod that two nodes of its own have refused waits, whatever changes, and longer each time": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{usable("c", "n"), 0, "p"},
			{offer(p), bindGrace, again},
			{refused, bindGrace, ""},
			{assign("d", "", p), bindGrace, "p"},
			{usable("d", "m"), bindGrace, "p"},
			{offer(p), 2 * bindGrace, `parked false node "" fresh false`},
			{refused, 2 * bindGrace, "p by m"},
			{refused, 2 * bindGrace, ""},
			{offer(p), 2*bindGrace + spurnedFirst - 1, `parked false node "" fresh false`},
			{due(true), 2*bindGrace + spurnedFirst - 1, ""},
			{due(false), 2*bindGrace + spurnedFirst, "p"},
			{assign("e", "", p), 2*bindGrace + spurnedFirst, "p"},
			{usable("e", "o"), 2*bindGrace + spurnedFirst, "p"},
			{offer(p), 3*bindGrace + spurnedFirst, `parked false node "" fresh false`},
			{due(true), 3*bindGrace + 3*spurnedFirst - 1, ""},
			{due(false), 3*bindGrace + 3*spurnedFirst, "p"},
		},
		"a node whose room others have taken has refused nobody": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{usable("c", "n"), 0, "p"},
			{intrude("c"), 0, "true"},
			{offer(p), 1, again},
			{assign("d", "", p), 1, "p"},
			{usable("d", "m"), 1, "p"},
			{offer(p), 1 + bindGrace, again},
		},
		"a lost claim gives its pods back, once": {
			{offer(p), 0, again},
			{offer(q), 0, again},
			{assign("c", "n", q, p), 0, "p q"},
			{lost("c"), 1, "p q"},
			{lost("c"), 2, ""},
			{counts, 2, "[2 0 0]"},
			{offer(p), 3, again},
		},
		"a pod planned on another claim leaves the first": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{assign("d", "", p), 1, "p"},
			{lost("c"), 2, ""},
			{lost("d"), 2, "p"},
		},
		"an unplaced pod is told once, and waits longer each time": {
			{offer(p), 0, again},
			{unplace("too large"), 0, "news true"},
			{offer(p), firstRetry - 1, `parked false node "" fresh false`},
			{due(false), firstRetry - 1, ""},
			{due(false), firstRetry, "p"},
			{due(false), firstRetry, ""},
			{unplace("too large"), firstRetry, "news false"},
			{due(false), 3*firstRetry - 1, ""},
			{due(false), 3 * firstRetry, "p"},
			{unplace("limit reached"), 3 * firstRetry, "news true"},
			{offer(p), 7 * firstRetry, again},
		},
		"a change brings unplaced pods back at once": {
			{offer(p), 0, again},
			{unplace("x"), 0, "news true"},
			{due(true), 1, "p"},
			{counts, 1, "[1 0 0]"},
		},
		"a place resets reason and backoff": {
			{offer(p), 0, again},
			{unplace("x"), 0, "news true"},
			{due(true), 1, "p"},
			{assign("c", "", p), 1, "p"},
			{lost("c"), 2, "p"},
			{unplace("x"), 2, "news true"},
			{due(false), 2 + firstRetry, "p"},
		},
		"an empty reason is no news and forgets none": {
			{offer(p), 0, again},
			{unplace("x"), 0, "news true"},
			{due(true), 1, "p"},
			{unplace(""), 1, "news false"},
			{due(true), 2, "p"},
			{unplace("x"), 2, "news false"},
		},
		"a pod that is bound or gone is forgotten everywhere": {
			{offer(p), 0, again},
			{assign("c", "", p), 0, "p"},
			{remove(p), 1, "true"},
			{remove(p), 1, "false"},
			{assign("c", "", p), 2, ""},
			{unplace("x"), 2, "news false"},
			{counts, 3, "[0 0 0]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, start := newLedger(), builder.Epoch()
			for i, s := range steps {
				if got := s.do(l, start.Add(s.at)); got != s.want {
					t.Fatalf("step %d: %q, want %q", i, got, s.want)
				}
			}
		})
	}
}

func TestLedgerLists(t *testing.T) {
	l, now := newLedger(), builder.Epoch()
	p, q, r := pod("p", "1"), pod("q", "1"), pod("r", "1")
	l.offer(p, now, nil)
	l.offer(q, now.Add(time.Second), nil)
	l.adopt("c", "n", []*corev1.Pod{r}, now, true)
	newer := p.DeepCopy()
	newer.Labels = map[string]string{"newer": "true"}
	l.offer(newer, now.Add(2*time.Second), nil)
	waiting, offered := l.waiting([]*corev1.Pod{p, q, r, pod("unknown", "1")})
	if len(waiting) != 2 || waiting[0] != newer || waiting[1] != q {
		t.Errorf("waiting = %v, want p as offered last, and q", waiting)
	}
	if diff := cmp.Diff(map[string]time.Time{"p": now, "q": now.Add(time.Second)}, map[string]time.Time{"p": offered["p"], "q": offered["q"]}); diff != "" {
		t.Errorf("offered first (-want +got):\n%s", diff)
	}
	if got := l.reserved(); len(got) != 1 || len(got["c"]) != 1 || got["c"][0] != r {
		t.Errorf("reserved = %v", got)
	}
	if parked, node, fresh := l.offer(r, now, nil); !parked || node != "n" || fresh {
		t.Errorf("an adopted pod: parked %v, node %q, fresh %v", parked, node, fresh)
	}
}

// everybody is admitted.
func everybody(*corev1.Pod) bool { return true }
