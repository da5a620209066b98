// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestLaunchWritesRequestAndClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.cloud.hide = 2
		if err := r.Templates.sync(quiet(t.Context())); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		var bought []string
		r.reports.found = func(claim, providerID, nodeName string) {
			bought = append(bought, claim+" is "+providerID+" "+nodeName+", its status says "+strconv.Quote(get(t, kube, claim).Status.ProviderID))
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		time.Sleep(time.Second)
		synctest.Wait()

		req := r.cloud.sent[0]
		wantTags := map[string]string{
			"kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.sh/nodepool": "default",
			"karpenter.k8s.aws/ec2nodeclass": builder.DefaultClass, "slipway.sh/launch": "uid-claim-0",
		}
		if d := cmp.Diff(wantTags, req.Tags); d != "" {
			t.Errorf("tags (-want +got):\n%s", d)
		}
		if req.Token != "uid-claim-0" || req.Count != 1 || req.CapacityType != "spot" {
			t.Errorf("request is %s ×%d %s, want uid-claim-0 ×1 spot", req.Token, req.Count, req.CapacityType)
		}
		var got []string
		for _, o := range req.Overrides {
			got = append(got, strings.Join([]string{o.InstanceType, o.Zone, o.SubnetID, o.ImageID}, " "))
		}
		want := []string{
			"m6g.large us-east-1a subnet-a ami-arm64", "m6g.large us-east-1b subnet-b ami-arm64",
			"m5.large us-east-1a subnet-a ami-amd64", "m5.large us-east-1b subnet-b ami-amd64",
		}
		if d := cmp.Diff(want, got); d != "" {
			t.Errorf("overrides (-want +got):\n%s", d)
		}
		if len(r.store.made) != 4 {
			t.Errorf("made %d templates, want one for each image and market, all ahead of the launch", len(r.store.made))
		}

		c := get(t, kube, "claim-0")
		if c.Status.ProviderID != "aws:///us-east-1a/i-001" || c.Status.ImageID != "ami-arm64" || c.Status.NodeName != "" {
			t.Errorf("status is %q %q %q", c.Status.ProviderID, c.Status.ImageID, c.Status.NodeName)
		}
		if cond := c.StatusConditions().Get(karpv1.ConditionTypeLaunched); !cond.IsTrue() || cond.Reason != "Launched" {
			t.Errorf("Launched is %v", cond)
		}
		if q := c.Status.Allocatable[corev1.ResourceCPU]; q.String() != "2" {
			t.Errorf("allocatable cpu is %s, want 2", q.String())
		}
		for k, want := range map[string]string{
			corev1.LabelInstanceTypeStable: "m6g.large", corev1.LabelTopologyZone: "us-east-1a", corev1.LabelArchStable: "arm64",
			corev1.LabelTopologyRegion: "us-east-1", karpv1.CapacityTypeLabelKey: "spot", v1.LabelInstanceFamily: "m6g", "team": "a",
		} {
			if c.Labels[k] != want {
				t.Errorf("label %s is %q, want %q", k, c.Labels[k], want)
			}
		}
		if got := c.Annotations[NodeNameAnnotation]; got != "i-001.ec2.internal" {
			t.Errorf("node name annotation is %q", got)
		}

		if d := cmp.Diff([]string{`claim-0 is aws:///us-east-1a/i-001 i-001.ec2.internal, its status says ""`}, bought); d != "" {
			t.Errorf("told before the status was written (-want +got):\n%s", d)
		}
		all := r.reports.list()
		if len(all) != 1 || all[0].Err != nil || all[0].NodeName != "i-001.ec2.internal" || all[0].Price != 0.03 {
			t.Fatalf("outcomes are %+v", all)
		}
		ti := all[0].Timings
		if ti.HandedOver != began || ti.Sent != began || ti.Described.Sub(began) != 60*time.Millisecond || ti.Patched.Before(ti.Described) {
			t.Errorf("timings are %+v, want described after 20+40 ms of retries", ti)
		}
		if len(r.runs) != 0 {
			t.Errorf("%d launches are still on the list", len(r.runs))
		}
	})
}

func TestEqualClaimsShareOneCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		made := create(t, kube, claims(3, "group")...)
		r.Launch(quiet(t.Context()), made)
		r.Launch(quiet(t.Context()), made) // already under way
		synctest.Wait()
		if d := cmp.Diff([]string{"group×3"}, tokens(r.cloud.sent)); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
		for i, want := range []string{"i-001", "i-002", "i-003"} {
			if got := instanceID(get(t, kube, made[i].Name).Status.ProviderID); got != want {
				t.Errorf("claim %d got %q, want %q", i, got, want)
			}
		}
	})
}

// key is an offering of the rig's catalogue.
func key(instanceType, zone, capacityType string) capacity.OfferingKey {
	return capacity.OfferingKey{InstanceType: instanceType, Zone: "us-east-1" + zone, CapacityType: capacityType}
}

func TestFailuresByKind(t *testing.T) {
	allSpot := []capacity.OfferingKey{key("m6g.large", "a", "spot"), key("m6g.large", "b", "spot"), key("m5.large", "a", "spot"), key("m5.large", "b", "spot")}
	type launcher = func(int32) ec2.FleetResult
	tests := []struct {
		name   string
		claims int
		script func(n int, req ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool)
		// what has to come of it
		wantCalls     []string
		wantInstances int
		wantWithin    time.Duration
		wantReason    string // of the Launched condition when it is not true
		wantEvents    []string
		wantOut       []capacity.OfferingKey
	}{
		{
			name: "throttled: the same token until it is answered", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.Throttled, "RequestLimitExceeded"), n < 3
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantWithin: time.Second,
		},
		{
			name: "answer lost although the call was carried out: repeated, not doubled", claims: 1,
			script: func(_ int, req ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool) {
				launch(req.Count)
				return ec2.FleetResult{}, failure(capacity.Unavailable, "InternalError"), true
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantWithin: time.Second,
		},
		{
			name: "request refused for capacity: the next offerings at once", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.NoCapacity, "MaxSpotInstanceCountExceeded"), n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantOut: allSpot,
		},
		{
			name: "offerings named as out: a new token for what is left", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity", allSpot[:2]...)}}, nil, n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0-2×1"}, wantInstances: 1, wantOut: allSpot[:2],
		},
		{
			name: "part of the fleet: the rest is asked for again", claims: 3,
			script: func(n int, _ ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool) {
				if n > 0 {
					return ec2.FleetResult{}, nil, false
				}
				result := launch(2)
				result.Errors = []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity", allSpot[0])}
				return result, nil, true
			},
			wantCalls: []string{"group×3", "group-2×1"}, wantInstances: 3, wantOut: allSpot[:1],
		},
		{
			name: "nothing came and nothing was said", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, nil, n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0-2×1"}, wantInstances: 1,
		},
		{
			name: "out of everything: given up at once", claims: 1,
			script: func(int, ec2.FleetRequest, launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity")}}, nil, true
			},
			wantCalls:  []string{"uid-claim-0×1", "uid-claim-0-2×1", "uid-claim-0-3×1"}, // spot, on-demand, GPU
			wantReason: "InsufficientCapacity", wantEvents: []string{"InsufficientCapacityError"},
		},
		{
			name: "unauthorized: told once, tried again slowly", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.Unauthorized, "UnauthorizedOperation"), n < 2
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantWithin: 90 * time.Second,
			wantEvents: []string{"Unauthorized"},
		},
		{
			name: "unauthorized inside an answer uses the token up", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.Unauthorized, "UnauthorizedOperation")}}, nil, n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0-2×1"}, wantInstances: 1, wantWithin: 30 * time.Second,
			wantEvents: []string{"Unauthorized"},
		},
		{
			name: "invalid for good: given up at the launch timeout", claims: 1,
			script: func(int, ec2.FleetRequest, launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.Invalid, "InvalidParameterValue"), true
			},
			wantCalls: []string{"uid-claim-0×1"}, wantWithin: 5 * time.Minute, wantReason: "LaunchFailed",
			wantEvents: []string{"LaunchFailed", "LaunchFailed"},
		},
		{
			name: "a quota is used up: everything that counts against it is left alone", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.NoCapacity, ec2.CodeVCPUQuota, key("m5.large", "a", "spot")), n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantOut: allSpot,
		},
		{
			name: "no spot role: on demand at once", claims: 1,
			script: func(_ int, req ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				if req.CapacityType == "on-demand" {
					return ec2.FleetResult{}, nil, false
				}
				return ec2.FleetResult{}, failure(capacity.Unauthorized, ec2.CodeSpotRole), true
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1, wantOut: allSpot,
		},
		{
			name: "no spot role, said inside an answer", claims: 1,
			script: func(_ int, req ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				if req.CapacityType == "on-demand" {
					return ec2.FleetResult{}, nil, false
				}
				return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.Unauthorized, ec2.CodeSpotRole)}}, nil, true
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0-2×1"}, wantInstances: 1, wantOut: allSpot,
		},
		{
			name: "server errors for spot only: other offerings after three of them, remembered once those worked", claims: 1,
			script: func(_ int, req ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				if req.CapacityType == "on-demand" {
					return ec2.FleetResult{}, nil, false
				}
				return ec2.FleetResult{}, failure(capacity.Unavailable, "InternalError"), true
			},
			wantCalls:     []string{"uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", "uid-claim-0-2×1"},
			wantInstances: 1, wantWithin: 7 * time.Second, wantOut: allSpot,
		},
		{
			name: "server errors for everything: EC2 is failing, nothing is a shortage", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.Unavailable, "InternalError"), n < 12
			},
			wantCalls: []string{
				"uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", // spot
				"uid-claim-0-2×1", "uid-claim-0-2×1", "uid-claim-0-2×1", // on demand
				"uid-claim-0-3×1", "uid-claim-0-3×1", "uid-claim-0-3×1", // with a GPU
				"uid-claim-0-4×1", "uid-claim-0-4×1", "uid-claim-0-4×1", "uid-claim-0-4×1", // from the beginning, for as long as it takes
			},
			wantInstances: 1, wantWithin: time.Minute,
		},
		{
			name: "a new instance profile: waited for, nothing doubted, nobody told", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.NotReady, ec2.CodeProfileUnknown), n < 5
			},
			wantCalls: []string{
				"uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1", "uid-claim-0×1",
			}, wantInstances: 1, wantWithin: 16 * time.Second,
		},
		{
			name: "a new instance profile, said inside an answer", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.NotReady, ec2.CodeProfileUnknown)}}, nil, n < 2
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0-2×1", "uid-claim-0-3×1"}, wantInstances: 1, wantWithin: 2 * time.Second,
		},
		{
			name: "an instance profile that EC2 never learns of: told after a minute, given up at the launch timeout", claims: 1,
			script: func(int, ec2.FleetRequest, launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.NotReady, ec2.CodeProfileUnknown), true
			},
			wantWithin: 5 * time.Minute, wantReason: "InstanceProfileNameInvalid",
			wantEvents: []string{"InstanceProfileNameInvalid", "InstanceProfileNameInvalid"},
		},
		{
			name: "template gone: made again and tried at once", claims: 1,
			script: func(n int, _ ec2.FleetRequest, _ launcher) (ec2.FleetResult, error, bool) {
				return ec2.FleetResult{}, failure(capacity.NotReady, ec2.CodeTemplateNotFound), n == 0
			},
			wantCalls: []string{"uid-claim-0×1", "uid-claim-0×1"}, wantInstances: 1,
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				r.cloud.script = tc.script
				group := ""
				if tc.claims > 1 {
					group = "group"
				}
				made := create(t, kube, claims(tc.claims, group)...)
				r.Launch(quiet(t.Context()), made)
				time.Sleep(tc.wantWithin + 10*time.Millisecond)
				synctest.Wait()

				got := tokens(r.cloud.sent)
				if tc.wantReason == "LaunchFailed" {
					got = slices.Compact(got)
				}
				if d := cmp.Diff(tc.wantCalls, got); tc.wantCalls != nil && d != "" {
					t.Errorf("calls (-want +got):\n%s", d)
				}
				if len(r.cloud.instances) != tc.wantInstances {
					t.Errorf("%d instances, want %d", len(r.cloud.instances), tc.wantInstances)
				}
				for _, c := range made {
					cond := get(t, kube, c.Name).StatusConditions().Get(karpv1.ConditionTypeLaunched)
					if tc.wantReason == "" && !cond.IsTrue() {
						t.Errorf("claim %s is not launched: %s", c.Name, cond.Message)
					}
					if tc.wantReason != "" && (!cond.IsFalse() || cond.Reason != tc.wantReason) {
						t.Errorf("Launched is %s %s, want False %s", cond.Status, cond.Reason, tc.wantReason)
					}
				}
				last := r.reports.list()
				if final := last[len(last)-1]; (final.Err == nil) != (tc.wantReason == "") || final.Retrying {
					t.Errorf("last outcome is %v (retrying %v)", final.Err, final.Retrying)
				}
				if d := cmp.Diff(tc.wantEvents, r.events.reasons); d != "" {
					t.Errorf("events (-want +got):\n%s", d)
				}
				for _, k := range tc.wantOut {
					if !r.out.Out(k) {
						t.Errorf("offering %v is not remembered as out", k)
					}
				}
				if tc.wantOut == nil && tc.wantReason == "" && len(r.out.out) > 0 {
					t.Errorf("remembered as out: %v", r.out.out)
				}
			})
		})
	}
}

