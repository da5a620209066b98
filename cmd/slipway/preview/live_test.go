// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/aws/smithy-go"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-sh/slipway/test/builder"
)

func cluster(objects ...client.Object) client.Client {
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).Build()
}

// A pod that waits is planned where there is room first, then on a new node, and on nothing that is taken.
func TestReadCluster(t *testing.T) {
	kube := cluster(
		builder.NodePool("general").Ready().Obj(), builder.EC2NodeClass(builder.DefaultClass).Ready().Obj(),
		builder.Node("there").CPU("4").Memory("16Gi").Pool("general").InstanceType("m5.xlarge").Zone("us-east-1a").Obj(),
		builder.Pod("bound").UID("bound").CPU("2").Memory("1Gi").On("there").Obj(),
		builder.Pod("ended").UID("ended").CPU("2").Memory("1Gi").On("there").Phase(corev1.PodSucceeded).Obj(),
		builder.Pod("small").UID("small").CPU("1").Memory("1Gi").Obj(),
		builder.Pod("large").UID("large").CPU("3").Memory("1Gi").Obj(),
		builder.Pod("gated").UID("gated").CPU("3").Memory("1Gi").Gate("example.com/wait").Obj(),
	)
	in, err := ReadFiles(nil, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.ReadCluster(t.Context(), kube, true); err != nil {
		t.Fatal(err)
	}
	m, err := Offline(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	o, err := Solve(t.Context(), in, m)
	if err != nil {
		t.Fatal(err)
	}
	r := o.Report()
	if len(r.Placed) != 1 || r.Placed[0] != (Placed{"default/small", "there"}) || len(r.Nodes) != 1 || len(r.Nodes[0].Pods) != 1 || r.Nodes[0].Pods[0] != "default/large" || r.Pods != 2 {
		t.Errorf("the plan is %+v", r)
	}
	var out strings.Builder
	if err := r.Write(&out, false); err != nil {
		t.Fatal(err)
	}
	if want := "1 pod will find room on nodes that are there or on their way: small"; !strings.Contains(out.String(), want) {
		t.Errorf("it says\n%s\nwant %q in it", &out, want)
	}
}

// A pool of the manifests stands in for the cluster's, and with manifests the cluster's own pods are not planned.
func TestReadClusterWithFiles(t *testing.T) {
	dir := write(t, map[string]string{"a.yaml": pool + "---" + workload("1", "1", "")})
	in, err := ReadFiles([]string{dir}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := in.ReadCluster(t.Context(), cluster(builder.NodePool("general").Weight(7).Obj(), builder.NodePool("other").Obj(), builder.Pod("waits").Obj()), false); err != nil {
		t.Fatal(err)
	}
	if len(in.Pools) != 2 || in.Pools[0].Spec.Weight != nil || len(in.Pods) != 1 || in.Pods[0].Name == "waits" {
		t.Errorf("pools %v, pods %v", in.Pools, in.Pods)
	}
}

func TestRegion(t *testing.T) {
	tests := map[string]struct {
		in   Input
		want string
	}{
		"nothing tells": {},
		"a node":        {Input{Objects: []client.Object{builder.Node("n").Label(corev1.LabelTopologyRegion, "eu-west-1").Obj()}}, "eu-west-1"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tt.in.Region(); got != tt.want {
				t.Errorf("region %q, want %q", got, tt.want)
			}
		})
	}
	in := Input{}
	in.Classes = append(in.Classes, builder.EC2NodeClass("c").ResolvedSubnet("s", "ap-south-1b", "aps1-az1").Obj())
	if got := in.Region(); got != "ap-south-1" {
		t.Errorf("by a subnet the region is %q", got)
	}
}

func TestLiveFails(t *testing.T) {
	tests := map[string]struct {
		env    map[string]string
		region string
		want   string
	}{
		"no region":      {want: "set AWS_REGION"},
		"another region": {env: map[string]string{"AWS_REGION": "us-east-1"}, region: "eu-west-1", want: "AWS is configured for region us-east-1 and the cluster is in eu-west-1: set AWS_REGION=eu-west-1"},
		"no credentials": {region: "eu-west-1", want: "there are no AWS credentials"},
		"no answer": {
			env:    map[string]string{"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_ENDPOINT_URL": "http://127.0.0.1:1", "AWS_MAX_ATTEMPTS": "1"},
			region: "eu-west-1", want: "AWS does not answer in region eu-west-1",
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			for _, name := range []string{"AWS_REGION", "AWS_DEFAULT_REGION", "AWS_PROFILE", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_ENDPOINT_URL"} {
				t.Setenv(name, "")
			}
			t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
			t.Setenv("AWS_CONFIG_FILE", os.DevNull)
			t.Setenv("AWS_SHARED_CREDENTIALS_FILE", os.DevNull)
			for k, v := range tt.env {
				t.Setenv(k, v)
			}
			_, err := Live(t.Context(), tt.region)
			if err == nil || !strings.Contains(err.Error(), tt.want) || strings.Contains(err.Error(), "\n") {
				t.Errorf("error %v, want one line with %q", err, tt.want)
			}
		})
	}
}

func TestExplainAWS(t *testing.T) {
	tests := map[string]string{
		"ExpiredToken":          "the AWS credentials have expired: log in again",
		"AuthFailure":           "AWS does not accept the credentials in region r",
		"UnauthorizedOperation": "the AWS credentials may not read what is sold",
		"InternalError":         "asking AWS what it sells in region r",
	}
	for code, want := range tests {
		t.Run(code, func(t *testing.T) {
			err := explainAWS(errors.Join(&smithy.GenericAPIError{Code: code, Message: "m"}), "r")
			if !strings.HasPrefix(err.Error(), want) {
				t.Errorf("error %q, want %q", err, want)
			}
		})
	}
}
