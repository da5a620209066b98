// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

const (
	// LaunchGroupAnnotation is [capacity.LaunchGroupAnnotation].
	LaunchGroupAnnotation = capacity.LaunchGroupAnnotation
	// NodeNameAnnotation on a NodeClaim is the name its Node will have, known before the Node exists.
	NodeNameAnnotation = "slipway.sh/node-name"
	// AllocationStrategyAnnotation on a NodeClaim (set it in NodePool spec.template.metadata.annotations) with the value
	// "prioritized" makes EC2 go by price alone, on-demand strictly and spot as far as capacity allows, instead of weighing
	// spot prices against the depth of their pools.
	AllocationStrategyAnnotation = "slipway.sh/allocation-strategy"
)

// Cloud buys instances and describes them. Errors carry a [capacity.Kind].
type Cloud interface {
	Fleet(ctx context.Context, req ec2.FleetRequest) (ec2.FleetResult, error)
	// Describe returns the instances that EC2 knows; kind NotFound if it does not know one of them (yet).
	Describe(ctx context.Context, ids []string) ([]ec2.Instance, error)
	// DescribeByTag returns the instances, terminated ones included, whose tag has one of the values.
	DescribeByTag(ctx context.Context, key string, values []string) ([]ec2.Instance, error)
}

// Catalogs says what can be bought for a node class; it never waits. The answer is nil while nothing is known.
type Catalogs interface {
	For(class *v1.EC2NodeClass) *capacity.Catalog
}

// Shortages remembers which offerings EC2 is out of.
type Shortages interface {
	Mark(keys ...capacity.OfferingKey)
	Out(key capacity.OfferingKey) bool
}

// Slots counts the free places of capacity reservations; [ec2.Slots] does.
type Slots interface {
	// Take books up to n places and returns how many there were.
	Take(reservation string, n int32) int32
	// Return gives back places that were taken and not used.
	Return(reservation string, n int32)
	// Exhausted records that EC2 found the reservation full.
	Exhausted(reservation string)
}

// Reporter learns how launches end.
type Reporter interface {
	// Found is called when EC2 has said which instance the claim got, before the claim says so: whoever lets pods onto the
	// node has to read it there, so nobody can be on the node before Found has returned. nodeName is the name the Node will
	// have, empty if EC2 did not say in time. It must not block.
	Found(claim, providerID, nodeName string)
	// Report is called once for every claim that got its instance and every claim whose launch was given up, and in
	// between (Outcome.Retrying) when a launch is stuck on a cause that time alone does not cure. It must not block.
	Report(outcome Outcome)
}

// Events records events on claims; events.EventRecorder is one.
type Events interface {
	Eventf(regarding, related runtime.Object, eventtype, reason, action, note string, args ...any)
}

// Outcome is how the launch of one claim ended.
type Outcome struct {
	// Claim is the claim as it was last written, not to be modified.
	Claim *karpv1.NodeClaim
	// Err is why there is no instance, with its kind; nil if there is one.
	Err error
	// Retrying says that the launch goes on in spite of Err.
	Retrying bool
	// NodeName is the name the Node will have, empty if EC2 did not say in time.
	NodeName string
	Instance ec2.Instance
	// Price of the offering in US dollars an hour, 0 if unknown.
	Price   float64
	Timings Timings
}

// Timings are the instants of a launch; zero where it did not get that far. Sent and Answered are those of the attempt
// that brought the instance.
type Timings struct {
	HandedOver, Sent, Answered, Described, Patched time.Time
}

// Options are what a [Launcher] needs. Kube, Cloud, Catalogs, Shortages, Templates and Subnets are required.
type Options struct {
	// Kube reads NodeClaims, NodePools and EC2NodeClasses from a cache and writes claims.
	Kube client.Client
	// Live reads NodeClaims from the API server, for writes that the cache is too old for: after an outage of the API server it
	// may lag for half a minute. Nil reads from Kube.
	Live      client.Reader
	Cloud     Cloud
	Catalogs  Catalogs
	Shortages Shortages
	Templates *Templates
	Subnets   *Subnets
	Slots     Slots   // places in capacity reservations; nil launches into none
	Tagger    *Tagger // background tags (Name, nodeclaim); nil for none
	Reporter  Reporter
	Events    Events
	Clock     clock.Clock
	Metrics   *Metrics
	// Rival says who but Slipway launches claims whose class is not of Slipway's own group, empty if nobody; nil is nobody ever.
	Rival func() string
	// ClusterName and Region go into tags and labels.
	ClusterName, Region string
	// Timeout ends a launch without an instance; 5 minutes (Karpenter's launch timeout) if 0.
	Timeout time.Duration
	// AdoptAfter is how long a claim seen in the watch is left to the process that created it; 1 second if 0.
	AdoptAfter time.Duration
	// Settle is the pause before looking again for the instances of a call that another process sent; 5 seconds if 0.
	Settle time.Duration
}

// Launcher launches NodeClaims. Its methods are safe for concurrent use.
type Launcher struct {
	Options
	// patches bounds the API writes under way.
	patches  chan struct{}
	arrivals *arrivals

	// busy is how many launches are at work, not counting those that wait to try again.
	busy atomic.Int64

	mu sync.Mutex
	// claims has every claim whose launch began here, until the claim is gone or its provider id is seen in the cache.
	claims map[types.UID]*pending
	// over says when claims were seen to need no launch any more: they have an instance, are being deleted or gone. Who has
	// read such a claim before that, and comes with it now, is too late.
	over memory
	// runs are the launches under way by launch id, past what is known of those that are over.
	runs map[string]*run
	past map[string]pastRun
	// changed is closed and replaced when a class or pool changes.
	changed chan struct{}
}

