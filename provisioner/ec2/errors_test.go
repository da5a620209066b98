// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// answered builds an error as the SDK does for an answer with this code and status.
func answered(code string, status int, header http.Header) error {
	return &smithy.OperationError{ServiceID: "EC2", OperationName: "X", Err: &smithyhttp.ResponseError{
		Response: &smithyhttp.Response{Response: &http.Response{StatusCode: status, Header: header}},
		Err:      &smithy.GenericAPIError{Code: code, Message: "m"},
	}}
}

func TestWrapKinds(t *testing.T) {
	tests := []struct {
		name string
		err  error
		want capacity.Kind
	}{
		{"stock-out", answered("InsufficientInstanceCapacity", 400, nil), capacity.NoCapacity},
		{"stock-out as a server error", answered("InsufficientInstanceCapacity", 500, nil), capacity.NoCapacity},
		{"spot quota", answered("MaxSpotInstanceCountExceeded", 400, nil), capacity.NoCapacity},
		{"full subnet", answered("InsufficientFreeAddressesInSubnet", 400, nil), capacity.NoCapacity},
		{"type not sold here", answered("Unsupported", 400, nil), capacity.NoCapacity},
		{"a shortage not known yet", answered("InsufficientFancyChips", 400, nil), capacity.NoCapacity},
		{"throttled", answered("RequestLimitExceeded", 503, nil), capacity.Throttled},
		{"throttled by status", answered("Slow", 429, nil), capacity.Throttled},
		{"not allowed", answered("UnauthorizedOperation", 403, nil), capacity.Unauthorized},
		{"not allowed by status", answered("Nope", 403, nil), capacity.Unauthorized},
		{"expired credentials", answered("ExpiredToken", 400, nil), capacity.Unauthorized},
		{"server error", answered("InternalError", 500, nil), capacity.Unavailable},
		{"server error by status", answered("Oops", 502, nil), capacity.Unavailable},
		{"other parameters", answered("IdempotentParameterMismatch", 400, nil), capacity.Conflict},
		{"no template", answered("InvalidLaunchTemplateName.NotFoundException", 400, nil), capacity.NotReady},
		{"no instance", answered("InvalidInstanceID.NotFound", 400, nil), capacity.NotFound},
		{"no subnet", answered("InvalidSubnetID.NotFound", 400, nil), capacity.NotFound},
		{"no parameter", answered("ParameterNotFound", 400, nil), capacity.NotFound},
		{"no role", answered("NoSuchEntity", 404, nil), capacity.NotFound},
		{"bad parameter", answered("InvalidParameterValue", 400, nil), capacity.Invalid},
		{"missing parameter", answered("MissingParameter", 400, nil), capacity.Invalid},
		{"malformed id", answered("InvalidAMIID.Malformed", 400, nil), capacity.Invalid},
		{"anything else", answered("Whatever", 400, nil), capacity.Unknown},
		{"connection refused", &smithyhttp.RequestSendError{Err: &net.OpError{Op: "dial", Err: errors.New("refused")}}, capacity.Unavailable},
		{"connection cut", &smithy.OperationError{Err: io.ErrUnexpectedEOF}, capacity.Unavailable},
		{"half an answer", &smithy.DeserializationError{Err: errors.New("xml")}, capacity.Unavailable},
		{"deadline", &smithy.CanceledError{Err: context.DeadlineExceeded}, capacity.Unavailable},
		{"something of ours", errors.New("bug"), capacity.Unknown},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := wrap(tt.err, "doing %q", "x")
			if got := capacity.KindOf(err); got != tt.want {
				t.Errorf("kind = %q, want %q", got, tt.want)
			}
			if !errors.Is(err, tt.err) {
				t.Error("the cause is lost")
			}
		})
	}
	if err := wrap(nil, "doing"); err != nil {
		t.Errorf("wrap(nil) = %v, want nil", err)
	}
}

// EC2 does not know a new instance profile at once. The answer says that nothing was launched, so it is waited for and not
// taken for a call that may have been carried out.
func TestNewInstanceProfileIsWaitedFor(t *testing.T) {
	const message = "Value (demo_1) for parameter iamInstanceProfile.name is invalid. Invalid IAM Instance Profile name"
	if kind, code := judge("InvalidParameterValue", message, 400); kind != capacity.NotReady || code != CodeProfileUnknown {
		t.Errorf("kind %q, code %q, want NotReady, %s: EC2 does not know the profile yet", kind, code, CodeProfileUnknown)
	}
	if kind, code := judge("InvalidParameterValue", "anything else", 400); kind != capacity.Invalid || code != "InvalidParameterValue" {
		t.Errorf("kind %q, code %q, want Invalid and EC2's own code", kind, code)
	}
	err := newFleetError(FleetRequest{}, ec2types.CreateFleetError{ErrorCode: aws.String("InvalidParameterValue"), ErrorMessage: aws.String(message)}, nil, nil)
	if err.Kind != capacity.NotReady || err.Code != CodeProfileUnknown {
		t.Errorf("inside a fleet's answer: kind %q, code %q, want NotReady, %s", err.Kind, err.Code, CodeProfileUnknown)
	}
}

func TestWrapKeepsWhatTheAnswerSays(t *testing.T) {
	err := wrap(answered("RequestLimitExceeded", 503, http.Header{"Retry-After": {"7"}}), "describing subnets")
	var e *capacity.Error
	if !errors.As(err, &e) {
		t.Fatalf("wrap returned %T, want *capacity.Error", err)
	}
	if e.Code != "RequestLimitExceeded" || e.RetryAfter != 7*time.Second {
		t.Errorf("code %q, retry after %s; want RequestLimitExceeded, 7s", e.Code, e.RetryAfter)
	}
}
