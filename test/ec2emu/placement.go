// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const (
	// spreadLimit is how many instances a spread group takes in one zone.
	spreadLimit = 7
	// defaultPartitions of a partition group.
	defaultPartitions = 2
)

// PlacementGroup is a placement group of the account.
type PlacementGroup struct {
	// ID is made up if empty.
	ID, Name string
	// Strategy is cluster, spread or partition.
	Strategy ec2types.PlacementStrategy
	// Partitions of the partition strategy, 2 by default.
	Partitions int
	Tags       map[string]string
}

// placementGroup is a PlacementGroup in use; Emulator.mu guards it.
type placementGroup struct {
	PlacementGroup
	held map[string]int // places set aside for launches under way, by zone
}

// AddPlacementGroup adds a group and returns its id.
func (e *Emulator) AddPlacementGroup(g PlacementGroup) string {
	e.mu.Lock()
	defer e.mu.Unlock()
	if g.ID == "" {
		g.ID = e.world.newID("pg")
	}
	if g.Strategy == ec2types.PlacementStrategyPartition {
		orDefault(&g.Partitions, defaultPartitions)
	}
	e.world.placementGroups = append(e.world.placementGroups, &placementGroup{PlacementGroup: g, held: map[string]int{}})
	e.world.tags[g.ID] = sdkTags(g.Tags)
	return g.ID
}

// resolvePlacement reads tenancy and placement group of a launch, and checks them.
func (e *Emulator) resolvePlacement(s *launchSpec, data *ec2types.ResponseLaunchTemplateData) *refusal {
	s.tenancy = ec2types.TenancyDefault
	p := data.Placement
	if p == nil {
		return nil
	}
	if p.Tenancy != "" {
		s.tenancy = p.Tenancy
	}
	id, name := aws.ToString(p.GroupId), aws.ToString(p.GroupName)
	switch {
	case id == "" && name == "":
		return nil
	case id != "" && name != "":
		return invalid("InvalidParameterCombination", "The parameters GroupName and GroupId cannot be specified together")
	}
	n := slices.IndexFunc(e.world.placementGroups, func(g *placementGroup) bool { return g.ID == id || id == "" && g.Name == name })
	if n < 0 {
		return invalid("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", id+name)
	}
	s.group = e.world.placementGroups[n]
	s.partition = aws.ToInt32(p.PartitionNumber)
	info := s.offer.info.PlacementGroupInfo
	switch {
	case info == nil || !slices.Contains(info.SupportedStrategies, ec2types.PlacementGroupStrategy(s.group.Strategy)):
		strategy := string(s.group.Strategy)
		return invalid("InvalidParameterCombination", "%s placement groups are not supported by the '%s' instance type. Specify a supported instance type or change the placement group strategy, and try again.", strings.ToUpper(strategy[:1])+strategy[1:], s.offer.name)
	case int(s.partition) > s.group.Partitions:
		return invalid("InvalidParameterValue", "The partition number '%d' is larger than the number of partitions '%d' of the placement group.", s.partition, s.group.Partitions)
	}
	return nil
}

// placed are the live instances of a placement group in a zone; "" is all zones.
func (e *Emulator) placed(g *placementGroup, zoneName string) []*instance {
	var out []*instance
	for _, i := range e.world.instanceList {
		if i.group == g && !i.gone() && (zoneName == "" || i.subnet.Zone == zoneName) {
			out = append(out, i)
		}
	}
	return out
}

// groupRoom is how many of want instances the placement group takes.
func (e *Emulator) groupRoom(s *launchSpec, want int) (int, *refusal) {
	if s.group == nil {
		return want, nil
	}
	here := len(e.placed(s.group, s.subnet.Zone)) + s.group.held[s.subnet.Zone]
	switch s.group.Strategy {
	case ec2types.PlacementStrategySpread:
		if n := max(spreadLimit-here, 0); n < want {
			return n, invalid("InsufficientInstanceCapacity", "You've reached the limit of instances in this spread placement group. A spread placement group can have up to seven instances per Availability Zone.")
		}
	case ec2types.PlacementStrategyCluster:
		if e.elsewhere(s) {
			return 0, invalid("InsufficientInstanceCapacity", "We currently do not have sufficient capacity in the Availability Zone you requested (%s): the instances of the cluster placement group '%s' are in another.", s.subnet.Zone, s.group.Name)
		}
	}
	return want, nil
}