// A launch from a new pool waits for one template at most; the others are made meanwhile.
func TestColdLaunchMakesOneTemplate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		before := -1
		r.cloud.script = func(int, ec2.FleetRequest, func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			before = len(r.store.made)
			return ec2.FleetResult{}, nil, false
		}
		slow := make(chan struct{})
		r.store.wait = func(tmpl ec2.Template) {
			if tmpl.ImageID != "ami-arm64" { // the cheapest offering's
				<-slow
			}
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		if len(r.cloud.sent) != 1 || before != 1 {
			t.Fatalf("%d calls were sent, the first after %d templates, want 1 and 1", len(r.cloud.sent), before)
		}
		for _, o := range r.cloud.sent[0].Overrides {
			if o.ImageID != "ami-arm64" {
				t.Errorf("the request names image %s, whose template is not made yet", o.ImageID)
			}
		}
		close(slow)
		synctest.Wait()
		if len(r.store.made) != 2 {
			t.Errorf("%d templates were made in the end, want 2", len(r.store.made))
		}
	})
}

// places counts the free places of reservations.
type places struct {
	free      map[string]int32
	exhausted []string
}

func (p *places) Take(id string, n int32) int32 {
	n = min(n, p.free[id])
	p.free[id] -= n
	return n
}
func (p *places) Return(id string, n int32) { p.free[id] += n }
func (p *places) Exhausted(id string)       { p.exhausted = append(p.exhausted, id) }

