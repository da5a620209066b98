// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package plan

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// counter counts pods that a selector matches (or that own an anti-affinity term), by domain of one topology key.
// A domain is a label value; for kubernetes.io/hostname it is the number of a host, new nodes included.
type counter struct {
	id     int
	key    string
	counts map[string]int // by domain; nil for host names
	hosts  map[int]int    // by host; nil for other keys
	total  int
	// match says whether pods of a class are counted, on whether those on a node of the view are. ending says whether pods
	// that are being deleted are, anywhere whether pods on a node of an undecided domain are counted in all it may be in.
	match    func(*capacity.Class) bool
	on       func(*node) bool
	ending   bool
	anywhere bool
}

// reset sets the counter to nothing.
func (c *counter) reset() {
	c.total = 0
	clear(c.counts)
	clear(c.hosts)
}

func (c *counter) add(domain string, n int) {
	c.counts[domain] += n
	c.total += n
}

func (c *counter) addHost(host, n int) {
	c.total += n
	if n += c.hosts[host]; n == 0 {
		delete(c.hosts, host)
	} else {
		c.hosts[host] = n
	}
}

// rule is one topology constraint of a class, or an anti-affinity term of other pods that the class runs into.
type rule struct {
	kind    ruleKind
	key     string
	counter *counter
	self    bool // the class's own pods are counted
	// For affinity: group are the counters of all the class's terms. daemons says that the daemonset pods on new nodes, which
	// are the hosts from number fresh on, are company enough.
	group   []*counter
	daemons bool
	fresh   int
	// For spread: the constraint, and the domains that count.
	over    capacity.Spread
	maxSkew int
	minDom  int
	domains map[string]bool
	maybe   map[string]bool // those that a node on its way may be in
	// hosts are, for a spread over hosts where nothing can be bought, the hosts that count; nil where a new and empty one is
	// always possible. floor is the smallest count over them, or over the domains, when the counter stood at floorAt - 1; the
	// counter only grows while pods are dealt.
	hosts          []int
	floor, floorAt int
}

type ruleKind int

const (
	spread ruleKind = iota
	affinity
	anti
)

// unlimited is a number of pods nothing bounds.
const unlimited = math.MaxInt

// aboutHosts reports whether the rule's domains are hosts.
func (r *rule) aboutHosts() bool { return r.key == corev1.LabelHostname }

// allows reports whether one more pod may go to the domain.
func (r *rule) allows(domain string) bool {
	n := r.counter.counts[domain]
	switch r.kind {
	case affinity:
		return n > 0 || r.first()
	case anti:
		return n == 0
	default:
		if r.self {
			n++
		}
		return n-r.least() <= r.maxSkew
	}
}

// first reports whether a pod of the class is the first of its group.
func (r *rule) first() bool {
	return r.self && !slices.ContainsFunc(r.group, func(c *counter) bool { return c.total > 0 })
}

// room is how many more pods of the class the host may take now. Where nodes can be bought the least loaded host is an empty
// new one.
func (r *rule) room(host int) int {
	n := r.counter.hosts[host]
	switch r.kind {
	case affinity:
		if n > 0 || r.first() || (r.daemons && (host == trialHost || host >= r.fresh)) {
			return unlimited
		}
		return 0
	case anti:
		switch {
		case n > 0:
			return 0
		case r.self:
			return 1
		}
		return unlimited
	default:
		if r.hosts != nil && n >= r.maxSkew {
			n -= r.leastHost()
		}
		switch {
		case r.self:
			return max(r.maxSkew-n, 0)
		case n > r.maxSkew:
			return 0
		}
		return unlimited
	}
}

// leastHost is the smallest count over the hosts that matter, 0 while there are fewer than minDomains.
func (r *rule) leastHost() int {
	if len(r.hosts) < r.minDom {
		return 0
	}
	if r.floorAt != r.counter.total+1 {
		r.floorAt, r.floor = r.counter.total+1, unlimited
		for _, h := range r.hosts {
			r.floor = min(r.floor, r.counter.hosts[h])
		}
	}
	return r.floor
}

