// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package top

import (
	"fmt"
	"strings"
	"testing"
	"time"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

func at(d time.Duration) time.Time { return builder.Epoch().Add(d) }

// bought puts a node with its claim into the world.
func bought(w *World, name, pool, price string) {
	claim := builder.NodeClaim(name).Pool(pool).Created(at(0)).Launched("aws:///a/i-"+name, "m5.large", "us-east-1a", "spot").Registered("ip-" + name).Initialized()
	if price != "" {
		claim = claim.Annotation(provisioner.PriceAnnotation, price)
	}
	w.Claim(claim.Obj())
	w.Node(builder.Node("ip-" + name).CPU("4").Memory("16Gi").Pool(pool).InstanceType("m5.large").Zone("us-east-1a").Created(at(time.Minute)).Obj())
}

func example() *World {
	w := NewWorld()
	w.Pool(builder.NodePool("general").Ready().Obj())
	w.Pool(builder.NodePool("gpu").Obj())
	bought(w, "1", "general", "0.0400")
	bought(w, "2", "general", "0.1000")
	w.Node(builder.Node("system").CPU("2").Memory("4Gi").Created(at(0)).Obj())
	w.Pod(builder.Pod("a").UID("a").CPU("3").Memory("4Gi").On("ip-1").Obj())
	w.Pod(builder.Pod("b").UID("b").CPU("1").Memory("1Gi").On("ip-2").Obj())
	return w
}

func TestFrame(t *testing.T) {
	w := example()
	w.Pod(builder.Pod("late").UID("late").Created(at(59 * time.Minute)).Unschedulable("no node fits").Obj())
	w.Pod(builder.Pod("soon").UID("soon").Created(at(59*time.Minute + 50*time.Second)).Nominated("ip-3").Obj())
	w.Claim(builder.NodeClaim("general-3").Pool("general").Created(at(59*time.Minute)).Launched("aws:///a/i-3", "c7g.large", "us-east-1a", "spot").Annotation(capacity.ReplacesAnnotation, "general-1").Obj())
	s := w.Snapshot(at(time.Hour), ByName)
	got, seen := Frame(&s, Look{Width: 80, Title: "demo", By: ByName})
	want := strings.TrimLeft(`
slipway top  demo  01:00:00
3 nodes  2 pods  $0.14/h  cpu 40%  mem 13%  2 waiting, longest 1m00s

NODEPOOL               NODES  PODS  CPU               MEMORY              $/HOUR
general                    2     2  █████░░░░░   50%  ██░░░░░░░░   15%     $0.14
gpu                        0     0  ░░░░░░░░░░    0%  ░░░░░░░░░░    0%     $0.00
(no pool)                  1     0  ░░░░░░░░░░    0%  ░░░░░░░░░░    0%     $0.00

IN FLIGHT (1)
booting     1m00s  general-3  c7g.large in place of general-1

PODS WAITING (2)
 1m00s  default/late  no node fits
   10s  default/soon  for node ip-3

NODE (3, by name)      TYPE           STATE      PODS   CPU   MEM   $/HOUR   AGE
ip-1                   m5.large       ready         1   75%   25%   0.0400   59m
ip-2                   m5.large       ready         1   25%    6%   0.1000   59m
system                                ready         0    0%    0%        - 1h00m
`, "\n")
	if diff := cmp.Diff(strings.TrimRight(want, "\n"), got); diff != "" {
		t.Errorf("frame (-want +got):\n%s", diff)
	}
	if seen != 3 {
		t.Errorf("%d nodes are seen, want 3", seen)
	}
}

// A frame is never wider or higher than its terminal.
func TestFrameFits(t *testing.T) {
	w := example()
	for i := range 200 {
		bought(w, fmt.Sprintf("a-node-with-a-rather-long-name-%d", i), "general", "")
		w.Pod(builder.Pod(strings.Repeat("x", i+1)).UID(fmt.Sprint(i)).Unschedulable(strings.Repeat("why ", 50)).Created(at(0)).Obj())
		w.Claim(builder.NodeClaim(fmt.Sprintf("new-%d", i)).Created(at(0)).Obj())
	}
	s := w.Snapshot(at(time.Hour), ByCPU)
	for _, size := range [][2]int{{80, 24}, {80, 10}, {71, 40}, {200, 60}} {
		text, _ := Frame(&s, Look{Width: size[0], Height: size[1], Title: "demo", By: ByCPU})
		lines := strings.Split(text, "\n")
		if len(lines) != size[1] {
			t.Errorf("%v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := len([]rune(line)); n > size[0] {
				t.Errorf("%v: a line of %d: %q", size, n, line)
			}
		}
	}
}

// Sums follow what happens to pods, whatever the order.
func TestWorld(t *testing.T) {
	w := example()
	sum := func() [4]int {
		s := w.Snapshot(at(time.Hour), ByName)
		return [4]int{s.Total.Nodes, s.Total.Pods, int(s.Total.CPU.Asked), len(s.Waiting)}
	}
	pod := builder.Pod("c").UID("c").CPU("500m")
	steps := []struct {
		what string
		do   func()
		want [4]int
	}{
		{"at first", func() {}, [4]int{3, 2, 4000, 0}},
		{"a pod waits", func() { w.Pod(pod.Obj()) }, [4]int{3, 2, 4000, 1}},
		{"it is bound", func() { w.Pod(pod.On("ip-1").Obj()) }, [4]int{3, 3, 4500, 0}},
		{"it is told of again", func() { w.Pod(pod.Obj()) }, [4]int{3, 3, 4500, 0}},
		{"it has ended", func() { w.Pod(pod.Phase(corev1.PodSucceeded).Obj()) }, [4]int{3, 2, 4000, 0}},
		{"it is gone", func() { w.NoPod("c") }, [4]int{3, 2, 4000, 0}},
		{"another is gone", func() { w.NoPod("a") }, [4]int{3, 1, 1000, 0}},
		{"its node is gone", func() { w.NoNode("ip-1") }, [4]int{2, 1, 1000, 0}},
	}
	for _, step := range steps {
		step.do()
		if got := sum(); got != step.want {
			t.Errorf("%s: nodes, pods, millicores, waiting are %v, want %v", step.what, got, step.want)
		}
	}
}

func TestFlight(t *testing.T) {
	claim := func() *builder.NodeClaimBuilder { return builder.NodeClaim("c").Created(at(0)) }
	launched := func() *builder.NodeClaimBuilder { return claim().Launched("aws:///a/i-1", "m5.large", "a", "spot") }
	tests := map[string]struct {
		claim *karpv1.NodeClaim
		want  string
	}{
		"just written": {claim().Obj(), "launching"},
		"an instance":  {launched().Obj(), "booting"},
		"a node":       {launched().Registered("n").Obj(), "joining"},
		"usable":       {launched().Registered("n").Initialized().Obj(), ""},
		"chosen":       {launched().Registered("n").Initialized().True(karpv1.ConditionTypeDisruptionReason).Obj(), "disrupting"},
		"on its way":   {launched().Registered("n").Initialized().Deleted(at(time.Minute)).Obj(), "draining"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			w := NewWorld()
			w.Claim(tt.claim)
			got := ""
			for _, f := range w.Snapshot(at(time.Hour), ByName).Flight {
				got += f.What
			}
			if got != tt.want {
				t.Errorf("in flight as %q, want %q", got, tt.want)
			}
		})
	}
}

