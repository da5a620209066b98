// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/plan"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// maxAnswers bounds the answers an oracle keeps.
const maxAnswers = 8192

const (
	// patienceOfOracle is how long one review looks for a place, poolsAtOnce how many pools it looks at before it asks for the time again.
	patienceOfOracle = 1500 * time.Microsecond
	poolsAtOnce      = 8
)

// Oracle says whether a pod can ever run: on a node that is there, or on one that a pool may buy. It asks the planner
// itself, on a view without pods, limits and shortages, because those pass. Answers are kept by class of pod for as long
// as the oracle lives, which is until pools, classes, nodes or the catalogue change.
type Oracle struct {
	view  *capacity.View
	clock clock.PassiveClock
	// fresh makes a converter of pods. One remembers every class it has made, so it is thrown away with the answers.
	fresh func() Converter
	// memo is what the planner has worked out of the view's pools.
	memo *plan.Memo

	asked atomic.Int64

	mu      sync.RWMutex
	pod     Converter
	answers map[string]*answer
}

// answer is what is known of a class of pods. Where they could run takes as long again to find out as whether, and few rules
// ask, so it is found out when one does.
type answer struct {
	class *capacity.Class

	mu    sync.Mutex
	known bool
	short rules.Feasibility
	// bought says that a node has to be bought.
	bought bool
	// tried and next are how far looking has come, nearest is what has blocked so far.
	tried   bool
	next    int
	nearest *plan.Unplaced

	once sync.Once
	long rules.Feasibility
}

// Converter makes of a pod what the planner works on.
type Converter func(*corev1.Pod) *capacity.Pod

// NewOracle makes an oracle of a view of the cluster; fresh makes converters as the view's builder has one. before is the
// oracle whose place it takes, nil if there is none.
func NewOracle(v *capacity.View, fresh func() Converter, c clock.PassiveClock, before *Oracle) *Oracle {
	open := &capacity.View{}
	for _, p := range v.Pools {
		q := *p
		q.Limits, q.LimitNodes, q.Usage, q.Nodes, q.Reservations = nil, nil, capacity.Resources{}, 0, nil
		if q.Catalog != nil {
			q.Available = capacity.FullSet(len(q.Catalog.Offerings))
		}
		open.Pools = append(open.Pools, &q)
	}
	for _, n := range v.Nodes {
		if n.Phase == capacity.Usable || n.Phase == capacity.Launched {
			m := *n
			m.Pods, m.Terminating = nil, nil
			open.Nodes = append(open.Nodes, &m)
		}
	}
	var known *plan.Memo
	if before != nil {
		known = before.memo
	}
	return &Oracle{view: open, clock: c, fresh: fresh, pod: fresh(), answers: map[string]*answer{}, memo: plan.NewMemo(open.Pools, known)}
}

// Feasible answers for pods made from a template, without saying where. What depends on other pods, volumes or devices is not
// looked at and makes a yes an "unknown"; a no without it stays one. So is what would take too long to find out: the next one who
// asks about such pods goes on from there.
func (o *Oracle) Feasible(_ string, t *corev1.PodTemplateSpec) rules.Feasibility {
	a, whole := o.answer(t)
	return lessSure(a.short, whole)
}

// Where answers with all there is to say.
func (o *Oracle) Where(_ string, t *corev1.PodTemplateSpec) rules.Feasibility {
	a, whole := o.answer(t)
	if a.short.Answer != rules.Yes {
		return a.short
	}
	a.of.once.Do(func() { a.of.long = o.places(a.of) })
	return lessSure(a.of.long, whole)
}

// said is an answer at one instant.
type said struct {
	short rules.Feasibility
	of    *answer
}

func lessSure(f rules.Feasibility, whole bool) rules.Feasibility {
	if f.Answer == rules.Yes && !whole {
		f.Answer = rules.Unknown
	}
	return f
}

// answer finds or makes the answer for pods of the template; whole says whether it is about all of the pod.
func (o *Oracle) answer(t *corev1.PodTemplateSpec) (a said, whole bool) {
	if !slices.ContainsFunc(o.view.Pools, func(p *capacity.Pool) bool { return p.Blocked == "" && p.Catalog != nil }) {
		return said{short: rules.Feasibility{Answer: rules.Unknown}}, true // nothing is ready: no time to judge pods
	}
	bare, whole := reduce(t)
	bare.Generation = o.asked.Add(1) // tells pods without a UID apart
	o.mu.RLock()
	pod := o.pod(bare)
	of, ok := o.answers[pod.Class.ID]
	o.mu.RUnlock()
	if !ok {
		of = o.remember(pod.Class)
	}
	return said{o.look(of, pod), of}, whole
}

// remember makes room for the answer about a class, unless somebody else just has.
func (o *Oracle) remember(c *capacity.Class) *answer {
	o.mu.Lock()
	defer o.mu.Unlock()
	if a, ok := o.answers[c.ID]; ok {
		return a
	}
	if len(o.answers) >= maxAnswers {
		clear(o.answers)
		o.pod = o.fresh()
	}
	a := &answer{class: c}
	o.answers[c.ID] = a
	return a
}

