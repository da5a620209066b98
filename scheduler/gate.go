// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scheduler

import (
	"context"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/klog/v2"
	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/utils/clock"
)

const (
	// nodePoll and nodePolls bound how long a release waits for the scheduler's
	// cache. Each informer handler has its own goroutine, so whoever releases may
	// have seen the node before the scheduler has; the gap is microseconds.
	nodePoll  = time.Millisecond
	nodePolls = 50
	// retryWindow and retryDelay give a released pod one more cycle before it is
	// offered again: the releasing side may watch nodes over another connection,
	// whose lead over the scheduler's cache nodePoll cannot see.
	retryWindow = time.Second
	retryDelay  = 5 * time.Millisecond
	// rememberFor is how long a pod that is not parked stays known, at least: longer than the scheduler lets an unschedulable
	// pod lie (five minutes and a half), after which the pod has another cycle and is new here. A release meanwhile finds it.
	rememberFor = 10 * time.Minute
	// sweepsPerDeadline is how finely the deadline is checked.
	sweepsPerDeadline = 10
)

// Gate keeps pods that wait for capacity out of the scheduling queue's way. It
// is made once a process, shared by all profiles, and safe for concurrent use.
type Gate struct {
	clock clock.WithTickerAndDelayedExecution

	mu        sync.Mutex
	deadline  time.Duration
	pods      map[types.UID]*gatedPod
	closed    int
	activator fwk.PodActivator
	// current reports whether the scheduler's cache shows a node as its informer
	// does. Nil means nobody can tell, and nothing is waited for.
	current func(node string) bool
	// first are the profiles whose pods buy nodes rather than preempt.
	first map[string]bool
}

// gatedPod is a pod that is or was parked. It stays known after its release
// until it is bound or deleted, so that a lost race is told from a new failure.
type gatedPod struct {
	pod      *corev1.Pod
	node     string
	closed   bool
	since    time.Time // of the last change of closed
	released bool      // opened by Release, and not tried again since
	refused  bool      // not parked by the sink
	// booked is set while the scheduler's own handling of the pod's failure is still to come; it writes the nomination too.
	booked bool
	held   *heldWrite // nil for none
}

// NewGate returns an open gate. deadline is how long a pod may stay parked
// before it gets one more scheduling cycle, unless the plugin's arguments say
// otherwise; it must be positive.
func NewGate(c clock.WithTickerAndDelayedExecution, deadline time.Duration) *Gate {
	return &Gate{clock: c, deadline: deadline, pods: map[types.UID]*gatedPod{}}
}

// Run enforces the deadline until ctx ends. Call it once the profiles are built.
func (g *Gate) Run(ctx context.Context) {
	g.mu.Lock()
	deadline := g.deadline
	g.mu.Unlock()
	ticker := g.clock.NewTicker(deadline / sweepsPerDeadline)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C():
			if n := g.sweep(); n > 0 {
				klog.FromContext(ctx).Info("Released pods that waited longer than the gate deadline", "pods", n, "deadline", deadline)
			}
		}
	}
}

// Release opens the gate of the pods and puts them into the active queue, past
// any backoff. A pod with a reserved node is held until the scheduler's cache
// has the node, for 50 ms at most. A pod that was refused and is not parked is put
// there too. Unknown pods are ignored.
func (g *Gate) Release(uids ...types.UID) {
	g.mu.Lock()
	current := g.current
	byNode, open := map[string][]types.UID{}, map[string]*corev1.Pod{}
	for _, uid := range uids {
		switch p, ok := g.pods[uid]; {
		case !ok:
		case p.closed:
			byNode[p.node] = append(byNode[p.node], uid)
		case p.refused:
			open[framework.GetPodNamespacedName(p.pod)] = p.pod
		}
	}
	activator := g.activator
	g.mu.Unlock()
	if activator != nil && len(open) > 0 {
		activator.Activate(klog.Background(), open)
	}

	var ready []types.UID
	for node, pods := range byNode {
		if node == "" || current == nil || current(node) {
			ready = append(ready, pods...)
			continue
		}
		g.releaseWhenCurrent(current, node, pods, nodePolls)
	}
	g.open(ready, true)
}

// Reserve remembers the node a parked pod waits for. carried says that the pod's status is written now or in a moment
// anyway, and the nomination with it. Unknown pods are ignored.
func (g *Gate) Reserve(uid types.UID, node string) (carried bool) {
	g.mu.Lock()
	p, ok := g.pods[uid]
	if !ok {
		g.mu.Unlock()
		return false
	}
	p.node = node
	carried = p.booked
	held := p.held
	p.drop()
	g.mu.Unlock()
	if held != nil {
		held.do(node)
		return true
	}
	return carried
}

