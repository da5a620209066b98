# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0
# shellcheck shell=bash

# Comparisons with programs that are not ours, which come from package registries. To be sourced.
#
# A comparison ends with 0 if it passed, with EX_UNREACHED if it could not be made because a registry was not reached, and
# with anything else if it failed.

readonly EX_UNREACHED=75 # EX_TEMPFAIL of sysexits.h

# unreached FILE: does a package manager's output in the file say that it could not get at its registry? A package or version
# that is not there, a wrong checksum or a compiler's error is a failure and no matter of the network.
unreached() {
  grep -Eqi \
    -e 'dial tcp|no such host|name or service not known|temporary failure in name resolution|nodename nor servname' \
    -e 'i/o timeout|timed out|TLS handshake timeout|context deadline exceeded|connection (refused|reset|aborted|broken)|network is unreachable|no route to host' \
    -e 'proxyconnect|cannot connect to proxy|tunnel connection failed|module lookup disabled by GOPROXY=off' \
    -e 'NewConnectionError|ConnectTimeoutError|ReadTimeoutError|IncompleteRead|RemoteDisconnected|SSLError|unexpected EOF' \
    -e '(403 Forbidden|407 Proxy|429 Too Many|500 Internal|502 Bad|503 Service|504 Gateway)' \
    "$1"
}

# not_compared WHAT WHY: says loudly that there is no result, and ends the script.
not_compared() {
  {
    echo "############################################################"
    echo "# NOT COMPARED: $2"
    echo "# The emulator was not held against $1. This is no pass."
    echo "############################################################"
  } >&2
  exit "$EX_UNREACHED"
}

# outsider NAME SECONDS COMMAND...: runs a comparison, which may take so long, and notes its result for verdict. A comparison
# that hangs has failed.
outsider_report=""
outsider_failed=0
outsider() {
  local name=$1 limit=$2 start=$SECONDS code=0 result
  shift 2
  echo
  echo "=== $name"
  timeout --kill-after=30 "$limit" "$@" || code=$?
  case $code in
    0) result="passed" ;;
    "$EX_UNREACHED") result="NOT RUN: a package registry was not reached. NOTHING WAS PROVEN, this is no pass" ;;
    124 | 137) result="FAILED: not done within $limit s" outsider_failed=1 ;;
    *) result="FAILED: exit $code, see above" outsider_failed=1 ;;
  esac
  outsider_report+=$(printf '\n%6d s  %s: %s' "$((SECONDS - start))" "$name" "$result")
}