func TestKeys(t *testing.T) {
	w := example()
	for i := range 50 {
		bought(w, fmt.Sprintf("more-%d", i), "general", "")
	}
	m := &model{ui: &UI{World: w, Clock: clocktesting.NewFakeClock(at(time.Hour))}, look: Look{Width: 80, Height: 24, By: ByName}}
	m.refresh()
	first := func() string { return m.snapshot.Nodes[m.look.From].Name }
	steps := []struct {
		key   tea.KeyPressMsg
		first string
	}{
		{tea.KeyPressMsg{Code: tea.KeyDown}, "ip-2"},
		{tea.KeyPressMsg{Code: tea.KeyUp}, "ip-1"},
		{tea.KeyPressMsg{Code: tea.KeyUp}, "ip-1"},
		{tea.KeyPressMsg{Code: 'c', Text: "c"}, "ip-1"},
		{tea.KeyPressMsg{Code: 'p', Text: "p"}, "ip-2"},
	}
	for _, step := range steps {
		if _, cmd := m.Update(step.key); cmd != nil {
			t.Fatalf("key %s ends the program", step.key)
		}
		if got := first(); got != step.first {
			t.Errorf("after %s the first node is %s, want %s", step.key, got, step.first)
		}
	}
	m.Update(tea.KeyPressMsg{Code: tea.KeyEnd})
	if m.look.From+m.seen != len(m.snapshot.Nodes) || m.seen == 0 {
		t.Errorf("at the end nodes %d to %d of %d are seen", m.look.From, m.look.From+m.seen, len(m.snapshot.Nodes))
	}
	if _, cmd := m.Update(tea.KeyPressMsg{Code: 'q', Text: "q"}); cmd == nil {
		t.Error("q does not end the program")
	}
}

// Without a change only the time moves on, and the snapshot stays.
func TestRefresh(t *testing.T) {
	clock := clocktesting.NewFakeClock(at(time.Hour))
	m := &model{ui: &UI{World: example(), Clock: clock}, look: Look{Width: 80, Height: 24, By: ByName}}
	m.refresh()
	before := &m.snapshot.Nodes[0]
	clock.Step(time.Second)
	m.refresh()
	if &m.snapshot.Nodes[0] != before || !strings.Contains(m.text, "01:00:01") {
		t.Errorf("nothing changed: the snapshot is a new one, or the time is not\n%s", m.text)
	}
	m.ui.World.NoNode("ip-1")
	m.refresh()
	if len(m.snapshot.Nodes) != 2 {
		t.Errorf("%d nodes after one went, want 2", len(m.snapshot.Nodes))
	}
}
