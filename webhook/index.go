// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

const (
	// ranFor is how long an owner counts as one that had pods after the last is gone: its pods may be between two nodes.
	ranFor = time.Hour
	// forgetAfter is when what is known of an owner without pods is dropped.
	forgetAfter = 24 * time.Hour
)

// Index follows pods and their controllers as events come in, so that a review costs a few look-ups. It knows of every
// owner whether it ran, what its pods were given and what they asked for themselves, and of every namespace how many pods
// are protected.
type Index struct {
	mu         sync.RWMutex
	pods       map[types.UID]podFacts
	owners     map[types.UID]*ownerFacts
	workloads  map[workloadKey]*workloadFacts
	namespaces map[string]*podCounts
	created    map[types.UID]time.Time // of controllers
}

type workloadKey struct{ namespace, name string }

// podNote is what is kept of a pod: a tenth of it. It has a name and a version, so a cache can hold it in the pod's place.
type podNote struct {
	metav1.ObjectMeta

	ended bool
	// asked is what its containers ask for, by key.
	asked []askedFor
}

type askedFor struct {
	container string
	resource  corev1.ResourceName
	quantity  string
}

func note(p *corev1.Pod) *podNote {
	n := &podNote{ObjectMeta: bare(&p.ObjectMeta), ended: p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed}
	n.Annotations = only(p.Annotations, karpv1.DoNotDisruptAnnotationKey, v1alpha1.DefaultedAnnotation)
	n.Labels = only(p.Labels, "pod-template-hash")
	for _, list := range [][]corev1.Container{p.Spec.InitContainers, p.Spec.Containers} {
		for i := range list {
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q := list[i].Resources.Requests[name]; !q.IsZero() {
					n.asked = append(n.asked, askedFor{strings.Clone(list[i].Name), name, q.String()})
				}
			}
		}
	}
	return n
}

type podFacts struct {
	owner     types.UID
	workload  workloadKey
	namespace string
	protected bool
	ended     bool
}

type ownerFacts struct {
	pods int
	// last is when a pod was there, touched when one was given something.
	last, touched time.Time
	// given is what pods got by container and resource, with the time of the first that did.
	given map[string]given
}

type given struct {
	rules.Known

	at time.Time
}

type workloadFacts struct {
	pods  int
	last  time.Time
	asked map[string]string
}

type podCounts struct{ all, protected int }

// NewIndex returns an index that has seen nothing.
func NewIndex() *Index {
	return &Index{
		pods: map[types.UID]podFacts{}, owners: map[types.UID]*ownerFacts{}, workloads: map[workloadKey]*workloadFacts{},
		namespaces: map[string]*podCounts{}, created: map[types.UID]time.Time{},
	}
}

// Pods handles the events of pods; now tells the time.
func (x *Index) Pods(now func() time.Time) cache.ResourceEventHandler {
	see := func(o any) {
		switch p := o.(type) {
		case *podNote:
			x.see(p, now())
		case *corev1.Pod:
			x.see(note(p), now())
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    see,
		UpdateFunc: func(_, o any) { see(o) },
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if p, ok := o.(metav1.Object); ok {
				x.forget(p.GetUID(), now())
			}
		},
	}
}

// Controllers handles the events of what owns pods.
func (x *Index) Controllers() cache.ResourceEventHandler {
	return cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			if m, ok := o.(metav1.Object); ok {
				x.mu.Lock()
				defer x.mu.Unlock()
				x.created[m.GetUID()] = m.GetCreationTimestamp().Time
			}
		},
		DeleteFunc: func(o any) {
			if d, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = d.Obj
			}
			if m, ok := o.(metav1.Object); ok {
				x.mu.Lock()
				defer x.mu.Unlock()
				delete(x.created, m.GetUID())
			}
		},
	}
}

