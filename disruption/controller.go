// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package disruption

import (
	"context"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	corelisters "k8s.io/client-go/listers/core/v1"
	policylisters "k8s.io/client-go/listers/policy/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Views are how the planner sees the cluster, with what it has planned and nobody else knows yet.
type Views interface {
	View(ctx context.Context) (*capacity.View, error)
	// Pod converts a pod as views do.
	Pod(pod *corev1.Pod) *capacity.Pod
}

// Seats are the places pods have been promised.
type Seats interface {
	// Awaited reports whether pods that are not bound yet were planned on the claim.
	Awaited(claim string) bool
	// Hold keeps places on claims that are on their way for pods that will move there; it replaces what was held before.
	Hold(held map[string][]*corev1.Pod)
	// Waits reports whether a pod is about to be planned; known is false for one that has not failed to be scheduled yet.
	Waits(pod types.UID) (waits, known bool)
	// Bought says that a claim was created a moment ago: views have it before the cache does.
	Bought(claim *karpv1.NodeClaim)
}

// Buffers is room that is to be there before pods ask for it. Views have it taken.
type Buffers interface {
	// KeptFree reports whether some of it is on the claim's node.
	KeptFree(claim string) bool
}

// Judge runs the scheduler's own filters.
type Judge interface {
	// Refused places the plan's pods, with the named nodes and their pods taken away, and returns why pods were refused.
	Refused(ctx context.Context, view *capacity.View, gone []string, r *plan.Result, pods map[types.UID]*corev1.Pod) (map[types.UID]string, error)
}

// Rival says who but Slipway owns the node classes of karpenter.k8s.aws, empty if nobody; view.Lease is one.
type Rival interface {
	Holder(ctx context.Context) (string, error)
}

// Instances is what EC2 says of the cluster's instances.
type Instances interface {
	ClusterInstances(ctx context.Context) ([]ec2.Instance, error)
}

// Events records events; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Indexer finds pods by index; a pod informer's is one, with [Indexers] added.
type Indexer interface {
	ByIndex(name, value string) ([]any, error)
}

// Admission says whether pods that are evicted would come back as they are.
type Admission interface {
	// Unhealthy is why they would not, empty if they would.
	Unhealthy(ctx context.Context) string
}

// Options are what a Controller needs. Judge, Instances, Rival and Admission may be nil: moves are then not judged, drift of what
// only EC2 knows is not found, all node classes are Slipway's, and nothing is known of admission.
type Options struct {
	// Kube reads NodePools, EC2NodeClasses and NodeClaims from a cache and writes.
	Kube client.Client
	// Live reads from the API server.
	Live      client.Reader
	Pods      Indexer
	Nodes     corelisters.NodeLister
	PDBs      policylisters.PodDisruptionBudgetLister
	Views     Views
	Seats     Seats
	Buffers   Buffers // nil for none
	Judge     Judge
	Instances Instances
	Rival     Rival
	Admission Admission
	// Replacement is the pod that will take a pod's place, as admission makes it; nil if that is the same pod.
	Replacement func(*corev1.Pod) *corev1.Pod
	Events      Events
	Clock       clock.WithTicker
	Metrics     *Metrics
	// Repair has broken nodes replaced (Karpenter's feature gate NodeRepair).
	Repair bool
	// Settle bounds the wait, after nodes were tainted, for pods that the scheduler may just be binding to them; none if 0.
	Settle time.Duration
}

// Pauses between passes.
const (
	// passEvery is the pause after which the cluster is looked at again in any case, passBusy the least pause while things change.
	passEvery = 10 * time.Second
	passBusy  = time.Second
	// instancesEvery is how often EC2 is asked about instances.
	instancesEvery = 5 * time.Minute
)

// Controller takes nodes away. Run it in one process at a time.
type Controller struct {
	Options
	memory *Memory
	loads  *loads
	kick   chan struct{}
	teller *teller

	mu sync.Mutex
	// mine are the records this process has written, by claim, until the cache shows them; dropped are the ids of commands it
	// has taken back and when, which the cache may still show.
	mine    map[string]*Record
	dropped map[string]time.Time
	// written are claims this process has created, with when, until the cache shows them.
	written map[string]writtenClaim
	// deleted are the UIDs of claims this process has deleted, until the cache shows it.
	deleted map[types.UID]bool
	// held are the places kept on replacements that are on their way.
	held map[string][]*corev1.Pod

	instances map[string]ec2.Instance
	asked     time.Time
	// rival is who else owns the classes of karpenter.k8s.aws, asksRival whether that was ever answered.
	rival      string
	rivalAsked time.Time
	asksRival  bool
}

type writtenClaim struct {
	pool string
	at   time.Time
}

// NodeIndex is the name of the index of pods by node.
const NodeIndex = "slipway.sh/disruption-node"

// Indexers are the indexes the pod informer has to have. Pods without a node are under "".
func Indexers() cache.Indexers {
	return cache.Indexers{NodeIndex: func(obj any) ([]string, error) {
		if p, ok := obj.(*corev1.Pod); ok {
			return []string{p.Spec.NodeName}, nil
		}
		return nil, nil
	}}
}

// New returns a controller; Run makes it work.
func New(o Options) *Controller {
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	return &Controller{
		Options: o, memory: NewMemory(), loads: newLoads(), kick: make(chan struct{}, 1), teller: newTeller(o.Events, o.Clock),
		mine: map[string]*Record{}, dropped: map[string]time.Time{}, written: map[string]writtenClaim{},
		deleted: map[types.UID]bool{},
	}
}

// Changed tells that something happened that may matter.
func (c *Controller) Changed() {
	select {
	case c.kick <- struct{}{}:
	default:
	}
}

// Run makes passes until ctx ends. A pass that fails is repeated after the usual pause.
func (c *Controller) Run(ctx context.Context) error {
	for {
		if err := c.Pass(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Error(err, "a disruption pass failed; it is repeated")
		}
		if !c.pause(ctx, passBusy, nil) || !c.pause(ctx, passEvery-passBusy, c.kick) {
			return nil
		}
	}
}

// pause waits for the time or, if there is one, the signal; false if ctx ends.
func (c *Controller) pause(ctx context.Context, d time.Duration, signal <-chan struct{}) bool {
	timer := c.Clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C():
	case <-signal:
	}
	return true
}

