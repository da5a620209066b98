// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// request is a fleet request and what it was made of.
type request struct {
	fleet     ec2.FleetRequest
	claim     *karpv1.NodeClaim
	class     *v1.EC2NodeClass
	catalog   *capacity.Catalog
	wanted    wanted
	images    []image
	offerings []capacity.CatalogOffering
	// subnets are those named, by zone; templates the names of those named.
	subnets   map[string]string
	templates []string
	// later are templates to be made once the call is under way.
	later []string
	// booked are the addresses taken in each of the subnets, places those of the reservation.
	booked map[string]*booking
	places int32
}

// request builds the next attempt: steps 1 to 3 of the package comment, and the request of step 4.
func (r *run) request(ctx context.Context) (*request, error) {
	req := &request{claim: r.waiting[0].claim, subnets: map[string]string{}}
	// 1. Class and catalogue.
	var err error
	if req.class, err = classOf(ctx, r.l.Kube, req.claim); err != nil {
		return nil, err
	}
	if req.catalog = r.l.Catalogs.For(req.class); req.catalog == nil {
		return nil, &capacity.Error{Kind: capacity.Unavailable, Err: fmt.Errorf("instance types and prices of EC2NodeClass %q are not known yet", req.class.Name)}
	}
	if req.wanted, err = wantedBy(req.claim); err != nil {
		return nil, err
	}
	if req.images, err = imagesOf(req.class); err != nil {
		return nil, err
	}
	// 2. Offerings, and 3. subnets: a zone without one is as good as out of everything.
	subnets := r.l.Subnets.pick(req.class)
	if err := r.choose(req, subnets); err != nil {
		return nil, err
	}
	// 4. The call.
	first := req.offerings[0]
	req.fleet = ec2.FleetRequest{
		Token:         token(r.id, r.attempt),
		Count:         int32(len(r.waiting)),
		CapacityType:  first.CapacityType,
		Block:         first.ReservationType == string(v1.CapacityReservationTypeCapacityBlock),
		Interruptible: first.ReservationInterruptible,
		Prioritized:   req.claim.Annotations[AllocationStrategyAnnotation] == "prioritized",
		Tags:          r.l.tags(r.id, req.claim, req.class),
		Context:       ptr.Deref(req.class.Spec.Context, ""),
	}
	switch {
	case first.ReservationID != "":
		req.fleet.Count = req.places
	case r.attempt == 1:
		req.fleet.Count += int32(r.done) // a repeated first call has to be the same call
	}
	if err := r.override(ctx, req, subnets); err != nil {
		r.giveBack(req, 0)
		return nil, err
	}
	r.book(req)
	return req, nil
}

// choose picks the offerings to ask for. Where the reservation among them has no free place the next is looked at.
func (r *run) choose(req *request, subnets map[string]string) error {
	most := maxTypes
	if r.attempt > 1 {
		most = moreTypes
	}
	out := func(k capacity.OfferingKey) bool {
		return subnets[k.Zone] == "" || r.out[k] || r.doubted[k] || r.l.Shortages.Out(k) || k.ReservationID != "" && r.l.Slots == nil
	}
	for {
		offerings, err := choose(req.catalog, req.wanted, most, out)
		switch {
		case err != nil && len(r.doubted) > 0:
			clear(r.doubted)
			r.blind = true
			continue
		case err != nil && r.last != nil:
			return noCapacity("%w; the last refusal was %w", err, r.last)
		case err != nil:
			return err
		}
		req.offerings = offerings
		first := offerings[0]
		if first.ReservationID == "" {
			return nil
		}
		if req.places = r.l.Slots.Take(first.ReservationID, int32(len(r.waiting))); req.places > 0 {
			return nil
		}
		r.out[first.Key()] = true
	}
}

// giveBack returns the places that were taken of the reservation and not used.
func (r *run) giveBack(req *request, used int32) {
	if id := req.offerings[0].ReservationID; id != "" && req.places > used {
		r.l.Slots.Return(id, req.places-used)
		req.places = used
	}
}

