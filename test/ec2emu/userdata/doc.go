// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package userdata reads what an EC2 instance is told at boot, as the node's own
// software does: MIME archives and NodeConfig documents as nodeadm of the
// EKS-optimised AL2023 images, and settings as Bottlerocket.
//
// It answers a Config, or the reason why the machine would not become a node. It
// never runs scripts, reads no files and talks to nobody. Import level 6 (test).
package userdata
