// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// notices receives and deletes everything, and returns the detail types and
// details of the messages.
func (b *bed) notices(t *testing.T) []notice {
	t.Helper()
	var out []notice
	client, url := b.sqs(), b.QueueURL()
	for {
		texts, receipts := bodies(t, client, &sqs.ReceiveMessageInput{QueueUrl: &url, MaxNumberOfMessages: 10})
		if len(texts) == 0 {
			return out
		}
		for i, text := range texts {
			var n notice
			if err := json.Unmarshal([]byte(text), &n); err != nil {
				t.Fatal(err)
			}
			out = append(out, n)
			if _, err := client.DeleteMessage(t.Context(), &sqs.DeleteMessageInput{QueueUrl: &url, ReceiptHandle: &receipts[i]}); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// states are those of the state-change events among notices.
func states(notices []notice) []string {
	var out []string
	for _, n := range notices {
		if detail, ok := n.Detail.(map[string]any); ok && n.DetailType == "EC2 Instance State-change Notification" {
			out = append(out, detail["state"].(string))
		}
	}
	return out
}

// running is a bed on a fake clock with one running instance.
func running(t *testing.T, capacityType ec2types.DefaultTargetCapacityType) (*bed, *clocktesting.FakeClock, <-chan Event, string) {
	t.Helper()
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b := fleetBed(t, Options{Clock: clock})
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, capacityType, "m5.large")))
	await(t, events, Running)
	return b, clock, events, out.Instances[0].InstanceIds[0]
}

func TestInterruptSpot(t *testing.T) {
	b, clock, events, id := running(t, spotType)
	if got, want := states(b.notices(t)), []string{"pending", "running"}; !gocmp.Equal(got, want) {
		t.Errorf("state changes %q, want %q", got, want)
	}
	if err := b.InterruptSpot(id); err != nil {
		t.Fatal(err)
	}
	got := b.notices(t)
	if len(got) != 1 {
		t.Fatalf("%d messages, want the notice", len(got))
	}
	got[0].ID = ""
	want := notice{
		Version: "0", DetailType: "EC2 Spot Instance Interruption Warning", Source: "aws.ec2", Account: "111122223333",
		Time: "2026-11-01T12:00:00Z", Region: "us-east-1", Resources: []string{"arn:aws:ec2:us-east-1a:instance/" + id},
		Detail: map[string]any{"instance-id": id, "instance-action": "terminate"},
	}
	if diff := gocmp.Diff(want, got[0]); diff != "" {
		t.Errorf("notice (-want +got):\n%s", diff)
	}
	stepUntilWaited(clock, interruptionNotice-time.Second, 1)
	if i := b.Instances()[0]; i.State != "running" {
		t.Errorf("%s within the notice", i.State)
	}
	stepUntilWaited(clock, time.Second, 1)
	if reason := await(t, events, ShuttingDown).Reason; reason != "Server.SpotInstanceTermination: Spot instance termination" {
		t.Errorf("shut down by %q", reason)
	}
	await(t, events, Terminated)
	if got, want := states(b.notices(t)), []string{"shutting-down", "terminated"}; !gocmp.Equal(got, want) {
		t.Errorf("state changes %q, want %q", got, want)
	}
	if err := b.InterruptSpot(id); err == nil {
		t.Error("a terminated instance was interrupted")
	}
}

func TestOnDemandIsNotInterrupted(t *testing.T) {
	b, _, _, id := running(t, onDemandType)
	if err := b.InterruptSpot(id); err == nil {
		t.Error("an on-demand instance was interrupted")
	}
}

func TestRebalance(t *testing.T) {
	b, _, _, id := running(t, spotType)
	b.notices(t)
	if err := b.RecommendRebalance(id); err != nil {
		t.Fatal(err)
	}
	got := b.notices(t)
	if len(got) != 1 || got[0].DetailType != "EC2 Instance Rebalance Recommendation" || !gocmp.Equal(got[0].Detail, any(map[string]any{"instance-id": id})) {
		t.Errorf("notices %+v", got)
	}
}

