// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"sync"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/controller/controllerutil"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// Describing an instance that was launched a moment ago: EC2 is eventually consistent, so the first answers may be that it
// does not exist. After describeLimit the claim is written without its node's name, which registration fills in.
const (
	describeFirst = 20 * time.Millisecond
	describeMax   = time.Second
	describeLimit = 10 * time.Second
)

// Writing a claim: nothing may go on before what EC2 has launched is known, so that the API server is asked again soon,
// however long it has been away. The writes under way are bounded (Launcher.patches), and so is what they cost it.
const (
	writeFirst = 10 * time.Millisecond
	writeMax   = 500 * time.Millisecond
)

// assigned is a claim with its instance.
type assigned struct {
	*pending
	instance ec2.Instance
	timings  Timings
}

// finish is steps 5 and 6: describe the instances, write the claims, report.
func (l *Launcher) finish(ctx context.Context, given []*assigned) {
	l.describe(ctx, given)
	class := &v1.EC2NodeClass{}
	if err := l.Kube.Get(ctx, types.NamespacedName{Name: given[0].claim.Spec.NodeClassRef.Name}, class); err != nil {
		log.FromContext(ctx).V(1).Info("node class is gone, its claims are written without its facts", "nodeClass", given[0].claim.Spec.NodeClassRef.Name)
		class = nil
	}
	var wg sync.WaitGroup
	for _, a := range given {
		l.patches <- struct{}{}
		wg.Go(func() {
			defer func() { <-l.patches }()
			l.complete(ctx, a, class)
		})
	}
	wg.Wait()
}

// describe fills in what EC2 says about the instances: the private DNS name, which is the Node's name.
func (l *Launcher) describe(ctx context.Context, given []*assigned) {
	ctx, cancel := context.WithTimeout(ctx, describeLimit)
	defer cancel()
	missing := map[string]*assigned{}
	for _, a := range given {
		if a.instance.PrivateDNSName == "" {
			missing[a.instance.ID] = a
		} else {
			a.timings.Described = l.Clock.Now()
		}
	}
	for n := 0; len(missing) > 0; n++ {
		ids := make([]string, 0, len(missing))
		for id := range missing {
			ids = append(ids, id)
		}
		found, err := l.Cloud.Describe(ctx, ids)
		now := l.Clock.Now()
		for _, i := range found {
			a := missing[i.ID]
			if a == nil || i.PrivateDNSName == "" {
				continue
			}
			if i.ImageID == "" {
				i.ImageID = a.instance.ImageID
			}
			a.instance, a.timings.Described = i, now
			delete(missing, i.ID)
		}
		if len(missing) == 0 {
			return
		}
		select {
		case <-ctx.Done():
			log.FromContext(ctx).Info("EC2 did not tell the names of new instances in time", "instances", len(missing), "reason", fmt.Sprint(err))
			return
		case <-l.Clock.After(min(describeFirst<<min(n, 10), describeMax)):
		}
	}
}

