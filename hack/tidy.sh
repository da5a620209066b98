#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Fails if `go mod tidy` would change a module, with the difference. Tidying reads the go.mod files of dependencies that
# no build needs; where they are neither cached nor reachable nothing can be said, and the check says that and passes.
set -euo pipefail

go=${GO:-go}
errors=$(mktemp)
trap 'rm -f "$errors"' EXIT
status=0
for module in . tools tools/vuln test/compare; do
  if diff=$("$go" -C "$module" mod tidy -diff 2>"$errors"); then
    continue
  fi
  if [ -n "$diff" ]; then
    printf '%s\n' "$diff"
    echo "module in $module/ is not tidy: run 'go -C $module mod tidy'" >&2
    status=1
  else
    echo "cannot tell whether the module in $module/ is tidy:" >&2
    tail -n 3 "$errors" >&2
    [ -z "${CI:-}" ] || status=1
  fi
done
exit $status
