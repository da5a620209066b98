// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"

	"github.com/slipway-sh/slipway/test/ec2emu/data"
)

const (
	onDemand = "on-demand"
	spot     = "spot"

	// spotStep is how often spot prices and capacity depth may change, at the
	// speed of real time.
	spotStep = 6 * time.Hour
	// Bounds of a spot price as a share of the on-demand price.
	spotMin, spotMax = 0.30, 0.60
	// unknownZoneShare of the types is offered in zones without recorded facts.
	unknownZoneShare = 0.92
)

// zone is an availability zone.
type zone struct{ name, id string }

// offer is an instance type of the region.
type offer struct {
	name  string
	info  *ec2types.InstanceTypeInfo
	zones []bool  // by index in catalog.zones
	price float64 // USD an hour on demand, 0 when none is known
}

func (o *offer) arch() string {
	for _, a := range o.info.ProcessorInfo.SupportedArchitectures {
		if a == ec2types.ArchitectureTypeArm64 || a == ec2types.ArchitectureTypeX8664 {
			return string(a)
		}
	}
	return string(o.info.ProcessorInfo.SupportedArchitectures[0])
}

func (o *offer) supports(capacityType string) bool {
	return slices.Contains(o.info.SupportedUsageClasses, ec2types.UsageClassType(capacityType))
}

// catalog is what the region sells; it does not change.
type catalog struct {
	rand   seeded
	start  time.Time
	period time.Duration // of constant spot prices
	zones  []zone
	offers []*offer // by name
	byName map[string]*offer
}

func newCatalog(facts *data.Facts, o *Options) *catalog {
	c := &catalog{rand: seeded(o.Seed), start: o.Clock.Now(), period: time.Duration(float64(spotStep) / o.Speed), byName: map[string]*offer{}}
	recorded := facts.Offerings[o.Region]
	bits := make([]int, len(o.Zones))
	for i, name := range o.Zones {
		c.zones = append(c.zones, zone{name: name, id: zoneID(o.Region, name)})
		bits[i] = slices.Index(recorded.Zones, name)
	}
	for i := range facts.Types {
		info := &facts.Types[i]
		off := &offer{name: string(info.InstanceType), info: info, price: facts.Prices[string(info.InstanceType)]}
		somewhere := false
		for z, bit := range bits {
			offered := bit >= 0 && recorded.Masks[i]&(1<<bit) != 0
			if bit < 0 && (recorded.Masks == nil || recorded.Masks[i] != 0) {
				offered = c.rand.draw("offered", off.name, o.Zones[z]).Float64() < unknownZoneShare
			}
			off.zones = append(off.zones, offered)
			somewhere = somewhere || offered
		}
		if somewhere {
			c.offers = append(c.offers, off)
			c.byName[off.name] = off
		}
	}
	return c
}

// zoneID makes AWS's identifier of a zone: us-east-1a is use1-az1. Which letter
// has which number differs by account; here they follow the alphabet.
func zoneID(region, name string) string {
	var b strings.Builder
	for i, part := range strings.Split(region, "-") {
		switch {
		case i == 0:
			b.WriteString(part)
		case part == "gov":
			b.WriteString("g")
		case part[0] >= '0' && part[0] <= '9':
			b.WriteString(part)
		default:
			for _, direction := range []string{"north", "south", "east", "west", "central"} {
				if strings.Contains(part, direction) {
					b.WriteString(direction[:1])
				}
			}
		}
	}
	return b.String() + "-az" + strconv.Itoa(int(name[len(name)-1]-'a')+1)
}

func (c *catalog) zoneIndex(name string) int {
	return slices.IndexFunc(c.zones, func(z zone) bool { return z.name == name })
}

func (c *catalog) zoneIDOf(name string) string {
	if i := c.zoneIndex(name); i >= 0 {
		return c.zones[i].id
	}
	return ""
}

func (c *catalog) offered(o *offer, zoneName string) bool {
	i := c.zoneIndex(zoneName)
	return i >= 0 && o.zones[i]
}

// step numbers the periods of constant spot prices; the start is in step 0.
func (c *catalog) step(at time.Time) int {
	return int(math.Floor(float64(at.Sub(c.start)) / float64(c.period)))
}

func (c *catalog) stepStart(step int) time.Time {
	return c.start.Add(time.Duration(step) * c.period)
}

// spotPrice is USD an hour: a share of the on-demand price that belongs to the
// type, some percent more or less by zone, drifting a little with each step.
// There is none where the type is not sold as spot or has no price.
func (c *catalog) spotPrice(o *offer, zoneName string, at time.Time) (float64, bool) {
	if o.price == 0 || !o.supports(spot) || !c.offered(o, zoneName) {
		return 0, false
	}
	share := 0.35 + 0.2*c.rand.draw("spot", o.name).Float64()
	share *= 0.92 + 0.16*c.rand.draw("spot", o.name, zoneName).Float64()
	share *= 0.96 + 0.08*c.rand.draw("spot", o.name, zoneName, strconv.Itoa(c.step(at))).Float64()
	return math.Round(o.price*min(max(share, spotMin), spotMax)*1e6) / 1e6, true
}

// depth is how much spare spot capacity a pool has, 0..1: most belongs to the
// pool, the rest drifts with each step.
func (c *catalog) depth(o *offer, zoneName string, at time.Time) float64 {
	own := c.rand.draw("depth", o.name, zoneName).Float64()
	drift := c.rand.draw("depth", o.name, zoneName, strconv.Itoa(c.step(at))).Float64()
	return 0.8*own + 0.2*drift
}

// priceOf is what an instance costs an hour from at on.
func (c *catalog) priceOf(o *offer, zoneName, capacityType string, at time.Time) float64 {
	if capacityType == spot {
		price, _ := c.spotPrice(o, zoneName, at)
		return price
	}
	return o.price
}
