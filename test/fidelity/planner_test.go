// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package fidelity

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// setting reads a number from the environment.
func setting(t testing.TB, name string, standard uint64) uint64 {
	t.Helper()
	s := os.Getenv(name)
	if s == "" {
		return standard
	}
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatalf("%s=%q: %v", name, s, err)
	}
	return n
}

func pairs(t testing.TB) uint64 { return setting(t, "FIDELITY_PAIRS", 40000) }
func seed(t testing.TB) uint64  { return setting(t, "FIDELITY_SEED", 1) }

// planner is the planner over a cluster whose nodes and pods change from world to world.
type planner struct {
	cluster *source.Cluster
	there   []runtime.Object // of the last world
}

// permanent are the objects that every world has.
func permanent() []runtime.Object {
	out := storage()
	for _, ns := range namespaces() {
		out = append(out, ns)
	}
	return out
}

func newPlanner() *planner { return &planner{cluster: source.New(permanent()...)} }

// planned returns, for each node, whether the planner would put the pod there if every other node were barred.
func (y *planner) planned(ctx context.Context, w world) (map[string]bool, error) {
	for _, o := range y.there {
		y.cluster.Delete(o)
	}
	y.there = nil
	for _, n := range w.nodes {
		y.there = append(y.there, n)
	}
	for _, p := range w.bound {
		y.there = append(y.there, p)
	}
	for _, o := range y.there {
		y.cluster.Put(o)
	}
	b := view.New(y.cluster.Source())
	v, err := b.Build(ctx, view.Pending{})
	if err != nil {
		return nil, err
	}
	pod := b.Pod(w.pod)
	out := map[string]bool{}
	for _, n := range w.nodes {
		in := plan.Input{View: v, Pods: []*capacity.Pod{pod}}
		for _, o := range w.nodes {
			if o != n {
				in.Barred = append(in.Barred, plan.Bar{Class: pod.Class, Node: o.Name})
			}
		}
		r := plan.Solve(in)
		if len(r.Placements)+len(r.Unplaced) != 1 || len(r.Launches) != 0 {
			return nil, fmt.Errorf("one pod has %d places, %d launches and %d refusals", len(r.Placements), len(r.Launches), len(r.Unplaced))
		}
		out[n.Name] = len(r.Placements) == 1
	}
	return out, nil
}

// tally counts (pod, node) pairs.
type tally struct{ compared, fitting, deliberate uint64 }

// compare looks at one generated world.
func (y *tally) compare(t *testing.T, s *stock, c *planner, seed uint64, w world) {
	t.Helper()
	want := s.fits(t.Context(), w.pod, w.nodes, w.bound)
	got, err := c.planned(t.Context(), w)
	if err != nil {
		t.Fatalf("seed %d: %v", seed, err)
	}
	for _, n := range w.nodes {
		y.compared++
		scheduler, planner := want[n.Name] == "", got[n.Name]
		if scheduler {
			y.fitting++
		}
		switch {
		case scheduler == planner:
		case slices.ContainsFunc(differences(), func(d difference) bool { return d.planner == planner && d.explains(w, n) }):
			y.deliberate++
		case planner:
			t.Errorf("seed %d, %s: the planner takes the pod, plugin %s refuses it\n%s", seed, n.Name, want[n.Name], w)
		default:
			t.Errorf("seed %d, %s: the scheduler takes the pod, the planner does not\n%s", seed, n.Name, w)
		}
	}
}

// String prints the world as manifests, without what the comparison does not depend on.
func (w world) String() string {
	out := ""
	add := func(o any) {
		raw, err := yaml.Marshal(o)
		if err != nil {
			raw = []byte(err.Error())
		}
		out += "---\n" + string(raw)
	}
	for _, n := range w.nodes {
		add(map[string]any{"node": n.Name, "labels": n.Labels, "taints": n.Spec.Taints, "unschedulable": n.Spec.Unschedulable, "allocatable": n.Status.Allocatable})
	}
	for _, p := range append(w.bound, w.pod) {
		add(map[string]any{"pod": p.Namespace + "/" + p.Name, "labels": p.Labels, "spec": p.Spec})
	}
	return out
}

// TestFidelityOfNodeRules compares one pod with one node: resources, labels, taints, ports, names.
func TestFidelityOfNodeRules(t *testing.T) {
	fidelity(t, pairs(t)/2, (*maker).single, nodeFeatures())
}

// TestFidelityOfTopologyRules compares one pod with several nodes that hold pods: spread, affinity and anti-affinity.
func TestFidelityOfTopologyRules(t *testing.T) {
	fidelity(t, pairs(t)*3/8, (*maker).several, topologyFeatures())
}

// TestFidelityOfVolumes compares one pod that has volumes with several nodes: zones, storage classes, attach limits.
func TestFidelityOfVolumes(t *testing.T) {
	fidelity(t, pairs(t)/8, (*maker).volumes, volumeFeatures())
}

func fidelity(t *testing.T, n uint64, world func(*maker) world, features []string) {
	s, c := newStock(t, permanent()...), newPlanner()
	var y tally
	drawn := coverage{}
	for i := seed(t); y.compared < n && !t.Failed(); i++ {
		w := world(newMaker(i))
		drawn.add(w)
		y.compare(t, s, c, i, w)
	}
	drawn.check(t, features)
	if y.fitting*20 < y.compared || y.fitting*20 > y.compared*19 {
		t.Errorf("%d of %d pairs fit: the generator has lost its subject", y.fitting, y.compared)
	}
	if y.deliberate*20 > y.compared {
		t.Errorf("%d of %d pairs differ for a listed reason: the list explains too much", y.deliberate, y.compared)
	}
	t.Logf("compared %d (pod, node) pairs: %d fit, %d differ for a listed reason", y.compared, y.fitting, y.deliberate)
}
