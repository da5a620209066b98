#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Looks for known vulnerabilities in what the commands are built of, with govulncheck (pinned in tools/vuln): only those whose code
# is reached count. Needs Go's vulnerability database, https://vuln.go.dev or what GOVULNDB names; ends with 75, and says so, if it
# cannot be reached.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/outsider.sh

go=${GO:-go}
mkdir -p bin/tools
"$go" build -C tools/vuln -o ../../bin/tools/ golang.org/x/vuln/cmd/govulncheck

log=$(mktemp)
trap 'rm -f "$log"' EXIT
code=0
bin/tools/govulncheck ${GOVULNDB:+-db "$GOVULNDB"} "${@:-./cmd/...}" >"$log" 2>&1 || code=$?
cat "$log"
if [ "$code" -ne 0 ] && [ "$code" -ne 3 ] && unreached "$log"; then
  {
    echo "############################################################"
    echo "# NOT CHECKED: the vulnerability database was not reached."
    echo "# Nothing is known about vulnerabilities. This is no pass."
    echo "############################################################"
  } >&2
  exit "$EX_UNREACHED"
fi
exit "$code"