// reduce leaves out of the pod what depends on anything but the pod and the node; whole is false if there was such a thing.
func reduce(t *corev1.PodTemplateSpec) (pod *corev1.Pod, whole bool) {
	spec := t.Spec // shallow: only fields of the copy are replaced
	whole = len(spec.ResourceClaims) == 0
	spec.ResourceClaims, spec.SchedulingGates, spec.NodeName = nil, nil, ""
	if len(spec.TopologySpreadConstraints) > 0 {
		whole = whole && !slices.ContainsFunc(spec.TopologySpreadConstraints, func(c corev1.TopologySpreadConstraint) bool {
			return c.WhenUnsatisfiable == corev1.DoNotSchedule
		})
		spec.TopologySpreadConstraints = nil
	}
	if a := spec.Affinity; a != nil && (a.PodAffinity != nil || a.PodAntiAffinity != nil) {
		whole = whole && (a.PodAffinity == nil || len(a.PodAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0) &&
			(a.PodAntiAffinity == nil || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0)
		spec.Affinity = &corev1.Affinity{NodeAffinity: a.NodeAffinity}
	}
	if slices.ContainsFunc(spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil }) {
		whole, spec.Volumes = false, nil
	}
	spec.Containers, spec.InitContainers = limitsAsked(spec.Containers), limitsAsked(spec.InitContainers)
	// Labels tell pods of different workloads apart and matter to rules about other pods only.
	return &corev1.Pod{Spec: spec}, whole
}

// limitsAsked makes limits requests where there is none, as the API server does with pods and not with templates.
func limitsAsked(in []corev1.Container) []corev1.Container {
	var out []corev1.Container
	for i := range in {
		r := in[i].Resources
		if !slices.ContainsFunc(slices.Collect(maps.Keys(r.Limits)), func(name corev1.ResourceName) bool { _, ok := r.Requests[name]; return !ok }) {
			continue
		}
		if out == nil {
			out = slices.Clone(in)
		}
		asked := maps.Clone(r.Limits)
		maps.Copy(asked, r.Requests)
		out[i].Resources.Requests = asked
	}
	if out == nil {
		return in
	}
	return out
}

// look goes on looking for a place until there is an answer or the time is over. It puts the pod to the planner: with one pool that
// seems to hold it first, and only if that is a mistake with the others, some at a time.
func (o *Oracle) look(a *answer, pod *capacity.Pod) rules.Feasibility {
	a.mu.Lock()
	defer a.mu.Unlock()
	start := o.clock.Now()
	if !a.known && !a.tried {
		a.tried = true
		if i := slices.IndexFunc(o.view.Pools, func(p *capacity.Pool) bool { return o.sells(p, a.class) }); i >= 0 {
			o.put(a, pod, o.view.Pools[i:i+1])
		}
	}
	for !a.known {
		if o.clock.Since(start) >= patienceOfOracle {
			return rules.Feasibility{Answer: rules.Unknown}
		}
		some := o.view.Pools[a.next:min(a.next+poolsAtOnce, len(o.view.Pools))]
		a.next += len(some)
		if o.put(a, pod, some); !a.known && a.next == len(o.view.Pools) {
			a.known, a.short = true, o.refused(a.class, a.nearest)
		}
	}
	return a.short
}

// put puts the pod to the planner with some pools. A yes is the answer; else it notes the pool that came nearest, the first of equals.
func (o *Oracle) put(a *answer, pod *capacity.Pod, pools []*capacity.Pool) {
	result := plan.Solve(plan.Input{View: &capacity.View{Nodes: o.view.Nodes, Pools: pools}, Pods: []*capacity.Pod{pod}, Known: o.memo})
	if len(result.Unplaced) == 0 {
		a.known, a.short, a.bought = true, rules.Feasibility{Answer: rules.Yes}, len(result.Launches) > 0
		return
	}
	if why := &result.Unplaced[0]; a.nearest == nil || why.Reason.Nearer(a.nearest.Reason) {
		a.nearest = why
	}
}

// places adds to an answer which pools the pods could have been on.
func (o *Oracle) places(a *answer) rules.Feasibility {
	out := a.short
	spot := a.bought // and not on a node that is there
	for _, p := range o.view.Pools {
		offers := o.fits(p, a.class)
		if offers.Empty() {
			continue
		}
		out.Pools = append(out.Pools, p.Name)
		out.Zones = max(out.Zones, len(p.Catalog.Values(corev1.LabelTopologyZone, offers)))
		kinds := p.Catalog.Values(karpv1.CapacityTypeLabelKey, offers)
		spot = spot && len(kinds) == 1 && kinds[0] == karpv1.CapacityTypeSpot
	}
	out.OnlySpot = spot && len(out.Pools) > 0
	return out
}