// complete writes one claim and reports it.
func (l *Launcher) complete(ctx context.Context, a *assigned, class *v1.EC2NodeClass) {
	price := 0.0
	var instanceType *capacity.InstanceType
	var zoneID string
	if class != nil {
		if catalog := l.Catalogs.For(class); catalog != nil {
			instanceType = catalog.Type(a.instance.InstanceType)
		}
		price, zoneID = offeringOf(instanceType, a.instance)
	}
	if instanceType != nil && a.instance.SubnetID != "" {
		l.Subnets.book(a.instance.SubnetID, instanceType.Capacity.Pods)
	}
	if l.Reporter != nil {
		l.Reporter.Found(a.claim.Name, a.instance.ProviderID(), a.instance.PrivateDNSName)
	}
	claim, err := l.write(ctx, a.claim, func(c *karpv1.NodeClaim) {
		if c.Status.ProviderID != "" {
			return // written by another process that believed itself the leader; its word stands
		}
		label(c, l.labels(a.instance, instanceType, zoneID))
		if group := placementGroupOf(class); group != "" {
			label(c, map[string]string{v1.LabelPlacementGroupID: group})
		}
		annotate(c, class, a.instance.PrivateDNSName)
	}, func(c *karpv1.NodeClaim) {
		if c.Status.ProviderID != "" {
			return
		}
		c.Status.ProviderID = a.instance.ProviderID()
		c.Status.ImageID = a.instance.ImageID
		if instanceType != nil {
			c.Status.Capacity = statusResources(instanceType.Capacity, class, c)
			c.Status.Allocatable = statusResources(instanceType.Allocatable, class, c)
		}
		c.StatusConditions(status.WithClock(l.Clock)).SetTrue(karpv1.ConditionTypeLaunched)
	})
	if err != nil {
		// Deleted in between, or this process is ending: package claim, or the next process, finds the instance by its tag.
		log.FromContext(ctx).Info("instance could not be written to its claim", "nodeClaim", a.claim.Name, "instanceID", a.instance.ID, "reason", err.Error())
		return
	}
	if claim.Status.ProviderID != a.instance.ProviderID() {
		log.FromContext(ctx).Info("claim has another instance already", "nodeClaim", claim.Name, "instanceID", a.instance.ID)
		return // package claim's collector ends the one that is too many
	}
	a.timings.Patched = l.Clock.Now()
	log.FromContext(ctx).Info("launched", "nodeClaim", claim.Name, "node", a.instance.PrivateDNSName, "instanceID", a.instance.ID,
		"instanceType", a.instance.InstanceType, "zone", a.instance.Zone, "capacityType", a.instance.CapacityType, "price", price,
		"request", a.timings.Sent.Sub(a.handed), "answer", a.timings.Answered.Sub(a.timings.Sent),
		"describe", a.timings.Described.Sub(a.timings.Answered), "write", a.timings.Patched.Sub(a.timings.Described))
	l.Metrics.Duration.WithLabelValues("launched").Observe(l.Clock.Since(a.handed).Seconds())
	l.Metrics.observe(a.timings)
	l.report(Outcome{Claim: claim, NodeName: a.instance.PrivateDNSName, Instance: a.instance, Price: price, Timings: a.timings})
	if l.Tagger != nil {
		l.Tagger.add(a.instance, claim.Name, l.ClusterName)
	}
}

// placementGroupOf is the id of the class's placement group, empty without one.
func placementGroupOf(class *v1.EC2NodeClass) string {
	if class == nil {
		return ""
	}
	if g := ec2.PlacementGroupOf(class); g != nil {
		return g.ID
	}
	return ""
}

// offeringOf returns the price and zone id of the offering an instance came from.
func offeringOf(t *capacity.InstanceType, i ec2.Instance) (price float64, zoneID string) {
	if t == nil {
		return 0, ""
	}
	for _, o := range t.Offerings {
		if o.Zone == i.Zone {
			zoneID = o.ZoneID
			if o.CapacityType == i.CapacityType && o.ReservationID == reservationID(i) {
				return o.Price, o.ZoneID
			}
		}
	}
	return 0, zoneID
}

func reservationID(i ec2.Instance) string {
	if i.Reservation == nil {
		return ""
	}
	return i.Reservation.ID
}

// labels are the labels the instance decides.
func (l *Launcher) labels(i ec2.Instance, t *capacity.InstanceType, zoneID string) map[string]string {
	out := map[string]string{}
	if t != nil {
		maps.Copy(out, t.Labels)
	}
	out[corev1.LabelInstanceTypeStable] = i.InstanceType
	out[corev1.LabelTopologyZone] = i.Zone
	out[karpv1.CapacityTypeLabelKey] = i.CapacityType
	if l.Region != "" {
		out[corev1.LabelTopologyRegion] = l.Region
	}
	if zoneID != "" {
		out[v1.LabelTopologyZoneID] = zoneID
	}
	if i.Tenancy != "" {
		out[v1.LabelInstanceTenancy] = i.Tenancy
	}
	if i.Partition > 0 {
		out[v1.LabelPlacementGroupPartition] = strconv.Itoa(int(i.Partition))
	}
	if r := i.Reservation; r != nil {
		out[v1.LabelCapacityReservationID] = r.ID
		out[v1.LabelCapacityReservationInterruptible] = strconv.FormatBool(r.Interruptible)
		out[v1.LabelCapacityReservationType] = string(v1.CapacityReservationTypeDefault)
		if r.Block {
			out[v1.LabelCapacityReservationType] = string(v1.CapacityReservationTypeCapacityBlock)
		}
	}
	return out
}

