// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package failure

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/smithy-go"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/client-go/discovery"
)

// Cluster says what is wrong with reaching the cluster at host, which may be empty, and what to do. Other errors stay as they are.
func Cluster(err error, host string) error {
	var network net.Error
	where := "the cluster"
	if host != "" {
		where += " at " + host
	}
	switch {
	case err == nil:
		return nil
	case meta.IsNoMatchError(err):
		return fmt.Errorf("%s does not have Karpenter's custom resources, so Slipway is not installed in it: is this the right context? (%w)", where, err)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%s does not accept the kubeconfig's credentials: log in again, or choose another --context (%w)", where, err)
	case apierrors.IsForbidden(err):
		return fmt.Errorf("the kubeconfig's user may not do this: %w", err)
	case errors.As(err, &network):
		return fmt.Errorf("%s does not answer: is this the right --context or --kubeconfig, and can it be reached from here? (%w)", where, err)
	case discovery.IsGroupDiscoveryFailedError(err):
		return fmt.Errorf("%s does not have Karpenter's custom resources, so Slipway is not installed in it: is this the right context? (%w)", where, err)
	}
	return err
}

// credentialsWithin bounds the look for credentials at start.
const credentialsWithin = 10 * time.Second

// Credentials says that there are no AWS credentials to be found, and where they come from. That their source does not answer, or
// refuses them, passes: it is AWS that is out of order, and a process does what it can without it.
func Credentials(ctx context.Context, config aws.Config) error {
	ctx, cancel := context.WithTimeout(ctx, credentialsWithin)
	defer cancel()
	_, err := config.Credentials.Retrieve(ctx)
	var coded smithy.APIError
	var network net.Error
	if err == nil || ctx.Err() != nil || errors.As(err, &coded) || errors.As(err, &network) {
		return nil
	}
	return fmt.Errorf("there are no AWS credentials: give the pod's service account a role (EKS Pod Identity, or the annotation eks.amazonaws.com/role-arn), or set AWS_PROFILE (%w)", Root(err))
}

// Config says why the AWS configuration cannot be loaded. Without a region it is the metadata service that is asked last.
func Config(err error) error {
	if op, ok := errors.AsType[*smithy.OperationError](err); ok && op.Operation() == "GetRegion" {
		return NoRegion()
	}
	return fmt.Errorf("reading the AWS configuration (AWS_PROFILE, AWS_CONFIG_FILE): %w", Root(err))
}

// NoRegion says that nothing tells the region.
func NoRegion() error {
	return errors.New("no AWS region is configured and the instance metadata does not tell it: set AWS_REGION to the cluster's region")
}

// Root is the innermost error, of several the first: the SDK wraps one in many words.
func Root(err error) error {
	for {
		next := errors.Unwrap(err)
		if joined, ok := err.(interface{ Unwrap() []error }); ok && len(joined.Unwrap()) > 0 {
			next = joined.Unwrap()[0]
		}
		if next == nil {
			return err
		}
		err = next
	}
}