// refused is No, unless a pool that cannot be judged now or a resource that a device plugin brings could change that.
func (o *Oracle) refused(c *capacity.Class, why *plan.Unplaced) rules.Feasibility {
	unsure := why.Reason == plan.PoolNotReady || why.Reason == plan.NoOffering || o.foreign(c) ||
		slices.ContainsFunc(o.view.Pools, func(p *capacity.Pool) bool { return (p.Catalog == nil || p.Blocked != "") && may(p, c) })
	if unsure {
		return rules.Feasibility{Answer: rules.Unknown}
	}
	return rules.Feasibility{Answer: rules.No, Nearest: why.Pool, Reason: strings.TrimSuffix(why.Detail, ".")}
}

// sells reports whether the pool has an offering that holds a pod of the class.
func (o *Oracle) sells(p *capacity.Pool, c *capacity.Class) bool {
	for range o.candidates(p, c) {
		return true
	}
	return false
}

// fits are the offerings of the pool that hold a pod of the class.
func (o *Oracle) fits(p *capacity.Pool, c *capacity.Class) capacity.Set {
	if p.Catalog == nil {
		return nil
	}
	fit := capacity.NewSet(len(p.Catalog.Offerings))
	for i := range o.candidates(p, c) {
		fit.Add(i)
	}
	return fit
}

// candidates goes through the same, some of them twice.
func (o *Oracle) candidates(p *capacity.Pool, c *capacity.Class) iter.Seq[int] {
	return func(yield func(int) bool) {
		free, most := o.memo.Free(p)
		if free == nil || c.Requests.CPU > most.CPU || c.Requests.Memory > most.Memory {
			return
		}
		if _, ok := c.Tolerates(p.Taints); !ok {
			return
		}
		for _, term := range c.Terms {
			if p.Requirements.Compatible(term, p.Catalog.Defines) != nil {
				continue
			}
			for i := range p.Catalog.Match(p.Requirements.And(term)).All {
				if c.Requests.Fits(free[p.Catalog.TypeOf(i)]) && !yield(i) {
					return
				}
			}
		}
	}
}

// may reports whether a pool that is not ready could be meant for the class.
func may(p *capacity.Pool, c *capacity.Class) bool {
	if p.Static {
		return false
	}
	if _, ok := c.Tolerates(p.Taints); !ok {
		return false
	}
	return slices.ContainsFunc(c.Terms, func(term capacity.Requirements) bool {
		return p.Requirements.Compatible(term, func(string) bool { return true }) == nil
	})
}

// foreign reports whether the class asks for a resource that nothing on sale and no node has: a device plugin may bring it.
func (o *Oracle) foreign(c *capacity.Class) bool {
	for _, q := range c.Requests.Extended {
		if !o.known(q.Name) {
			return true
		}
	}
	return false
}

func (o *Oracle) known(name corev1.ResourceName) bool {
	for _, p := range o.view.Pools {
		if p.Catalog == nil {
			continue
		}
		for _, t := range p.Catalog.Types {
			if t.Capacity.Get(name) > 0 {
				return true
			}
		}
	}
	return slices.ContainsFunc(o.view.Nodes, func(n *capacity.Node) bool { return n.Capacity.Get(name) > 0 })
}

// Vocabulary are the labels nodes have or can have, each with its values; empty values mean that any is possible. nil if a
// pool's catalogue is not known, for then nothing can be said to be wrong.
func (o *Oracle) Vocabulary() map[string][]string {
	words := map[string]map[string]bool{}
	put := func(key, value string) {
		key = capacity.CanonicalKey(key)
		if words[key] == nil {
			words[key] = map[string]bool{}
		}
		words[key][value] = true
	}
	free := map[string]bool{corev1.LabelHostname: true}
	for _, p := range o.view.Pools {
		if p.Catalog == nil {
			return nil
		}
		for _, key := range p.Requirements.Keys() {
			if p.Catalog.Defines(key) {
				continue
			}
			if r := p.Requirements.Get(key); r.Finite() {
				for _, v := range r.Values() {
					put(key, v)
				}
			} else {
				free[capacity.CanonicalKey(key)] = true
			}
		}
		for key, values := range catalogWords(p.Catalog) {
			for _, v := range values {
				put(key, v)
			}
		}
	}
	for _, n := range o.view.Nodes {
		for key, value := range n.Labels {
			put(key, value)
		}
	}
	out := make(map[string][]string, len(words))
	for key, values := range words {
		out[key] = sorted(values)
	}
	for key := range free {
		out[key] = nil
	}
	return out
}

func catalogWords(c *capacity.Catalog) map[string][]string {
	keys := map[string]bool{corev1.LabelTopologyZone: true, karpv1.CapacityTypeLabelKey: true, capacity.ZoneIDLabel: true}
	for _, t := range c.Types {
		for key := range t.Labels {
			keys[key] = true
		}
	}
	all := capacity.FullSet(len(c.Offerings))
	out := map[string][]string{}
	for key := range keys {
		out[key] = c.Values(key, all)
	}
	return out
}

// String says what the oracle knows, for logs.
func (o *Oracle) String() string {
	return fmt.Sprintf("%d pools, %d nodes", len(o.view.Pools), len(o.view.Nodes))
}
