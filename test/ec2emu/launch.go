// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"maps"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// launchSpec is what an instance is made of: a launch template under the
// overrides of a fleet, or the parameters of RunInstances.
type launchSpec struct {
	offer        *offer
	subnet       *subnet
	image        *Image
	capacityType string

	profile  string // name of the instance profile, may be empty
	userData []byte
	groups   []string
	devices  map[string]int32 // device name to GiB
	tags     map[ec2types.ResourceType][]ec2types.Tag

	template       *template
	fleetID, token string

	metadata   *ec2types.InstanceMetadataOptionsResponse
	tenancy    ec2types.Tenancy
	group      *placementGroup // nil for none
	partition  int32           // in group, 0 for none
	market     ec2types.MarketType
	preference ec2types.CapacityReservationPreference
	target     *reservation   // the reservation it names, nil for none
	slots      []*reservation // of the instances that are held; nil elements are on no reservation
}

// refusal is why a pool can't be used: an error that is listed among a fleet's.
type refusal = apiError

var imageID = regexp.MustCompile(`^ami-[0-9a-f]{8,17}$`)

// resolve fills a spec from template data and overrides, and checks it as EC2
// does before it looks for capacity.
func (e *Emulator) resolve(data *ec2types.ResponseLaunchTemplateData, o ec2types.FleetLaunchTemplateOverrides) (*launchSpec, *refusal) {
	s := &launchSpec{devices: map[string]int32{}, tags: map[ec2types.ResourceType][]ec2types.Tag{}}
	if err := e.resolvePlace(s, data, o); err != nil {
		return nil, err
	}
	id := aws.ToString(o.ImageId)
	orDefault(&id, aws.ToString(data.ImageId))
	switch {
	case id == "":
		return nil, missing("ImageId")
	case !imageID.MatchString(id):
		return nil, invalid("InvalidAMIID.Malformed", "Invalid id: \"%s\"", id)
	case e.world.images[id] == nil:
		return nil, invalid("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", id)
	}
	s.image = e.world.images[id]
	if s.image.Arch != s.offer.arch() {
		return nil, invalid("InvalidParameterValue", "The architecture '%s' of the specified instance type does not match the architecture '%s' of the specified AMI. Specify an instance type and an AMI that have matching architectures, and try again.", s.offer.arch(), s.image.Arch)
	}
	raw, err := decodeUserData(data.UserData)
	if err != nil {
		return nil, asAPIError(err)
	}
	s.userData = raw
	if p := data.IamInstanceProfile; p != nil {
		s.profile = aws.ToString(p.Name)
		if arn := aws.ToString(p.Arn); arn != "" {
			s.profile = arn[strings.LastIndex(arn, "/")+1:]
		}
		if e.world.profiles[s.profile] == nil || !e.world.seen("profile/"+s.profile) {
			return nil, invalid("InvalidParameterValue", "Value (%s) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name", s.profile)
		}
	}
	maps.Copy(s.devices, s.image.Family.devices())
	for _, m := range data.BlockDeviceMappings {
		if m.Ebs != nil && m.Ebs.VolumeSize != nil {
			s.devices[aws.ToString(m.DeviceName)] = *m.Ebs.VolumeSize
		}
	}
	for _, spec := range data.TagSpecifications {
		s.tags[spec.ResourceType] = mergeTags(s.tags[spec.ResourceType], spec.Tags)
	}
	s.metadata = metadataOptions(data.MetadataOptions)
	if err := e.resolvePlacement(s, data); err != nil {
		return nil, err
	}
	if err := e.resolveReservation(s, data); err != nil {
		return nil, err
	}
	return s, e.resolveGroups(s, data)
}

