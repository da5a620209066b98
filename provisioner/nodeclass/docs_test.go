// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"os"
	"reflect"
	"strings"
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
)

// The reference says of every field of the API what becomes of it, and of every condition and reason that it exists.
func TestReferenceIsComplete(t *testing.T) {
	text, err := os.ReadFile("../../docs/reference/ec2nodeclass.md")
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, typ := range []reflect.Type{
		reflect.TypeFor[v1.EC2NodeClassSpec](), reflect.TypeFor[v1.KubeletConfiguration](), reflect.TypeFor[v1.EC2NodeClassStatus](),
	} {
		for field := range typ.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			names = append(names, name)
		}
	}
	names = append(
		names, reasonSubnetsNotFound, reasonGroupsNotFound, reasonImageNotFound, reasonAlias, reasonProfileNotFound, reasonPlacementGroup, reasonNoPlacementGroup,
		reasonCluster, reasonTags, reasonUserData, reasonInvalid, reasonResolutionFailed, reasonDependencies, reasonNoTemplate, reasonNoFleet, reasonNoRun,
	)
	for _, p := range (&ClassReconciler{}).parts() {
		names = append(names, p.condition)
	}
	for _, name := range names {
		if !strings.Contains(string(text), "`"+name+"`") {
			t.Errorf("the reference does not mention %q", name)
		}
	}
}