// Five equal claims, two places in a reservation: two are launched into it, three on demand, and no call fails.
func TestReservedPlacesAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		slots := &places{free: map[string]int32{"cr-1": 2, "cr-0": 0}}
		r.Slots = slots
		m5 := builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.096, "us-east-1a", "us-east-1b").Obj()
		for _, id := range []string{"cr-0", "cr-1"} {
			m5.Offerings = append(m5.Offerings, capacity.Offering{
				Zone: "us-east-1a", CapacityType: "reserved", ReservationID: id, ReservationType: "default", Price: 1e-9,
			})
		}
		r.Launcher.Catalogs = catalogs{capacity.NewCatalog([]*capacity.InstanceType{m5})}
		r.Launch(quiet(t.Context()), create(t, kube, claims(5, "group")...))
		synctest.Wait()
		if d := cmp.Diff([]string{"group×2", "group-2×3"}, tokens(r.cloud.sent)); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
		first := r.cloud.sent[0]
		if first.CapacityType != "reserved" || len(first.Overrides) != 1 || first.Overrides[0].ReservationID != "cr-1" || r.cloud.sent[1].CapacityType != "on-demand" {
			t.Errorf("calls are %+v", r.cloud.sent)
		}
		var into []string
		for _, tmpl := range r.store.made {
			if tmpl.Reservation != nil {
				into = append(into, tmpl.Reservation.ID)
			}
		}
		if d := cmp.Diff([]string{"cr-1"}, into); d != "" {
			t.Errorf("templates that name a reservation (-want +got):\n%s", d)
		}
		reserved := 0
		for i := range 5 {
			c := get(t, kube, "claim-"+strconv.Itoa(i))
			if c.Labels[v1.LabelCapacityReservationID] == "cr-1" && c.Labels[karpv1.CapacityTypeLabelKey] == "reserved" && c.Labels[v1.LabelCapacityReservationType] == "default" {
				reserved++
			}
		}
		if reserved != 2 || slots.free["cr-1"] != 0 {
			t.Errorf("%d claims say that they are reserved and %d places are left, want 2 and 0", reserved, slots.free["cr-1"])
		}
	})
}

