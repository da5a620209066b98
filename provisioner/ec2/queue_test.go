// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

func TestQueueOnTheWire(t *testing.T) {
	emu, c := start(t)
	if _, err := c.Queue(t.Context(), "other"); capacity.KindOf(err) != capacity.NotFound {
		t.Errorf("a queue that does not exist gives %v, want kind NotFound", err)
	}
	q, err := c.Queue(t.Context(), emu.QueueName())
	if err != nil {
		t.Fatal(err)
	}
	sent := time.Now()
	for range 12 {
		emu.SendMessage(`{"version":"0"}`)
	}
	var all []ec2.Message
	for len(all) < 12 {
		got, err := q.Receive(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if len(got) == 0 || len(got) > 10 {
			t.Fatalf("%d messages at once", len(got))
		}
		all = append(all, got...)
	}
	m := all[0]
	if m.Body != `{"version":"0"}` || m.ID == "" || m.Receipt == "" || m.Receives != 1 || m.Sent.Sub(sent).Abs() > time.Minute {
		t.Errorf("message is %+v", m)
	}
	var receipts []string
	for _, m := range all {
		receipts = append(receipts, m.Receipt)
	}
	if err := q.Delete(t.Context(), receipts); err != nil {
		t.Fatal(err)
	}
	if visible, hidden := emu.QueueDepth(); visible+hidden != 0 {
		t.Errorf("%d messages are left, %d of them hidden", visible+hidden, hidden)
	}
	if err := q.Delete(t.Context(), []string{"no receipt"}); err == nil || !strings.Contains(err.Error(), "1 of 1 messages stay") {
		t.Errorf("deleting by a receipt that is none gives %v", err)
	}
}

func TestInstancesInTroubleOnTheWire(t *testing.T) {
	emu, c := start(t)
	class, tmpl := launchable(t, c)
	tmpl.Name = ec2.TemplateName(tmpl)
	if err := c.EnsureTemplate(t.Context(), tmpl); err != nil {
		t.Fatal(err)
	}
	made, err := c.Fleet(t.Context(), ec2.FleetRequest{
		Token: "t", Count: 4, CapacityType: "on-demand", Tags: map[string]string{ec2.TagNodePool: "p"},
		Overrides: []ec2.FleetOverride{{TemplateName: tmpl.Name, InstanceType: "m5.large", SubnetID: class.Status.Subnets[0].ID, ImageID: tmpl.ImageID}},
	})
	if err != nil || len(made.Instances) != 4 {
		t.Fatalf("%d instances, error %v", len(made.Instances), err)
	}
	ids := []string{made.Instances[0].ID, made.Instances[1].ID, made.Instances[2].ID}
	for i, scope := range []string{"instance", "system"} {
		if err := emu.Impair(ids[i], scope); err != nil {
			t.Fatal(err)
		}
	}
	if err := emu.ScheduleEvent(ids[2], "instance-retirement", time.Now().Add(time.Hour), time.Now().Add(2*time.Hour)); err != nil {
		t.Fatal(err)
	}
	// EC2 tells the status of instances that run, and these may still be pending.
	var found []ec2.InstanceTrouble
	err = wait.PollUntilContextTimeout(t.Context(), 10*time.Millisecond, 30*time.Second, true, func(ctx context.Context) (bool, error) {
		found, err = c.InstancesInTrouble(ctx)
		return len(found) >= 3, err
	})
	if err != nil {
		t.Fatalf("%d instances in trouble, want 3: %v", len(found), err)
	}
	by := map[string]ec2.InstanceTrouble{}
	for _, f := range found {
		by[f.ID] = f
	}
	switch {
	case len(found) != 3:
		t.Errorf("%d instances in trouble, want 3: %+v", len(found), found)
	case by[ids[0]].Instance.IsZero() || !by[ids[0]].System.IsZero():
		t.Errorf("the first is %+v, want its own check failing", by[ids[0]])
	case by[ids[1]].System.IsZero() || !by[ids[1]].Instance.IsZero():
		t.Errorf("the second is %+v, want its host's check failing", by[ids[1]])
	case by[ids[2]].Event != "instance-retirement":
		t.Errorf("the third is %+v, want a scheduled event", by[ids[2]])
	}
}
