#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Everything that can be said about the tree without running it: generated files are current, format, vet, lint, modules,
# house rules. Read-only apart from generated files. Stops at the first failure and says how long each step took.
set -euo pipefail
cd "$(dirname "$0")/.."

make=${MAKE:-make}

step() {
  local name=$1 start=$SECONDS
  shift
  echo "== $name"
  "$@"
  echo "== $name: ok, $((SECONDS - start)) s"
}

# state prints what differs from the last commit; in CI, a difference from the start is a failure of its own.
state() {
  git rev-parse --is-inside-work-tree >/dev/null 2>&1 || return 0
  git status --porcelain
  git diff HEAD
}

before=$(state)
if [ -n "${CI:-}" ] && [ -n "$before" ]; then
  echo "the tree differs from its commit:" >&2
  git status --short >&2
  exit 1
fi
unchanged() {
  local after
  after=$(state)
  if [ "$before" != "$after" ]; then
    echo "generating changed files; commit them:" >&2
    git status --short >&2
    return 1
  fi
}

step "generate" "$make" --no-print-directory generate
step "manifests" "$make" --no-print-directory manifests
step "generated files are committed" unchanged
step "format" "$make" --no-print-directory fmt-check
step "vet" "$make" --no-print-directory vet
step "lint" "$make" --no-print-directory lint
step "gosec" "$make" --no-print-directory sec
step "modules are tidy" hack/tidy.sh
step "house rules" "${GO:-go}" test ./test/house
