// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"encoding/json"
	"maps"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/go-logr/logr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// RefreshSpotPrices asks for the current spot price of every type in every zone (EC2 DescribeSpotPriceHistory).
func (cs *Catalogs) RefreshSpotPrices(ctx context.Context) error {
	type latest struct {
		at    time.Time
		price float64
	}
	found := map[string]map[string]latest{}
	pages := ec2.NewDescribeSpotPriceHistoryPaginator(cs.client.ec2, &ec2.DescribeSpotPriceHistoryInput{
		// A start in the present asks for the price in force now.
		StartTime:           aws.Time(cs.client.opts.Clock.Now()),
		ProductDescriptions: []string{"Linux/UNIX", "Linux/UNIX (Amazon VPC)"},
		MaxResults:          aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			cs.spotUnknown(ctx)
			return wrap(err, "describing spot prices")
		}
		for _, p := range page.SpotPriceHistory {
			price, err := strconv.ParseFloat(aws.ToString(p.SpotPrice), 64)
			if err != nil || price <= 0 || p.Timestamp == nil {
				continue
			}
			zones := found[string(p.InstanceType)]
			if zones == nil {
				zones = map[string]latest{}
				found[string(p.InstanceType)] = zones
			}
			zone := aws.ToString(p.AvailabilityZone)
			if old, ok := zones[zone]; !ok || p.Timestamp.After(old.at) {
				zones[zone] = latest{*p.Timestamp, price}
			}
		}
	}
	if len(found) == 0 {
		cs.spotUnknown(ctx)
		return nothing("describing spot prices")
	}
	prices := make(map[string]map[string]float64, len(found))
	for t, zones := range found {
		prices[t] = make(map[string]float64, len(zones))
		for z, l := range zones {
			prices[t][z] = l.price
		}
	}
	cs.Metrics.Static.WithLabelValues(spotUsage).Set(0)
	if now := cs.market.Load(); now.pricedSpot && maps.EqualFunc(prices, now.spot, maps.Equal) {
		return nil
	}
	cs.update(func(m *market) { m.spot, m.pricedSpot = prices, true })
	return nil
}

// spotUnknown makes do without spot prices until there are some.
func (cs *Catalogs) spotUnknown(ctx context.Context) {
	if cs.market.Load().pricedSpot || ctx.Err() != nil {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("spot prices are not known, on-demand prices stand in for them")
	cs.Metrics.Static.WithLabelValues(spotUsage).Set(1)
	cs.update(func(m *market) { m.pricedSpot = true })
}

// onDemandUnknown makes do with the prices known when this version was built until there are others.
func (cs *Catalogs) onDemandUnknown(ctx context.Context) {
	if cs.market.Load().pricedOnDemand || ctx.Err() != nil {
		return
	}
	logr.FromContextOrDiscard(ctx).Info("on-demand prices are not known, those of this version's release stand in for them",
		"region", staticRegion(cs.client.opts.Region))
	cs.Metrics.Static.WithLabelValues(karpv1.CapacityTypeOnDemand).Set(1)
	cs.update(func(m *market) { m.onDemand, m.pricedOnDemand = cs.static, true })
}

// RefreshOnDemandPrices asks for the public price of every type (Pricing GetProducts). Until it has been answered, and
// for good in an isolated network, where the Pricing endpoint cannot be reached, and in GovCloud, which has none, the
// prices known when this version was built are used.
func (cs *Catalogs) RefreshOnDemandPrices(ctx context.Context) error {
	if cs.client.opts.IsolatedVPC || strings.HasPrefix(cs.client.opts.Region, "us-gov-") {
		cs.onDemandUnknown(ctx)
		return nil
	}
	prices, err := cs.client.publicPrices(ctx)
	if err != nil {
		cs.onDemandUnknown(ctx)
		return err
	}
	cs.Metrics.Static.WithLabelValues(karpv1.CapacityTypeOnDemand).Set(0)
	// A type that has vanished from the list is still sold to whoever knows its price.
	now := cs.market.Load()
	before := now.onDemand
	if !now.pricedOnDemand {
		before = cs.static
	}
	merged := maps.Clone(before)
	maps.Copy(merged, prices)
	if now.pricedOnDemand && maps.Equal(before, merged) {
		return nil
	}
	cs.update(func(m *market) { m.onDemand, m.pricedOnDemand = merged, true })
	return nil
}

// publicPrices lists the hourly prices of the region. Bare metal is always dedicated, and listed as such.
func (c *Client) publicPrices(ctx context.Context) (map[string]float64, error) {
	prices, err := c.products(ctx, "Shared", "Compute Instance")
	if err != nil {
		return nil, err
	}
	metal, err := c.products(ctx, "Dedicated", "Compute Instance (bare metal)")
	if err != nil {
		return nil, err
	}
	maps.Copy(prices, metal)
	if len(prices) == 0 {
		return nil, nothing("listing on-demand prices")
	}
	return prices, nil
}

// products lists the hourly Linux prices of one tenancy and product family, by instance type.
func (c *Client) products(ctx context.Context, tenancy, family string) (map[string]float64, error) {
	term := func(field, value string) pricingtypes.Filter {
		return pricingtypes.Filter{Type: pricingtypes.FilterTypeTermMatch, Field: aws.String(field), Value: aws.String(value)}
	}
	out := map[string]float64{}
	pages := pricing.NewGetProductsPaginator(c.pricing, &pricing.GetProductsInput{
		ServiceCode: aws.String("AmazonEC2"),
		MaxResults:  aws.Int32(100),
		Filters: []pricingtypes.Filter{
			term("regionCode", c.opts.Region), term("serviceCode", "AmazonEC2"), term("preInstalledSw", "NA"),
			term("operatingSystem", "Linux"), term("capacitystatus", "Used"), term("marketoption", "OnDemand"),
			term("tenancy", tenancy), term("productFamily", family),
		},
	})
	currency := "USD"
	if strings.HasPrefix(c.opts.Region, "cn-") {
		currency = "CNY"
	}
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "listing on-demand prices")
		}
		for _, text := range page.PriceList {
			if name, price, ok := parseProduct(text, currency); ok {
				out[name] = price
			}
		}
	}
	return out, nil
}

// parseProduct reads the parts of a price list entry that matter; ok is false for entries without a price.
func parseProduct(text, currency string) (instanceType string, price float64, ok bool) {
	var p struct {
		Product struct {
			Attributes struct {
				InstanceType string `json:"instanceType"`
			} `json:"attributes"`
		} `json:"product"`
		Terms struct {
			OnDemand map[string]struct {
				PriceDimensions map[string]struct {
					PricePerUnit map[string]string `json:"pricePerUnit"`
				} `json:"priceDimensions"`
			} `json:"OnDemand"`
		} `json:"terms"`
	}
	if err := json.Unmarshal([]byte(text), &p); err != nil || p.Product.Attributes.InstanceType == "" {
		return "", 0, false
	}
	for _, t := range p.Terms.OnDemand {
		for _, d := range t.PriceDimensions {
			if v, err := strconv.ParseFloat(d.PricePerUnit[currency], 64); err == nil && v > 0 {
				return p.Product.Attributes.InstanceType, v, true
			}
		}
	}
	return "", 0, false
}

// pricingRegion is where the region's Pricing endpoint is: AWS has four in all.
func pricingRegion(region string) string {
	switch {
	case strings.HasPrefix(region, "cn-"):
		return "cn-northwest-1"
	case strings.HasPrefix(region, "ap-"):
		return "ap-south-1"
	case strings.HasPrefix(region, "eu-"):
		return "eu-central-1"
	}
	return "us-east-1"
}
