// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"io"
	"net/http"
	"strings"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	gocmp "github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
)

// admin calls a control and returns status and body.
func (b *bed) adminCall(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), method, b.URL()+AdminPath+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	answer, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatal(err)
	}
	return answer.StatusCode, string(text)
}

func (b *bed) admin(t *testing.T, method, path, body string) string {
	t.Helper()
	status, text := b.adminCall(t, method, path, body)
	if status >= http.StatusBadRequest {
		t.Fatalf("%s %s: %d %s", method, path, status, text)
	}
	return text
}

func TestAdminCapacity(t *testing.T) {
	b := fleetBed(t, Options{Seed: 1})
	launch := func(n int32, capacityType ec2types.DefaultTargetCapacityType) []string {
		return summary(must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(n, capacityType, "m5.large"))))
	}
	full := []string{"2 m5.large@us-east-1a on-demand"}
	dry := []string{"InsufficientInstanceCapacity m5.large"}
	b.admin(t, "PUT", "stock", `{"instanceType": "m5.*", "left": 0}`)
	if diff := gocmp.Diff(dry, launch(2, onDemandType)); diff != "" {
		t.Errorf("no stock (-want +got):\n%s", diff)
	}
	b.admin(t, "POST", "reservations", `{"id": "cr-0a", "instanceType": "m5.large", "zone": "us-east-1a", "count": 1}`)
	b.admin(t, "PUT", "reservations/cr-0a", `{"count": 2}`)
	if diff := gocmp.Diff(full, launch(2, onDemandType)); diff != "" {
		t.Errorf("reserved (-want +got):\n%s", diff)
	}
	b.admin(t, "DELETE", "reservations/cr-0a", "")
	b.admin(t, "PUT", "stock", `{"instanceType": "m5.*", "left": -1}`)
	b.admin(t, "PUT", "partial-fleets", `{"share": 1}`)
	if got := launch(2, onDemandType); len(got) != 2 || got[0] != "1 m5.large@us-east-1a on-demand" {
		t.Errorf("partial: %q", got)
	}
	b.admin(t, "PUT", "partial-fleets", `{"share": 0}`)
	id := b.admin(t, "POST", "placement-groups", `{"name": "g", "strategy": "spread"}`)
	groups := must[*ec2.DescribePlacementGroupsOutput](t)(b.ec2.DescribePlacementGroups(t.Context(), &ec2.DescribePlacementGroupsInput{GroupNames: []string{"g"}}))
	if !strings.Contains(id, *groups.PlacementGroups[0].GroupId) {
		t.Errorf("made %s, described %s", id, *groups.PlacementGroups[0].GroupId)
	}
}

func TestAdminInstances(t *testing.T) {
	b := fleetBed(t, Options{})
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, spotType, "m5.large")))
	id := out.Instances[0].InstanceIds[0]
	await(t, events, Running)
	for _, what := range []string{"interrupt", "rebalance", "impair?scope=system", "schedule?code=system-reboot", "stop", "terminate"} {
		b.admin(t, "POST", "instances/"+id+"/"+what, "")
	}
	await(t, events, Terminated)
	var got []Event
	if err := json.Unmarshal([]byte(b.admin(t, "GET", "events?type=*Notice&instance="+id, "")), &got); err != nil {
		t.Fatal(err)
	}
	var types []EventType
	for _, e := range got {
		types = append(types, e.Type)
	}
	if diff := gocmp.Diff([]EventType{SpotNotice, RebalanceNotice, HealthNotice}, types); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	var instances []Instance
	if err := json.Unmarshal([]byte(b.admin(t, "GET", "instances", "")), &instances); err != nil || len(instances) != 1 || instances[0].State != "terminated" {
		t.Errorf("instances %+v (%v)", instances, err)
	}
}

func TestAdminBehaviour(t *testing.T) {
	b := start(t, Options{})
	subnets := func() error {
		_, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		return err
	}
	b.admin(t, "POST", "faults", `{"action": "DescribeSubnets", "code": "InternalError", "delay": "1ms", "count": 2}`)
	wantCode(t, subnets(), "InternalError")
	b.admin(t, "DELETE", "faults", "")
	wantCode(t, subnets(), "")
	b.admin(t, "PUT", "rates", `{"Describe": {"refill": 0, "burst": 1}}`)
	wantCode(t, subnets(), "")
	wantCode(t, subnets(), "RequestLimitExceeded")
	if got := b.admin(t, "PUT", "rates", `{}`); !strings.Contains(got, "Resources/RunInstances") {
		t.Errorf("rates %s, want the published ones", got)
	}
	b.admin(t, "DELETE", "rates", "")
	b.admin(t, "PUT", "parameters", `{"name": "/team/ami", "value": "ami-1"}`)
	if got := must[*ssm.GetParameterOutput](t)(b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/team/ami")})); *got.Parameter.Value != "ami-1" {
		t.Errorf("parameter %q", *got.Parameter.Value)
	}
	b.admin(t, "POST", "queue", "any text")
	if texts, _ := bodies(t, b.sqs(), &sqs.ReceiveMessageInput{QueueUrl: aws.String(b.QueueURL())}); len(texts) != 1 || texts[0] != "any text" {
		t.Errorf("received %q", texts)
	}
	var got []Request
	if err := json.Unmarshal([]byte(b.admin(t, "GET", "requests?service=ec2&code=?*&after=1", "")), &got); err != nil {
		t.Fatal(err)
	}
	if len(got) != 1 || got[0].Code != "RequestLimitExceeded" {
		t.Errorf("journal %+v, want the throttled request", got)
	}
}

