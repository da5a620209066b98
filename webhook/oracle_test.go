// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/rules"
)

func template(t testing.TB, spec string) *corev1.PodTemplateSpec {
	t.Helper()
	out := &corev1.PodTemplateSpec{}
	if err := yaml.UnmarshalStrict([]byte("spec: {"+spec+"}"), out); err != nil {
		t.Fatal(err)
	}
	return out
}

func converters() webhook.Converter { return view.New(view.Source{}).Pod }

func TestFeasible(t *testing.T) {
	cat := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a", "b"),
		builder.InstanceType("c5.xlarge").CPU("4").Memory("8Gi").Spot(0.1, "a", "b", "c"),
	)
	spot := capacity.In("karpenter.sh/capacity-type", "spot")
	v := &capacity.View{
		Pools: []*capacity.Pool{
			builder.CapacityPool("general", cat).Limit("cpu", "1").InUse(3, "8", "8Gi").Require(capacity.In("karpenter.sh/capacity-type", "on-demand")).Obj(),
			builder.CapacityPool("spot", cat).OutOf(func(capacity.OfferingKey) bool { return true }).Require(spot).Obj(),
		},
		Nodes: []*capacity.Node{builder.CapacityNode("metal").CPU("96").Memory("512Gi").Label("rack", "r1").Obj()},
	}
	blocked := &capacity.View{Pools: slices.Concat(v.Pools, []*capacity.Pool{builder.CapacityPool("later", nil).Blocked("not ready").Obj()})}
	tests := map[string]struct {
		view *capacity.View
		spec string
		want rules.Answer
		// said is part of the reason, or the pools.
		said string
		spot bool
	}{
		"fits, whatever the limits":          {spec: "containers: [{name: a, resources: {requests: {cpu: 1}}}]", want: rules.Yes, said: "general spot"},
		"fits one, whatever is out of stock": {spec: "containers: [{name: a, resources: {requests: {cpu: 3}}}]", want: rules.Yes, said: "spot"},
		"only spot":                          {spec: "nodeSelector: {karpenter.sh/capacity-type: spot}, containers: [{name: a}]", want: rules.Yes, said: "spot", spot: true},
		"fits a node that is there":          {spec: "containers: [{name: a, resources: {requests: {memory: 400Gi}}}]", want: rules.Yes},
		"too large":                          {spec: "containers: [{name: a, resources: {requests: {memory: 600Gi}}}]", want: rules.No, said: "memory"},
		"no such label":                      {spec: "nodeSelector: {tier: db}, containers: [{name: a}]", want: rules.No, said: "tier"},
		"a volume makes a yes unknown":       {spec: "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: a}]", want: rules.Unknown},
		"but a no stays one":                 {spec: "volumes: [{name: v, persistentVolumeClaim: {claimName: c}}], containers: [{name: a, resources: {requests: {memory: 600Gi}}}]", want: rules.No},
		"so do other pods":                   {spec: "affinity: {podAffinity: {requiredDuringSchedulingIgnoredDuringExecution: [{topologyKey: z, labelSelector: {}}]}}, containers: [{name: a}]", want: rules.Unknown},
		"a preference does not":              {spec: "affinity: {podAffinity: {preferredDuringSchedulingIgnoredDuringExecution: [{weight: 1, podAffinityTerm: {topologyKey: z, labelSelector: {}}}]}}, containers: [{name: a}]", want: rules.Yes, said: "general spot"},
		"spread":                             {spec: "topologySpreadConstraints: [{maxSkew: 1, topologyKey: z, whenUnsatisfiable: DoNotSchedule}], containers: [{name: a}]", want: rules.Unknown},
		"devices":                            {spec: "resourceClaims: [{name: g, resourceClaimName: g}], containers: [{name: a}]", want: rules.Unknown},
		"a resource a plugin may bring":      {spec: "containers: [{name: a, resources: {limits: {example.com/fpga: 1}}}]", want: rules.Unknown},
		"a pool that is not ready may be it": {view: blocked, spec: "containers: [{name: a, resources: {requests: {memory: 600Gi}}}]", want: rules.Unknown},
		"nothing is ready":                   {view: &capacity.View{Pools: blocked.Pools[2:]}, spec: "nodeSelector: {tier: db}, containers: [{name: a}]", want: rules.Unknown},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if tt.view == nil {
				tt.view = v
			}
			o := webhook.NewOracle(tt.view, converters, clocktesting.NewFakePassiveClock(now()), nil)
			short := o.Feasible("team", template(t, tt.spec))
			got := o.Where("team", template(t, tt.spec))
			if short.Answer != got.Answer || short.Reason != got.Reason {
				t.Errorf("without the places the answer is %+v, with them %+v", short, got)
			}
			said := strings.Join(got.Pools, " ")
			if got.Answer == rules.No {
				said = got.Reason
			}
			if got.Answer != tt.want || (tt.want == rules.No && !strings.Contains(said, tt.said)) || (tt.want == rules.Yes && said != tt.said) || got.OnlySpot != tt.spot {
				t.Errorf("answer is %+v, want %s %q", got, tt.want, tt.said)
			}
			if again := o.Feasible("team", template(t, tt.spec)); again.Answer != got.Answer || again.Reason != got.Reason {
				t.Errorf("asked again it is %+v", again)
			}
		})
	}
}

