// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"sync"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Gate lets parked pods go.
type Gate interface {
	// Release opens the gate for the pods and has them tried at once.
	Release(uids ...types.UID)
	// Reserve remembers the node a parked pod waits for. carried says that the scheduler is about to write the pod's status
	// anyway and will write this nomination with it.
	Reserve(uid types.UID, node string) (carried bool)
	// Parked lists the pods that have been parked for at least that long.
	Parked(atLeast time.Duration) []types.UID
}

// Nominator writes status.nominatedNodeName, once a pod.
type Nominator interface {
	Nominate(ctx context.Context, pod types.NamespacedName, uid types.UID, node string) error
}

// Launcher launches claims the caller has just created; it returns at once.
type Launcher interface {
	Launch(ctx context.Context, claims []*karpv1.NodeClaim)
}

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Options are what a Provisioner needs. All but Live, Judge, Owners, Buffers and Metrics are required.
type Options struct {
	// Kube reads NodePools, EC2NodeClasses and NodeClaims from a cache and writes NodeClaims.
	Kube client.Client
	// Live reads NodeClaims from the API server, once, when this process begins to lead; nil to read them from Kube.
	Live      client.Reader
	Pods      corelisters.PodLister
	Views     *view.Builder
	Gate      Gate
	Nominator Nominator
	Launcher  Launcher
	Events    Events
	Judge     Judge
	// Owners look ahead; nil for no look-ahead. LookAhead bounds the seats of one step.
	Owners    Owners
	LookAhead int
	// Buffers ask for room to be kept free; nil for none.
	Buffers Buffers
	// Serve are the names of other schedulers whose unschedulable pods are bought for too.
	Serve   sets.Set[string]
	Clock   clock.WithTicker
	Metrics *Metrics
	Batch   demand.Options
	Logger  logr.Logger
}

// Provisioner buys nodes for pods that fit nowhere. Offer and Drained may be called before Run.
type Provisioner struct {
	Options
	batch  *demand.Batcher
	ledger *ledger
	lead   chan struct{} // closed when this process leads
	once   sync.Once
	kick   chan struct{} // holds a token when unplaced pods should be planned again
	enough chan struct{} // closed when no further batch is to be planned
	nodes  corelisters.NodeLister
	ended  chan struct{} // closed when Run has ended
	serial int           // of the last seat; used by Run only
	began  time.Time     // when Run did; used by Run only
	// steps keeps plans that buy from being made at the same time: each has to see what the one before has bought.
	steps sync.Mutex
	// nominated limits Nominated events to Karpenter's 5 a second, 10 at once.
	nominated *rate.Limiter

	mu sync.Mutex
	// recent are claims created here that the cache does not show yet, by name, with when they were created.
	recent map[string]recentClaim
	// found are the instances of claims that pods wait for and whose status, as the cache has it, does not tell yet.
	found map[string]instance
	// byProvider maps provider IDs to claim names.
	byProvider map[string]string
	// planning are the pods of the batch that is being planned.
	planning map[types.UID]bool
	freed    *freed
	// adopted says that the claims of an earlier process have been taken over.
	adopted bool
	// held are stand-ins for pods that will move to claims on their way, see Hold.
	held map[string][]*corev1.Pod
	// free are the chunks of buffers on each claim.
	free map[string][]*corev1.Pod
}

// instance is what a claim's status is going to say.
type instance struct{ providerID, nodeName string }

type recentClaim struct {
	claim   *karpv1.NodeClaim
	created time.Time
}

// recentFor is how long a claim is believed to exist although the cache does not show it. A watch that lags longer than
// that is broken; a claim that was deleted in the meantime must not be counted for ever.
const recentFor = 30 * time.Second

// New returns a provisioner; Run makes it work.
func New(o Options) *Provisioner {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Provisioner{
		Options:    o,
		batch:      demand.New(o.Clock, o.Batch),
		ledger:     newLedger(),
		lead:       make(chan struct{}),
		kick:       make(chan struct{}, 1),
		enough:     make(chan struct{}),
		ended:      make(chan struct{}),
		nominated:  rate.NewLimiter(5, 10),
		recent:     map[string]recentClaim{},
		found:      map[string]instance{},
		byProvider: map[string]string{},
		freed:      newFreed(),
	}
}

// Offer takes a pod that fits on no node. It is called in the scheduling cycle and does no I/O. parked says that the pod
// waits for capacity; node is the node reserved for it, "" while that is not known. taken, if not nil, tells whether other
// pods have the room of a node: a pod whose node is taken is planned anew without waiting for it to come free.
func (p *Provisioner) Offer(pod *corev1.Pod, taken func(node string) bool) (parked bool, node string) {
	parked, node, fresh := p.ledger.offer(pod, p.Clock.Now(), taken)
	if fresh {
		p.batch.Add(pod)
	}
	return parked, node
}

