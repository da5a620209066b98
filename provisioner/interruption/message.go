// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package interruption

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
)

// Kind says what a notice is about, in the words of Karpenter's metrics.
type Kind string

// Kinds of notices.
const (
	SpotInterrupted        Kind = "spot_interrupted"
	RebalanceRecommended   Kind = "rebalance_recommendation"
	ScheduledChange        Kind = "scheduled_change"
	InstanceStopped        Kind = "instance_stopped"
	InstanceTerminated     Kind = "instance_terminated"
	ReservationInterrupted Kind = "capacity_reservation_interrupted"
	// InstanceStatus, SystemStatus and EventStatus come from [Poller].
	InstanceStatus Kind = "instance_status"
	SystemStatus   Kind = "system_status"
	EventStatus    Kind = "event_status"
	// BlockEnding comes from [BlockWatcher].
	BlockEnding Kind = "capacity_block_ending"
	// None is for messages that ask for nothing.
	None Kind = "no_op"
)

// notice is what one message says.
type notice struct {
	kind      Kind
	instances []string
	at        time.Time // when AWS sent it
	until     time.Time // when EC2 takes the instances, if the notice says
}

// envelope is what all EventBridge events have in common.
type envelope struct {
	Version    string          `json:"version"`
	Source     string          `json:"source"`
	DetailType string          `json:"detail-type"`
	Time       time.Time       `json:"time"`
	Detail     json.RawMessage `json:"detail"`
}

// parse reads a message (Amazon EventBridge event, version "0"). Messages of other kinds, and an empty one, are of kind
// None; the error is for text that is no such event or lacks the instance it is about.
func parse(body string) (notice, error) {
	if body == "" {
		return notice{kind: None}, nil
	}
	var e envelope
	if err := json.Unmarshal([]byte(body), &e); err != nil {
		return notice{}, fmt.Errorf("reading an event: %w", err)
	}
	if e.Version != "0" {
		return notice{kind: None, at: e.Time}, nil
	}
	n := notice{kind: None, at: e.Time}
	var err error
	switch e.Source + "/" + e.DetailType {
	case "aws.ec2/EC2 Spot Instance Interruption Warning":
		err = n.about(SpotInterrupted, e.Detail)
	case "aws.ec2/EC2 Instance Rebalance Recommendation":
		err = n.about(RebalanceRecommended, e.Detail)
	case "aws.ec2/EC2 Capacity Reservation Instance Interruption Warning":
		err = n.about(ReservationInterrupted, e.Detail)
	case "aws.ec2/EC2 Instance State-change Notification":
		err = n.stateChange(e.Detail)
	case "aws.health/AWS Health Event":
		err = n.health(e.Detail)
	}
	return n, err
}

// about reads a detail that names one instance.
func (n *notice) about(kind Kind, detail json.RawMessage) error {
	var d struct {
		InstanceID string `json:"instance-id"`
	}
	if err := json.Unmarshal(detail, &d); err != nil {
		return fmt.Errorf("reading the detail of a %s event: %w", kind, err)
	}
	if d.InstanceID == "" {
		return fmt.Errorf("reading the detail of a %s event: detail.instance-id is missing", kind)
	}
	n.kind, n.instances = kind, []string{d.InstanceID}
	return nil
}

func (n *notice) stateChange(detail json.RawMessage) error {
	var d struct {
		State string `json:"state"`
	}
	if err := json.Unmarshal(detail, &d); err != nil {
		return fmt.Errorf("reading the detail of a state change: %w", err)
	}
	switch strings.ToLower(d.State) {
	case "stopping", "stopped":
		return n.about(InstanceStopped, detail)
	case "shutting-down", "terminated":
		return n.about(InstanceTerminated, detail)
	}
	return nil
}

func (n *notice) health(detail json.RawMessage) error {
	var d struct {
		Service  string `json:"service"`
		Category string `json:"eventTypeCategory"`
		Affected []struct {
			Value string `json:"entityValue"`
		} `json:"affectedEntities"`
	}
	if err := json.Unmarshal(detail, &d); err != nil {
		return fmt.Errorf("reading the detail of an AWS Health event: %w", err)
	}
	if d.Service != "EC2" || d.Category != "scheduledChange" {
		return nil
	}
	n.kind = ScheduledChange
	for _, a := range d.Affected {
		if strings.HasPrefix(a.Value, "i-") { // a change may also be about volumes and other things
			n.instances = append(n.instances, a.Value)
		}
	}
	return nil
}
