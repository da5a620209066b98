// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// instanceID is the form of instance ids, short ones of old included.
var instanceID = regexp.MustCompile(`^i-([0-9a-f]{8}|[0-9a-f]{17})$`)

// checkIDs reports ids that are malformed or unknown, in EC2's words.
func (w *world) checkIDs(ids []string) error {
	for _, id := range ids {
		if !instanceID.MatchString(id) {
			return invalid("InvalidInstanceID.Malformed", "Invalid id: \"%s\"", id)
		}
	}
	unknown := unknownIDs(ids, w.instances)
	for _, id := range ids {
		if _, ok := w.instances[id]; ok && !w.seen(id) {
			unknown = append(unknown, id)
		}
	}
	switch len(unknown) {
	case 0:
		return nil
	case 1:
		return invalid("InvalidInstanceID.NotFound", "The instance ID '%s' does not exist", unknown[0])
	default:
		return invalid("InvalidInstanceID.NotFound", "The instance IDs '%s' do not exist", strings.Join(unknown, ", "))
	}
}

func (e *Emulator) describeInstances(_ *call, in *ec2.DescribeInstancesInput) (*ec2.DescribeInstancesOutput, error) {
	if len(in.InstanceIds) > 0 && in.MaxResults != nil {
		return nil, invalid("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if err := e.world.checkIDs(in.InstanceIds); err != nil {
		return nil, err
	}
	found, err := e.selectInstances(in.InstanceIds, in.Filters, instanceFilter)
	if err != nil {
		return nil, err
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &ec2.DescribeInstancesOutput{NextToken: next, Reservations: []ec2types.Reservation{}}
	for _, i := range items {
		// Instances of a reservation follow each other; a page may split it.
		last := len(out.Reservations) - 1
		if last < 0 || *out.Reservations[last].ReservationId != i.reservation {
			out.Reservations = append(out.Reservations, ec2types.Reservation{
				ReservationId: aws.String(i.reservation), OwnerId: aws.String(e.opts.AccountID), Groups: []ec2types.GroupIdentifier{},
			})
			last++
		}
		out.Reservations[last].Instances = append(out.Reservations[last].Instances, e.sdkInstance(i))
	}
	return out, nil
}

func (e *Emulator) selectInstances(ids []string, filters []ec2types.Filter, look func(*Emulator, *instance, string) ([]string, bool)) ([]*instance, error) {
	candidates := e.world.instanceList
	if len(ids) > 0 {
		candidates = make([]*instance, 0, len(ids))
		for _, id := range ids {
			if i := e.world.instances[id]; !slices.Contains(candidates, i) {
				candidates = append(candidates, i)
			}
		}
	}
	var found []*instance
	for _, i := range candidates {
		if !e.world.seen(i.id) {
			continue
		}
		ok, err := matches(filters, e.world.shownTags(i.id), func(name string) ([]string, bool) { return look(e, i, name) })
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, i)
		}
	}
	return found, nil
}

// instanceFilter has the filters of DescribeInstances on members the emulator
// fills; those EC2 has beyond them are refused rather than ignored.
func instanceFilter(e *Emulator, i *instance, name string) ([]string, bool) {
	switch name {
	case "instance-id":
		return one(i.id)
	case "instance-type":
		return one(i.offer.name)
	case "instance-state-name":
		return one(string(i.state))
	case "instance-state-code":
		return one(strconv.Itoa(int(*stateCode(i.state))))
	case "instance-lifecycle":
		if i.capacityType != onDemand {
			return one(i.capacityType)
		}
		return nil, true
	case "spot-instance-request-id":
		return one(i.spotRequest)
	case "image-id":
		return one(i.image.ID)
	case "architecture":
		return one(i.image.Arch)
	case "availability-zone":
		return one(i.subnet.Zone)
	case "availability-zone-id":
		return one(e.catalog.zoneIDOf(i.subnet.Zone))
	case "client-token":
		return one(i.token)
	case "capacity-reservation-id":
		if i.reserved != nil {
			return one(i.reserved.ID)
		}
		return nil, true
	case "placement-group-name":
		if i.group != nil {
			return one(i.group.Name)
		}
		return nil, true
	case "tenancy":
		return one(string(i.tenancy))
	case "reservation-id":
		return one(i.reservation)
	case "owner-id":
		return one(e.opts.AccountID)
	case "launch-time":
		return one(i.launched.UTC().Format(timeFormat))
	case "iam-instance-profile.arn":
		if p := e.world.profiles[i.profile]; p != nil {
			return one(aws.ToString(p.Arn))
		}
		return nil, true
	default:
		return networkFilter(i, name)
	}
}

func networkFilter(i *instance, name string) ([]string, bool) {
	var values []string
	switch name {
	case "subnet-id", "network-interface.subnet-id":
		values = []string{i.subnet.ID}
	case "vpc-id", "network-interface.vpc-id":
		values = []string{vpcID}
	case "private-ip-address", "network-interface.addresses.private-ip-address":
		values = []string{i.address.String()}
	case "private-dns-name", "network-interface.private-dns-name":
		values = []string{i.dnsName}
	case "instance.group-id", "network-interface.group-id":
		values = i.groups
	default:
		return nil, false
	}
	if i.gone() {
		return nil, true
	}
	return values, true
}