// elsewhere says that the placement group has instances in another zone, or soon.
func (e *Emulator) elsewhere(s *launchSpec) bool {
	for zoneName, n := range s.group.held {
		if n > 0 && zoneName != s.subnet.Zone {
			return true
		}
	}
	return len(e.placed(s.group, "")) > len(e.placed(s.group, s.subnet.Zone))
}

// choosePartition is the partition of a new instance: that of the request, or the
// emptiest.
func (e *Emulator) choosePartition(s *launchSpec) int32 {
	if s.group == nil || s.group.Partitions == 0 || s.partition > 0 {
		return s.partition
	}
	counts := make([]int, s.group.Partitions)
	for _, i := range e.placed(s.group, "") {
		if i.partition > 0 {
			counts[i.partition-1]++
		}
	}
	return int32(slices.Index(counts, slices.Min(counts)) + 1)
}

// sdkPlacement is where an instance is.
func (e *Emulator) sdkPlacement(i *instance) *ec2types.Placement {
	out := &ec2types.Placement{
		AvailabilityZone: aws.String(i.subnet.Zone), AvailabilityZoneId: aws.String(e.catalog.zoneIDOf(i.subnet.Zone)),
		Tenancy: i.tenancy, GroupName: aws.String(""),
	}
	if i.group != nil {
		out.GroupName, out.GroupId = aws.String(i.group.Name), aws.String(i.group.ID)
	}
	if i.partition > 0 {
		out.PartitionNumber = aws.Int32(i.partition)
	}
	return out
}

func (e *Emulator) describePlacementGroups(_ *call, in *ec2.DescribePlacementGroupsInput) (*ec2.DescribePlacementGroupsOutput, error) {
	has := func(match func(*placementGroup) bool) bool {
		return slices.ContainsFunc(e.world.placementGroups, match)
	}
	for _, id := range in.GroupIds {
		if !has(func(g *placementGroup) bool { return g.ID == id }) {
			return nil, invalid("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", id)
		}
	}
	for _, name := range in.GroupNames {
		if !has(func(g *placementGroup) bool { return g.Name == name }) {
			return nil, invalid("InvalidPlacementGroup.Unknown", "The Placement Group '%s' is unknown.", name)
		}
	}
	out := &ec2.DescribePlacementGroupsOutput{PlacementGroups: []ec2types.PlacementGroup{}}
	for _, g := range e.world.placementGroups {
		if !listed(in.GroupIds, g.ID) || !listed(in.GroupNames, g.Name) {
			continue
		}
		group := e.sdkPlacementGroup(g)
		ok, err := matches(in.Filters, group.Tags, func(name string) ([]string, bool) {
			switch name {
			case "group-name":
				return one(g.Name)
			case "group-arn":
				return one(*group.GroupArn)
			case "spread-level":
				return one(string(group.SpreadLevel))
			case "state":
				return one(string(group.State))
			case "strategy":
				return one(string(g.Strategy))
			}
			return nil, false
		})
		if err != nil {
			return nil, err
		}
		if ok {
			out.PlacementGroups = append(out.PlacementGroups, group)
		}
	}
	return out, nil
}

func (e *Emulator) sdkPlacementGroup(g *placementGroup) ec2types.PlacementGroup {
	out := ec2types.PlacementGroup{
		GroupId: aws.String(g.ID), GroupName: aws.String(g.Name), GroupArn: aws.String(e.arn("ec2", "placement-group/"+g.Name)),
		State: ec2types.PlacementGroupStateAvailable, Strategy: g.Strategy, Tags: e.world.tags[g.ID],
	}
	switch g.Strategy {
	case ec2types.PlacementStrategyPartition:
		out.PartitionCount = aws.Int32(int32(g.Partitions))
	case ec2types.PlacementStrategySpread:
		out.SpreadLevel = ec2types.SpreadLevelRack
	}
	return out
}
