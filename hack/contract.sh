#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs moto into a folder that is thrown away, starts it on a free loopback port, and holds the emulator against
# it. Where the package registry is not reached, or there is no Python, there is nothing to compare with: that is said
# loudly, ends with 75 and is no pass. Everything else that goes wrong is a failure.
set -euo pipefail
cd "$(dirname "$0")/.."
source hack/outsider.sh

go=${GO:-go}
moto=5.2.5 # as differences.txt was written for
python=${PYTHON:-python3}

command -v "$python" >/dev/null || not_compared moto "there is no $python on this machine"

work=$(mktemp -d)
server=
finish() {
  if [ -n "$server" ]; then
    kill "$server" 2>/dev/null || true
    wait "$server" 2>/dev/null || true
  fi
  rm -rf "$work"
}
trap finish EXIT

"$python" -m venv "$work/venv" || not_compared moto "$python cannot make a virtual environment (Debian has it in python3-venv)"
echo "installing moto $moto into a throw-away environment" >&2
# Only what its server needs: moto[server] brings a hundred packages more.
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "moto==$moto" flask flask-cors >"$work/pip.log" 2>&1 || {
  tail -n 5 "$work/pip.log" >&2
  if unreached "$work/pip.log"; then
    not_compared moto "moto $moto cannot be installed: is the package registry reached?"
  fi
  echo "moto $moto cannot be installed, though the registry answers" >&2
  exit 1
}

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
server=$!
"$go" build -o "$work/contract" ./test/ec2emu/contract
for _ in $(seq 150); do
  if "$python" -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null; then
    "$work/contract" -moto "http://127.0.0.1:$port" "$@"
    exit 0
  fi
  kill -0 "$server" 2>/dev/null || break
  sleep 0.2
done
tail -n 20 "$work/moto.log" >&2
echo "moto's server did not start" >&2
exit 1