// label adds labels. What the instance is wins over what the claim said before: that may be left from an instance of an
// interrupted launch that has ended since.
func label(c *karpv1.NodeClaim, labels map[string]string) {
	all := maps.Clone(c.Labels)
	if all == nil {
		all = map[string]string{}
	}
	maps.Copy(all, labels)
	c.Labels = all
}

// annotate adds what drift detection compares later (Karpenter's hash annotations) and the node's name.
func annotate(c *karpv1.NodeClaim, class *v1.EC2NodeClass, nodeName string) {
	if c.Annotations == nil {
		c.Annotations = map[string]string{}
	}
	if class != nil {
		for _, key := range []string{v1.AnnotationEC2NodeClassHash, v1.AnnotationEC2NodeClassHashVersion} {
			if v := class.Annotations[key]; v != "" {
				c.Annotations[key] = v
			}
		}
		c.Annotations[v1.AnnotationInstanceProfile] = class.Status.InstanceProfile
	}
	if nodeName != "" {
		c.Annotations[NodeNameAnnotation] = nodeName
	}
}

// statusResources is what the claim advertises: EFA devices only if its instance got the interfaces.
func statusResources(r capacity.Resources, class *v1.EC2NodeClass, claim *karpv1.NodeClaim) corev1.ResourceList {
	list := r.List()
	if !asksEFA(claim) && (class == nil || len(class.Spec.NetworkInterfaces) == 0) {
		delete(list, v1.ResourceEFA)
	}
	return list
}

// write patches a claim's metadata and then its status, which are two subresources. Each change is made to the newest
// version and sent with its resourceVersion, because a merge patch replaces whole lists (finalizers, conditions) and
// package claim writes them too. The finalizer is added if the claim's author left it out. It is tried until it works,
// the claim is gone or ctx ends.
func (l *Launcher) write(ctx context.Context, claim *karpv1.NodeClaim, metadata, status func(*karpv1.NodeClaim)) (*karpv1.NodeClaim, error) {
	c := claim.DeepCopy()
	for n := 0; ; n++ {
		err := l.writeOnce(ctx, c, metadata, status)
		if err == nil || apierrors.IsNotFound(err) || ctx.Err() != nil {
			return c, err
		}
		if !apierrors.IsConflict(err) {
			log.FromContext(ctx).V(1).Info("writing claim will be retried", "nodeClaim", claim.Name, "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return c, ctx.Err()
		case <-l.Clock.After(backoff(writeFirst, writeMax, n, nil)):
		}
		from := client.Reader(l.Kube)
		if n > 0 && l.Live != nil {
			from = l.Live
		}
		fresh := &karpv1.NodeClaim{}
		if err := from.Get(ctx, client.ObjectKeyFromObject(claim), fresh); err == nil {
			c = fresh
		}
	}
}

func (l *Launcher) writeOnce(ctx context.Context, c *karpv1.NodeClaim, metadata, status func(*karpv1.NodeClaim)) error {
	lock := func(base *karpv1.NodeClaim) client.Patch {
		return client.MergeFromWithOptions(base, client.MergeFromWithOptimisticLock{})
	}
	if metadata != nil {
		before := c.DeepCopy()
		metadata(c)
		if c.DeletionTimestamp == nil {
			controllerutil.AddFinalizer(c, karpv1.TerminationFinalizer)
		}
		if err := l.Kube.Patch(ctx, c, lock(before)); err != nil {
			return fmt.Errorf("patching NodeClaim %q: %w", c.Name, err)
		}
	}
	before := c.DeepCopy()
	status(c)
	if err := l.Kube.Status().Patch(ctx, c, lock(before)); err != nil {
		return fmt.Errorf("patching status of NodeClaim %q: %w", c.Name, err)
	}
	return nil
}
