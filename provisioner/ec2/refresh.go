// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
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
		{"types", typesEvery, cs.RefreshTypes},
		{"zones", typesEvery, cs.RefreshZones},
		{"onDemandPrices", onDemandEvery, cs.RefreshOnDemandPrices},
		{"spotPrices", spotEvery, cs.RefreshSpotPrices},
	}
	done := make(chan struct{})
	for _, l := range loops {
		go func() {
			defer func() { done <- struct{}{} }()
			keepFresh(logr.NewContext(ctx, logr.FromContextOrDiscard(ctx).WithValues("refresh", l.name)), l.every, cs.Metrics.measure(l.name, l.do))
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

// nothing is the error of an answer without content, which must not replace what is known.
func nothing(doing string) error {
	return &capacity.Error{Kind: capacity.Unavailable, Err: errors.New(doing + ": the answer is empty")}
}

func filter(name string, values ...string) ec2types.Filter {
	return ec2types.Filter{Name: aws.String(name), Values: values}
}
