// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// profileStore is IAM with a list of profiles, of which instances have some.
type profileStore struct {
	profiles []ec2.InstanceProfile
	held     []string
	deleted  []string
	err      error
}

func (s *profileStore) InstanceProfiles(context.Context) ([]ec2.InstanceProfile, error) {
	return slices.DeleteFunc(slices.Clone(s.profiles), func(p ec2.InstanceProfile) bool { return slices.Contains(s.deleted, p.Name) }), s.err
}

func (s *profileStore) DeleteInstanceProfile(_ context.Context, p ec2.InstanceProfile) error {
	if slices.Contains(s.held, p.Name) {
		return &capacity.Error{Kind: capacity.Conflict}
	}
	s.deleted = append(s.deleted, p.Name)
	return nil
}

func TestProfilesAreCollected(t *testing.T) {
	mine := func(name, role string) ec2.InstanceProfile {
		return ec2.InstanceProfile{Name: name, Role: role, Class: "class-uid"}
	}
	gone := func(name, role string) ec2.InstanceProfile {
		return ec2.InstanceProfile{Name: name, Role: role, Class: "gone-uid"}
	}
	uses := func(status string) *v1.EC2NodeClass {
		return class(func(c *v1.EC2NodeClass) { c.Spec.Role, c.Status.InstanceProfile = "path/role", status })
	}
	for name, tc := range map[string]struct {
		profiles []ec2.InstanceProfile
		held     []string
		objects  []client.Object
		err      error
		want     []string
	}{
		"the class's own":                    {profiles: []ec2.InstanceProfile{mine("p", "role")}, objects: []client.Object{uses("p")}},
		"made, not yet in the status":        {profiles: []ec2.InstanceProfile{mine("p", "role")}, objects: []client.Object{uses("")}},
		"a role the class had before":        {profiles: []ec2.InstanceProfile{mine("p", "role"), mine("old", "before")}, objects: []client.Object{uses("p")}, want: []string{"old"}},
		"its last instances are there":       {profiles: []ec2.InstanceProfile{mine("old", "before")}, held: []string{"old"}, objects: []client.Object{uses("p")}},
		"a claim names it":                   {profiles: []ec2.InstanceProfile{mine("old", "before")}, objects: []client.Object{uses("p"), claim("c", "p", func(c *karpv1.NodeClaim) { c.Annotations = map[string]string{v1.AnnotationInstanceProfile: "old"} })}},
		"the class is gone":                  {profiles: []ec2.InstanceProfile{gone("p", "role")}, want: []string{"p"}},
		"left without role":                  {profiles: []ec2.InstanceProfile{gone("p", "")}, want: []string{"p"}},
		"another class was given its name":   {profiles: []ec2.InstanceProfile{gone("p", "role")}, objects: []client.Object{class(func(c *v1.EC2NodeClass) { c.Spec.Role, c.Spec.InstanceProfile = "", new("p") })}},
		"IAM does not answer: no conclusion": {profiles: []ec2.InstanceProfile{gone("p", "role")}, err: errors.New("no")},
	} {
		t.Run(name, func(t *testing.T) {
			store := &profileStore{profiles: tc.profiles, held: tc.held, err: tc.err}
			clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
			c := &ProfileCollector{Live: kube(t, &writes{}, tc.objects...), Store: store, Clock: clock}
			for range 2 {
				if err := c.collect(t.Context()); !errors.Is(err, tc.err) {
					t.Fatal(err)
				}
				if len(store.deleted) > 0 {
					t.Fatalf("%v deleted before they were out of use for %v", store.deleted, profileGrace)
				}
				clock.Step(profilesEvery)
			}
			if err := c.collect(t.Context()); !errors.Is(err, tc.err) {
				t.Fatal(err)
			}
			if d := cmp.Diff(tc.want, store.deleted); d != "" {
				t.Errorf("deleted (-want +got):\n%s", d)
			}
		})
	}
}

// A profile that comes back into use starts over.
func TestProfileInUseInBetween(t *testing.T) {
	store := &profileStore{profiles: []ec2.InstanceProfile{{Name: "p", Role: "other", Class: "class-uid"}}}
	clock := clocktesting.NewFakeClock(time.Unix(1e9, 0))
	kubernetes := kube(t, &writes{}, class(nil))
	c := &ProfileCollector{Live: kubernetes, Store: store, Clock: clock}
	claimed := claim("c", "p", func(c *karpv1.NodeClaim) { c.Annotations = map[string]string{v1.AnnotationInstanceProfile: "p"} })
	for i, step := range []func() error{
		func() error { return nil },
		func() error { return kubernetes.Create(t.Context(), claimed) },
		func() error { return kubernetes.Delete(t.Context(), claimed) },
		func() error { return nil },
	} {
		if err := errors.Join(step(), c.collect(t.Context())); err != nil {
			t.Fatal(err)
		}
		if len(store.deleted) > 0 {
			t.Fatalf("look %d: %v deleted", i, store.deleted)
		}
		clock.Step(profilesEvery)
	}
}