// override fills in the acceptable (type, subnet, template) combinations.
func (r *run) override(ctx context.Context, req *request, subnets map[string]string) error {
	names, err := r.templates(ctx, req)
	if err != nil {
		return err
	}
	for _, o := range req.offerings {
		id := req.keyOf(o.Type)
		name := names[id]
		if name == "" {
			continue
		}
		req.subnets[o.Zone] = subnets[o.Zone]
		req.fleet.Overrides = append(req.fleet.Overrides, ec2.FleetOverride{
			TemplateName: name, InstanceType: o.Type.Name, SubnetID: subnets[o.Zone], Zone: o.Zone, ImageID: id.image, Priority: o.Price,
			ReservationID: o.ReservationID,
		})
	}
	if len(req.fleet.Overrides) == 0 {
		return noCapacity("no image of EC2NodeClass %q boots on any of the %d offerings chosen", req.class.Name, len(req.offerings))
	}
	return nil
}

// templates names the launch templates of the request's images. Those that exist are used; if none does yet, the one for
// the cheapest offering is made and the others, which the next launch will find, are made afterwards: a launch waits for
// no more than one. Only minValues, which may need the variety, waits for all of them. Where nothing is lacking but the latest
// images to pull ahead, the template from before they changed stands in.
func (r *run) templates(ctx context.Context, req *request) (map[templateKey]string, error) {
	named, err := r.nameTemplates(ctx, req)
	if err != nil {
		return nil, err
	}
	names := map[templateKey]string{}
	waits := !slices.ContainsFunc(named, func(n naming) bool { return r.l.Templates.exists(n.name) })
	for i, n := range named {
		switch {
		case r.l.Templates.exists(n.name):
			names[n.key] = n.name
		case n.before == "" && req.wanted.minValues, waits && i == 0:
			if err := r.l.Templates.ensure(ctx, n.name, false); err != nil && n.before == "" {
				return nil, err
			} else if err != nil {
				n.name = n.before
			}
			names[n.key] = n.name
		default:
			req.later = append(req.later, n.name)
			if n.before != "" {
				names[n.key] = n.before
			}
		}
		if names[n.key] != "" {
			req.templates = append(req.templates, names[n.key])
		}
	}
	return names, nil
}

// naming is what one of the request's templates is called. before is the one that nodes of the kind booted from before the images
// they pull changed; empty unless it exists and can stand in.
type naming struct {
	key          templateKey
	name, before string
}

// nameTemplates names the request's templates, the cheapest offering's first.
func (r *run) nameTemplates(ctx context.Context, req *request) ([]naming, error) {
	v := variantOf(req)
	shape := shapeOfClaim(ctx, r.l.Kube, req.claim)
	older := shape
	shape.Images, older.Images = r.l.Templates.pulls.of(shape.Pool)
	var out []naming
	for _, o := range req.offerings {
		id := req.keyOf(o.Type)
		if id.image == "" || slices.ContainsFunc(out, func(n naming) bool { return n.key == id }) {
			continue
		}
		v.pods, v.efas = id.pods, id.efas
		n := naming{key: id}
		var err error
		if n.name, err = r.l.Templates.nameOf(ctx, req.class, shape, id.image, v); err != nil {
			return nil, err
		}
		if !r.l.Templates.exists(n.name) && len(shape.Images) > 0 {
			if n.before, err = r.l.Templates.nameOf(ctx, req.class, older, id.image, v); err != nil {
				return nil, err
			}
			if !r.l.Templates.exists(n.before) {
				n.before = ""
			}
		}
		out = append(out, n)
	}
	return out, nil
}

// makeLater makes the templates that the request did without.
func (r *run) makeLater(ctx context.Context, req *request) {
	for _, name := range req.later {
		r.finishing.Go(func() {
			if err := r.l.Templates.ensure(ctx, name, false); err != nil {
				log.FromContext(ctx).V(1).Info("launch template will be made when it is needed", "template", name, "reason", err.Error())
			}
		})
	}
}

// templateKey is what tells the templates of one request apart.
type templateKey struct {
	image      string
	pods, efas int32
}

// keyOf says which of the request's templates a type is launched from; without image if none of the class boots on it.
func (q *request) keyOf(t *capacity.InstanceType) templateKey {
	key := templateKey{image: imageFor(q.images, t), pods: t.BootPods}
	if asksEFA(q.claim) && len(q.class.Spec.NetworkInterfaces) == 0 {
		key.efas = int32(t.Capacity.Get(v1.ResourceEFA))
	}
	return key
}

