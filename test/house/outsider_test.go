// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// bash runs a script from the module's root and returns what it printed and its exit code.
func bash(t *testing.T, script string, env ...string) (string, int) {
	t.Helper()
	path, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("there is no bash on this machine, and so no CI script to test")
	}
	cmd := exec.CommandContext(t.Context(), path, "-c", script)
	cmd.Dir = moduleRoot(t)
	cmd.Env = append(os.Environ(), env...)
	out, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	return string(out), cmd.ProcessState.ExitCode()
}

// executable writes a program of the script's into dir and returns its path.
func executable(t *testing.T, dir, name, script string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte("#!/usr/bin/env bash\n"+script), 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}

// What comparisons find decides over the build; only a registry that is not reached decides nothing, and says so.
func TestOutsidersDecide(t *testing.T) {
	for name, tc := range map[string]struct {
		run  string
		want string
		fail bool
	}{
		"passed":         {"outsider it 60 true", "it: passed", false},
		"a mismatch":     {"outsider it 60 false", "it: FAILED: exit 1", true},
		"make's failure": {"outsider it 60 bash -c 'exit 2'", "it: FAILED: exit 2", true},
		"no registry":    {"outsider it 60 bash -c 'exit 75'", "it: NOT RUN: a package registry was not reached", false},
		"it hangs":       {"outsider it 0.2 sleep 60", "it: FAILED: not done within 0.2 s", true},
		"it is killed":   {"outsider it 60 bash -c 'kill -9 $$'", "it: FAILED: not done", true},
		"one of two":     {"outsider it 60 false; outsider other 60 true", "it: FAILED: exit 1", true},
		"not compared":   {`outsider it 60 bash -c 'source hack/outsider.sh; not_compared moto "no network"'`, "it: NOT RUN", false},
	} {
		t.Run(name, func(t *testing.T) {
			out, code := bash(t, `set -euo pipefail; source hack/outsider.sh; `+tc.run+`; echo "$outsider_report"; exit "$outsider_failed"`)
			if !strings.Contains(out, tc.want) || (code != 0) != tc.fail {
				t.Errorf("exit %d (want a failure: %v), output lacks %q:\n%s", code, tc.fail, tc.want, out)
			}
		})
	}
}

// pip answers what the test says; the environment it installs into has a moto that lives or dies.
const python = `
if [ "$1" = -m ]; then
  mkdir -p "$3/bin"
  printf '#!/usr/bin/env bash\necho "$PIP_SAYS"; exit "$PIP_EXIT"\n' >"$3/bin/pip"
  printf '#!/usr/bin/env bash\n%s\n' "$MOTO" >"$3/bin/moto_server"
  chmod +x "$3/bin/pip" "$3/bin/moto_server"
  exit
fi
case $2 in *bind*) echo 1 ;; *) test "$MOTO" != 'exit 1' ;; esac
`

func TestContractExitCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		python, pip, pipExit, moto, verdict string
		want                                int
	}{
		"passed":                {verdict: "0", want: 0},
		"a difference":          {verdict: "1", want: 1},
		"no Python":             {python: "/nowhere/python", want: 75},
		"no index":              {pip: "NewConnectionError: Failed to establish a new connection: [Errno 111] Connection refused", pipExit: "1", want: 75},
		"no name":               {pip: "[Errno -3] Temporary failure in name resolution", pipExit: "1", want: 75},
		"no such version":       {pip: "ERROR: No matching distribution found for moto==5.2.5", pipExit: "1", want: 1},
		"a broken distribution": {pip: "ERROR: Failed building wheel for moto", pipExit: "1", want: 1},
		"moto does not start":   {moto: "exit 1", verdict: "0", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if tc.python == "" {
				tc.python = executable(t, dir, "python", python)
			}
			if tc.pipExit == "" {
				tc.pipExit = "0"
			}
			if tc.moto == "" {
				tc.moto = "exec sleep 60"
			}
			// go build -o FILE: the comparison is a program that ends as the test says.
			golang := executable(t, dir, "go", `printf '#!/usr/bin/env bash\nexit %s\n' "$VERDICT" >"$3"; chmod +x "$3"`)
			out, code := bash(t, "hack/contract.sh", "PYTHON="+tc.python, "GO="+golang,
				"PIP_SAYS="+tc.pip, "PIP_EXIT="+tc.pipExit, "MOTO="+tc.moto, "VERDICT="+tc.verdict)
			if code != tc.want {
				t.Errorf("exit %d, want %d:\n%s", code, tc.want, out)
			}
			if told := strings.Contains(out, "This is no pass."); told != (tc.want == 75) {
				t.Errorf("said that nothing was compared: %v, want %v:\n%s", told, tc.want == 75, out)
			}
		})
	}
}

func TestCompareExitCodes(t *testing.T) {
	for name, tc := range map[string]struct {
		list, listExit, buildExit, runExit string
		want                               int
	}{
		"passed":            {want: 0},
		"no proxy":          {list: "dial tcp: lookup proxy.golang.org: no such host", listExit: "1", want: 75},
		"proxy refuses":     {list: "reading https://proxy.golang.org/x: 502 Bad Gateway", listExit: "1", want: 75},
		"wrong checksum":    {list: "verifying module: checksum mismatch", listExit: "1", want: 1},
		"does not compile":  {buildExit: "1", want: 1},
		"Karpenter objects": {runExit: "1", want: 1},
	} {
		t.Run(name, func(t *testing.T) {
			golang := executable(t, t.TempDir(), "go", `
case "$1 $*" in
  "list "*-deps*) echo "$LIST_SAYS" >&2; exit "${LIST_EXIT:-0}" ;;
  "build "*) exit "${BUILD_EXIT:-0}" ;;
  "run "*ec2emu/stock*) exit "${RUN_EXIT:-0}" ;;
esac`)
			out, code := bash(t, "hack/compare.sh run", "GO="+golang,
				"LIST_SAYS="+tc.list, "LIST_EXIT="+tc.listExit, "BUILD_EXIT="+tc.buildExit, "RUN_EXIT="+tc.runExit)
			if code != tc.want {
				t.Errorf("exit %d, want %d:\n%s", code, tc.want, out)
			}
		})
	}
}
