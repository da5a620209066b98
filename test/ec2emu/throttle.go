// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"strconv"
	"strings"
	"time"
)

// Rate is a token bucket: Refill tokens a second up to Burst.
type Rate struct{ Refill, Burst float64 }

// PublishedRates are EC2's own, by what they are for: an action, or Describe,
// Unfiltered and Mutate for those without a bucket of their own; Resources/ before
// an action is its bucket of instances rather than requests.
//
// Source: "Request throttling for the Amazon EC2 API" in the EC2 developer guide.
// It gives each action of a category a bucket of that size; here, as in EC2 until
// 2024 and in Karpenter's own model, the actions of a category share one, which is
// the stricter reading: who keeps to it keeps to the other.
func PublishedRates() map[string]Rate {
	return map[string]Rate{
		"Describe":                     {Refill: 20, Burst: 100},
		"Unfiltered":                   {Refill: 10, Burst: 50},
		"Mutate":                       {Refill: 5, Burst: 50},
		"RunInstances":                 {Refill: 2, Burst: 5},
		"TerminateInstances":           {Refill: 5, Burst: 100},
		"CreateTags":                   {Refill: 10, Burst: 100},
		"DeleteTags":                   {Refill: 10, Burst: 100},
		"Resources/RunInstances":       {Refill: 2, Burst: 1000},
		"Resources/TerminateInstances": {Refill: 20, Burst: 1000},
	}
}

// SetRates replaces the token buckets, which start full; nil turns throttling
// off. A kind of request without a rate is not throttled.
func (e *Emulator) SetRates(rates map[string]Rate) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.buckets = newBuckets(rates)
}

func newBuckets(rates map[string]Rate) map[string]*bucket {
	buckets := map[string]*bucket{}
	for name, r := range rates {
		buckets[name] = &bucket{Rate: r, tokens: r.Burst}
	}
	return buckets
}

// bucket is a Rate at work.
type bucket struct {
	Rate
	tokens float64
	last   time.Time
}

// has refills the bucket and says whether n tokens are in it.
func (b *bucket) has(now time.Time, n float64) bool {
	if !b.last.IsZero() {
		b.tokens = min(b.Burst, b.tokens+now.Sub(b.last).Seconds()*b.Refill)
	}
	b.last = now
	return b.tokens >= n
}

// throttled takes the tokens of an EC2 request, or none if one bucket has too few.
// e.mu is held.
func (e *Emulator) throttled(c *call) bool {
	now := e.clock.Now()
	request, resources := e.buckets[e.category(c)], e.buckets["Resources/"+c.action]
	n := float64(c.resources())
	if request != nil && !request.has(now, 1) || resources != nil && !resources.has(now, n) {
		return true
	}
	if request != nil {
		request.tokens--
	}
	if resources != nil {
		resources.tokens -= n
	}
	return false
}

// category names the request bucket of a call.
func (e *Emulator) category(c *call) string {
	if e.buckets[c.action] != nil {
		return c.action
	}
	if !strings.HasPrefix(c.action, "Describe") && !strings.HasPrefix(c.action, "Get") {
		return "Mutate"
	}
	switch c.action {
	case "DescribeInstances", "DescribeInstanceStatus", "DescribeNetworkInterfaces", "DescribeSecurityGroups",
		"DescribeSnapshots", "DescribeSpotInstanceRequests", "DescribeVolumes":
		if !c.narrowed() {
			return "Unfiltered"
		}
	}
	return "Describe"
}

// narrowed says that a request has a filter or asks for pages.
func (c *call) narrowed() bool {
	for name := range c.form {
		if strings.HasPrefix(name, "Filter.") || name == "MaxResults" {
			return true
		}
	}
	return false
}

// resources is how many instances a request is about.
func (c *call) resources() int {
	switch c.action {
	case "RunInstances":
		n, err := strconv.Atoi(c.form.Get("MaxCount"))
		if err != nil {
			return 1
		}
		return n
	case "TerminateInstances":
		n := 0
		for name := range c.form {
			if strings.HasPrefix(name, "InstanceId.") {
				n++
			}
		}
		return n
	}
	return 0
}