func TestScheduledEvent(t *testing.T) {
	b, clock, _, id := running(t, onDemandType)
	b.notices(t)
	from := clock.Now().Add(24 * time.Hour)
	if err := b.ScheduleEvent(id, "instance-retirement", from, from.Add(time.Hour)); err != nil {
		t.Fatal(err)
	}
	got := b.notices(t)
	if len(got) != 1 || got[0].Source != "aws.health" || got[0].DetailType != "AWS Health Event" {
		t.Fatalf("notices %+v, want one of AWS Health", got)
	}
	detail := got[0].Detail.(map[string]any)
	if detail["service"] != "EC2" || detail["eventTypeCategory"] != "scheduledChange" || detail["startTime"] != "Mon, 02 Nov 2026 12:00:00 GMT" {
		t.Errorf("detail %v", detail)
	}
	for name, found := range map[string]int{"instance-retirement": 1, "system-reboot": 0} {
		out := must[*ec2.DescribeInstanceStatusOutput](t)(b.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{
			Filters: []ec2types.Filter{filter("event.code", name)},
		}))
		if len(out.InstanceStatuses) != found {
			t.Errorf("%d instances with event %s, want %d", len(out.InstanceStatuses), name, found)
		}
		if found == 1 && !out.InstanceStatuses[0].Events[0].NotBefore.Equal(from) {
			t.Errorf("event %+v, want it from %v on", out.InstanceStatuses[0].Events[0], from)
		}
	}
	if err := b.ScheduleEvent(id, "nonsense", from, from); err == nil {
		t.Error("an unknown code was taken")
	}
}

func TestImpaired(t *testing.T) {
	b, clock, _, id := running(t, onDemandType)
	impaired := func() int {
		out := must[*ec2.DescribeInstanceStatusOutput](t)(b.ec2.DescribeInstanceStatus(t.Context(), &ec2.DescribeInstanceStatusInput{
			Filters: []ec2types.Filter{filter("instance-status.status", "impaired")},
		}))
		for _, s := range out.InstanceStatuses {
			if d := s.InstanceStatus.Details[0]; d.Status != "failed" || !d.ImpairedSince.Equal(clock.Now()) {
				t.Errorf("detail %+v", d)
			}
			if s.SystemStatus.Status != "ok" {
				t.Errorf("system status %s", s.SystemStatus.Status)
			}
		}
		return len(out.InstanceStatuses)
	}
	for scope, want := range map[string]int{"instance": 1, "system": 0} {
		if err := b.Impair(id, scope); err != nil {
			t.Fatal(err)
		}
		if got := impaired(); got != want {
			t.Errorf("%d instances impaired by %s, want %d", got, scope, want)
		}
		if err := b.Impair(id, ""); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.Impair(id, "disk"); err == nil {
		t.Error("an unknown scope was taken")
	}
}

func TestStop(t *testing.T) {
	b, _, events, id := running(t, onDemandType)
	b.notices(t)
	if err := b.Stop(id); err != nil {
		t.Fatal(err)
	}
	await(t, events, Stopped)
	if got, want := states(b.notices(t)), []string{"stopping", "stopped"}; !gocmp.Equal(got, want) {
		t.Errorf("state changes %q, want %q", got, want)
	}
	out := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{
		Filters: []ec2types.Filter{filter("instance-state-name", "stopped")},
	}))
	if got := instanceIDs(out); len(got) != 1 || *out.Reservations[0].Instances[0].State.Code != 80 {
		t.Errorf("stopped instances %q", got)
	}
	b.Terminate(id)
	await(t, events, Terminated)
}

// The same life at ten times the speed takes a tenth of the time.
func TestSpeed(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 12, 0, 0, 0, time.UTC))
	b := fleetBed(t, Options{Clock: clock, Speed: 10})
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, spotType, "m5.large")))
	await(t, events, Running)
	if err := b.InterruptSpot(out.Instances[0].InstanceIds[0]); err != nil {
		t.Fatal(err)
	}
	stepUntilWaited(clock, interruptionNotice/10, 1)
	await(t, events, ShuttingDown)
}