// Leading tells that this process schedules from now on. Run waits for it.
func (p *Provisioner) Leading() {
	p.once.Do(func() { close(p.lead) })
}

func (p *Provisioner) leads() bool {
	select {
	case <-p.lead:
		return true
	default:
		return false
	}
}

// AwaitLead waits until this process leads; false if ctx ends first.
func (p *Provisioner) AwaitLead(ctx context.Context) bool {
	select {
	case <-ctx.Done():
		return false
	case <-p.lead:
		return true
	}
}

// Drained tells that the scheduler's active queue is empty.
func (p *Provisioner) Drained() { p.batch.Drained() }

// Queued tells how many pods are in it.
func (p *Provisioner) Queued(n int) { p.batch.Queued(n) }

// Drain has Run end with the batch it is planning and waits for that; false if ctx ends first. To be called once. Pods that
// are offered from then on are left to the process that leads next.
func (p *Provisioner) Drain(ctx context.Context) bool {
	close(p.enough)
	if !p.leads() {
		return true // nothing was ever begun
	}
	select {
	case <-p.ended:
		return true
	case <-ctx.Done():
		return false
	}
}

// Run plans batches until ctx ends or Drain is called. Before the first one it takes over what an earlier process has begun.
func (p *Provisioner) Run(ctx context.Context) error {
	if !p.AwaitLead(ctx) {
		return nil
	}
	if err := p.adopt(ctx); err != nil {
		return err
	}
	if err := p.serveAll(); err != nil {
		return err
	}
	p.began = p.Clock.Now()
	defer close(p.ended)
	go p.retry(ctx)
	go p.sweep(ctx)
	go p.refill(ctx)
	if p.Buffers != nil {
		go p.keepFree(ctx)
	}
	intake, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		select {
		case <-p.enough:
			stop()
		case <-intake.Done():
		}
	}()
	for {
		batch, err := p.batch.Next(intake)
		switch {
		case err != nil:
			return nil
		case batch.Open:
			p.early(ctx, batch)
		default:
			p.step(ctx, batch.Pods)
		}
	}
}

// retry puts unplaced pods back into the batch when something has changed or their time has come.
func (p *Provisioner) retry(ctx context.Context) {
	tick := p.Clock.NewTicker(firstRetry / 4)
	defer tick.Stop()
	for {
		all := false
		select {
		case <-ctx.Done():
			return
		case <-p.kick:
			all = true
		case <-tick.C():
		}
		if pods := p.ledger.due(p.Clock.Now(), all); len(pods) > 0 {
			log.FromContext(ctx).V(1).Info("planning unplaced pods again", "batch", len(pods), "changed", all)
			p.batch.Requeue(pods...)
		}
		for pod, node := range p.ledger.refused() {
			p.Events.Eventf(pod, nil, corev1.EventTypeWarning, "FailedScheduling", "Provisioning",
				"node %q was bought for the pod, as was one before it, and the scheduler refuses both: no other is bought for now; the scheduler's own events say what keeps the pod off", node)
			log.FromContext(ctx).Info("nodes bought for a pod refuse it, none is bought for a while", "pod", pod.Namespace+"/"+pod.Name, "node", node)
		}
		p.expireRecent()
		p.Metrics.count(p.ledger.counts())
	}
}

// Changed tells that a pool, class, catalogue or anything else that could let an unplaced pod fit has changed.
func (p *Provisioner) Changed() {
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// remember keeps claims that were just created in sight until the cache shows them.
func (p *Provisioner) remember(c *karpv1.NodeClaim) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.recent[c.Name] = recentClaim{claim: c, created: p.Clock.Now()}
}

// disown forgets a claim that was remembered and is not there.
func (p *Provisioner) disown(claim string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.recent, claim)
}

func (p *Provisioner) recentClaims() []*karpv1.NodeClaim {
	p.mu.Lock()
	defer p.mu.Unlock()
	out := make([]*karpv1.NodeClaim, 0, len(p.recent))
	for _, r := range p.recent {
		out = append(out, r.claim)
	}
	return out
}

func (p *Provisioner) isRecent(claim string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	_, ok := p.recent[claim]
	return ok
}

func (p *Provisioner) expireRecent() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := p.Clock.Now()
	for name, r := range p.recent {
		if now.Sub(r.created) > recentFor {
			delete(p.recent, name)
		}
	}
}

// Report takes the outcome of a launch.
func (p *Provisioner) Report(o launch.Outcome) { go p.report(o) }