func TestReservedPlacesAreGivenBack(t *testing.T) {
	for _, tc := range []struct {
		name          string
		err           *capacity.Error
		wantFree      int32
		wantExhausted []string
	}{
		{"the call failed", failure(capacity.NoCapacity, "InsufficientInstanceCapacity"), 1, nil},
		{"full after all", failure(capacity.NoCapacity, ec2.CodeReservationFull), 1, []string{"cr-1"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				kube := newKube(t, readyClass())
				r := newRig(kube, newCloud())
				slots := &places{free: map[string]int32{"cr-1": 1}}
				r.Slots = slots
				r.cloud.script = func(n int, _ ec2.FleetRequest, _ func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
					return ec2.FleetResult{}, tc.err, n == 0
				}
				m5 := builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.096, "us-east-1a").Obj()
				m5.Offerings = append(m5.Offerings, capacity.Offering{Zone: "us-east-1a", CapacityType: "reserved", ReservationID: "cr-1", Price: 1e-9})
				r.Launcher.Catalogs = catalogs{capacity.NewCatalog([]*capacity.InstanceType{m5})}
				r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
				synctest.Wait()
				if len(r.cloud.sent) != 2 || r.cloud.sent[1].CapacityType != "on-demand" {
					t.Errorf("calls %v, the second not on demand", tokens(r.cloud.sent))
				}
				if slots.free["cr-1"] != tc.wantFree {
					t.Errorf("%d places are free, want %d", slots.free["cr-1"], tc.wantFree)
				}
				if d := cmp.Diff(tc.wantExhausted, slots.exhausted); d != "" {
					t.Errorf("exhausted (-want +got):\n%s", d)
				}
			})
		})
	}
}

func TestFullSubnetIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.cloud.script = func(n int, _ ec2.FleetRequest, _ func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.NoCapacity, ec2.CodeSubnetFull, key("m6g.large", "a", "spot"))}}, nil, n == 0
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		for _, o := range r.cloud.sent[1].Overrides {
			if o.Zone != "us-east-1b" {
				t.Errorf("second attempt asks for %s in %s, whose only subnet is full", o.InstanceType, o.Zone)
			}
		}
		if r.out.Out(key("m6g.large", "a", "spot")) {
			t.Error("a full subnet was remembered as a shortage of the instance type")
		}
	})
}

// What a placement group has no room for is left alone in that group, and nowhere else.
func TestFullPlacementGroupIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := readyClass()
		class.Spec.PlacementGroupSelector = &v1.PlacementGroupSelector{ID: new("pg-1")}
		class.Annotations = map[string]string{ec2.AnnotationPlacementGroup: `{"id":"pg-1","strategy":"spread"}`}
		kube := newKube(t, class)
		r := newRig(kube, newCloud())
		catalog := testCatalog()
		for _, typ := range catalog.Types {
			typ.PlacementGroup = "pg-1"
		}
		r.Catalogs = catalogs{catalog}
		full := key("m6g.large", "a", "spot")
		r.cloud.script = func(n int, _ ec2.FleetRequest, _ func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			return ec2.FleetResult{Errors: []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity", full)}}, nil, n == 0
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		if len(r.cloud.sent) != 2 {
			t.Fatalf("%d calls, want 2", len(r.cloud.sent))
		}
		for _, o := range r.cloud.sent[1].Overrides {
			if o.InstanceType == full.InstanceType && o.Zone == full.Zone {
				t.Errorf("the second attempt asks for %s in %s again", o.InstanceType, o.Zone)
			}
		}
		inside := full
		inside.PlacementGroup = "pg-1"
		if !r.out.Out(inside) || r.out.Out(full) {
			t.Errorf("out: in the group %v, outside of it %v; want only in the group", r.out.Out(inside), r.out.Out(full))
		}
	})
}

func TestWaitsForClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := builder.EC2NodeClass(builder.DefaultClass).UID("class").Ready().NotReady(v1.ConditionTypeSubnetsReady, "SubnetsNotFound", "none").Obj()
		kube := newKube(t, class)
		r := newRig(kube, newCloud())
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		cond := get(t, kube, "claim-0").StatusConditions().Get(karpv1.ConditionTypeLaunched)
		if !cond.IsUnknown() || cond.Reason != "NodeClassNotReady" || !strings.Contains(cond.Message, builder.DefaultClass) {
			t.Errorf("Launched is %s %s %q, want Unknown NodeClassNotReady naming the class", cond.Status, cond.Reason, cond.Message)
		}
		if len(r.cloud.sent) != 0 {
			t.Error("EC2 was called for a class that is not ready")
		}
		ready := readyClass()
		ready.ResourceVersion = ""
		if err := kube.Delete(t.Context(), class); err != nil {
			t.Fatal(err)
		}
		if err := kube.Create(t.Context(), ready); err != nil {
			t.Fatal(err)
		}
		r.Changed()
		time.Sleep(100 * time.Millisecond)
		synctest.Wait()
		if !get(t, kube, "claim-0").StatusConditions().Get(karpv1.ConditionTypeLaunched).IsTrue() {
			t.Error("the claim was not launched as soon as its class was ready")
		}
	})
}

func TestDeletedClaimIsNotLaunched(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.cloud.script = func(n int, _ ec2.FleetRequest, _ func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			return ec2.FleetResult{}, failure(capacity.Unauthorized, "UnauthorizedOperation"), n == 0
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(2, "group")...))
		synctest.Wait()
		r.abandon("uid-claim-0")
		time.Sleep(time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]string{"group×2", "group×1"}, tokens(r.cloud.sent)); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
		if len(r.cloud.instances) != 1 {
			t.Errorf("%d instances for the one claim that is left", len(r.cloud.instances))
		}
	})
}

func TestMissingFinalizerIsAddedFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		c := claims(1, "")[0]
		c.Finalizers = nil
		r.cloud.script = func(int, ec2.FleetRequest, func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			if got := get(t, kube, "claim-0").Finalizers; !slices.Contains(got, karpv1.TerminationFinalizer) {
				t.Error("EC2 was called for a claim without finalizer")
			}
			return ec2.FleetResult{}, nil, false
		}
		r.Launch(quiet(t.Context()), create(t, kube, c))
		synctest.Wait()
		if len(r.cloud.sent) != 1 {
			t.Errorf("%d calls, want 1", len(r.cloud.sent))
		}
	})
}

// death ends a process at one step of a launch.
type death struct {
	die  func(step string, n int) bool
	kill context.CancelFunc

	mu      sync.Mutex
	dead    bool
	patches int
}

// at reports whether the process ends at the step, and ends it.
func (d *death) at(step string, n int) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.dead || !d.die(step, n) {
		return false
	}
	d.dead = true
	d.kill()
	return true
}

// patch counts API writes.
func (d *death) patch() {
	d.mu.Lock()
	n := d.patches
	d.patches++
	d.mu.Unlock()
	d.at("patch", n)
}

func (d *death) happened() bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.dead
}

