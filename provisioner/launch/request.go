// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"slices"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// request is a fleet request and what it was made of.
type request struct {
	fleet     ec2.FleetRequest
	claim     *karpv1.NodeClaim
	class     *v1.EC2NodeClass
	images    []image
	offerings []capacity.CatalogOffering
	// subnets are those named, by zone; templates the names of those named.
	subnets   map[string]string
	templates []string
	// booked addresses in each of the subnets.
	booked int64
}

// request builds the next attempt: steps 1 to 3 of the package comment, and the request of step 4.
func (r *run) request(ctx context.Context) (*request, error) {
	claim := r.waiting[0].claim
	// 1. Class and catalogue.
	class, err := classOf(ctx, r.l.Kube, claim)
	if err != nil {
		return nil, err
	}
	catalog := r.l.Catalogs.For(class)
	if catalog == nil {
		return nil, &capacity.Error{Kind: capacity.Unavailable, Err: fmt.Errorf("instance types and prices of EC2NodeClass %q are not known yet", class.Name)}
	}
	// 2. Offerings.
	want, err := wantedBy(claim)
	if err != nil {
		return nil, err
	}
	images, err := imagesOf(class)
	if err != nil {
		return nil, err
	}
	// 3. Subnets. A zone without one is as good as out of everything.
	subnets := r.l.Subnets.pick(class)
	offerings, err := choose(catalog, want, func(k capacity.OfferingKey) bool {
		return subnets[k.Zone] == "" || r.out[k] || r.l.Shortages.Out(k)
	})
	if err != nil {
		return nil, err
	}
	// 4. The call.
	req := &request{claim: claim, class: class, images: images, offerings: offerings, subnets: map[string]string{}}
	req.fleet = ec2.FleetRequest{
		Token:        token(r.id, r.attempt),
		Count:        int32(len(r.waiting)),
		CapacityType: offerings[0].CapacityType,
		Tags:         r.l.tags(r.id, claim, class),
		Context:      ptr.Deref(class.Spec.Context, ""),
	}
	if r.attempt == 1 {
		req.fleet.Count += int32(r.done) // a repeated first call has to be the same call
	}
	if err := r.override(ctx, req, subnets); err != nil {
		return nil, err
	}
	r.book(req)
	return req, nil
}

// override fills in the acceptable (type, subnet, template) combinations.
func (r *run) override(ctx context.Context, req *request, subnets map[string]string) error {
	names := map[string]string{} // image → template
	for _, o := range req.offerings {
		id := imageFor(req.images, o.Type)
		if id == "" {
			continue
		}
		name, ok := names[id]
		if !ok {
			var err error
			if name, err = r.l.Templates.name(ctx, req.class, req.claim, id, req.fleet.CapacityType == karpv1.CapacityTypeSpot); err != nil {
				return err
			}
			if err = r.l.Templates.ensure(ctx, name, false); err != nil {
				return err
			}
			names[id] = name
			req.templates = append(req.templates, name)
		}
		req.subnets[o.Zone] = subnets[o.Zone]
		req.fleet.Overrides = append(req.fleet.Overrides, ec2.FleetOverride{
			TemplateName: name, InstanceType: o.Type.Name, SubnetID: subnets[o.Zone], Zone: o.Zone, ImageID: id, Priority: o.Price,
		})
	}
	if len(req.fleet.Overrides) == 0 {
		return noCapacity("no image of EC2NodeClass %q boots on any of the %d offerings chosen", req.class.Name, len(req.offerings))
	}
	return nil
}

// book takes the addresses the nodes will use off every subnet the request names, until it is answered; handing out an
// instance books its own.
func (r *run) book(req *request) {
	perNode := req.offerings[0].Type.Capacity.Pods
	for _, o := range req.offerings {
		perNode = min(perNode, o.Type.Capacity.Pods)
	}
	req.booked = perNode * int64(req.fleet.Count)
	for _, id := range req.subnets {
		r.l.Subnets.book(id, req.booked)
	}
}

// release gives back what book took.
func (r *run) release(req *request) {
	for _, id := range req.subnets {
		r.l.Subnets.unbook(id, req.booked)
	}
}

// classOf returns the claim's node class if instances can be launched for it, an error of kind NotReady if not.
func classOf(ctx context.Context, kube client.Reader, claim *karpv1.NodeClaim) (*v1.EC2NodeClass, error) {
	ref := claim.Spec.NodeClassRef
	notReady := func(format string, args ...any) error {
		return &capacity.Error{Kind: capacity.NotReady, Err: fmt.Errorf("EC2NodeClass %q "+format, append([]any{ref.Name}, args...)...)}
	}
	if ref.Group != "karpenter.k8s.aws" {
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
