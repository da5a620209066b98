// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	dto "github.com/prometheus/client_model/go"
	clocktesting "k8s.io/utils/clock/testing"
)

func TestStaticPrices(t *testing.T) {
	tests := []struct {
		region string
		of     string
		want   float64
	}{
		{"us-east-1", "m5.large", 0.096},
		{"eu-central-1", "m5.large", 0.096}, // has no table of its own
		{"us-gov-east-1", "m5.large", 0.121},
		{"us-gov-west-1", "m5.large", 0.121},
		{"cn-northwest-1", "t4g.nano", 0.0253}, // yuan
	}
	for _, tt := range tests {
		prices, err := staticPrices(tt.region)
		if err != nil {
			t.Fatal(err)
		}
		if got := prices[tt.of]; got != tt.want {
			t.Errorf("%s: price of %s = %v, want %v", tt.region, tt.of, got, tt.want)
		}
		if len(prices) < 300 {
			t.Errorf("%s: %d prices, want hundreds", tt.region, len(prices))
		}
	}
}

// unpriced returns catalogues that know types and zones and whose every question about prices gets the answer.
func unpriced(t *testing.T, answer string, opts Options) *Catalogs {
	t.Helper()
	opts.Clock = clocktesting.NewFakePassiveClock(time.Unix(1e9, 0))
	c, _ := replay(t, map[string][]string{"DescribeSpotPriceHistory": {answer}, "": {answer}}, opts)
	cs, err := NewCatalogs(c)
	if err != nil {
		t.Fatal(err)
	}
	cs.update(func(m *market) {
		m.types = []*typeFacts{facts(t, m5Large())}
		m.zones = map[string][]string{"m5.large": {"a"}}
	})
	return cs
}

func gauge(t *testing.T, m *Metrics, capacityType string) float64 {
	t.Helper()
	var d dto.Metric
	if err := m.Static.WithLabelValues(capacityType).Write(&d); err != nil {
		t.Fatal(err)
	}
	return d.GetGauge().GetValue()
}

// Without permission to ask for prices nodes can be bought all the same, and people can see why prices are not EC2's.
func TestPricesStandIn(t *testing.T) {
	cs := unpriced(t, failure("AccessDeniedException", "no"), Options{})
	class := readyClass()
	class.Status.AMIs = class.Status.AMIs[:1]
	if cs.For(class) != nil || cs.Complete() {
		t.Error("there is a catalogue before prices were asked for")
	}
	if err := cs.RefreshOnDemandPrices(t.Context()); err == nil {
		t.Error("RefreshOnDemandPrices = nil, want an error so that it is tried again")
	}
	if cs.Complete() {
		t.Error("complete before spot prices were asked for: a pool that prefers spot would buy on demand")
	}
	if err := cs.RefreshSpotPrices(t.Context()); err == nil {
		t.Error("RefreshSpotPrices = nil, want an error so that it is tried again")
	}
	prices := map[string]float64{}
	for _, o := range cs.For(class).Offerings {
		prices[o.CapacityType] = o.Price
	}
	if diff := cmp.Diff(map[string]float64{"on-demand": 0.096, "spot": 0.096}, prices); diff != "" {
		t.Errorf("prices (-want +got):\n%s", diff)
	}
	for _, kind := range []string{"on-demand", "spot"} {
		if got := gauge(t, cs.Metrics, kind); got != 1 {
			t.Errorf("gauge of %s = %v, want 1: its prices are stand-ins", kind, got)
		}
	}
}

const spotAnswer = `<DescribeSpotPriceHistoryResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><spotPriceHistorySet>
<item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription><spotPrice>0.030000</spotPrice><timestamp>2001-09-09T00:00:00.000Z</timestamp><availabilityZone>a</availabilityZone></item>
<item><instanceType>m5.large</instanceType><productDescription>Linux/UNIX</productDescription><spotPrice>0.050000</spotPrice><timestamp>2001-09-08T00:00:00.000Z</timestamp><availabilityZone>a</availabilityZone></item>
</spotPriceHistorySet><nextToken></nextToken></DescribeSpotPriceHistoryResponse>`

// In an isolated network the price list is not asked at all; spot prices are EC2's.
func TestPricesOfAnIsolatedNetwork(t *testing.T) {
	cs := unpriced(t, spotAnswer, Options{IsolatedVPC: true})
	for _, refresh := range []func() error{
		func() error { return cs.RefreshOnDemandPrices(t.Context()) }, func() error { return cs.RefreshSpotPrices(t.Context()) },
	} {
		if err := refresh(); err != nil {
			t.Fatal(err)
		}
	}
	class := readyClass()
	class.Status.AMIs, class.Status.Subnets = class.Status.AMIs[:1], append(class.Status.Subnets[:1:1], v1.Subnet{ID: "subnet-z", Zone: "z"})
	cat := cs.For(class)
	if first := cat.Offerings[0]; first.CapacityType != "spot" || first.Price != 0.03 {
		t.Errorf("cheapest offering = %+v, want spot at the latest price of 0.03", first)
	}
	if od, spot := gauge(t, cs.Metrics, "on-demand"), gauge(t, cs.Metrics, "spot"); od != 1 || spot != 0 {
		t.Errorf("gauges = %v, %v; want 1 for on-demand, 0 for spot", od, spot)
	}
}