// asksEFA reports whether the claim's pods ask for EFA interfaces. A node gets them only then, unless its class lists some:
// every interface takes addresses.
func asksEFA(claim *karpv1.NodeClaim) bool {
	q := claim.Spec.Resources.Requests[v1.ResourceEFA]
	return !q.IsZero()
}

// variantOf is what the request's templates have to say about the market and the place.
func variantOf(req *request) variant {
	first := req.offerings[0]
	v := variant{spot: first.CapacityType == karpv1.CapacityTypeSpot}
	if q, ok := req.wanted.requirements[v1.LabelInstanceTenancy]; ok {
		v.tenancy = tenancyFor(q)
	}
	if q, ok := req.wanted.requirements[v1.LabelPlacementGroupPartition]; ok && q.Finite() {
		for _, value := range q.Values() { // the lowest, as Karpenter
			if n, err := strconv.ParseInt(value, 10, 32); err == nil && n > 0 && (v.partition == 0 || int32(n) < v.partition) {
				v.partition = int32(n)
			}
		}
	}
	if first.ReservationID != "" {
		v.reservation = ec2.ReservationRef{
			ID: first.ReservationID, Block: first.ReservationType == string(v1.CapacityReservationTypeCapacityBlock), Interruptible: first.ReservationInterruptible,
		}
	}
	return v
}

// book takes the addresses the nodes will use off every subnet the request names, until it is answered; handing out an
// instance books its own.
func (r *run) book(req *request) {
	perNode := req.offerings[0].Type.Capacity.Pods
	for _, o := range req.offerings {
		perNode = min(perNode, o.Type.Capacity.Pods)
	}
	req.booked = map[string]*booking{}
	for _, id := range req.subnets {
		req.booked[id] = r.l.Subnets.book(id, perNode*int64(req.fleet.Count))
	}
}

// release gives back what book took.
func (r *run) release(req *request) {
	for id, b := range req.booked {
		r.l.Subnets.unbook(id, b)
	}
}

// classOf returns the claim's node class if instances can be launched for it, an error of kind NotReady if not.
func classOf(ctx context.Context, kube client.Reader, claim *karpv1.NodeClaim) (*v1.EC2NodeClass, error) {
	ref := claim.Spec.NodeClassRef
	notReady := func(format string, args ...any) error {
		return &capacity.Error{Kind: capacity.NotReady, Err: fmt.Errorf("EC2NodeClass %q "+format, append([]any{ref.Name}, args...)...)}
	}
	if !capacity.Managed(claim.Spec.NodeClassRef) {
		return nil, notReady("of group %q is not served", ref.Group)
	}
	class := &v1.EC2NodeClass{}
	if err := kube.Get(ctx, types.NamespacedName{Name: ref.Name}, class); apierrors.IsNotFound(err) {
		return nil, notReady("does not exist")
	} else if err != nil {
		return nil, &capacity.Error{Kind: capacity.Unavailable, Err: fmt.Errorf("reading EC2NodeClass %q: %w", ref.Name, err)}
	}
	switch ready := class.StatusConditions().Get(status.ConditionReady); {
	case class.DeletionTimestamp != nil:
		return nil, notReady("is being deleted")
	case !ready.IsTrue():
		return nil, notReady("is not ready: %s", ready.Message)
	case ready.ObservedGeneration != class.Generation:
		return nil, notReady("has not been reconciled since it was last changed")
	}
	return class, nil
}

// image is a machine image with what it boots on.
type image struct {
	id           string
	requirements capacity.Requirements
}

// imagesOf returns the class's images in the order of preference.
func imagesOf(class *v1.EC2NodeClass) ([]image, error) {
	out := make([]image, 0, len(class.Status.AMIs))
	for _, ami := range class.Status.AMIs {
		reqs, err := capacity.FromSelectors(ami.Requirements)
		if err != nil {
			return nil, &capacity.Error{Kind: capacity.Invalid, Err: fmt.Errorf("reading image %q of EC2NodeClass %q: %w", ami.ID, class.Name, err)}
		}
		out = append(out, image{id: ami.ID, requirements: reqs})
	}
	return out, nil
}

// imageFor returns the first image that boots on the type, "" if none does.
func imageFor(images []image, t *capacity.InstanceType) string {
	i := slices.IndexFunc(images, func(i image) bool { return i.requirements.MatchesLabels(t.Labels) })
	if i < 0 {
		return ""
	}
	return images[i].id
}
