// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"time"

	smithy "github.com/aws/smithy-go"
	smithyhttp "github.com/aws/smithy-go/transport/http"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Error codes callers look at beyond the kind, for reasons in conditions and for what a shortage covers.
const (
	// CodeTemplateNotFound says that a launch template named in CreateFleet is gone; its kind is NotReady.
	CodeTemplateNotFound = "InvalidLaunchTemplateName.NotFoundException"
	// CodeSubnetFull says that a subnet has no free address: every type is out in that subnet.
	CodeSubnetFull = "InsufficientFreeAddressesInSubnet"
	// CodeSpotQuota says that the account's spot quota is used up: every spot offering of the family is out.
	CodeSpotQuota = "MaxSpotInstanceCountExceeded"
	// CodeVCPUQuota says that the account's on-demand quota is used up.
	CodeVCPUQuota = "VcpuLimitExceeded"
	// CodeInstanceQuota says that the account may not run more on-demand instances.
	CodeInstanceQuota = "InstanceLimitExceeded"
	// CodeSpotRole says that the account lacks the role without which EC2 sells it no spot instance, and that it may not
	// be made.
	CodeSpotRole = "AuthFailure.ServiceLinkedRoleCreationNotPermitted"
	// CodeReservationFull says that a capacity reservation has no free place.
	CodeReservationFull = "ReservationCapacityExceeded"
	// CodeProfileUnknown stands for the answer InvalidParameterValue about the instance profile (Karpenter's reason for it); its
	// kind is NotReady. EC2 learns of a new profile up to a minute after IAM has made it.
	CodeProfileUnknown = "InstanceProfileNameInvalid"
	// CodeUserDataTooLong says that user data is longer than EC2 takes.
	CodeUserDataTooLong = "UserDataSizeLimitExceeded"

	codeTemplateExists = "InvalidLaunchTemplateName.AlreadyExistsException"
	codeInstanceGone   = "InvalidInstanceID.NotFound"
	codeEntityExists   = "EntityAlreadyExists"
)

// kindOfCode is the meaning of the codes EC2, IAM, SSM, EKS and Pricing answer with, as the API references list them.
// Codes that are absent are judged by their form and by the HTTP status, see kindOf.
func kindOfCode(code string) (capacity.Kind, bool) {
	switch code {
	case "InsufficientInstanceCapacity", "InsufficientHostCapacity", "InsufficientCapacity", "InsufficientReservedInstanceCapacity",
		CodeSpotQuota, CodeVCPUQuota, CodeInstanceQuota, "UnfulfillableCapacity", "Unsupported", CodeSubnetFull,
		"SpotMaxPriceTooLow", CodeReservationFull, "InvalidCapacityReservationState.Unavailable":
		return capacity.NoCapacity, true
	case "RequestLimitExceeded", "Throttling", "ThrottlingException", "ThrottledException", "RequestThrottled",
		"RequestThrottledException", "MaxFleetCountExceeded", "TooManyRequestsException", "EC2ThrottledException", "PriorRequestNotComplete", "SlowDown":
		return capacity.Throttled, true
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException", "AuthFailure", "UnrecognizedClientException",
		"InvalidClientTokenId", "ExpiredToken", "ExpiredTokenException", "RequestExpired", "SignatureDoesNotMatch",
		"MissingAuthenticationToken", "OptInRequired", "PendingVerification", "Blocked",
		CodeSpotRole:
		return capacity.Unauthorized, true
	case "InternalError", "InternalFailure", "InternalServerError", "InternalServiceError", "InternalServerException",
		"ServerInternal", "Unavailable", "ServiceUnavailable", "ServiceUnavailableException", "RequestTimeout",
		"RequestTimeoutException":
		return capacity.Unavailable, true
	case "IdempotentParameterMismatch", "IdempotentParameterMismatchException":
		return capacity.Conflict, true
	case CodeTemplateNotFound, "InvalidLaunchTemplateId.NotFound", "InvalidLaunchTemplateId.NotFoundException":
		return capacity.NotReady, true
	case "NoSuchEntity", "ParameterNotFound", "ParameterVersionNotFound", "ResourceNotFoundException",
		"AWS.SimpleQueueService.NonExistentQueue", "QueueDoesNotExist":
		return capacity.NotFound, true
	case "ValidationError", "ValidationException", "SerializationException", "UnknownParameter", CodeUserDataTooLong:
		return capacity.Invalid, true
	}
	return capacity.Unknown, false
}