// The successor of an oracle answers the same, with what its predecessor has computed.
func TestOracleSuccessor(t *testing.T) {
	cat := builder.Catalog(builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a"))
	v := &capacity.View{Pools: []*capacity.Pool{builder.CapacityPool("general", cat).Obj()}}
	first := webhook.NewOracle(v, converters, clocktesting.NewFakePassiveClock(now()), nil)
	second := webhook.NewOracle(v, converters, clocktesting.NewFakePassiveClock(now()), first)
	if got := second.Where("", template(t, "containers: [{name: a, resources: {requests: {cpu: 1}}}]")); got.Answer != rules.Yes || got.Zones != 1 {
		t.Errorf("answer is %+v, want yes in one zone", got)
	}
	if words := second.Vocabulary(); !slices.Contains(words["node.kubernetes.io/instance-type"], "m5.large") {
		t.Errorf("vocabulary has no instance type: %v", words)
	}
}

// slow is a clock by which everything takes a millisecond.
type slow struct {
	*clocktesting.FakePassiveClock
}

func (s slow) Now() time.Time {
	s.SetTime(s.FakePassiveClock.Now().Add(time.Millisecond))
	return s.FakePassiveClock.Now()
}

func (s slow) Since(t time.Time) time.Duration { return s.Now().Sub(t) }

// What takes too long is not known, and the next who asks goes on from there. The answer is what it would have been at once.
func TestOracleTakesItsTime(t *testing.T) {
	cat := builder.Catalog(builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a"))
	var pools []*capacity.Pool
	for i := range 30 {
		pools = append(pools, builder.CapacityPool(fmt.Sprintf("pool-%d", i), cat).Require(capacity.In("team", fmt.Sprint(i))).Obj())
	}
	v := &capacity.View{Pools: pools, Nodes: []*capacity.Node{builder.CapacityNode("metal").CPU("96").Memory("512Gi").Obj()}}
	tests := map[string]string{
		"too large for one pool":    "nodeSelector: {team: '27'}, containers: [{name: a, resources: {requests: {cpu: 100}}}]",
		"too large for all":         "containers: [{name: a, resources: {requests: {cpu: 100}}}]",
		"of no team":                "nodeSelector: {team: none}, containers: [{name: a}]",
		"on the node that is there": "containers: [{name: a, resources: {requests: {cpu: 90}}}]",
	}
	for name, spec := range tests {
		t.Run(name, func(t *testing.T) {
			want := webhook.NewOracle(v, converters, clocktesting.NewFakePassiveClock(now()), nil).Where("", template(t, spec))
			if want.Answer == rules.Unknown {
				t.Fatalf("with all the time there is the answer is %+v", want)
			}
			o := webhook.NewOracle(v, converters, slow{clocktesting.NewFakePassiveClock(now())}, nil)
			got, asked := o.Where("", template(t, spec)), 1
			for ; got.Answer == rules.Unknown && asked < 10; asked++ {
				got = o.Where("", template(t, spec))
			}
			if got.Answer != want.Answer || got.Nearest != want.Nearest || got.Reason != want.Reason {
				t.Errorf("after %d questions the answer is %+v, want %+v", asked, got, want)
			}
			if (asked > 1) != (want.Answer == rules.No) {
				t.Errorf("it took %d questions", asked)
			}
		})
	}
}
