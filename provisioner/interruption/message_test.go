// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// The messages have the form of AWS's own examples (EC2 User Guide, "Monitor Spot Instance interruptions" and following;
// AWS Health User Guide).
func TestParse(t *testing.T) {
	at := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	event := func(source, detailType, detail string) string {
		return `{"version":"0","id":"12345678-1234-1234-1234-123456789012","detail-type":"` + detailType + `","source":"` + source +
			`","account":"123456789012","time":"2026-11-30T12:00:00Z","region":"us-east-1","resources":[],"detail":` + detail + `}`
	}
	tests := []struct {
		name    string
		body    string
		want    notice
		wantErr bool
	}{
		{
			name: "spot interruption", body: event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-id":"i-1","instance-action":"terminate"}`),
			want: notice{kind: SpotInterrupted, instances: []string{"i-1"}, at: at},
		},
		{
			name: "rebalance", body: event("aws.ec2", "EC2 Instance Rebalance Recommendation", `{"instance-id":"i-1"}`),
			want: notice{kind: RebalanceRecommended, instances: []string{"i-1"}, at: at},
		},
		{
			name: "reservation", body: event("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning", `{"instance-id":"i-1","instance-action":"terminate"}`),
			want: notice{kind: ReservationInterrupted, instances: []string{"i-1"}, at: at},
		},
		{name: "stopping", body: event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"stopping"}`), want: notice{kind: InstanceStopped, instances: []string{"i-1"}, at: at}},
		{name: "terminated", body: event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"Terminated"}`), want: notice{kind: InstanceTerminated, instances: []string{"i-1"}, at: at}},
		{name: "running asks for nothing", body: event("aws.ec2", "EC2 Instance State-change Notification", `{"instance-id":"i-1","state":"running"}`), want: notice{kind: None, at: at}},
		{
			name: "scheduled change", body: event("aws.health", "AWS Health Event",
				`{"service":"EC2","eventTypeCategory":"scheduledChange","eventTypeCode":"AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED","affectedEntities":[{"entityValue":"i-1"},{"entityValue":"vol-1"},{"entityValue":"i-2"}]}`),
			want: notice{kind: ScheduledChange, instances: []string{"i-1", "i-2"}, at: at},
		},
		{name: "health of something else", body: event("aws.health", "AWS Health Event", `{"service":"RDS","eventTypeCategory":"scheduledChange"}`), want: notice{kind: None, at: at}},
		{name: "another event", body: event("aws.ec2", "EBS Snapshot Notification", `{}`), want: notice{kind: None, at: at}},
		{name: "another version", body: `{"version":"1","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning","detail":{"instance-id":"i-1"}}`, want: notice{kind: None}},
		{name: "empty", body: "", want: notice{kind: None}},
		{name: "no JSON", body: "hello", wantErr: true},
		{name: "no instance", body: event("aws.ec2", "EC2 Spot Instance Interruption Warning", `{"instance-action":"terminate"}`), wantErr: true},
		{name: "detail of another type", body: event("aws.ec2", "EC2 Spot Instance Interruption Warning", `"i-1"`), wantErr: true},
		{name: "no detail", body: `{"version":"0","source":"aws.ec2","detail-type":"EC2 Spot Instance Interruption Warning"}`, wantErr: true},
		{name: "affected entities are no list", body: event("aws.health", "AWS Health Event", `{"service":"EC2","eventTypeCategory":"scheduledChange","affectedEntities":"i-1"}`), wantErr: true},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			got, err := parse(tc.body)
			if (err != nil) != tc.wantErr {
				t.Fatalf("error %v, wanted one: %v", err, tc.wantErr)
			}
			if tc.wantErr {
				return
			}
			if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(notice{})); d != "" {
				t.Errorf("notice (-want +got):\n%s", d)
			}
		})
	}
}
