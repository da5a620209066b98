# Copyright The Slipway Authors.
# SPDX-License-Identifier: Apache-2.0

# Passes the output of `go test` on and closes with how many packages passed and which were slowest.

{ print; fflush() }

/^ok[ \t]/ {
    passed++
    if ($0 ~ /\(cached\)/) cached++
    else if ($3 ~ /s$/) time[$2] = $3 + 0
}
/^FAIL[ \t]+[^ \t]/ {
    failed++
    names = names "\n  failed: " $2
    if ($3 ~ /^[0-9.]+s$/) time[$2] = $3 + 0
}

/^--- FAIL: / { tests = tests "\n  failed: " $3 }

END {
    for (i = 0; i < 5; i++) {
        best = ""
        for (p in time) if (best == "" || time[p] > time[best]) best = p
        if (best == "" || time[best] < 1) break
        slow = slow sprintf("\n  %7.1f s  %s", time[best], best)
        delete time[best]
    }
    printf "packages: %d passed (%d cached), %d failed%s%s\n", passed, cached, failed, names tests, slow == "" ? "" : "\nslowest:" slow
}
