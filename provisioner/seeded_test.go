// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"

	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/fidelity/source"
)

// TestSeededRuns lets bursts, scale-downs, foreign pods, lost claims, flapping nodes and killed processes happen in an order
// that a seed decides. In each run no pod is bought for twice while its first node is coming, and in the end none is left
// without a node. SEEDED_RUNS and SEEDED_FROM say which seeds.
func TestSeededRuns(t *testing.T) {
	number := func(name string, otherwise int) int {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return otherwise
		}
		return n
	}
	runs, from := number("SEEDED_RUNS", 100), number("SEEDED_FROM", 1)
	var second, forgotten, stuck int
	for seed := from; seed < from+runs; seed++ {
		t.Run(strconv.Itoa(seed), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(t, uint64(seed))
				w.run()
				second += len(w.second)
				if len(w.second) > 0 {
					t.Errorf("bought for twice: %s", strings.Join(w.second, "; "))
				}
				for _, p := range w.all() {
					if p.Spec.NodeName == "" {
						stuck++
						e, known := w.ledger.get(p.UID)
						t.Errorf("pod %s has no node: known %v, state %v, claim %q, node %q", p.Name, known, e.state, e.claim, e.node)
					}
				}
				for _, where := range []limbo{limboGate, limboNode, limboBatch, limboClaim, limboPod} {
					if n := int(testutil.ToFloat64(w.Metrics.Forgotten.WithLabelValues(string(where)))); n > 0 {
						forgotten += n
						t.Errorf("%d pods had been forgotten (%s)", n, where)
					}
				}
				w.kill()
				synctest.Wait()
			})
		})
	}
	fmt.Printf("figure second-launches %d count\nfigure forgotten %d count\n", second, forgotten+stuck)
}

func newWorld(t *testing.T, seed uint64) *world {
	b := &bed{diary: &diary{}, t: t, ctx: t.Context()}
	b.cluster = source.New(builder.NodePool("p").UID("p").Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj())
	b.cluster.Sell(builder.DefaultClass, shop())
	b.api = interceptor.NewClient(b.cluster.Client, interceptor.Funcs{Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
		o.SetCreationTimestamp(metav1.Now())
		return b.create(ctx, c, o, opts...)
	}})
	return &world{bed: b, rng: rand.New(&dice{source: rand.NewPCG(seed, seed)}), parked: map[types.UID]time.Time{}, claims: map[string]*worldClaim{}}
}

const (
	// chaos is how long things go wrong, calm how long there is then to settle.
	chaos = 3 * time.Minute
	calm  = 15 * time.Minute
)

func (w *world) run() {
	w.start()
	begin := time.Now()
	for range 2 + w.rng.IntN(3) {
		w.after(w.upTo(chaos/2), w.deploy)
	}
	for range w.rng.IntN(5) {
		w.after(w.upTo(chaos), w.misfortune)
	}
	for time.Since(begin) < chaos+calm && (time.Since(begin) < chaos+time.Minute || !w.settled()) {
		tick := 100 * time.Millisecond
		if time.Since(begin) > chaos+time.Minute {
			tick = time.Second
		}
		time.Sleep(tick)
		synctest.Wait()
		w.act()
		w.control()
		w.schedule()
	}
}

// settled reports whether nothing is left to happen.
func (w *world) settled() bool {
	w.later.Lock()
	quiet := len(w.due) == 0
	w.later.Unlock()
	return quiet && !slices.ContainsFunc(w.all(), func(p *corev1.Pod) bool { return p.Spec.NodeName == "" })
}

// act does what is due, in the order of time.
func (w *world) act() {
	for do := w.next(); do != nil; do = w.next() {
		do()
		synctest.Wait()
	}
}

// misfortune is one thing that goes wrong.
func (w *world) misfortune() {
	switch w.rng.IntN(4) {
	case 0:
		w.restart()
	case 1:
		if names := w.live(); len(names) > 0 {
			w.loseClaim(names[w.rng.IntN(len(names))])
		}
	case 2: // scaled up or down
		if len(w.owners) > 0 {
			o := w.owners[w.rng.IntN(len(w.owners))]
			w.mu.Lock()
			o.want = w.rng.IntN(2*o.want + 1)
			w.mu.Unlock()
		}
	case 3: // another scheduler's pods land wherever there is room
		for range 1 + w.rng.IntN(3) {
			w.serial++
			p := builder.Pod(fmt.Sprintf("foreign-%d", w.serial)).UID(fmt.Sprintf("foreign-%d", w.serial)).CPU("500m").Memory("64Mi").Created(time.Now()).Scheduler("other").Obj()
			for _, n := range w.nodes() {
				if w.free(n.Name) >= millis(p) {
					p.Spec.NodeName = n.Name
					w.cluster.Put(p)
					w.onPod(w.ctx, p, false, true)
					break
				}
			}
		}
	}
	synctest.Wait()
}

// deploy creates an owner, whose pods come one by one.
func (w *world) deploy() {
	w.serial++
	o := &worldOwner{uid: types.UID(fmt.Sprintf("owner-%d", w.serial)), cpu: 250 * (1 + w.rng.Int64N(12)), want: 1 + w.rng.IntN(12), pods: map[types.UID]*corev1.Pod{}}
	w.mu.Lock()
	w.owners = append(w.owners, o)
	w.mu.Unlock()
}

