// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

func TestPlacementGroup(t *testing.T) {
	const one = `<DescribePlacementGroupsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><placementGroupSet><item>
<groupId>pg-1</groupId><groupName>rack</groupName><strategy>partition</strategy><partitionCount>3</partitionCount><state>available</state></item></placementGroupSet></DescribePlacementGroupsResponse>`
	const none = `<DescribePlacementGroupsResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><placementGroupSet/></DescribePlacementGroupsResponse>`
	tests := []struct {
		name, answer string
		want         PlacementGroup
		kind         capacity.Kind
	}{
		{"found", one, PlacementGroup{ID: "pg-1", Name: "rack", Strategy: "partition", Partitions: 3}, ""},
		{"unknown name", failure("InvalidPlacementGroup.Unknown", "unknown"), PlacementGroup{}, capacity.NotFound},
		{"not available", none, PlacementGroup{}, capacity.NotFound},
		{"not allowed to look", failure("UnauthorizedOperation", "no"), PlacementGroup{}, capacity.Unauthorized},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, sent := replay(t, map[string][]string{"DescribePlacementGroups": {tt.answer}}, Options{})
			got, err := c.PlacementGroup(t.Context(), &v1.PlacementGroupSelector{Name: aws.String("rack")})
			if got != tt.want || capacity.KindOf(err) != tt.kind {
				t.Errorf("PlacementGroup = %+v, %v; want %+v and kind %q", got, err, tt.want, tt.kind)
			}
			if r := sent.sent("DescribePlacementGroups")[0]; r.Get("GroupName.1") != "rack" || r.Get("Filter.1.Value.1") != "available" {
				t.Errorf("request %v, want group rack in state available", r)
			}
		})
	}
}

func TestPlacementGroupInTheCatalog(t *testing.T) {
	cs := stocked(t, clocktesting.NewFakePassiveClock(time.Unix(1e9, 0)))
	cs.update(func(m *market) {
		for _, f := range m.types {
			if f.name == "m5.large" {
				f.placing = []ec2types.PlacementGroupStrategy{"partition", "spread"}
			}
		}
	})
	class := readyClass()
	class.Spec.PlacementGroupSelector = &v1.PlacementGroupSelector{Name: aws.String("rack")}
	class.Annotations = map[string]string{AnnotationPlacementGroup: `{"id":"pg-1","strategy":"partition","partitions":2}`}
	cat := cs.For(class)
	if len(cat.Types) != 1 || cat.Types[0].Name != "m5.large" || cat.Types[0].Labels[v1.LabelPlacementGroupID] != "pg-1" {
		t.Fatalf("types = %+v, want m5.large with the group's label", cat.Types)
	}
	if k := cat.Offerings[0].Key(); k.PlacementGroup != "pg-1" {
		t.Errorf("offering %s is not of the group", k)
	}
	want := map[string][]string{v1.LabelPlacementGroupPartition: {"1", "2"}, v1.LabelInstanceTenancy: {"dedicated", "default"}}
	got := map[string][]string{}
	for k, r := range cat.Choices {
		got[k] = r.Values()
		if cat.Defines(k) {
			t.Errorf("the catalogue defines %q, which the launch chooses", k)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("choices (-want +got):\n%s", diff)
	}
	delete(class.Annotations, AnnotationPlacementGroup)
	class.ResourceVersion = "2"
	if PlacementGroupOf(class) != nil {
		t.Error("a group that is not resolved is known")
	}
}
