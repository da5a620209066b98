#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Installs moto into a folder that is thrown away, starts it on a free loopback port, and holds the emulator against
# it. Without Python or the package registry there is nothing to compare with: that is said, and is no pass.
set -euo pipefail
cd "$(dirname "$0")/.."

go=${GO:-go}
moto=5.2.5 # as differences.txt was written for
python=${PYTHON:-python3}

impossible() {
  {
    echo "############################################################"
    echo "# NOT COMPARED: $1"
    echo "# The emulator was not held against moto. This is no pass."
    echo "############################################################"
  } >&2
  exit 2
}

command -v "$python" >/dev/null || impossible "there is no $python on this machine"

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

"$python" -m venv "$work/venv" || impossible "$python cannot make a virtual environment"
echo "installing moto $moto into a throw-away environment" >&2
# Only what its server needs: moto[server] brings a hundred packages more.
"$work/venv/bin/pip" install --quiet --disable-pip-version-check "moto==$moto" flask flask-cors >"$work/pip.log" 2>&1 || {
  tail -n 5 "$work/pip.log" >&2
  impossible "moto $moto cannot be installed: is the package registry reached?"
}

port=$("$python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
"$work/venv/bin/moto_server" -H 127.0.0.1 -p "$port" >"$work/moto.log" 2>&1 &
server=$!
"$go" build -o "$work/contract" ./test/ec2emu/contract
for _ in $(seq 150); do
  if "$python" -c "import socket; socket.create_connection(('127.0.0.1', $port), 1)" 2>/dev/null; then
    "$work/contract" -moto "http://127.0.0.1:$port" "$@"
    exit
  fi
  kill -0 "$server" 2>/dev/null || break
  sleep 0.2
done
tail -n 20 "$work/moto.log" >&2
impossible "moto's server did not start"
