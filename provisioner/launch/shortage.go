// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"maps"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// doubtAfter is how many times in a row EC2 may fail to carry a request out before other offerings are asked for.
const doubtAfter = 3

// shortage reports whether asking for other offerings is the answer to the error: EC2 is out of some, a quota for them is
// used up, or the account may not buy them.
func shortage(e *capacity.Error) bool {
	return e.Kind == capacity.NoCapacity || e.Code == ec2.CodeSpotRole
}

// short remembers what EC2 is out of. An error that names no offering speaks of the whole request; one that is about the
// account speaks of everything the account cannot buy any more.
func (r *run) short(ctx context.Context, e *capacity.Error, req *request) {
	r.last = e
	// EC2 names the offering and not the group: what a placement group has no room for is to be had elsewhere.
	keys := slices.Clone(e.Offerings)
	for i := range keys {
		keys[i].PlacementGroup = placementGroupOf(req.class)
	}
	if len(keys) == 0 {
		for _, o := range req.offerings {
			keys = append(keys, o.Key())
		}
	}
	for _, k := range keys {
		r.l.Metrics.Failures.WithLabelValues(k.Zone, k.CapacityType, e.Code).Inc()
	}
	log.FromContext(ctx).V(1).Info("EC2 is out of offerings", "offerings", len(keys), "offering", keys[0].String(), "reason", e.Error())
	switch e.Code {
	case ec2.CodeSubnetFull:
		for _, k := range keys {
			r.l.Subnets.exhausted(req.subnets[k.Zone])
		}
		return
	case ec2.CodeReservationFull:
		if id := req.offerings[0].ReservationID; id != "" {
			r.l.Slots.Exhausted(id)
		}
	case ec2.CodeSpotQuota, ec2.CodeVCPUQuota, ec2.CodeInstanceQuota:
		keys = sameQuota(req.catalog, keys)
	case ec2.CodeSpotRole:
		keys = offeringsOf(req.catalog, func(o capacity.CatalogOffering) bool { return o.CapacityType == karpv1.CapacityTypeSpot })
		log.FromContext(ctx).Info("spot instances cannot be bought: the account lacks the service-linked role AWSServiceRoleForEC2Spot", "reason", e.Error())
	}
	for _, k := range keys {
		r.out[k] = true
	}
	r.l.Shortages.Mark(keys...)
}

// sameQuota returns the offerings that count against the quotas the given ones count against. (EC2 has one quota of vCPUs
// for each group of instance families, for spot and on demand each.)
func sameQuota(cat *capacity.Catalog, keys []capacity.OfferingKey) []capacity.OfferingKey {
	type quota struct{ capacityType, group string }
	used := map[quota]bool{}
	for _, k := range keys {
		if t := cat.Type(k.InstanceType); t != nil {
			used[quota{k.CapacityType, quotaGroup(t)}] = true
		}
	}
	return offeringsOf(cat, func(o capacity.CatalogOffering) bool { return used[quota{o.CapacityType, quotaGroup(o.Type)}] })
}

// quotaGroup is the group of families that share a quota (Amazon EC2 User Guide, "Amazon EC2 instance type quotas").
func quotaGroup(t *capacity.InstanceType) string {
	category := t.Labels[v1.LabelInstanceCategory]
	switch {
	case category == "":
		return t.Labels[v1.LabelInstanceFamily]
	case category == "g" || category == "gr" || category == "vt":
		return "g"
	case strings.ContainsAny(category[:1], "acdhimrtz") && !slices.Contains([]string{"dl", "hpc", "inf", "mac", "trn"}, category):
		return "standard"
	}
	return category
}

func offeringsOf(cat *capacity.Catalog, keep func(capacity.CatalogOffering) bool) []capacity.OfferingKey {
	var out []capacity.OfferingKey
	for _, o := range cat.Offerings {
		if keep(o) {
			out = append(out, o.Key())
		}
	}
	return out
}

// mayDoubt reports whether the failure may be due to what was asked for: EC2 answered with a server error, and it has not
// turned out yet that it does so to everything.
func (r *run) mayDoubt(err error) bool {
	return !r.blind && capacity.KindOf(err) == capacity.Unavailable && codeOf(err) != ""
}

// doubt leaves the request's offerings alone for this launch, after a look at what became of the request. The look comes after a
// pause, each time: a call that failed with a server error may have launched all the same, and describes are behind.
func (r *run) doubt(ctx context.Context, cause error, req *request) error {
	log.FromContext(ctx).Info("EC2 does not carry the request out, other offerings are asked for", "offerings", len(req.offerings), "reason", cause.Error())
	for _, o := range req.offerings {
		r.doubted[o.Key()] = true
	}
	r.last, r.settled = cause, false
	return r.settle(ctx, cause)
}

// believe remembers offerings that were doubted as a shortage once EC2 has carried out a request for others: then it was
// not EC2 as a whole that failed.
func (r *run) believe(ctx context.Context, result ec2.FleetResult) {
	if len(r.doubted) == 0 || len(result.Instances) == 0 {
		return
	}
	keys := slices.Collect(maps.Keys(r.doubted))
	log.FromContext(ctx).V(1).Info("offerings that EC2 fails for are left alone", "offerings", len(keys))
	r.l.Shortages.Mark(keys...)
	for _, k := range keys {
		r.out[k] = true
	}
	clear(r.doubted)
}
