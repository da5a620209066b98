// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"cmp"
	"math"
	"slices"
	"strconv"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const (
	maxTemplates = 50
	maxOverrides = 300
	// deepEnough is the share of the deepest pool's depth from which on
	// price-capacity-optimized goes by price.
	deepEnough = 0.6
)

// candidate is one pool of a fleet request: template × override.
type candidate struct {
	spec     *launchSpec
	override ec2types.FleetLaunchTemplateOverrides
	template *template
	order    int // in the request
	count    int // instances to launch
}

func (k *candidate) response() *ec2types.LaunchTemplateAndOverridesResponse {
	override := k.override
	return &ec2types.LaunchTemplateAndOverridesResponse{
		LaunchTemplateSpecification: &ec2types.FleetLaunchTemplateSpecification{
			LaunchTemplateId: aws.String(k.template.id), Version: aws.String(templateVersion),
		},
		Overrides: &override,
	}
}

func (e *Emulator) createFleet(c *call, in *ec2.CreateFleetInput) (*ec2.CreateFleetOutput, error) {
	c.latency = e.launchDelay(c, createFleetAnswer())
	if err := checkFleet(in); err != nil {
		return nil, err
	}
	return once(&e.world, c, aws.ToString(in.ClientToken), in, func() (*ec2.CreateFleetOutput, error) {
		candidates, refused, err := e.candidates(in)
		if err != nil {
			return nil, err
		}
		if aws.ToBool(in.DryRun) {
			return nil, dryRun()
		}
		return e.launchFleet(c, in, candidates, refused), nil
	})
}