// book notes that a parked pod's failure is handled later, and reports whether the pod is parked.
func (g *Gate) book(uid types.UID) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.pods[uid]
	if !ok || !p.closed {
		return false
	}
	p.booked = true
	return true
}

// settle ends what book began and returns the node the pod has got meanwhile.
func (g *Gate) settle(uid types.UID) (node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	p, ok := g.pods[uid]
	if !ok {
		return ""
	}
	p.booked = false
	return p.node
}

// Forget drops a pod that is bound or gone.
func (g *Gate) Forget(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.pods[uid]; ok {
		if p.closed {
			g.closed--
		}
		p.drop()
		delete(g.pods, uid)
	}
}

// pass notes that a pod is not parked after all.
func (g *Gate) pass(uid types.UID) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.pods[uid]; ok && p.closed {
		p.closed, p.since, p.released, p.refused = false, g.clock.Now(), false, true
		p.drop()
		g.closed--
	}
}

// Parked lists the pods that have been parked for at least that long.
func (g *Gate) Parked(atLeast time.Duration) []types.UID {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	var out []types.UID
	for uid, p := range g.pods {
		if p.closed && now.Sub(p.since) >= atLeast {
			out = append(out, uid)
		}
	}
	return out
}

// Closed returns how many pods are parked.
func (g *Gate) Closed() int {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.closed
}

// entry is what a failed pod meets at the gate.
type entry int

const (
	// entryNew: the pod is to be offered.
	entryNew entry = iota
	// entryRetry: the pod lost a race with its node and gets another cycle by itself.
	entryRetry
)

// enter closes the gate of a pod whose scheduling cycle failed. The gate closes
// before the pod is offered: a release may follow the offer at any time, and
// must not be lost.
func (g *Gate) enter(pod *corev1.Pod) entry {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.clock.Now()
	p, ok := g.pods[pod.UID]
	if !ok {
		g.pods[pod.UID] = &gatedPod{pod: pod, closed: true, since: now}
		g.closed++
		return entryNew
	}
	retry := p.released && p.node != "" && now.Sub(p.since) < retryWindow
	if !p.closed {
		g.closed++
	}
	p.pod, p.closed, p.since, p.released, p.refused = pod, true, now, false, false
	p.drop()
	if !retry {
		p.node = ""
		return entryNew
	}
	uid := pod.UID
	g.clock.AfterFunc(retryDelay, func() { g.open([]types.UID{uid}, false) })
	return entryRetry
}

// state returns whether the pod is parked, and for which node.
func (g *Gate) state(uid types.UID) (closed bool, node string) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if p, ok := g.pods[uid]; ok {
		return p.closed, p.node
	}
	return false, ""
}

func (g *Gate) isClosed(uid types.UID) bool {
	closed, _ := g.state(uid)
	return closed
}

func (g *Gate) releaseWhenCurrent(current func(string) bool, node string, uids []types.UID, polls int) {
	if polls == 0 || current(node) {
		g.open(uids, true)
		return
	}
	g.clock.AfterFunc(nodePoll, func() { g.releaseWhenCurrent(current, node, uids, polls-1) })
}

// open opens the gates and activates the pods, in this order and with no lock
// held in between: PreEnqueue of the activated pods must find them open.
func (g *Gate) open(uids []types.UID, released bool) {
	if len(uids) == 0 {
		return
	}
	g.mu.Lock()
	now, activator := g.clock.Now(), g.activator
	pods := make(map[string]*corev1.Pod, len(uids))
	for _, uid := range uids {
		p, ok := g.pods[uid]
		if !ok || !p.closed {
			continue
		}
		p.closed, p.since, p.released = false, now, released
		p.drop()
		g.closed--
		pods[framework.GetPodNamespacedName(p.pod)] = p.pod
	}
	g.mu.Unlock()
	if activator != nil && len(pods) > 0 {
		activator.Activate(klog.Background(), pods)
	}
}

// sweep opens the gates that have been closed for the deadline. Such a pod is
// not marked as released: its next failure is a failure, not a race. Pods that
// have been open for long are dropped: a pod deleted during its cycle enters
// after the last event about it.
func (g *Gate) sweep() int {
	g.mu.Lock()
	now := g.clock.Now()
	var late []types.UID
	for uid, p := range g.pods {
		switch unchanged := now.Sub(p.since); {
		case p.closed && unchanged >= g.deadline:
			late = append(late, uid)
		case !p.closed && unchanged >= max(g.deadline, rememberFor):
			delete(g.pods, uid)
		}
	}
	g.mu.Unlock()
	g.open(late, false)
	return len(late)
}
