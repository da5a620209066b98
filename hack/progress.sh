#!/usr/bin/env bash
# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Runs `go build -v` with the given arguments and says how far it is, on stderr:
# on an empty cache, compiling Kubernetes takes most of the time and is otherwise silent.
set -euo pipefail

go=${GO:-go}
seen=0
start=$SECONDS
report() {
  while IFS= read -r line; do
    case $line in
    # -v prints one import path for every package it compiles; all else is for the reader.
    *' '* | '#'*) printf '%s\n' "$line" >&2 ;;
    *)
      seen=$((seen + 1))
      if [ "$seen" -eq 1 ]; then
        echo "compiling (on an empty cache this is mostly Kubernetes: 10 to 20 minutes on 2 cores)" >&2
      fi
      if [ $((seen % 50)) -eq 0 ]; then
        echo "  $((SECONDS - start)) s: $seen packages compiled, now $line" >&2
      fi
      ;;
    esac
  done
}

"$go" build -v "$@" 2>&1 | report