// checkFleet reports what EC2 refuses before it looks at templates, and what of
// EC2 is not emulated.
func checkFleet(in *ec2.CreateFleetInput) error {
	if in.Type != ec2types.FleetTypeInstant {
		return invalid("InvalidParameterValue", "Invalid fleet type '%s': only instant fleets are supported here", in.Type)
	}
	if in.TargetCapacitySpecification == nil || in.TargetCapacitySpecification.TotalTargetCapacity == nil {
		return missing("TargetCapacitySpecification.TotalTargetCapacity")
	}
	od, sp := in.OnDemandOptions, in.SpotOptions
	if od != nil && (aws.ToBool(od.SingleAvailabilityZone) || aws.ToBool(od.SingleInstanceType)) ||
		sp != nil && (aws.ToBool(sp.SingleAvailabilityZone) || aws.ToBool(sp.SingleInstanceType)) {
		return invalid("UnsupportedOperation", "SingleAvailabilityZone and SingleInstanceType are not supported here")
	}
	if n := aws.ToInt32(in.TargetCapacitySpecification.TotalTargetCapacity); n < 1 || n > 10_000 {
		return invalid("InvalidParameterValue", "TotalTargetCapacity %d is out of range", n)
	}
	if t := in.TargetCapacitySpecification.DefaultTargetCapacityType; t != "" && !slices.Contains(t.Values(), t) {
		return invalid("InvalidParameterValue", "Invalid value '%s' for DefaultTargetCapacityType", t)
	}
	for _, s := range in.TagSpecifications {
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	overrides := 0
	for _, config := range in.LaunchTemplateConfigs {
		overrides += len(config.Overrides)
	}
	switch {
	case len(in.LaunchTemplateConfigs) == 0:
		return missing("LaunchTemplateConfigs")
	case len(in.LaunchTemplateConfigs) > maxTemplates:
		return invalid("InvalidParameterValue", "A fleet may have at most %d launch template configurations", maxTemplates)
	case overrides > maxOverrides:
		return invalid("InvalidParameterValue", "A fleet may have at most %d launch template overrides", maxOverrides)
	}
	return nil
}

// candidates resolves the request's pools; those EC2 would refuse come back as
// errors of the fleet. An unknown template fails the whole request.
func (e *Emulator) candidates(in *ec2.CreateFleetInput) ([]*candidate, []ec2types.CreateFleetError, error) {
	var out []*candidate
	var refused []ec2types.CreateFleetError
	for _, config := range in.LaunchTemplateConfigs {
		spec := config.LaunchTemplateSpecification
		if spec == nil {
			return nil, nil, missing("LaunchTemplateSpecification")
		}
		t, err := e.findTemplate(spec.LaunchTemplateId, spec.LaunchTemplateName, spec.Version)
		if err != nil {
			return nil, nil, err
		}
		overrides := config.Overrides
		if len(overrides) == 0 {
			overrides = []ec2types.FleetLaunchTemplateOverridesRequest{{}}
		}
		for _, o := range overrides {
			override, err := checkOverride(o)
			if err != nil {
				return nil, nil, err
			}
			k := &candidate{override: override, template: t, order: len(out) + len(refused)}
			s, refusal := e.resolve(t.data, override)
			if refusal != nil {
				refused = append(refused, fleetError(k, refusal, defaultType(in)))
				continue
			}
			s.template, s.token = t, aws.ToString(in.ClientToken)
			for _, tags := range in.TagSpecifications {
				s.tags[tags.ResourceType] = mergeTags(s.tags[tags.ResourceType], tags.Tags)
			}
			k.spec = s
			out = append(out, k)
		}
	}
	return out, refused, nil
}

// checkOverride returns the override as it is answered, or refuses members that
// would change the launch in ways that are not emulated.
func checkOverride(o ec2types.FleetLaunchTemplateOverridesRequest) (ec2types.FleetLaunchTemplateOverrides, error) {
	if o.InstanceRequirements != nil || o.WeightedCapacity != nil || o.Placement != nil || o.BlockDeviceMappings != nil ||
		o.IamInstanceProfile != nil || o.MetadataOptions != nil || o.KeyName != nil {
		return ec2types.FleetLaunchTemplateOverrides{}, invalid("UnsupportedOperation", "An override may have type, image, subnet, zone, priority and maximum price here, nothing else")
	}
	return ec2types.FleetLaunchTemplateOverrides{
		InstanceType: o.InstanceType, ImageId: o.ImageId, SubnetId: o.SubnetId, AvailabilityZone: o.AvailabilityZone,
		AvailabilityZoneId: o.AvailabilityZoneId, Priority: o.Priority, MaxPrice: o.MaxPrice,
	}, nil
}

func defaultType(in *ec2.CreateFleetInput) string {
	switch in.TargetCapacitySpecification.DefaultTargetCapacityType {
	case ec2types.DefaultTargetCapacityTypeSpot:
		return spot
	case ec2types.DefaultTargetCapacityTypeCapacityBlock:
		return capacityBlock
	case ec2types.DefaultTargetCapacityTypeReservedCapacity:
		return interruptible
	}
	return onDemand
}

func fleetError(k *candidate, r *refusal, capacityType string) ec2types.CreateFleetError {
	return ec2types.CreateFleetError{
		ErrorCode: aws.String(r.code), ErrorMessage: aws.String(r.message),
		LaunchTemplateAndOverrides: k.response(), Lifecycle: ec2types.InstanceLifecycle(capacityType),
	}
}

// launchFleet shares the target out and launches. What was refused or short of
// capacity on the way is listed in Errors, as EC2 does for instant fleets.
func (e *Emulator) launchFleet(c *call, in *ec2.CreateFleetInput, candidates []*candidate, refused []ec2types.CreateFleetError) *ec2.CreateFleetOutput {
	target := in.TargetCapacitySpecification
	want := map[string]int{onDemand: int(aws.ToInt32(target.OnDemandTargetCapacity)), spot: int(aws.ToInt32(target.SpotTargetCapacity))}
	want[defaultType(in)] += max(0, int(aws.ToInt32(target.TotalTargetCapacity))-want[onDemand]-want[spot])

	fleetID := "fleet-" + e.world.newUUID("fleet")
	out := &ec2.CreateFleetOutput{FleetId: aws.String(fleetID), Errors: refused, Instances: []ec2types.CreateFleetInstance{}}
	e.world.tags[fleetID] = specifiedTags(in.TagSpecifications, ec2types.ResourceTypeFleet)
	for _, capacityType := range []string{onDemand, spot, capacityBlock, interruptible} {
		if want[capacityType] == 0 {
			continue
		}
		ordered := e.order(c, in, capacityType, candidates)
		placed, errs := e.share(ordered, want[capacityType], e.fleetLimit(c, want[capacityType]))
		out.Errors = append(out.Errors, errs...)
		if placed < minTarget(in, capacityType) {
			for _, k := range ordered {
				e.hold(k.spec, -k.count)
			}
			continue
		}
		for _, k := range ordered {
			if k.count == 0 {
				continue
			}
			k.spec.fleetID = fleetID
			out.Instances = append(out.Instances, e.launchCandidate(c, k))
		}
	}
	return out
}

func minTarget(in *ec2.CreateFleetInput, capacityType string) int {
	switch {
	case capacityType == spot && in.SpotOptions != nil:
		return int(aws.ToInt32(in.SpotOptions.MinTargetCapacity))
	case capacityType == onDemand && in.OnDemandOptions != nil:
		return int(aws.ToInt32(in.OnDemandOptions.MinTargetCapacity))
	}
	return 0
}

// share fills pools in their order until want instances are placed, or limit of
// them if capacity for more appears to be lacking.
func (e *Emulator) share(ordered []*candidate, want, limit int) (placed int, errs []ec2types.CreateFleetError) {
	for _, k := range ordered {
		if placed == want {
			break
		}
		n, why := e.room(k.spec, want-placed)
		if n > limit-placed {
			n, why = limit-placed, insufficientCapacity(k.spec)
		}
		if price, ok := e.tooDear(k); ok {
			n, why = 0, invalid("SpotMaxPriceTooLow", "Your Spot request price is lower than the minimum required Spot request fulfillment price of %s.", price)
		}
		if why != nil {
			errs = append(errs, fleetError(k, why, k.spec.capacityType))
		}
		e.hold(k.spec, n)
		k.count = n
		placed += n
	}
	return placed, errs
}

// tooDear says that a pool's spot price is above the override's maximum.
func (e *Emulator) tooDear(k *candidate) (string, bool) {
	limit, err := strconv.ParseFloat(aws.ToString(k.override.MaxPrice), 64)
	if err != nil || k.spec.capacityType != spot {
		return "", false
	}
	price, _ := e.catalog.spotPrice(k.spec.offer, k.spec.subnet.Zone, e.clock.Now())
	return formatPrice(price), price > limit
}

func (e *Emulator) launchCandidate(c *call, k *candidate) ec2types.CreateFleetInstance {
	group := ec2types.CreateFleetInstance{
		InstanceType: k.spec.offer.info.InstanceType, Lifecycle: ec2types.InstanceLifecycle(k.spec.capacityType),
		LaunchTemplateAndOverrides: k.response(), SubnetId: aws.String(k.spec.subnet.ID),
		AvailabilityZone: aws.String(k.spec.subnet.Zone), AvailabilityZoneId: aws.String(e.catalog.zoneIDOf(k.spec.subnet.Zone)),
	}
	for _, i := range e.launch(c, k.spec, k.count) {
		group.InstanceIds = append(group.InstanceIds, i.id)
	}
	return group
}

// order copies the candidates for one capacity type and sorts them by its
// allocation strategy; equal ones keep the request's order.
func (e *Emulator) order(c *call, in *ec2.CreateFleetInput, capacityType string, candidates []*candidate) []*candidate {
	price, depth := map[*candidate]float64{}, map[*candidate]float64{}
	deepest := 0.0
	out := make([]*candidate, 0, len(candidates))
	for _, k := range candidates {
		spec, copied := *k.spec, *k
		spec.capacityType = capacityType
		copied.spec = &spec
		out = append(out, &copied)
		price[&copied] = cmp.Or(e.catalog.priceOf(spec.offer, spec.subnet.Zone, capacityType, c.at), math.MaxFloat64)
		depth[&copied] = e.catalog.depth(spec.offer, spec.subnet.Zone, c.at)
		deepest = max(deepest, depth[&copied])
	}
	priority := func(k *candidate) float64 {
		if k.override.Priority == nil {
			return float64(maxOverrides)
		}
		return *k.override.Priority
	}
	byPrice := func(a, b *candidate) int { return cmp.Compare(price[a], price[b]) }
	byPriority := func(a, b *candidate) int { return cmp.Compare(priority(a), priority(b)) }
	byDepth := func(a, b *candidate) int { return cmp.Compare(depth[b], depth[a]) }
	shallow := func(k *candidate) int {
		if depth[k] < deepEnough*deepest {
			return 1
		}
		return 0
	}
	deepFirst := func(a, b *candidate) int { return cmp.Compare(shallow(a), shallow(b)) }
	slices.SortStableFunc(out, func(a, b *candidate) int {
		switch strategy(in, capacityType) {
		case string(ec2types.SpotAllocationStrategyPriceCapacityOptimized):
			return cmp.Or(deepFirst(a, b), byPrice(a, b))
		case string(ec2types.SpotAllocationStrategyCapacityOptimized):
			return byDepth(a, b)
		case string(ec2types.SpotAllocationStrategyCapacityOptimizedPrioritized):
			return cmp.Or(deepFirst(a, b), byPriority(a, b), byDepth(a, b))
		case string(ec2types.FleetOnDemandAllocationStrategyPrioritized):
			return byPriority(a, b)
		default:
			return byPrice(a, b)
		}
	})
	return out
}

func strategy(in *ec2.CreateFleetInput, capacityType string) string {
	switch {
	case capacityType == spot && in.SpotOptions != nil:
		return string(in.SpotOptions.AllocationStrategy)
	case capacityType == onDemand && in.OnDemandOptions != nil:
		return string(in.OnDemandOptions.AllocationStrategy)
	}
	return ""
}