// TestRestart ends the process at every step of a launch and lets another one go on. Whatever the instant, each claim has
// one instance in the end, and no instance is left over.
func TestRestart(t *testing.T) {
	type launcher = func(int32) ec2.FleetResult
	tests := []struct {
		name   string
		claims int
		// die is called at each step; true ends the process there. step is "sent" (before EC2 acts), "acted" (before its
		// answer arrives), "patch" (before the n-th API write).
		die func(step string, n int) bool
		// first answers the calls of the first process, as in cloud.script.
		first func(n int, req ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool)
		// between changes the world while no process runs.
		between func(t *testing.T, r *rig)
		// wantCalls are the second process's calls; nil if it does not matter.
		wantCalls []string
	}{
		{name: "before the call", claims: 1, die: func(step string, _ int) bool { return step == "sent" }},
		{
			name: "after EC2 acted, before its answer: found by its tag, nothing is asked for", claims: 1,
			die: func(step string, _ int) bool { return step == "acted" }, wantCalls: []string{},
		},
		{
			name: "EC2 acts later than the second process looks: the repeated call brings the same instance", claims: 1,
			die:     func(step string, _ int) bool { return step == "acted" },
			between: func(_ *testing.T, r *rig) { r.cloud.late = 1 }, wantCalls: []string{"uid-claim-0×1"},
		},
		{
			name: "the same, and prices have changed: a conflict is settled by looking again", claims: 1,
			die: func(step string, _ int) bool { return step == "acted" },
			between: func(_ *testing.T, r *rig) {
				r.cloud.late = 1
				r.out.Mark(key("m6g.large", "a", "spot"))
			},
			wantCalls: []string{"uid-claim-0×1"},
		},
		{
			name: "group: part of it written, the rest not asked for yet", claims: 3, die: func(step string, n int) bool { return step == "sent" && n == 1 },
			first: func(n int, _ ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool) {
				if n > 0 {
					return ec2.FleetResult{}, nil, false
				}
				result := launch(1)
				result.Errors = []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity", key("m6g.large", "a", "spot"))}
				return result, nil, true
			},
			wantCalls: []string{"group×3", "group-2×2"},
		},
		{name: "after the answer, before anything is written", claims: 1, die: func(step string, n int) bool { return step == "patch" && n == 0 }},
		{name: "between metadata and status", claims: 1, die: func(step string, n int) bool { return step == "patch" && n == 1 }},
		{name: "group: before the call", claims: 3, die: func(step string, _ int) bool { return step == "sent" }},
		{name: "group: after EC2 acted", claims: 3, die: func(step string, _ int) bool { return step == "acted" }},
		{name: "group: some claims written", claims: 3, die: func(step string, n int) bool { return step == "patch" && n == 3 }},
		{
			name: "group: in the second attempt", claims: 3, die: func(step string, n int) bool { return step == "acted" && n == 1 },
			first: func(n int, _ ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool) {
				if n > 0 {
					return ec2.FleetResult{}, nil, false
				}
				result := launch(1)
				result.Errors = []*capacity.Error{failure(capacity.NoCapacity, "InsufficientInstanceCapacity", key("m6g.large", "a", "spot"))}
				return result, nil, true
			},
		},
		{
			name: "prices changed while the call was under way", claims: 1, die: func(step string, _ int) bool { return step == "acted" },
			between: func(_ *testing.T, r *rig) { r.out.Mark(key("m6g.large", "a", "spot")) },
		},
		{
			name: "group: a claim was deleted while the call was under way", claims: 3, die: func(step string, _ int) bool { return step == "sent" },
			between: func(t *testing.T, r *rig) {
				c := get(t, r.kube, "claim-1")
				c.Finalizers = nil
				if err := r.kube.Update(t.Context(), c); err != nil {
					t.Fatal(err)
				}
				if err := r.kube.Delete(t.Context(), c); err != nil {
					t.Fatal(err)
				}
			},
		},
	}
	for _, tc := range tests {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, kill := context.WithCancel(quiet(t.Context()))
				defer kill()
				d := &death{die: tc.die, kill: kill}
				base := newKube(t, readyClass()).(client.WithWatch)
				kube := interceptor.NewClient(base, interceptor.Funcs{
					Patch: func(ctx context.Context, c client.WithWatch, o client.Object, p client.Patch, opts ...client.PatchOption) error {
						d.patch()
						if ctx.Err() != nil {
							return ctx.Err()
						}
						return c.Patch(ctx, o, p, opts...)
					},
					SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
						d.patch()
						if ctx.Err() != nil {
							return ctx.Err()
						}
						return c.SubResource(sub).Patch(ctx, o, p, opts...)
					},
				})
				made := create(t, kube, claims(tc.claims, map[bool]string{true: "group"}[tc.claims > 1])...)
				ec2side := newCloud()
				ec2side.script = func(n int, req ec2.FleetRequest, launch launcher) (ec2.FleetResult, error, bool) {
					if d.happened() {
						return ec2.FleetResult{}, nil, false
					}
					cut := failure(capacity.Unavailable, "")
					if d.at("sent", n) {
						return ec2.FleetResult{}, cut, true
					}
					if tc.first != nil {
						if result, err, ok := tc.first(n, req, launch); ok {
							return result, err, true
						}
					}
					result := launch(req.Count)
					if d.at("acted", n) {
						return ec2.FleetResult{}, cut, true
					}
					return result, nil, true
				}
				first := newRig(kube, ec2side)
				first.Launch(ctx, made)
				synctest.Wait()
				time.Sleep(time.Second)
				synctest.Wait()
				if !d.happened() {
					t.Fatal("the first process was never ended: the test tests nothing")
				}

				second := newRig(base, ec2side)
				if tc.between != nil {
					tc.between(t, second)
				}
				ec2side.sent = nil
				var names []string
				for _, c := range made {
					names = append(names, c.Name)
				}
				if _, err := second.adopt(quiet(t.Context()), names); err != nil {
					t.Fatal(err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()

				if got := append([]string{}, tokens(ec2side.sent)...); tc.wantCalls != nil && !cmp.Equal(tc.wantCalls, got) {
					t.Errorf("calls of the second process (-want +got):\n%s", cmp.Diff(tc.wantCalls, got))
				}
				seen := map[string]string{}
				var list karpv1.NodeClaimList
				if err := base.List(t.Context(), &list); err != nil {
					t.Fatal(err)
				}
				for _, c := range list.Items {
					id := instanceID(c.Status.ProviderID)
					if id == "" {
						t.Errorf("claim %s has no instance", c.Name)
					}
					if seen[id] != "" {
						t.Errorf("claims %s and %s share instance %s", seen[id], c.Name, id)
					}
					seen[id] = c.Name
				}
				if len(ec2side.instances) != len(list.Items) {
					t.Errorf("%d instances for %d claims; calls were %v", len(ec2side.instances), len(list.Items), tokens(ec2side.sent))
				}
			})
		})
	}
}

func TestAdoptLaunchesWholeGroupOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		create(t, kube, claims(3, "group")...)
		other := builder.NodeClaim("copied").UID("uid-copied").Pool("default").Annotation(LaunchGroupAnnotation, "group").Request("cpu", "2").Obj()
		foreign := builder.NodeClaim("foreign").UID("uid-foreign").Obj()
		foreign.Spec.NodeClassRef.Group = "karpenter.azure.com"
		create(t, kube, other, foreign)
		if _, err := r.adopt(quiet(t.Context()), []string{"claim-1", "foreign"}); err != nil {
			t.Fatal(err)
		}
		if _, err := r.adopt(quiet(t.Context()), []string{"claim-0", "claim-2", "copied"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		got := tokens(r.cloud.sent)
		slices.Sort(got)
		if d := cmp.Diff([]string{"group×3", "uid-copied×1"}, got); d != "" {
			t.Errorf("calls (-want +got):\n%s", d)
		}
	})
}

// TestDrain checks that a launch at work is waited for until its claim is written, and that one that waits to try again is
// not.
func TestDrain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.cloud.script = func(_ int, _ ec2.FleetRequest, launch func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			time.Sleep(3 * time.Second)
			return launch(1), nil, true
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		time.Sleep(time.Second)
		if !r.Drain(t.Context()) {
			t.Error("not drained")
		}
		if c := get(t, kube, "claim-0"); c.Status.ProviderID == "" {
			t.Error("drained before the claim had its instance")
		}
	})
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		r.cloud.script = func(int, ec2.FleetRequest, func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			return ec2.FleetResult{}, failure(capacity.Unauthorized, "UnauthorizedOperation"), true
		}
		r.Launch(quiet(t.Context()), create(t, kube, claims(1, "")...))
		synctest.Wait()
		began := time.Now()
		if !r.Drain(t.Context()) || time.Since(began) > time.Second {
			t.Errorf("waited %v for a launch that tries again in minutes", time.Since(began))
		}
	})
}
