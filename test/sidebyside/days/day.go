// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

const (
	services, jobs = 40, 20
	// servicesShare is the services' part of all cores that are asked for.
	servicesShare = 0.4
	// swing is how far the hour moves replicas and rates, in parts of their mean.
	swing = 0.5
	// rollouts is how often a day each service is rolled out, and rolling how long that takes.
	rollouts = 2
	rolling  = 10 * time.Minute
)

// Jobs last log-normal times: e^N(mu, sigma²) seconds.
const (
	mu, sigma = 6.397, 1.2 // ln 600 s
	longest   = 12 * time.Hour
)

// day is the pods of a day.
type day struct {
	seconds  int
	kinds    []kind
	arrivals []arrival // in the order of At
}

// kind is what a workload's pods ask for.
type kind struct {
	class *capacity.Class
	cores float64
}

// arrival is a pod: when it comes and for how long, in seconds.
type arrival struct {
	At   int `json:"at"`
	Life int `json:"life"`
	Kind int `json:"kind"`
}

// draw draws a day on which pods ask for so many cores on average.
func draw(seed uint64, seconds, cores int) *day {
	r := rand.New(rand.NewPCG(seed, 24))
	d := &day{seconds: seconds}
	for i := range services + jobs {
		millis := []int{100, 200, 250, 500, 500, 1000, 1000, 2000, 4000}[r.IntN(9)]
		mib := int(float64(millis) / 1000 * 1024 * []float64{0.5, 1, 2, 2, 4, 4, 4, 8}[r.IntN(8)])
		name := fmt.Sprintf("kind-%02d", i)
		class := builder.Class(name).Label("app", name).CPU(fmt.Sprintf("%dm", millis)).Memory(fmt.Sprintf("%dMi", mib)).Obj()
		d.kinds = append(d.kinds, kind{class, float64(millis) / 1000})
	}
	for i := range services {
		d.service(r, i, servicesShare*float64(cores)*weight(i, services)/d.kinds[i].cores)
	}
	meanLife := math.Exp(mu + sigma*sigma/2)
	for i := range jobs {
		d.jobs(r, services+i, (1-servicesShare)*float64(cores)*weight(i, jobs)/d.kinds[services+i].cores/meanLife)
	}
	slices.SortStableFunc(d.arrivals, func(a, b arrival) int { return cmp.Compare(a.At, b.At) })
	return d
}

// weight is the share of the i-th of n workloads, by Zipf.
func weight(i, n int) float64 {
	sum := 0.0
	for k := range n {
		sum += 1 / float64(k+1)
	}
	return 1 / float64(i+1) / sum
}

// hour is how much of the mean there is at a time of the day: least at its beginning.
func (d *day) hour(second int) float64 {
	return 1 - swing*math.Cos(2*math.Pi*float64(second)/float64(d.seconds))
}

// service adds the replicas of a service, so many on average.
func (d *day) service(r *rand.Rand, k int, mean float64) {
	const look = 300 // seconds between two looks of whoever scales it
	breaks := []int{}
	for range rollouts {
		breaks = append(breaks, r.IntN(d.seconds))
	}
	slices.Sort(breaks)
	for replica := 0; float64(replica) < mean*(1+swing); replica++ {
		since := -1
		for s := 0; s <= d.seconds; s += look {
			wanted := s < d.seconds && (replica == 0 || float64(replica) < mean*d.hour(s))
			switch {
			case wanted && since < 0:
				since = s
			case !wanted && since >= 0:
				d.replica(r, k, since, s, breaks)
				since = -1
			}
		}
	}
}

// replica adds a replica that is wanted from one second to another: a pod until each rollout, and its successors.
func (d *day) replica(r *rand.Rand, k, from, to int, breaks []int) {
	for _, b := range breaks {
		if at := b + r.IntN(int(rolling.Seconds())); at > from && at < to {
			d.arrivals = append(d.arrivals, arrival{from, at - from, k})
			from = at
		}
	}
	d.arrivals = append(d.arrivals, arrival{from, to - from, k})
}

// jobs adds jobs that come at a rate, per second on average.
func (d *day) jobs(r *rand.Rand, k int, rate float64) {
	most := rate * (1 + swing)
	for at := r.ExpFloat64() / most; at < float64(d.seconds); at += r.ExpFloat64() / most {
		if r.Float64()*(1+swing) > d.hour(int(at)) {
			continue // thinning: the rate is lower at this hour
		}
		life := min(math.Exp(mu+sigma*r.NormFloat64()), longest.Seconds())
		d.arrivals = append(d.arrivals, arrival{int(at), max(1, int(life)), k})
	}
}
