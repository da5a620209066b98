// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	"sigs.k8s.io/controller-runtime/pkg/log"

	"github.com/slipway-sh/slipway/test/bed"
)

// TestStorms runs CHAOS_STORMS storms (1 by default) from CHAOS_SEED on (1 by default). One storm again, with all it does:
//
//	CHAOS_SEED=17 CHAOS_STORMS=1 go test ./test/chaos -v
func TestStorms(t *testing.T) {
	if testing.Short() {
		t.Skip("a storm takes half a minute; the other tests of -short take none")
	}
	log.SetLogger(logr.Discard())
	storms, first := number(t, "CHAOS_STORMS", 1), number(t, "CHAOS_SEED", 1)
	binaries := t.TempDir()
	if err := bed.Build(t.Context(), binaries); err != nil {
		t.Fatal(err)
	}
	violated, verdicts, second, forgotten := 0, 0, 0, 0
	for seed := first; seed < first+storms; seed++ {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			began := time.Now()
			storm := Storm{Seed: uint64(seed), Binaries: binaries, Log: t.Logf, Keep: os.Getenv("CHAOS_LOGS")}
			violations, err := storm.Run(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range violations {
				t.Errorf("storm %d: %s", seed, v)
			}
			violated += len(violations)
			for _, v := range violations {
				switch {
				case strings.Contains(v, SecondLaunch):
					second++
				case strings.Contains(v, Forgotten):
					forgotten++
				}
			}
			verdicts++
			t.Logf("storm %d: %d violations, %.0f s", seed, len(violations), time.Since(began).Seconds())
		})
	}
	if verdicts == storms {
		fmt.Printf("figure chaos-violations %d count\nfigure second-launches %d count\nfigure forgotten %d count\n", violated, second, forgotten)
	}
}

// number reads a whole number from the environment.
func number(t *testing.T, name string, otherwise int) int {
	t.Helper()
	text := os.Getenv(name)
	if text == "" {
		return otherwise
	}
	n, err := strconv.Atoi(text)
	if err != nil {
		t.Fatalf("environment variable %s: %v", name, err)
	}
	return n
}
