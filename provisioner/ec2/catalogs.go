// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// paid divides the on-demand price of what a reservation has paid for already: next to nothing, yet in the order of prices
// (Karpenter's figure).
const (
	paid = 10_000_000.0
	// leastPrice stands in where the on-demand price is not known: zero would be a price nobody can compare with.
	leastPrice = 1e-12
)

// classRetention is how long the catalogue of a class nobody asks for is kept up to date.
const classRetention = time.Hour

// Catalogs knows what EC2 sells and turns it into the catalogue of a node class.
// The four kinds of facts (types, zones they are sold in, on-demand prices, spot
// prices) are refreshed independently; each refresh swaps in a new immutable
// snapshot and rebuilds the catalogues in use, so that a reader neither waits
// for a call nor pays for a rebuild.
type Catalogs struct {
	// Metrics are registered by whoever builds the process.
	Metrics *Metrics

	client *Client
	tables tables
	static map[string]float64 // on-demand prices where EC2's price list cannot be asked
	size   sizing

	// refresh serialises the making of a snapshot from the one before it; it is not held during calls.
	refresh sync.Mutex
	market  atomic.Pointer[market]
	// entries is copied on write under writing; readers take it as it is.
	writing sync.Mutex
	entries atomic.Pointer[map[types.UID]*entry]
}

// market is everything EC2 has said about what it sells. Immutable.
type market struct {
	types    []*typeFacts                  // sorted by name
	zones    map[string][]string           // type → zones, sorted
	onDemand map[string]float64            // type → US dollars an hour
	spot     map[string]map[string]float64 // type → zone → US dollars an hour; nil if EC2 does not say
	// pricedOnDemand and pricedSpot say that the prices have been asked for, with or without success. Until then nothing is
	// sold: a pool that prefers spot would buy on demand.
	pricedOnDemand, pricedSpot bool
}

// complete reports whether a catalogue can be built. Prices may be partly missing: what has none is not offered.
func (m *market) complete() bool {
	return len(m.types) > 0 && len(m.zones) > 0 && m.pricedOnDemand && m.pricedSpot
}

// spotPrice is the price of the type in the zone; without any word from EC2 that of on-demand, which is its upper bound.
func (m *market) spotPrice(name, zone string) (float64, bool) {
	if m.spot == nil {
		p, ok := m.onDemand[name]
		return p, ok
	}
	p, ok := m.spot[name][zone]
	return p, ok
}

// entry is the catalogue of one class.
type entry struct {
	resourceVersion string
	digest          string
	shape           *nodeShape
	market          *market
	catalog         *capacity.Catalog
	used            atomic.Int64 // Unix seconds
}

// NewCatalogs returns catalogues without content; Run or the Refresh methods fill them.
func NewCatalogs(c *Client) (*Catalogs, error) {
	t, err := newTables()
	if err != nil {
		return nil, err
	}
	static, err := staticPrices(c.opts.Region)
	if err != nil {
		return nil, err
	}
	cs := &Catalogs{Metrics: NewMetrics(), client: c, tables: t, static: static, size: sizing{vmOverhead: c.opts.VMMemoryOverhead, reservedENIs: int64(c.opts.ReservedENIs)}}
	cs.market.Store(&market{})
	cs.entries.Store(&map[types.UID]*entry{})
	return cs, nil
}

// Complete reports whether types and zones are known and prices have been asked for, so that catalogues can be built.
func (cs *Catalogs) Complete() bool { return cs.market.Load().complete() }

// For returns everything that can be bought for the class, or nil while EC2's
// answers are not in, the class has no subnets or images yet, or its spec is
// invalid (see [CheckClass]). Repeated calls for an unchanged class return the
// same catalogue, until a refresh brings new facts.
func (cs *Catalogs) For(class *v1.EC2NodeClass) *capacity.Catalog {
	now := cs.client.opts.Clock.Now().Unix()
	e, ok := (*cs.entries.Load())[class.UID]
	if ok && e.catalog != nil && e.resourceVersion == class.ResourceVersion && class.ResourceVersion != "" {
		e.used.Store(now)
		return e.catalog
	}
	digest := classDigest(class)
	if ok && e.catalog != nil && e.digest == digest {
		e.used.Store(now)
		cs.renew(e, class)
		return e.catalog
	}
	shape, err := newNodeShape(class)
	if err != nil || len(shape.zones) == 0 || len(shape.images) == 0 {
		return nil
	}
	m := cs.market.Load()
	if !m.complete() {
		return nil
	}
	fresh := &entry{
		resourceVersion: class.ResourceVersion, digest: digest, shape: shape,
		market: m, catalog: cs.build(shape, m),
	}
	fresh.used.Store(now)
	cs.put(class.UID, fresh)
	return fresh.catalog
}

// renew remembers that a newer version of the class has the same digest.
func (cs *Catalogs) renew(e *entry, class *v1.EC2NodeClass) {
	fresh := &entry{resourceVersion: class.ResourceVersion, digest: e.digest, shape: e.shape, market: e.market, catalog: e.catalog}
	fresh.used.Store(e.used.Load())
	cs.put(class.UID, fresh)
}