// kindOf judges a code EC2 may add tomorrow by its form: EC2 builds codes from words ("InvalidSubnetID.NotFound").
func kindOf(code string, status int) capacity.Kind {
	if k, ok := kindOfCode(code); ok {
		return k
	}
	switch {
	case strings.HasSuffix(code, ".NotFound") || strings.HasSuffix(code, ".NotFoundException") || strings.HasSuffix(code, "NotFoundException"):
		return capacity.NotFound
	case status >= http.StatusInternalServerError:
		return capacity.Unavailable
	case status == http.StatusTooManyRequests:
		return capacity.Throttled
	case status == http.StatusForbidden || status == http.StatusUnauthorized:
		return capacity.Unauthorized
	case strings.HasPrefix(code, "Insufficient"):
		return capacity.NoCapacity
	case strings.HasPrefix(code, "Invalid") || strings.HasPrefix(code, "Missing"):
		return capacity.Invalid
	}
	return capacity.Unknown
}

// judge gives an answer its kind, and a code of its own where EC2's does not tell two causes apart. EC2 takes up to a minute to
// learn of a new instance profile, and until then calls it an invalid parameter: nothing was launched, and trying again
// is all it takes. (That the profile exists is checked when its node class is resolved.)
func judge(code, message string, status int) (capacity.Kind, string) {
	switch {
	case code == "InvalidParameterValue" && strings.Contains(message, "Invalid IAM Instance Profile"):
		return capacity.NotReady, CodeProfileUnknown
	case code == "InvalidUserData.Malformed" && strings.Contains(message, "User data is limited to"):
		return kindOf(code, status), CodeUserDataTooLong
	}
	return kindOf(code, status), code
}

// wrap gives an SDK error its kind. doing says what was attempted, as a gerund. An error without an answer (connection
// refused or cut, deadline) is Unavailable: the request may or may not have been carried out.
func wrap(err error, doing string, args ...any) error {
	if err == nil {
		return nil
	}
	e := &capacity.Error{Err: fmt.Errorf("%s: %w", fmt.Sprintf(doing, args...), err)}
	status := 0
	var response *smithyhttp.ResponseError
	if errors.As(err, &response) && response.Response != nil && response.Response.Response != nil {
		status = response.HTTPStatusCode()
		e.RetryAfter = retryAfter(response.Response.Header)
	}
	var api smithy.APIError
	switch {
	case errors.As(err, &api):
		e.Kind, e.Code = judge(api.ErrorCode(), api.ErrorMessage(), status)
	case status >= http.StatusInternalServerError || unanswered(err):
		e.Kind = capacity.Unavailable
	}
	return e
}

func unanswered(err error) bool {
	var network net.Error
	var send *smithyhttp.RequestSendError
	var garbled *smithy.DeserializationError
	var canceled *smithy.CanceledError
	return errors.As(err, &network) || errors.As(err, &send) || errors.As(err, &garbled) || errors.As(err, &canceled) ||
		errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) ||
		errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)
}

// retryAfter reads the header in its form of whole seconds, the only one AWS sends.
func retryAfter(h http.Header) time.Duration {
	if n, err := strconv.Atoi(h.Get("Retry-After")); err == nil && n > 0 {
		return time.Duration(n) * time.Second
	}
	return 0
}

// invalid is an error of our own about a request that can never work.
func invalid(format string, args ...any) error {
	return &capacity.Error{Kind: capacity.Invalid, Err: fmt.Errorf(format, args...)}
}

func codeOf(err error) string {
	if e, ok := errors.AsType[*capacity.Error](err); ok {
		return e.Code
	}
	return ""
}
