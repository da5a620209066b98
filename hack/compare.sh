#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# `compare.sh build` builds the stock Karpenter controller, the programs around its scheduler and its consolidation, and the stock kube-scheduler into
# bin/compare; `compare.sh run` runs that controller against the emulator, too. Ends with 75 if a module's download failed for want of a registry.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/outsider.sh

go=${GO:-go}
karpenter=github.com/aws/karpenter-provider-aws/cmd/controller
scheduler=k8s.io/kubernetes/cmd/kube-scheduler

# modules downloads what a package is built of, so that a failure of the build that follows is a failure of the build.
modules() {
  local log
  log=$(mktemp)
  if "$go" list -C "$1" -deps "$2" >/dev/null 2>"$log"; then
    rm -f "$log"
    return
  fi
  tail -n 5 "$log" >&2
  if unreached "$log"; then
    rm -f "$log"
    not_compared "stock Karpenter" "the modules of $2 cannot be downloaded: is the Go module proxy reached?"
  fi
  rm -f "$log"
  return 1
}

build() {
  mkdir -p bin/compare
  modules test/compare "$karpenter"
  modules . "$scheduler"
  echo "building the stock Karpenter controller" >&2
  "$go" build -C test/compare -o ../../bin/compare/karpenter "$karpenter"
  "$go" build -C test/compare -o ../../bin/compare/ ./planner ./days
  local version
  version=$("$go" list -m -f '{{.Version}}' k8s.io/kubernetes)
  "$go" build -ldflags "-s -w -X k8s.io/component-base/version.gitVersion=$version" -o bin/compare/kube-scheduler "$scheduler"
}

case ${1:-} in
  build) build ;;
  run)
    shift
    "$go" run ./test/cluster/build >&2
    build
    "$go" run ./test/ec2emu/stock "$@"
    ;;
  *)
    echo "usage: $0 build|run [flags of test/ec2emu/stock]" >&2
    exit 64
    ;;
esac