func TestAdminErrors(t *testing.T) {
	b := start(t, Options{})
	tests := []struct{ name, method, path, body, want string }{
		{"unknown member", "PUT", "stock", `{"type": "m5.large", "left": 0}`, "unknown field"},
		{"no count", "PUT", "stock", `{}`, "left is missing"},
		{"no action", "POST", "faults", `{"code": "InternalError"}`, "action is missing"},
		{"no instance", "POST", "instances/i-0/stop", "", "there is none"},
		{"no control", "POST", "instances/i-0/explode", "", "is no control"},
		{"falling quantiles", "PUT", "latency", `{"action": "*", "p10": "2s", "p50": "1s", "p90": "3s", "p99": "4s"}`, "must be positive and not fall"},
		{"no duration", "PUT", "consistency", `{"lag": "soon"}`, "soon"},
		{"not sold there", "POST", "reservations", `{"instanceType": "m5.large", "zone": "mars", "count": 1}`, "not offered"},
		{"no reservation", "DELETE", "reservations/cr-0", "", "no active one"},
		{"no strategy", "POST", "placement-groups", `{"name": "g"}`, "strategy"},
		{"no index", "GET", "requests?after=x", "", "no count"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			status, text := b.adminCall(t, test.method, test.path, test.body)
			if status != http.StatusBadRequest || !strings.Contains(text, test.want) {
				t.Errorf("%d %s, want 400 with %q", status, text, test.want)
			}
		})
	}
	// The help names every control there is.
	help := b.admin(t, "GET", "", "")
	for _, path := range []string{"requests", "events", "queue", "stock", "partial-fleets", "faults", "rates", "latency", "consistency", "parameters", "reservations", "placement-groups", "interrupt-reserved"} {
		if !strings.Contains(help, path) {
			t.Errorf("the help does not name %s", path)
		}
	}
}

func TestLatency(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock})
	second := Latency{P10: time.Second, P50: time.Second, P90: time.Second, P99: time.Second}
	if err := b.SetLatency("DescribeSubnets", second); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() {
		_, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{})
		done <- err
	}()
	stepUntilWaited(clock, 999*time.Millisecond, 2) // the agenda's timer and the answer's
	select {
	case err := <-done:
		t.Fatalf("answered early: %v", err)
	default:
	}
	clock.Step(time.Millisecond)
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if _, err := b.ec2.DescribeImages(t.Context(), &ec2.DescribeImagesInput{ImageIds: []string{b.image(t, "arm64")}}); err != nil {
		t.Fatal(err) // another action is answered without a step
	}
	if err := b.SetLatency("DescribeSubnets", Latency{}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.ec2.DescribeSubnets(t.Context(), &ec2.DescribeSubnetsInput{}); err != nil {
		t.Fatal(err)
	}
}

// What was just made is not there yet for reads; it comes within the lag.
func TestConsistencyLag(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock, InstantBoot: true})
	ctx := t.Context()
	b.SetConsistencyLag(10 * time.Second)
	b.profile(t)
	b.template(t, nodeConfig)
	launch := func() (*ec2.CreateFleetOutput, error) {
		return b.ec2.CreateFleet(ctx, fleet(1, onDemandType, "m5.large"))
	}
	_, err := launch()
	wantCode(t, err, "InvalidLaunchTemplateName.NotFoundException")
	if _, err := b.iam.GetInstanceProfile(ctx, &iam.GetInstanceProfileInput{InstanceProfileName: aws.String("nodes")}); err != nil {
		t.Errorf("IAM itself: %v", err)
	}
	clock.Step(10 * time.Second)
	out := must[*ec2.CreateFleetOutput](t)(launch())
	id := out.Instances[0].InstanceIds[0]
	described := func() ([]string, error) {
		byID, err := b.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		byFilter := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("instance-type", "m5.large")}}))
		if (err == nil) != (len(byFilter.Reservations) == 1) {
			t.Errorf("by id %v, by filter %d", err, len(byFilter.Reservations))
		}
		if err != nil {
			return nil, err
		}
		var keys []string
		for _, tag := range byID.Reservations[0].Instances[0].Tags {
			keys = append(keys, *tag.Key)
		}
		return keys, nil
	}
	_, err = described()
	wantCode(t, err, "InvalidInstanceID.NotFound")
	tagging := &ec2.CreateTagsInput{Resources: []string{id}, Tags: tags("Name", "node-1")}
	_, err = b.ec2.CreateTags(ctx, tagging)
	wantCode(t, err, "InvalidInstanceID.NotFound")
	clock.Step(10 * time.Second)
	if _, err := b.ec2.CreateTags(ctx, tagging); err != nil {
		t.Fatal(err)
	}
	before := must[[]string](t)(described())
	clock.Step(10 * time.Second)
	after := must[[]string](t)(described())
	if diff := gocmp.Diff(append([]string{"Name"}, before...), after); diff != "" {
		t.Errorf("tags before and after the lag (-want +got):\n%s", diff)
	}
	b.SetConsistencyLag(0)
	out = must[*ec2.CreateFleetOutput](t)(launch())
	id = out.Instances[0].InstanceIds[0]
	if _, err := b.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{InstanceIds: []string{id}}); err != nil {
		t.Error(err)
	}
}