// pending is a claim whose launch began here.
type pending struct {
	claim  *karpv1.NodeClaim
	handed time.Time
	// gone is set when the claim is being deleted.
	gone atomic.Bool
}

// New returns a launcher. [Launcher.Run] has to be running for claims of others to be launched.
func New(o Options) *Launcher {
	o.Timeout = cmp.Or(o.Timeout, 5*time.Minute)
	o.AdoptAfter = cmp.Or(o.AdoptAfter, time.Second)
	o.Settle = cmp.Or(o.Settle, 5*time.Second)
	if o.Clock == nil {
		o.Clock = clock.RealClock{}
	}
	if o.Metrics == nil {
		o.Metrics = NewMetrics()
	}
	l := &Launcher{
		Options: o,
		patches: make(chan struct{}, 64),
		claims:  map[types.UID]*pending{},
		over:    memory{at: map[types.UID]time.Time{}},
		runs:    map[string]*run{},
		past:    map[string]pastRun{},
		changed: make(chan struct{}),
	}
	l.arrivals = &arrivals{l: l, groups: map[string]*arrival{}}
	return l
}

// Launch starts the launch of claims that the caller has just created, as the API server returned them, and returns at
// once. Claims whose launch is under way or done, that have an instance or that belong to another provider are left alone.
// ctx has to live as long as this process leads; results go to the [Reporter].
func (l *Launcher) Launch(ctx context.Context, claims []*karpv1.NodeClaim) {
	now := l.Clock.Now()
	l.Templates.learn(claims)
	for _, g := range groups(claims, true) {
		l.start(ctx, g, now, launched{fresh: true})
	}
}

// launched is what is known about a launch id before this process does anything for it.
type launched struct {
	// fresh says that no other process can have sent anything for it.
	fresh bool
	// instances exist with its tag; those in owned belong to claims that are complete, of which there are total.
	instances []ec2.Instance
	owned     map[string]bool
	total     int
}

// group is a set of claims that share a launch.
type group struct {
	id     string
	claims []*karpv1.NodeClaim
}

// groups sorts claims that need an instance by launch id. trusted says that whoever set the group id is known to have set it
// on equal claims only; otherwise a claim that differs from the first of its group, because somebody has copied the
// annotation, is launched alone.
func groups(claims []*karpv1.NodeClaim, trusted bool) []group {
	byID := map[string]int{}
	var out []group
	for _, c := range claims {
		if !capacity.Managed(c.Spec.NodeClassRef) || c.Status.ProviderID != "" || c.DeletionTimestamp != nil {
			continue
		}
		id := launchID(c)
		if i, ok := byID[id]; ok {
			if trusted || equality.Semantic.DeepEqual(c.Spec, out[i].claims[0].Spec) {
				out[i].claims = append(out[i].claims, c)
				continue
			}
			id = string(c.UID)
		}
		byID[id] = len(out)
		out = append(out, group{id: id, claims: []*karpv1.NodeClaim{c}})
	}
	return out
}

// start begins the launch of the group's claims that are not known yet, or adds them to the launch under way.
func (l *Launcher) start(ctx context.Context, g group, now time.Time, before launched) {
	l.mu.Lock()
	defer l.mu.Unlock()
	var fresh []*pending
	for _, c := range g.claims {
		if l.claims[c.UID] != nil || l.over.has(c.UID) {
			continue
		}
		p := &pending{claim: c, handed: now}
		l.claims[c.UID] = p
		fresh = append(fresh, p)
	}
	if len(fresh) == 0 {
		return
	}
	slices.SortFunc(fresh, func(a, b *pending) int { return strings.Compare(a.claim.Name, b.claim.Name) })
	if r := l.runs[g.id]; r != nil {
		r.inbox = append(r.inbox, fresh...)
		return
	}
	r := newRun(l, g.id, fresh, before)
	if past, ok := l.past[g.id]; ok {
		r.resume(past)
	}
	l.runs[g.id] = r
	l.busy.Add(1)
	go func() {
		defer l.busy.Add(-1)
		r.do(ctx)
	}()
}

// forget drops what is remembered about a claim that is gone or complete, but that it is.
func (l *Launcher) forget(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over.add(uid, l.Clock.Now())
	if p := l.claims[uid]; p != nil {
		p.gone.Store(true)
		delete(l.claims, uid)
	}
}

// abandon tells the launch under way, if any, that the claim is being deleted.
func (l *Launcher) abandon(uid types.UID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.over.add(uid, l.Clock.Now())
	if p := l.claims[uid]; p != nil {
		p.gone.Store(true)
	}
}

// known reports whether the claim's launch began here.
func (l *Launcher) known(uid types.UID) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.claims[uid] != nil
}

// Drain waits until no launch is at work: no request is under way and no instance's claim is still to be written. Launches
// that wait to try again are not waited for; whoever leads next goes on with them. False if ctx ends first.
func (l *Launcher) Drain(ctx context.Context) bool {
	for l.busy.Load() > 0 {
		timer := l.Clock.NewTimer(drainPoll)
		select {
		case <-ctx.Done():
			timer.Stop()
			return false
		case <-timer.C():
		}
	}
	return true
}

// drainPoll is how often Drain looks.
const drainPoll = 10 * time.Millisecond

// Changed tells waiting launches that a node class or pool has changed, so that what they wait for may be there now.
func (l *Launcher) Changed() {
	l.mu.Lock()
	defer l.mu.Unlock()
	close(l.changed)
	l.changed = make(chan struct{})
}

func (l *Launcher) change() <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.changed
}
