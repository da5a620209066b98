// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"fmt"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// interruptionNotice is how long before its end EC2 tells a spot instance, and
// one on capacity whose owner wants it back.
const interruptionNotice = 2 * time.Minute

// notice is an event in the form of EventBridge's buses, which is also that of
// its messages on a queue.
type notice struct {
	Version    string   `json:"version"`
	ID         string   `json:"id"`
	DetailType string   `json:"detail-type"`
	Source     string   `json:"source"`
	Account    string   `json:"account"`
	Time       string   `json:"time"`
	Region     string   `json:"region"`
	Resources  []string `json:"resources"`
	Detail     any      `json:"detail"`
}

// instanceDetail is what events about one instance say.
type instanceDetail struct {
	InstanceID string `json:"instance-id"`
	Action     string `json:"instance-action,omitempty"`
	State      string `json:"state,omitempty"`
}

// notify puts an event on the queue. e.mu is held.
func (e *Emulator) notify(source, detailType string, resources []string, detail any) {
	raw, err := json.Marshal(notice{
		Version: "0", ID: e.world.newUUID("event"), DetailType: detailType, Source: source, Account: e.opts.AccountID,
		Time: e.clock.Now().UTC().Format(time.RFC3339), Region: e.opts.Region, Resources: resources, Detail: detail,
	})
	if err != nil {
		e.log.Error(err, "Encoding an event failed", "detailType", detailType) // no detail used here can't be encoded
		return
	}
	e.enqueue(string(raw))
}

// notifyInstance puts an event of EC2's about one instance on the queue.
func (e *Emulator) notifyInstance(i *instance, detailType string, detail instanceDetail) {
	detail.InstanceID = i.id
	e.notify("aws.ec2", detailType, []string{e.arn("ec2", "instance/"+i.id)}, detail)
}

// setState changes an instance's state and says so as EC2 does. e.mu is held.
func (e *Emulator) setState(i *instance, s ec2types.InstanceStateName) {
	i.state = s
	e.notifyInstance(i, "EC2 Instance State-change Notification", instanceDetail{State: string(s)})
}

// alive finds an instance that can still be interrupted.
func (e *Emulator) alive(id string) (*instance, error) {
	i := e.world.instances[id]
	if i == nil {
		return nil, fmt.Errorf("finding instance %q: there is none", id)
	}
	if i.state != ec2types.InstanceStateNamePending && i.state != ec2types.InstanceStateNameRunning {
		return nil, fmt.Errorf("interrupting instance %q: it is %s, not pending or running", id, i.state)
	}
	return i, nil
}

// InterruptSpot takes a spot instance back: the notice is on the queue when it
// returns, and the instance is shut down two minutes later (see Options.Speed).
// The error says that there is no such running spot instance.
func (e *Emulator) InterruptSpot(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	if i.capacityType != spot {
		return fmt.Errorf("interrupting instance %q: it is %s, not spot", id, i.capacityType)
	}
	// EC2 names the zone where other ARNs have the region.
	resource := "arn:aws:ec2:" + i.subnet.Zone + ":instance/" + i.id
	e.notify("aws.ec2", "EC2 Spot Instance Interruption Warning", []string{resource}, instanceDetail{InstanceID: i.id, Action: "terminate"})
	e.endAfterNotice(i, SpotNotice, "Server.SpotInstanceTermination: Spot instance termination")
	return nil
}

// endAfterNotice shuts an instance down when its notice has run out.
func (e *Emulator) endAfterNotice(i *instance, t EventType, reason string) {
	e.event(i, t, "")
	e.agenda.add(e.clock.Now().Add(e.pace(interruptionNotice)), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		e.shutDown(i, reason)
	})
}

// RecommendRebalance says that a spot instance is at elevated risk; nothing else
// happens to it.
func (e *Emulator) RecommendRebalance(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	resource := "arn:aws:ec2:" + i.subnet.Zone + ":instance/" + i.id
	e.notify("aws.ec2", "EC2 Instance Rebalance Recommendation", []string{resource}, instanceDetail{InstanceID: i.id})
	e.event(i, RebalanceNotice, "")
	return nil
}

