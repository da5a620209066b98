// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"net/http"
)

// apiError is an error as AWS answers it.
type apiError struct {
	code    string
	message string
	status  int
	// queryCode is the code under which clients of SQS's query protocol know it.
	queryCode string
}

// Error implements error.
func (e *apiError) Error() string { return e.code + ": " + e.message }

// invalid is an error of the caller, HTTP 400.
func invalid(code, format string, args ...any) *apiError {
	return &apiError{code: code, message: fmt.Sprintf(format, args...), status: http.StatusBadRequest}
}

func missing(parameter string) *apiError {
	return invalid("MissingParameter", "The request must contain the parameter %s", parameter)
}

// dryRun is what EC2 answers when a dry run would have succeeded.
func dryRun() *apiError {
	return &apiError{
		code:    "DryRunOperation",
		message: "Request would have succeeded, but DryRun flag is set.",
		status:  http.StatusPreconditionFailed,
	}
}
