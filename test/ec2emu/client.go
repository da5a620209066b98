// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/credentials"
)

// AWSConfig returns a configuration for SDK clients of this emulator. Its HTTP
// client is free of the race that settleTime describes; clients that are
// configured otherwise meet it rarely and retry.
func (e *Emulator) AWSConfig() aws.Config {
	return aws.Config{
		Region:       e.opts.Region,
		BaseEndpoint: aws.String(e.URL()),
		Credentials:  credentials.NewStaticCredentialsProvider("AKIAEMULATED", "emulated", ""),
		HTTPClient:   &http.Client{Transport: plainBodies{e.transport}},
	}
}

// plainBodies sends request bodies through their Read method only.
type plainBodies struct{ next http.RoundTripper }

// RoundTrip implements http.RoundTripper.
func (p plainBodies) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Body != nil && r.Body != http.NoBody {
		copied := *r
		copied.Body = struct{ io.ReadCloser }{r.Body}
		r = &copied
	}
	return p.next.RoundTrip(r)
}