func (e *Emulator) describeInstanceStatus(_ *call, in *ec2.DescribeInstanceStatusInput) (*ec2.DescribeInstanceStatusOutput, error) {
	if len(in.InstanceIds) > 0 && in.MaxResults != nil {
		return nil, invalid("InvalidParameterCombination", "The parameter instancesSet cannot be used with the parameter maxResults")
	}
	if err := e.world.checkIDs(in.InstanceIds); err != nil {
		return nil, err
	}
	found, err := e.selectInstances(in.InstanceIds, in.Filters, statusFilter)
	if err != nil {
		return nil, err
	}
	found = slices.DeleteFunc(found, func(i *instance) bool {
		return !aws.ToBool(in.IncludeAllInstances) && i.state != ec2types.InstanceStateNameRunning
	})
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{5, 1000, 1000})
	if err != nil {
		return nil, err
	}
	out := &ec2.DescribeInstanceStatusOutput{NextToken: next, InstanceStatuses: []ec2types.InstanceStatus{}}
	for _, i := range items {
		out.InstanceStatuses = append(out.InstanceStatuses, ec2types.InstanceStatus{
			InstanceId: aws.String(i.id), AvailabilityZone: aws.String(i.subnet.Zone), AvailabilityZoneId: aws.String(e.catalog.zoneIDOf(i.subnet.Zone)),
			InstanceState: sdkState(i.state), InstanceStatus: i.check("instance"), SystemStatus: i.check("system"), Events: i.sdkEvents(),
		})
	}
	return out, nil
}

// status is that of a check, "instance" or "system".
func (i *instance) status(check string) ec2types.SummaryStatus {
	_, failing := i.impaired[check]
	switch {
	case i.state != ec2types.InstanceStateNameRunning:
		return ec2types.SummaryStatusNotApplicable
	case failing:
		return ec2types.SummaryStatusImpaired
	}
	return ec2types.SummaryStatusOk
}

func (i *instance) check(name string) *ec2types.InstanceStatusSummary {
	out := &ec2types.InstanceStatusSummary{Status: i.status(name)}
	detail := ec2types.InstanceStatusDetails{Name: ec2types.StatusNameReachability}
	switch out.Status {
	case ec2types.SummaryStatusOk:
		detail.Status = ec2types.StatusTypePassed
	case ec2types.SummaryStatusImpaired:
		detail.Status, detail.ImpairedSince = ec2types.StatusTypeFailed, aws.Time(i.impaired[name])
	default:
		return out
	}
	out.Details = []ec2types.InstanceStatusDetails{detail}
	return out
}

func (i *instance) sdkEvents() []ec2types.InstanceStatusEvent {
	var out []ec2types.InstanceStatusEvent
	for _, s := range i.scheduled {
		out = append(out, ec2types.InstanceStatusEvent{
			InstanceEventId: aws.String(s.id), Code: ec2types.EventCode(s.code), Description: aws.String(s.description),
			NotBefore: aws.Time(s.from), NotAfter: aws.Time(s.to),
		})
	}
	return out
}

// eventValues are the values of the status filters on scheduled events.
func (i *instance) eventValues(name string) ([]string, bool) {
	var out []string
	for _, s := range i.scheduled {
		switch name {
		case "event.code":
			out = append(out, s.code)
		case "event.description":
			out = append(out, s.description)
		case "event.instance-event-id":
			out = append(out, s.id)
		case "event.not-after":
			out = append(out, s.to.UTC().Format(timeFormat))
		case "event.not-before":
			out = append(out, s.from.UTC().Format(timeFormat))
		}
	}
	return out, true
}

// checkOf is the check of a filter such as system-status.status.
func checkOf(filter string) string {
	check, _, _ := strings.Cut(filter, "-")
	return check
}

func statusFilter(e *Emulator, i *instance, name string) ([]string, bool) {
	switch name {
	case "instance-status.status", "system-status.status":
		return one(string(i.status(checkOf(name))))
	case "instance-status.reachability", "system-status.reachability":
		if details := i.check(checkOf(name)).Details; len(details) > 0 {
			return one(string(details[0].Status))
		}
		return nil, true
	case "event.code", "event.description", "event.instance-event-id", "event.not-after", "event.not-before":
		return i.eventValues(name)
	case "availability-zone", "instance-state-name", "instance-state-code":
		return instanceFilter(e, i, name)
	default:
		return nil, false
	}
}

func (e *Emulator) terminateInstances(c *call, in *ec2.TerminateInstancesInput) (*ec2.TerminateInstancesOutput, error) {
	if len(in.InstanceIds) == 0 {
		return nil, missing("InstanceId")
	}
	if err := e.world.checkIDs(in.InstanceIds); err != nil {
		return nil, err
	}
	out := &ec2.TerminateInstancesOutput{}
	for _, id := range in.InstanceIds {
		i := e.world.instances[id]
		before := i.state
		e.shutDown(i, "Client.UserInitiatedShutdown: User initiated shutdown")
		c.instances = append(c.instances, id)
		out.TerminatingInstances = append(out.TerminatingInstances, ec2types.InstanceStateChange{
			InstanceId: aws.String(id), PreviousState: sdkState(before), CurrentState: sdkState(i.state),
		})
	}
	return out, nil
}

func (e *Emulator) getConsoleOutput(c *call, in *ec2.GetConsoleOutputInput) (*ec2.GetConsoleOutputOutput, error) {
	id := aws.ToString(in.InstanceId)
	if err := e.world.checkIDs([]string{id}); err != nil {
		return nil, err
	}
	text := strings.Join(e.world.instances[id].console, "\n")
	return &ec2.GetConsoleOutputOutput{
		InstanceId: aws.String(id), Timestamp: aws.Time(c.at.Truncate(time.Second)),
		Output: aws.String(base64.StdEncoding.EncodeToString([]byte(text))),
	}, nil
}