// put publishes an entry, unless facts have been refreshed since it was built: then it is built again first.
func (cs *Catalogs) put(uid types.UID, e *entry) {
	cs.writing.Lock()
	defer cs.writing.Unlock()
	if m := cs.market.Load(); e.market != m {
		e.market, e.catalog = m, cs.build(e.shape, m)
	}
	entries := maps.Clone(*cs.entries.Load())
	entries[uid] = e
	cs.entries.Store(&entries)
}

// update swaps in a changed market and rebuilds the catalogues in use.
func (cs *Catalogs) update(change func(*market)) {
	cs.refresh.Lock()
	next := *cs.market.Load()
	change(&next)
	cs.market.Store(&next)
	cs.refresh.Unlock()

	cs.writing.Lock()
	defer cs.writing.Unlock()
	m := cs.market.Load()
	oldest := cs.client.opts.Clock.Now().Add(-classRetention).Unix()
	entries := make(map[types.UID]*entry, len(*cs.entries.Load()))
	for uid, e := range *cs.entries.Load() {
		if e.used.Load() < oldest {
			continue
		}
		fresh := &entry{resourceVersion: e.resourceVersion, digest: e.digest, shape: e.shape, market: m, catalog: cs.build(e.shape, m)}
		fresh.used.Store(e.used.Load())
		entries[uid] = fresh
	}
	cs.entries.Store(&entries)
}

// classDigest covers the fields a catalogue depends on and nothing that changes without changing it.
func classDigest(class *v1.EC2NodeClass) string {
	// Only values that always marshal are in here.
	b, err := json.Marshal(struct {
		Name       string
		Subnets    []v1.Subnet
		AMIs       []v1.AMI
		Terms      []v1.AMISelectorTerm
		Family     *string
		Kubelet    *v1.KubeletConfiguration
		Devices    []*v1.BlockDeviceMapping
		Store      *v1.InstanceStorePolicy
		Interfaces []*v1.NetworkInterface
		CPU        *v1.CPUOptions
		Tracking   *v1.ConnectionTracking
		Reserved   []v1.CapacityReservation
		Placement  *PlacementGroup
		UserData   *string
		Annotated  [3]string
	}{
		class.Name, class.Status.Subnets, class.Status.AMIs, class.Spec.AMISelectorTerms, class.Spec.AMIFamily, class.Spec.Kubelet,
		class.Spec.BlockDeviceMappings, class.Spec.InstanceStorePolicy, class.Spec.NetworkInterfaces, class.Spec.CPUOptions,
		class.Spec.ConnectionTracking, class.Status.CapacityReservations, PlacementGroupOf(class), class.Spec.UserData,
		[3]string{class.Annotations[AnnotationPrefixDelegation], class.Annotations[AnnotationReservedENIs], class.Annotations[AnnotationObserved]},
	})
	if err != nil {
		return fmt.Sprintf("%s/%d/%s", class.UID, class.Generation, class.ResourceVersion)
	}
	return string(b)
}

// build makes the catalogue of one class.
func (cs *Catalogs) build(s *nodeShape, m *market) *capacity.Catalog {
	out := make([]*capacity.InstanceType, 0, len(m.types))
	for _, t := range m.types {
		if !s.accepts(t) {
			continue
		}
		offerings := m.offerings(t, s)
		if len(offerings) == 0 {
			continue
		}
		labels, absent := s.labels(t)
		if _, ok := s.image(labels); !ok {
			continue
		}
		total := cs.size.capacityOf(t, s)
		it := &capacity.InstanceType{
			Name:        t.name,
			Labels:      labels,
			Absent:      absent,
			Capacity:    total,
			Allocatable: total.Sub(overheadOf(t, s, total)),
			BootPods:    cs.size.bootPods(t, s),

			PlacementGroup: labels[v1.LabelPlacementGroupID],
			Offerings:      offerings,
		}
		if o, ok := s.observed[t.name]; ok {
			o.apply(&it.Capacity, &it.Allocatable)
		}
		out = append(out, it)
	}
	catalog := capacity.NewCatalog(out)
	catalog.Choices = s.choices()
	return catalog
}

// offerings are the ways to buy the type in the zones of the class; what has no price is not for sale.
func (m *market) offerings(t *typeFacts, s *nodeShape) []capacity.Offering {
	var out []capacity.Offering
	for _, zone := range m.zones[t.name] {
		id, ours := s.zones[zone]
		if !ours {
			continue
		}
		for _, r := range s.reserved[t.name] {
			if r.AvailabilityZone == zone {
				out = append(out, capacity.Offering{
					Zone: zone, ZoneID: id, CapacityType: karpv1.CapacityTypeReserved, Price: max(m.onDemand[t.name]/paid, leastPrice),
					ReservationID: r.ID, ReservationType: string(r.ReservationType), ReservationInterruptible: r.Interruptible,
				})
			}
		}
		for _, usage := range t.usage {
			price, ok := m.onDemand[t.name], true
			if usage == spotUsage {
				price, ok = m.spotPrice(t.name, zone)
			}
			if ok && price > 0 {
				out = append(out, capacity.Offering{Zone: zone, ZoneID: id, CapacityType: usage, Price: price})
			}
		}
	}
	return slices.Clip(out)
}
