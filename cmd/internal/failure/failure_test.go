// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestCluster(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	tests := map[string]struct {
		err  error
		want string
	}{
		"nothing":      {nil, ""},
		"no answer":    {fmt.Errorf("listing: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), "the cluster at h does not answer: is this the right --context or --kubeconfig"},
		"unauthorized": {apierrors.NewUnauthorized("x"), "the cluster at h does not accept the kubeconfig's credentials: log in again"},
		"forbidden":    {apierrors.NewForbidden(pods, "", errors.New("x")), "the kubeconfig's user may not do this"},
		"no kind":      {&meta.NoKindMatchError{GroupKind: schema.GroupKind{Group: "karpenter.sh", Kind: "NodePool"}}, "the cluster at h does not have Karpenter's custom resources"},
		"another":      {errors.New("other"), "other"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Cluster(tt.err, "h")
			if (err == nil) != (tt.want == "") || err != nil && (!strings.HasPrefix(err.Error(), tt.want) || !errors.Is(err, tt.err) || strings.Contains(err.Error(), "\n")) {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestCredentials(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"there":             {nil, ""},
		"none anywhere":     {fmt.Errorf("failed to refresh cached credentials: %w", errors.New("no EC2 IMDS role found")), "there are no AWS credentials: give the pod's service account a role (EKS Pod Identity, or the annotation eks.amazonaws.com/role-arn), or set AWS_PROFILE (no EC2 IMDS role found)"},
		"STS refuses":       {fmt.Errorf("assuming: %w", &smithy.GenericAPIError{Code: "ExpiredToken"}), ""},
		"STS not reachable": {fmt.Errorf("assuming: %w", &net.OpError{Op: "dial", Err: errors.New("refused")}), ""},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			err := Credentials(t.Context(), aws.Config{Credentials: aws.CredentialsProviderFunc(func(context.Context) (aws.Credentials, error) { return aws.Credentials{}, tt.err })})
			if (err == nil) != (tt.want == "") || err != nil && err.Error() != tt.want {
				t.Errorf("error %v, want %q", err, tt.want)
			}
		})
	}
}

func TestConfig(t *testing.T) {
	tests := map[string]struct {
		err  error
		want string
	}{
		"no region":     {fmt.Errorf("resolving: %w", &smithy.OperationError{ServiceID: "ec2imds", OperationName: "GetRegion", Err: errors.New("refused")}), "set AWS_REGION to the cluster's region"},
		"wrong profile": {fmt.Errorf("loading: %w", errors.New("no profile x")), "reading the AWS configuration (AWS_PROFILE, AWS_CONFIG_FILE): no profile x"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			if got := Config(tt.err).Error(); !strings.HasSuffix(got, tt.want) {
				t.Errorf("error %q, want %q", got, tt.want)
			}
		})
	}
}