// least is the smallest count over the domains that matter, 0 while there are fewer domains than minDomains.
func (r *rule) least() int {
	if len(r.domains) < r.minDom || len(r.domains) == 0 {
		return 0
	}
	if r.floorAt != r.counter.total+1 {
		r.floorAt, r.floor = r.counter.total+1, unlimited
		for d := range r.domains {
			r.floor = min(r.floor, r.counter.counts[d])
		}
		for d := range r.maybe {
			r.floor = min(r.floor, r.counter.counts[d])
		}
	}
	return r.floor
}

// spot is a choice of one domain for each topology key a class is concerned with, host names apart.
type spot map[string]string

// noDomain stands for no value of a label: a node without it is in no domain of that key. No label has it for a value.
const noDomain = "\x00"

// domain is the domain of a key, if the choice has one.
func (p spot) domain(key string) (string, bool) {
	v, ok := p[key]
	return v, ok && v != noDomain
}

func (p spot) key() string {
	keys := make([]string, 0, len(p))
	for k := range p {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	var b strings.Builder
	for _, k := range keys {
		b.WriteString(k + "=" + p[k] + ";")
	}
	return b.String()
}

// hostRules are the rules and counters of a demand whose domains are hosts.
type hostRules struct {
	rules   []*rule
	counted []*counter
}

// settle derives what placing needs again and again: the topology keys, host names apart, that bind the demand or on which
// it is counted, and its rules about hosts.
func (d *demand) settle() {
	for _, r := range d.rules {
		if r.aboutHosts() {
			d.hosts.rules = append(d.hosts.rules, r)
		} else {
			d.keys = append(d.keys, r.key)
		}
	}
	for _, c := range d.counted {
		if c.hosts != nil {
			d.hosts.counted = append(d.hosts.counted, c)
		} else {
			d.keys = append(d.keys, c.key)
		}
	}
	slices.Sort(d.keys)
	d.keys = slices.Compact(d.keys)
}

// signature spells the rules out: equal texts are equal rules.
func (h *hostRules) signature() string {
	if len(h.rules)+len(h.counted) == 0 {
		return ""
	}
	var b []byte
	for _, r := range h.rules {
		b = fmt.Appendf(b, "%d %d %t %d;", r.kind, r.counter.id, r.self, r.maxSkew)
	}
	for _, c := range h.counted {
		b = strconv.AppendInt(append(b, ' '), int64(c.id), 10)
	}
	return string(b)
}

// allowed reports whether the class may go to these domains.
func (d *demand) allowed(p spot) bool {
	for _, r := range d.rules {
		if r.aboutHosts() {
			continue
		}
		switch dom, ok := p.domain(r.key); {
		case !ok:
			if r.kind != anti {
				return false
			}
		case !r.daemons && !r.allows(dom):
			return false
		}
	}
	return true
}

// follows reports whether pods of the demand have to be near others, which may get their place after them.
func (d *demand) follows() bool {
	return slices.ContainsFunc(d.rules, func(r *rule) bool { return r.kind == affinity })
}

// bound reports whether the demand's nodes need a value of the label: only anti-affinity, and being counted, do without.
func (d *demand) bound(key string) bool {
	return slices.ContainsFunc(d.rules, func(r *rule) bool { return r.key == key && r.kind != anti })
}

// room is how many pods of the class may join those already on a host.
func (h *hostRules) room(host int) int {
	n := unlimited
	for _, r := range h.rules {
		n = min(n, r.room(host))
	}
	return n
}

// floats reports whether a host without room may have some again once others hold more.
func (h *hostRules) floats() bool {
	return slices.ContainsFunc(h.rules, func(r *rule) bool { return r.hosts != nil })
}

// record counts n pods of the class on a host, or takes them back for negative n.
func (h *hostRules) record(host, n int) {
	for _, c := range h.counted {
		c.addHost(host, n)
	}
}

// load is how crowded the domains are for the class: the sum of its spread counters.
func (d *demand) load(p spot) int {
	n := 0
	for _, r := range d.rules {
		if r.kind == spread && !r.aboutHosts() {
			if dom, ok := p.domain(r.key); ok {
				n += r.counter.counts[dom]
			}
		}
	}
	return n
}

// record counts n pods of the class at the domains, or takes them back for negative n.
func (d *demand) record(p spot, n int) {
	for _, c := range d.counted {
		if dom, ok := p.domain(c.key); ok && c.counts != nil {
			c.add(dom, n)
		}
	}
}
