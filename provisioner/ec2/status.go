// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// InstanceTrouble is what EC2's status checks and scheduled events say about an instance that is not well.
type InstanceTrouble struct {
	ID string
	// Instance and System are since when the instance's own check, or that of its host, fails; zero if it does not.
	Instance, System time.Time
	// Event is the code of a scheduled event (instance-reboot, system-reboot, system-maintenance, instance-retirement,
	// instance-stop); empty if there is none.
	Event string
}

// InstancesInTrouble returns the instances of the account whose status checks fail or for which AWS has scheduled an event
// (EC2 DescribeInstanceStatus). One call cannot ask for any of several conditions, so it takes three.
func (c *Client) InstancesInTrouble(ctx context.Context) ([]InstanceTrouble, error) {
	impaired := string(ec2types.SummaryStatusImpaired)
	questions := []ec2types.Filter{
		filter("instance-status.status", impaired),
		filter("system-status.status", impaired),
		filter("event.code", string(ec2types.EventCodeInstanceReboot), string(ec2types.EventCodeSystemReboot),
			string(ec2types.EventCodeSystemMaintenance), string(ec2types.EventCodeInstanceRetirement), string(ec2types.EventCodeInstanceStop)),
	}
	seen := map[string]bool{}
	var out []InstanceTrouble
	for _, q := range questions {
		pages := ec2.NewDescribeInstanceStatusPaginator(c.ec2, &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{q}, MaxResults: aws.Int32(1000)})
		for pages.HasMorePages() {
			page, err := pages.NextPage(ctx)
			if err != nil {
				return nil, wrap(err, "describing instance status")
			}
			for _, s := range page.InstanceStatuses {
				if t := troubleOf(s); !seen[t.ID] {
					seen[t.ID] = true
					out = append(out, t)
				}
			}
		}
	}
	return out, nil
}

func troubleOf(s ec2types.InstanceStatus) InstanceTrouble {
	t := InstanceTrouble{ID: aws.ToString(s.InstanceId), Instance: failingSince(s.InstanceStatus), System: failingSince(s.SystemStatus)}
	for _, e := range s.Events {
		// EC2 keeps events that are over for a week and marks them in their text only.
		if d := aws.ToString(e.Description); strings.HasPrefix(d, "[Completed]") || strings.HasPrefix(d, "[Canceled]") {
			continue
		}
		t.Event = string(e.Code)
		break
	}
	return t
}

// failingSince is the earliest instant one of the checks has failed since, zero if none fails.
func failingSince(s *ec2types.InstanceStatusSummary) time.Time {
	var since time.Time
	if s == nil {
		return since
	}
	for _, d := range s.Details {
		if at := aws.ToTime(d.ImpairedSince); d.Status == ec2types.StatusTypeFailed && !at.IsZero() && (since.IsZero() || at.Before(since)) {
			since = at
		}
	}
	return since
}