func (x *Index) see(p *podNote, now time.Time) {
	protection, err := rules.ParseProtection(p.Annotations[karpv1.DoNotDisruptAnnotationKey])
	f := podFacts{
		namespace: p.Namespace, ended: p.ended,
		protected: err == nil && protection.Set && (protection.For == 0 || p.CreationTimestamp.Add(protection.For).After(now)),
	}
	if c := metav1.GetControllerOf(p); c != nil {
		s := &rules.Subject{Kind: rules.Pod, Meta: p.ObjectMeta}
		f.owner, f.workload = c.UID, workloadKey{p.Namespace, rules.OwnerOf(s).Workload}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	old, known := x.pods[p.UID]
	x.pods[p.UID] = f
	if known {
		x.tally(old, -1, now)
	}
	x.tally(f, 1, now)
	if !known && f.owner != "" {
		x.learn(p, f)
	}
}

func (x *Index) forget(uid types.UID, now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if f, ok := x.pods[uid]; ok {
		x.tally(f, -1, now)
		delete(x.pods, uid)
	}
}

// tally adds n pods like f to the counts.
func (x *Index) tally(f podFacts, n int, now time.Time) {
	if !f.ended {
		c := x.namespaces[f.namespace]
		if c == nil {
			c = &podCounts{}
			x.namespaces[f.namespace] = c
		}
		c.all += n
		if f.protected {
			c.protected += n
		}
		if c.all == 0 {
			delete(x.namespaces, f.namespace)
		}
	}
	if f.owner == "" {
		return
	}
	o := x.owner(f.owner)
	o.pods, o.last = o.pods+n, now
	w := x.workloads[f.workload]
	if w == nil {
		w = &workloadFacts{asked: map[string]string{}}
		x.workloads[f.workload] = w
	}
	w.pods, w.last = w.pods+n, now
}

func (x *Index) owner(uid types.UID) *ownerFacts {
	o := x.owners[uid]
	if o == nil {
		o = &ownerFacts{given: map[string]given{}}
		x.owners[uid] = o
	}
	return o
}

func key(container string, name corev1.ResourceName) string { return container + "/" + string(name) }

// learn remembers what a new pod's containers ask for: what was filled in for its owner, the rest for its workload.
func (x *Index) learn(p *podNote, f podFacts) {
	provenance := p.Annotations[v1alpha1.DefaultedAnnotation]
	for _, a := range p.asked {
		at := key(a.container, a.resource)
		if k, ok := rules.Recorded(provenance, a.container, a.resource); !ok {
			x.workloads[f.workload].asked[at] = a.quantity
		} else if _, had := x.owner(f.owner).given[at]; !had {
			x.owner(f.owner).given[at] = given{k, p.CreationTimestamp.Time}
		}
	}
}

// Remember records what a pod of the owner was given, before its pod is seen.
func (x *Index) Remember(o rules.Owner, set []rules.Default, now time.Time) {
	if o.UID == "" || len(set) == 0 {
		return
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	facts := x.owner(o.UID)
	facts.touched = now
	for _, d := range set {
		k := rules.Known{Value: d.Value.String(), Source: d.Source}
		if have, ok := facts.given[key(d.Container, d.Resource)]; !ok || have.Known != k {
			facts.given[key(d.Container, d.Resource)] = given{k, now}
		}
	}
}

// Controller is when a controller was created, zero if it is not known, and whether it has or had pods lately.
func (x *Index) Controller(uid types.UID, now time.Time) (created time.Time, ran bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	o, ok := x.owners[uid]
	return x.created[uid], ok && (o.pods > 0 || (!o.last.IsZero() && now.Sub(o.last) < ranFor))
}

// Protected counts the pods of a namespace.
func (x *Index) Protected(namespace string) (protected, all int) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if c := x.namespaces[namespace]; c != nil {
		return c.protected, c.all
	}
	return 0, 0
}

// Sticky is what the owner's pods were given less than the period ago.
func (x *Index) Sticky(o rules.Owner, container string, name corev1.ResourceName, period time.Duration, now time.Time) (rules.Known, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if f, ok := x.owners[o.UID]; ok {
		g, ok := f.given[key(container, name)]
		return g.Known, ok && now.Sub(g.at) < period
	}
	return rules.Known{}, false
}

// History is what earlier pods of the workload asked for themselves.
func (x *Index) History(o rules.Owner, container string, name corev1.ResourceName) (rules.Known, bool) {
	x.mu.RLock()
	defer x.mu.RUnlock()
	if w, ok := x.workloads[workloadKey{o.Namespace, o.Workload}]; ok {
		q, ok := w.asked[key(container, name)]
		return rules.Known{Value: q, Source: o.Workload}, ok
	}
	return rules.Known{}, false
}

// Prune drops what is known of owners and workloads that have had no pod for a day.
func (x *Index) Prune(now time.Time) {
	x.mu.Lock()
	defer x.mu.Unlock()
	maps.DeleteFunc(x.owners, func(_ types.UID, o *ownerFacts) bool {
		return o.pods <= 0 && now.Sub(o.last) > forgetAfter && now.Sub(o.touched) > forgetAfter
	})
	maps.DeleteFunc(x.workloads, func(_ workloadKey, w *workloadFacts) bool { return w.pods <= 0 && now.Sub(w.last) > forgetAfter })
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