// control has every owner create or delete one pod.
func (w *world) control() {
	for _, o := range w.owners {
		switch {
		case len(o.pods) < o.want:
			w.serial++
			name := fmt.Sprintf("%s-%d", o.uid, w.serial)
			p := builder.Pod(name).UID(name).Memory("64Mi").Created(time.Now().Truncate(time.Second)).
				OwnedBy(metav1.GroupVersionKind{Group: "apps", Version: "v1", Kind: "ReplicaSet"}, string(o.uid), string(o.uid)).Obj()
			p.Spec.Containers[0].Resources.Requests[corev1.ResourceCPU] = *resource.NewMilliQuantity(o.cpu, resource.DecimalSI)
			w.mu.Lock()
			o.pods[p.UID] = p
			w.queue = append(w.queue, p.UID)
			w.mu.Unlock()
			w.cluster.Put(p)
			w.onPod(w.ctx, p, false, true)
		case len(o.pods) > o.want:
			for _, p := range w.all() { // the list is sorted: the same seed deletes the same pod
				if o.pods[p.UID] != nil {
					w.deletePod(p)
					break
				}
			}
		}
	}
}

func (w *world) deletePod(p *corev1.Pod) {
	w.mu.Lock()
	for _, o := range w.owners {
		delete(o.pods, p.UID)
	}
	delete(w.parked, p.UID)
	w.mu.Unlock()
	w.cluster.Delete(p)
	w.onPod(w.ctx, p, true, false)
}

// schedule gives every pod of the active queue its cycle.
func (w *world) schedule() {
	for {
		w.mu.Lock()
		if len(w.queue) == 0 {
			w.mu.Unlock()
			w.Drained()
			synctest.Wait()
			w.mu.Lock()
			empty := len(w.queue) == 0
			w.mu.Unlock()
			if empty {
				return
			}
			continue
		}
		uid := w.queue[0]
		w.queue = w.queue[1:]
		queued := len(w.queue)
		w.mu.Unlock()
		w.Queued(queued)
		for _, p := range w.all() {
			if p.UID == uid && p.Spec.NodeName == "" {
				w.cycle(p)
			}
		}
	}
}

// cycle binds the pod to a node with room that is not kept for others, else offers it as PostFilter does.
func (w *world) cycle(p *corev1.Pod) {
	for _, n := range w.nodes() {
		if w.free(n.Name) < millis(p)+w.keptOn(n.Name, p) {
			continue
		}
		bound := p.DeepCopy()
		bound.Spec.NodeName = n.Name
		w.cluster.Put(bound)
		w.mu.Lock()
		for _, o := range w.owners {
			if o.pods[p.UID] != nil {
				o.pods[p.UID] = bound
			}
		}
		w.mu.Unlock()
		w.onPod(w.ctx, bound, false, true)
		return
	}
	w.mu.Lock()
	w.parked[p.UID] = time.Now() // the gate closes before the offer
	w.mu.Unlock()
	if parked, _ := w.Offer(p, func(node string) bool { return w.free(node) < millis(p) }); !parked {
		w.mu.Lock()
		delete(w.parked, p.UID)
		w.mu.Unlock()
		uid := p.UID
		w.after(time.Second, func() { // backoff
			w.mu.Lock()
			defer w.mu.Unlock()
			w.queue = append(w.queue, uid)
		})
	}
}

// keptOn is what the plugin's filter keeps for others on the node.
func (w *world) keptOn(node string, p *corev1.Pod) (sum int64) {
	if !w.Kept().Has(node) {
		return 0
	}
	for _, k := range w.Against(p, node) {
		sum += millis(k)
	}
	return sum
}

// all lists the pods by name.
func (w *world) all() []*corev1.Pod {
	pods, err := w.cluster.Pods().List(labels.Everything())
	if err != nil {
		w.t.Fatal(err)
	}
	sortPods(pods)
	return pods
}

// nodes lists the nodes pods can be bound to, by name.
func (w *world) nodes() []*corev1.Node {
	nodes, err := w.cluster.Nodes().List(labels.Everything())
	if err != nil {
		w.t.Fatal(err)
	}
	nodes = slices.DeleteFunc(nodes, func(n *corev1.Node) bool {
		return n.Status.Conditions[0].Status != corev1.ConditionTrue || w.leaves(n.Name)
	})
	slices.SortFunc(nodes, func(a, b *corev1.Node) int { return strings.Compare(a.Name, b.Name) })
	return nodes
}

func (w *world) leaves(node string) bool {
	for _, c := range w.claims {
		if c.node == node {
			return c.leaving
		}
	}
	return true
}

// free is what is left of the node's CPU in millicores; nothing if it is not there.
func (w *world) free(node string) int64 {
	n, err := w.cluster.Nodes().Get(node)
	if err != nil {
		return 0
	}
	left := n.Status.Allocatable.Cpu().MilliValue()
	for _, p := range w.all() {
		if p.Spec.NodeName == node {
			left -= millis(p)
		}
	}
	return left
}

func millis(p *corev1.Pod) int64 { return p.Spec.Containers[0].Resources.Requests.Cpu().MilliValue() }
