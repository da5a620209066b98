// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package wire is the server side of the AWS query protocols: it decodes form
// bodies into the SDK's own input types and encodes the SDK's output types as
// XML, in the dialects of EC2 (ec2query) and of IAM and STS (awsQuery).
//
// Names on the wire are the Go field's, by the dialect's rule, except those in
// names_ec2.go, which wire/gen reads from the serializers of the pinned SDK.
//
// It owns the two protocols and nothing else: no state, no HTTP, no semantics
// of any action. Import level 6 (test).
package wire

//go:generate go run ./gen -out names_ec2.go -actions actions.txt
