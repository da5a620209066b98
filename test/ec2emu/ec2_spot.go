// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"
	"strconv"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// spotHistory is how far back EC2's history goes.
const spotHistory = 90 * 24 * time.Hour

func formatPrice(price float64) string { return strconv.FormatFloat(price, 'f', 6, 64) }

// describeSpotPriceHistory answers the price at StartTime and every change since,
// newest first; without StartTime, the current price.
func (e *Emulator) describeSpotPriceHistory(c *call, in *ec2.DescribeSpotPriceHistoryInput) (*ec2.DescribeSpotPriceHistoryOutput, error) {
	from, to := c.at, c.at
	if in.EndTime != nil && in.EndTime.Before(to) {
		to, from = *in.EndTime, *in.EndTime
	}
	if in.StartTime != nil && in.StartTime.Before(to) {
		from = *in.StartTime
	}
	if oldest := c.at.Add(-spotHistory); from.Before(oldest) {
		from = oldest
	}
	var found []ec2types.SpotPrice
	product := ec2types.RIProductDescriptionLinuxUnixAmazonVpc
	if slices.Contains(in.ProductDescriptions, "Linux/UNIX") || len(in.ProductDescriptions) == 0 {
		product = ec2types.RIProductDescriptionLinuxUnix
	} else if !slices.Contains(in.ProductDescriptions, string(product)) {
		return &ec2.DescribeSpotPriceHistoryOutput{SpotPriceHistory: found}, nil
	}
	for step := e.catalog.step(to); step >= e.catalog.step(from); step-- {
		prices, err := e.spotPrices(in, product, e.catalog.stepStart(step))
		if err != nil {
			return nil, err
		}
		found = append(found, prices...)
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 10_000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeSpotPriceHistoryOutput{SpotPriceHistory: items, NextToken: next}, nil
}

// spotPrices lists the prices that hold from a time on.
func (e *Emulator) spotPrices(in *ec2.DescribeSpotPriceHistoryInput, product ec2types.RIProductDescription, at time.Time) ([]ec2types.SpotPrice, error) {
	var out []ec2types.SpotPrice
	for _, o := range e.catalog.offers {
		if len(in.InstanceTypes) > 0 && !slices.Contains(in.InstanceTypes, o.info.InstanceType) {
			continue
		}
		for _, z := range e.catalog.zones {
			price, ok := e.catalog.spotPrice(o, z.name, at)
			if !ok || in.AvailabilityZone != nil && *in.AvailabilityZone != z.name {
				continue
			}
			text := formatPrice(price)
			ok, err := matches(in.Filters, nil, func(name string) ([]string, bool) {
				switch name {
				case "availability-zone":
					return one(z.name)
				case "availability-zone-id":
					return one(z.id)
				case "instance-type":
					return one(o.name)
				case "product-description":
					return one(string(product))
				case "spot-price":
					return one(text)
				}
				return nil, false
			})
			if err != nil {
				return nil, err
			}
			if ok {
				out = append(out, ec2types.SpotPrice{
					InstanceType: o.info.InstanceType, AvailabilityZone: aws.String(z.name), AvailabilityZoneId: aws.String(z.id),
					ProductDescription: product, SpotPrice: aws.String(text), Timestamp: aws.Time(at),
				})
			}
		}
	}
	return out, nil
}
