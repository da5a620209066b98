// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"encoding/json"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	pricingtypes "github.com/aws/aws-sdk-go-v2/service/pricing/types"
	"github.com/go-logr/logr"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	spotUsage = karpv1.CapacityTypeSpot

	typesEvery    = 12 * time.Hour
	onDemandEvery = 12 * time.Hour
	// spotEvery follows the market: spot prices move a few times a day, each zone at its own time.
	spotEvery = 5 * time.Minute
	// retryFirst and retryMost bound the pause after a refresh that failed.
	retryFirst = time.Second
	retryMost  = 5 * time.Minute
)

// Run refreshes everything now and then on schedule, until the context ends.
// A refresh that fails is logged and repeated with growing pauses; what was
// known before stays in use.
func (cs *Catalogs) Run(ctx context.Context) error {
	loops := []struct {
		name  string
		every time.Duration
		do    func(context.Context) error
	}{
		{"instanceTypes", typesEvery, cs.RefreshTypes},
		{"zones", typesEvery, cs.RefreshZones},
		{"onDemandPrices", onDemandEvery, cs.RefreshOnDemandPrices},
		{"spotPrices", spotEvery, cs.RefreshSpotPrices},
	}
	done := make(chan struct{})
	for _, l := range loops {
		go func() {
			defer func() { done <- struct{}{} }()
			keepFresh(logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("refresh", l.name)), l.every, l.do)
		}()
	}
	for range loops {
		<-done
	}
	return nil
}

func keepFresh(ctx context.Context, every time.Duration, do func(context.Context) error) {
	pause := retryFirst
	for {
		wait := every
		if err := do(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			logr.FromContextOrDiscard(ctx).Error(err, "cannot refresh what EC2 sells", "retryIn", pause)
			wait, pause = pause, min(2*pause, retryMost)
		} else {
			pause = retryFirst
		}
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait): //nolint:forbidigo // paces calls to AWS; what is tested are the refreshes
		}
	}
}

// Refresh brings in everything once. The errors of the parts are joined; parts that succeeded are in use.
func (cs *Catalogs) Refresh(ctx context.Context) error {
	parts := []func(context.Context) error{cs.RefreshTypes, cs.RefreshZones, cs.RefreshOnDemandPrices, cs.RefreshSpotPrices}
	errs := make(chan error, len(parts))
	for _, p := range parts {
		go func() { errs <- p(ctx) }()
	}
	var all []error
	for range parts {
		all = append(all, <-errs)
	}
	return errors.Join(all...)
}

// RefreshTypes asks for all instance types that 64-bit Linux nodes can run on (EC2 DescribeInstanceTypes).
func (cs *Catalogs) RefreshTypes(ctx context.Context) error {
	var found []*typeFacts
	pages := ec2.NewDescribeInstanceTypesPaginator(cs.client.ec2, &ec2.DescribeInstanceTypesInput{
		Filters: []ec2types.Filter{
			filter("supported-virtualization-type", "hvm"),
			filter("processor-info.supported-architecture", "x86_64", "arm64"),
		},
		MaxResults: aws.Int32(100),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "describing instance types")
		}
		for _, info := range page.InstanceTypes {
			if t, ok := newTypeFacts(info, cs.client.opts.Region, cs.tables); ok {
				found = append(found, t)
			}
		}
	}
	if len(found) == 0 {
		return nothing("describing instance types")
	}
	slices.SortFunc(found, func(a, b *typeFacts) int { return strings.Compare(a.name, b.name) })
	cs.update(func(m *market) { m.types = found })
	return nil
}

// RefreshZones asks which types are sold in which availability zones (EC2 DescribeInstanceTypeOfferings).
func (cs *Catalogs) RefreshZones(ctx context.Context) error {
	found := map[string][]string{}
	pages := ec2.NewDescribeInstanceTypeOfferingsPaginator(cs.client.ec2, &ec2.DescribeInstanceTypeOfferingsInput{
		LocationType: ec2types.LocationTypeAvailabilityZone,
		MaxResults:   aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return wrap(err, "describing instance type offerings")
		}
		for _, o := range page.InstanceTypeOfferings {
			found[string(o.InstanceType)] = append(found[string(o.InstanceType)], aws.ToString(o.Location))
		}
	}
	if len(found) == 0 {
		return nothing("describing instance type offerings")
	}
	for _, zones := range found {
		slices.Sort(zones)
	}
	if maps.EqualFunc(found, cs.market.Load().zones, slices.Equal) {
		return nil
	}
	cs.update(func(m *market) { m.zones = found })
	return nil
}

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
		return nothing("describing spot prices")
	}
	prices := make(map[string]map[string]float64, len(found))
	for t, zones := range found {
		prices[t] = make(map[string]float64, len(zones))
		for z, l := range zones {
			prices[t][z] = l.price
		}
	}
	if maps.EqualFunc(prices, cs.market.Load().spot, maps.Equal) {
		return nil
	}
	cs.update(func(m *market) { m.spot = prices })
	return nil
}

// RefreshOnDemandPrices asks for the public price of every type (Pricing GetProducts). In an isolated network, where
// the Pricing endpoint cannot be reached, and in GovCloud, which has none, it does nothing.
func (cs *Catalogs) RefreshOnDemandPrices(ctx context.Context) error {
	if cs.client.opts.IsolatedVPC || strings.HasPrefix(cs.client.opts.Region, "us-gov-") {
		return nil
	}
	prices, err := cs.client.products(ctx, "Shared", "Compute Instance")
	if err != nil {
		return err
	}
	// Bare metal is always dedicated, and listed as such.
	metal, err := cs.client.products(ctx, "Dedicated", "Compute Instance (bare metal)")
	if err != nil {
		return err
	}
	maps.Copy(prices, metal)
	if len(prices) == 0 {
		return nothing("listing on-demand prices")
	}
	// A type that has vanished from the list is still sold to whoever knows its price.
	before := cs.market.Load().onDemand
	merged := maps.Clone(before)
	if merged == nil {
		merged = map[string]float64{}
	}
	maps.Copy(merged, prices)
	if maps.Equal(before, merged) {
		return nil
	}
	cs.update(func(m *market) { m.onDemand = merged })
	return nil
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

// nothing is the error of an answer without content, which must not replace what is known.
func nothing(doing string) error {
	return &capacity.Error{Kind: capacity.Unavailable, Err: errors.New(doing + ": the answer is empty")}
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}
