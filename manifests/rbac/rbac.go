// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package rbac embeds the rights Slipway's processes run with, so that the test bed runs them with what users grant and
// nothing more. The namespace slipway-system has to exist. It has no code. Import level 0.
package rbac

import _ "embed"

// Roles has what each process may do: a ClusterRole and a Role a process, bound to nobody.
//
//go:embed roles.yaml
var Roles []byte

// Split binds the roles to one service account a process, for the installation with two Deployments.
//
//go:embed split.yaml
var Split []byte

// Joint binds all roles to the one service account of the pod that holds both processes.
//
//go:embed joint.yaml
var Joint []byte

// Flow puts the service accounts of both installations into the API server's priority level of system workloads.
//
//go:embed flow.yaml
var Flow []byte