// scheduled is an event of maintenance that DescribeInstanceStatus answers.
type scheduled struct {
	id, code, description string
	from, to              time.Time
}

// ScheduleEvent announces maintenance of an instance between two times: AWS
// Health's message is on the queue, DescribeInstanceStatus lists the event. Code is EC2's, such as
// instance-retirement, instance-stop, system-reboot, system-maintenance. What it
// announces does not happen.
func (e *Emulator) ScheduleEvent(id, code string, from, to time.Time) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	health, known := healthCodes()[ec2types.EventCode(code)]
	if !known {
		return fmt.Errorf("scheduling event of instance %q: code %q is none of EC2's", id, code)
	}
	i.scheduled = append(i.scheduled, scheduled{
		id: e.world.newID("instance-event"), code: code, description: "The instance is running on degraded hardware", from: from, to: to,
	})
	const httpTime = "Mon, 02 Jan 2006 15:04:05 GMT"
	e.notify("aws.health", "AWS Health Event", []string{i.id}, map[string]any{
		"eventArn":          "arn:aws:health:" + e.opts.Region + "::event/EC2/" + health + "/" + health + "_" + e.world.newUUID("health"),
		"service":           "EC2",
		"eventTypeCode":     health,
		"eventTypeCategory": "scheduledChange",
		"eventScopeCode":    "ACCOUNT_SPECIFIC",
		"statusCode":        "upcoming",
		"startTime":         from.UTC().Format(httpTime),
		"endTime":           to.UTC().Format(httpTime),
		"eventDescription":  []map[string]string{{"language": "en_US", "latestDescription": "EC2 has detected degradation of the underlying hardware hosting your Amazon EC2 instance."}},
		"affectedEntities":  []map[string]string{{"entityValue": i.id}},
	})
	e.event(i, HealthNotice, code)
	return nil
}

// healthCodes are AWS Health's names of EC2's event codes.
func healthCodes() map[ec2types.EventCode]string {
	return map[ec2types.EventCode]string{
		ec2types.EventCodeInstanceReboot:     "AWS_EC2_INSTANCE_REBOOT_MAINTENANCE_SCHEDULED",
		ec2types.EventCodeInstanceRetirement: "AWS_EC2_PERSISTENT_INSTANCE_RETIREMENT_SCHEDULED",
		ec2types.EventCodeInstanceStop:       "AWS_EC2_INSTANCE_STOP_SCHEDULED",
		ec2types.EventCodeSystemMaintenance:  "AWS_EC2_SYSTEM_MAINTENANCE_EVENT",
		ec2types.EventCodeSystemReboot:       "AWS_EC2_SYSTEM_REBOOT_MAINTENANCE_SCHEDULED",
	}
}

// Impair makes an instance's status checks fail from now on: scope is "instance"
// or "system"; "" mends both.
func (e *Emulator) Impair(id, scope string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	now := e.clock.Now()
	switch scope {
	case "":
		i.impaired = map[string]time.Time{}
	case "instance", "system":
		i.impaired[scope] = now
	default:
		return fmt.Errorf("impairing instance %q: scope %q is neither instance nor system", id, scope)
	}
	e.event(i, Impaired, scope)
	return nil
}

// Stop stops an instance as somebody in the console would: its node goes silent,
// the instance stays as stopped until it is terminated.
func (e *Emulator) Stop(id string) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	i, err := e.alive(id)
	if err != nil {
		return err
	}
	i.reason = "Client.UserInitiatedShutdown: User initiated shutdown"
	e.setState(i, ec2types.InstanceStateNameStopping)
	e.event(i, Stopping, i.reason)
	e.leave(i)
	e.agenda.add(e.clock.Now().Add(e.terminationDelay(i)), func() {
		e.mu.Lock()
		defer e.mu.Unlock()
		if i.state == ec2types.InstanceStateNameStopping {
			e.setState(i, ec2types.InstanceStateNameStopped)
			e.event(i, Stopped, "")
		}
	})
	return nil
}