// Pass looks at the cluster once and does what there is to do. A panic is one more error: what a pass does wrong must not stop the
// scheduler, in whose process it runs.
func (c *Controller) Pass(ctx context.Context) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.Metrics.Panics.Inc()
			err = fmt.Errorf("the disruption pass panicked: %v\n%s", r, debug.Stack())
		}
	}()
	// 1. Observe.
	c.askRival(ctx)
	c.askInstances(ctx)
	s, err := c.observe(ctx)
	if err != nil {
		return err
	}
	// 2. Note what follows for each claim.
	c.note(ctx, s)
	// 3. Carry on what was begun.
	c.carryOn(ctx, s)
	c.scale(ctx, s)
	// 4. Decide.
	begun := c.Clock.Now()
	d := Decide(s, c.memory)
	c.Metrics.decided(&d, c.Clock.Since(begun))
	c.tell(s, &d)
	// 5. Start.
	c.start(ctx, d.Commands)
	if d.More {
		c.Changed()
	}
	return nil
}

// askInstances asks EC2 about the cluster's instances now and then. While it does not answer, what it said last counts.
func (c *Controller) askInstances(ctx context.Context) {
	if c.Instances == nil || c.instances != nil && c.Clock.Since(c.asked) < instancesEvery {
		return
	}
	list, err := c.Instances.ClusterInstances(ctx)
	if err != nil {
		log.FromContext(ctx).Info("instances could not be read; drift of what only EC2 knows is found later", "reason", err.Error())
		c.asked = c.Clock.Now()
		if c.instances == nil {
			c.instances = map[string]ec2.Instance{}
		}
		return
	}
	c.instances, c.asked = make(map[string]ec2.Instance, len(list)), c.Clock.Now()
	for _, i := range list {
		c.instances[i.ProviderID()] = i
	}
}
