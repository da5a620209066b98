// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"math"
	"strconv"
	"time"
)

// quantiles are p10, p50, p90 and p99 of a delay in seconds.
type quantiles [4]float64

// Normal deviates of the quantiles.
const (
	z90 = 1.2816
	z99 = 2.3263
)

// at returns the delay of a standard normal deviate: lognormal between the
// quantiles, each side with its own spread, so that all four are met exactly.
func (q quantiles) at(z float64) float64 {
	z = min(max(z, -3), 3.5)
	var log float64
	switch {
	case z < 0:
		log = math.Log(q[1]) + z/z90*math.Log(q[1]/q[0])
	case z < z90:
		log = math.Log(q[1]) + z/z90*math.Log(q[2]/q[1])
	default:
		log = math.Log(q[2]) + (z-z90)/(z99-z90)*math.Log(q[3]/q[2])
	}
	return math.Exp(log)
}

// profile is how long a kind of machine takes from the launch call on.
type profile struct{ registered, ready quantiles }

// Measured and estimated boot times of EC2 machines in EKS clusters, seconds
// after the launch call was received. Cold starts with light DaemonSets.
func bootProfile(f Family, gpu bool) profile {
	switch {
	case gpu && f == AL2023:
		return profile{quantiles{70, 85, 105, 150}, quantiles{90, 110, 130, 190}}
	case f == Bottlerocket:
		return profile{quantiles{17, 20, 28, 38}, quantiles{25, 30, 41, 58}}
	case f == AL2:
		return profile{quantiles{19, 21, 26, 34}, quantiles{23, 25, 31, 41}}
	case f == Windows:
		// An estimate: only "90 s", before and after tuning, is published.
		return profile{quantiles{75, 90, 120, 180}, quantiles{85, 100, 135, 200}}
	case f == Custom:
		return profile{quantiles{14, 16, 20, 28}, quantiles{16, 19, 24, 34}}
	default:
		return profile{quantiles{23, 26, 32, 42}, quantiles{35, 39, 48, 65}}
	}
}

// Components, from the same table.
func createFleetAnswer() quantiles  { return quantiles{2.3, 2.8, 4.1, 6} }
func runInstancesAnswer() quantiles { return quantiles{1.2, 1.6, 2.6, 5} }
func toRunning() quantiles          { return quantiles{5, 7, 10, 20} }
func toTerminated() quantiles       { return quantiles{45, 55, 75, 120} }

const (
	// stragglers is the share of machines that take stragglerMin to stragglerMax
	// times as long.
	stragglers, stragglerMin, stragglerMax = 0.01, 2.3, 3.2
	// sharedSigma is the spread of what machines of one zone, type and hour share.
	sharedSigma = 0.08
	// cniShare is how much of the time to Ready follows the time to register;
	// the rest is the network plugin's own.
	cniShare = 0.9
)

// delays are one machine's times from its launch on.
type delays struct {
	running, registered, ready time.Duration
	never                      bool
}

// drawDelays returns the delays of an instance.
func (e *Emulator) drawDelays(i *instance) delays {
	r := e.rand.draw("boot", i.id)
	d := delays{never: r.Float64() < e.opts.NeverRegisters}
	if e.opts.InstantBoot {
		return d
	}
	hour := strconv.Itoa(int(i.launched.Sub(e.start) / time.Hour))
	shared := math.Exp(sharedSigma * e.rand.draw("boot", i.subnet.Zone, i.offer.name, hour).NormFloat64())
	z, cni := r.NormFloat64(), r.NormFloat64()
	straggle := 1.0
	if r.Float64() < stragglers {
		straggle = stragglerMin + r.Float64()*(stragglerMax-stragglerMin)
	}
	p := bootProfile(i.image.Family, i.offer.info.GpuInfo != nil)
	registered := p.registered.at(z) * shared * straggle
	ready := p.ready.at(cniShare*z+math.Sqrt(1-cniShare*cniShare)*cni) * shared * straggle
	running := min(toRunning().at(r.NormFloat64()), registered)
	d.running = e.pace(scaled(running, e.opts.BootScale))
	d.registered = e.pace(scaled(registered, e.opts.BootScale))
	d.ready = e.pace(scaled(max(ready, registered), e.opts.BootScale))
	return d
}

func (e *Emulator) terminationDelay(i *instance) time.Duration {
	if e.opts.InstantBoot {
		return 0
	}
	return e.pace(scaled(toTerminated().at(e.rand.draw("terminate", i.id).NormFloat64()), e.opts.BootScale))
}

// pace is how long what takes d in EC2 takes here.
func (e *Emulator) pace(d time.Duration) time.Duration {
	return time.Duration(float64(d) / e.opts.Speed)
}
