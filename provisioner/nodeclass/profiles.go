// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"fmt"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

const (
	// profilesEvery is how often instance profiles are looked at, profileGrace how long one has to be out of use before it is
	// deleted: a launch under way may still name it (Karpenter's intervals).
	profilesEvery = 30 * time.Minute
	profileGrace  = time.Hour
)

// ProfileStore lists and deletes instance profiles.
type ProfileStore interface {
	InstanceProfiles(ctx context.Context) ([]ec2.InstanceProfile, error)
	// DeleteInstanceProfile refuses with kind Conflict while an instance has the profile.
	DeleteInstanceProfile(ctx context.Context, p ec2.InstanceProfile) error
}

// ProfileCollector deletes the instance profiles of classes that are gone and of roles that classes had before. Those of a
// class that is deleted in the usual way go with it; what is left is from classes whose finalizer somebody took off.
type ProfileCollector struct {
	// Live reads classes and claims from the API server: a cache may be behind.
	Live  client.Reader
	Store ProfileStore
	Clock clock.Clock

	// unused says since when profiles have been seen out of use, without a break. A restart forgets it.
	unused map[string]time.Time
}

// NeedLeaderElection says that only the leader collects.
func (c *ProfileCollector) NeedLeaderElection() bool { return true }

// Start collects periodically until ctx ends; it is a manager's Runnable.
func (c *ProfileCollector) Start(ctx context.Context) error {
	for {
		if err := c.collect(ctx); err != nil && ctx.Err() == nil {
			log.FromContext(ctx).Info("collecting instance profiles will be tried again", "reason", err.Error())
		}
		select {
		case <-ctx.Done():
			return nil
		case <-c.Clock.After(profilesEvery):
		}
	}
}

// collect looks once. Profiles are listed before classes and claims, so that one made in between is not taken for unused.
func (c *ProfileCollector) collect(ctx context.Context) error {
	profiles, err := c.Store.InstanceProfiles(ctx)
	if err != nil {
		return err
	}
	if len(profiles) == 0 {
		c.unused = nil
		return nil
	}
	uses, err := c.uses(ctx)
	if err != nil {
		return err
	}
	now, still := c.Clock.Now(), map[string]time.Time{}
	var errs []error
	for _, p := range profiles {
		if uses.named[p.Name] || p.Role != "" && uses.roles[p.Class] == p.Role {
			continue
		}
		since, seen := c.unused[p.Name]
		if !seen {
			since = now
		}
		still[p.Name] = since
		if now.Sub(since) < profileGrace {
			continue
		}
		switch err := c.Store.DeleteInstanceProfile(ctx, p); {
		case capacity.KindOf(err) == capacity.Conflict:
			log.FromContext(ctx).V(1).Info("instance profile is kept for the instances that have it", "instanceProfile", p.Name)
		case err != nil:
			errs = append(errs, err)
		default:
			delete(still, p.Name)
			log.FromContext(ctx).Info("deleted an instance profile that nothing uses", "instanceProfile", p.Name, "role", p.Role)
		}
	}
	c.unused = still
	return errors.Join(errs...)
}

// profileUses is what needs instance profiles: those that classes or claims name, and the role of each class, whose
// profile it is about to name.
type profileUses struct {
	named map[string]bool
	roles map[types.UID]string
}

func (c *ProfileCollector) uses(ctx context.Context) (profileUses, error) {
	out := profileUses{named: map[string]bool{}, roles: map[types.UID]string{}}
	var classes v1.EC2NodeClassList
	if err := c.Live.List(ctx, &classes); err != nil {
		return out, fmt.Errorf("listing EC2NodeClasses: %w", err)
	}
	var claims karpv1.NodeClaimList
	if err := c.Live.List(ctx, &claims); err != nil {
		return out, fmt.Errorf("listing NodeClaims: %w", err)
	}
	for i := range classes.Items {
		class := &classes.Items[i]
		out.named[class.Status.InstanceProfile] = true
		if class.Spec.InstanceProfile != nil {
			out.named[*class.Spec.InstanceProfile] = true
		}
		if class.Spec.Role != "" {
			out.roles[class.UID] = ec2.RoleName(class.Spec.Role)
		}
	}
	for i := range claims.Items {
		out.named[claims.Items[i].Annotations[v1.AnnotationInstanceProfile]] = true
	}
	return out, nil
}