// metadataOptions are those of a launch over EC2's defaults for images that ask
// for version 2 of the metadata service, as EKS's do.
func metadataOptions(o *ec2types.LaunchTemplateInstanceMetadataOptions) *ec2types.InstanceMetadataOptionsResponse {
	out := &ec2types.InstanceMetadataOptionsResponse{
		State: ec2types.InstanceMetadataOptionsStateApplied, HttpEndpoint: ec2types.InstanceMetadataEndpointStateEnabled,
		HttpProtocolIpv6: ec2types.InstanceMetadataProtocolStateDisabled, HttpPutResponseHopLimit: aws.Int32(2),
		HttpTokens: ec2types.HttpTokensStateRequired, InstanceMetadataTags: ec2types.InstanceMetadataTagsStateDisabled,
	}
	if o == nil {
		return out
	}
	orOther(&out.HttpEndpoint, ec2types.InstanceMetadataEndpointState(o.HttpEndpoint))
	orOther(&out.HttpProtocolIpv6, ec2types.InstanceMetadataProtocolState(o.HttpProtocolIpv6))
	orOther(&out.HttpTokens, ec2types.HttpTokensState(o.HttpTokens))
	orOther(&out.InstanceMetadataTags, ec2types.InstanceMetadataTagsState(o.InstanceMetadataTags))
	if o.HttpPutResponseHopLimit != nil {
		out.HttpPutResponseHopLimit = o.HttpPutResponseHopLimit
	}
	return out
}

// orOther replaces a value if there is another.
func orOther[T ~string](field *T, other T) {
	if other != "" {
		*field = other
	}
}

// resolvePlace finds type, subnet and zone.
func (e *Emulator) resolvePlace(s *launchSpec, data *ec2types.ResponseLaunchTemplateData, o ec2types.FleetLaunchTemplateOverrides) *refusal {
	name := string(o.InstanceType)
	orDefault(&name, string(data.InstanceType))
	if name == "" {
		return missing("InstanceType")
	}
	if s.offer = e.catalog.byName[name]; s.offer == nil {
		return invalid("InvalidParameterValue", "Invalid value '%s' for InstanceType.", name)
	}
	subnetID := aws.ToString(o.SubnetId)
	for _, ni := range data.NetworkInterfaces {
		orDefault(&subnetID, aws.ToString(ni.SubnetId))
	}
	if subnetID == "" {
		return invalid("MissingInput", "No subnets found for the default VPC '%s'. Please specify a subnet.", vpcID)
	}
	if s.subnet = e.world.subnets[subnetID]; s.subnet == nil {
		return invalid("InvalidSubnetID.NotFound", "The subnet ID '%s' does not exist", subnetID)
	}
	if z := aws.ToString(o.AvailabilityZone); z != "" && z != s.subnet.Zone {
		return invalid("InvalidParameterValue", "The availability zone '%s' does not match the subnet's '%s'.", z, s.subnet.Zone)
	}
	if z := aws.ToString(o.AvailabilityZoneId); z != "" && z != e.catalog.zoneIDOf(s.subnet.Zone) {
		return invalid("InvalidParameterValue", "The availability zone '%s' does not match the subnet's '%s'.", z, s.subnet.Zone)
	}
	if !e.catalog.offered(s.offer, s.subnet.Zone) {
		return invalid("InvalidFleetConfiguration", "Your requested instance type (%s) is not supported in your requested Availability Zone (%s).", name, s.subnet.Zone)
	}
	return nil
}

func (e *Emulator) resolveGroups(s *launchSpec, data *ec2types.ResponseLaunchTemplateData) *refusal {
	s.groups = slices.Clone(data.SecurityGroupIds)
	for _, ni := range data.NetworkInterfaces {
		for _, id := range ni.Groups {
			if !slices.Contains(s.groups, id) {
				s.groups = append(s.groups, id)
			}
		}
	}
	for _, id := range s.groups {
		if !slices.ContainsFunc(e.world.groups, func(g SecurityGroup) bool { return g.ID == id }) {
			return invalid("InvalidGroup.NotFound", "The security group '%s' does not exist", id)
		}
	}
	return nil
}

// room returns how many of want instances fit, and why not all of them do.
func (e *Emulator) room(s *launchSpec, want int) (int, *refusal) {
	n, only, why := e.reservedRoom(s, want)
	if !only {
		if !s.offer.supports(s.capacityType) {
			return 0, invalid("Unsupported", "The requested configuration is currently not supported. Please check the documentation for supported configurations.")
		}
		n += e.available(s.pool(), want-n)
		if n < want {
			why = insufficientCapacity(s)
		}
	}
	if fits, full := e.groupRoom(s, n); full != nil {
		n, why = fits, full
	}
	if free := max(s.subnet.free-s.subnet.held, 0); free < n {
		n, why = free, invalid("InsufficientFreeAddressesInSubnet", "There are not enough free addresses in subnet '%s' to satisfy the requested number of instances.", s.subnet.ID)
	}
	return n, why
}

func (s *launchSpec) pool() Pool {
	return Pool{InstanceType: s.offer.name, Zone: s.subnet.Zone, CapacityType: s.capacityType}
}

func insufficientCapacity(s *launchSpec) *refusal {
	if s.capacityType == spot {
		return invalid("InsufficientInstanceCapacity", "There is no Spot capacity available that matches your request.")
	}
	return invalid("InsufficientInstanceCapacity", "We currently do not have sufficient %s capacity in the Availability Zone you requested (%s). Our system will be working on provisioning additional capacity.", s.offer.name, s.subnet.Zone)
}

// hold sets n instances' capacity and addresses aside; a negative n gives back.
func (e *Emulator) hold(s *launchSpec, n int) {
	s.subnet.held += n
	if s.group != nil {
		s.group.held[s.subnet.Zone] += n
	}
	for range n {
		slot := e.takeSlot(s)
		if slot == nil {
			e.takeStock(s.pool(), 1)
		}
		s.slots = append(s.slots, slot)
	}
	for range -n {
		slot := s.slots[len(s.slots)-1]
		s.slots = s.slots[:len(s.slots)-1]
		if slot == nil {
			e.takeStock(s.pool(), -1)
		} else {
			slot.used--
		}
	}
}

// launch makes the n instances that were held, in one reservation.
func (e *Emulator) launch(c *call, s *launchSpec, n int) []*instance {
	s.subnet.held -= n
	if s.group != nil {
		s.group.held[s.subnet.Zone] -= n
	}
	slots := s.slots
	s.slots = nil
	reservation := e.world.newID("r")
	out := make([]*instance, 0, n)
	for index := range n {
		addr, ok := s.subnet.takeAddress()
		if !ok {
			break
		}
		i := &instance{
			launchSpec: *s, id: e.world.newID("i"), reservation: reservation, index: index, address: addr,
			dnsName: privateDNSName(addr, e.opts.Region), launched: c.at,
			price: e.catalog.priceOf(s.offer, s.subnet.Zone, s.capacityType, c.at), volumes: map[string]string{}, impaired: map[string]time.Time{},
		}
		i.reserved, i.partition = slots[index], e.choosePartition(s)
		e.tagLaunched(i)
		e.world.instances[i.id] = i
		e.world.instanceList = append(e.world.instanceList, i)
		c.instances = append(c.instances, i.id)
		e.world.hide(i.id)
		out = append(out, i)
		e.setState(i, ec2types.InstanceStateNamePending)
		e.event(i, Launched, "")
		e.boot(i)
	}
	return out
}

// tagLaunched gives instance and volumes their tags, EC2's own included.
func (e *Emulator) tagLaunched(i *instance) {
	own := map[string]string{}
	if i.template != nil {
		own["aws:ec2launchtemplate:id"], own["aws:ec2launchtemplate:version"] = i.template.id, templateVersion
	}
	if i.fleetID != "" {
		own["aws:ec2:fleet-id"] = i.fleetID
	}
	e.world.tags[i.id] = mergeTags(sdkTags(own), i.tags[ec2types.ResourceTypeInstance])
	for _, device := range slices.Sorted(maps.Keys(i.devices)) {
		id := e.world.newID("vol")
		i.volumes[device] = id
		e.world.tags[id] = i.tags[ec2types.ResourceTypeVolume]
	}
	i.interfaceID = e.world.newID("eni")
	e.world.tags[i.interfaceID] = i.tags[ec2types.ResourceTypeNetworkInterface]
	if i.capacityType == spot {
		i.spotRequest = e.world.newID("sir")
		e.world.tags[i.spotRequest] = i.tags[ec2types.ResourceTypeSpotInstancesRequest]
	}
}

// privateDNSName is EC2's: us-east-1 is older than the scheme of the others.
func privateDNSName(a netip.Addr, region string) string {
	domain := region + ".compute.internal"
	if region == "us-east-1" {
		domain = "ec2.internal"
	}
	return "ip-" + strings.ReplaceAll(a.String(), ".", "-") + "." + domain
}

// launchDelay is how long the launching action takes to answer.
func (e *Emulator) launchDelay(c *call, q quantiles) time.Duration {
	if e.opts.LaunchLatency == 0 {
		return 0
	}
	return scaled(q.at(e.rand.draw("latency", c.id).NormFloat64()), e.opts.LaunchLatency)
}
