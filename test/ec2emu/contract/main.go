// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"

	"github.com/slipway-sh/slipway/test/ec2emu"
)

//go:embed differences.txt
var differencesText string

func main() {
	moto := flag.String("moto", "", "URL of a moto server that nothing has been done to")
	all := flag.Bool("all", false, "print known differences, too")
	flag.Parse()
	if err := run(*moto, *all, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "contract:", err)
		os.Exit(1)
	}
}

func run(moto string, all bool, out io.Writer) error {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if moto == "" {
		return fmt.Errorf("reading flags: -moto is missing; run it through `make contract`")
	}
	known, err := parseDifferences(differencesText)
	if err != nil {
		return err
	}
	emu, err := ec2emu.Start(ctx, ec2emu.Options{
		Seed: 1, ClusterName: cluster, InstantBoot: true, Parameters: map[string]string{parameter: "value"},
		ClusterEndpoint: "https://127.0.0.1:6443", ClusterCA: []byte("ca"),
	})
	if err != nil {
		return err
	}
	defer emu.Close()
	peer, own := newSide(moto), newSide(emu.URL())
	if err := peer.furnish(ctx); err != nil {
		return err
	}
	for _, s := range []*side{peer, own} {
		if err := s.look(ctx); err != nil {
			return err
		}
	}
	calls, found := 0, []string{}
	for _, s := range steps() {
		calls++
		for _, difference := range compare(s.ask(ctx, peer), s.ask(ctx, own)) {
			found = append(found, s.name+": "+difference)
		}
	}
	if all {
		for _, f := range found {
			fmt.Fprintln(out, f)
		}
	}
	problems := slices.Concat(uncovered(emu.Actions()), known.judge(found))
	fmt.Fprintf(out, "%d calls on both sides, %d differences, %d of them not listed\n", calls, len(found), len(problems))
	if len(problems) > 0 {
		return fmt.Errorf("differences.txt has to say who is right, or the emulator to change:\n%s", strings.Join(problems, "\n"))
	}
	return nil
}

// uncovered lists actions that no step calls, though moto may know them.
func uncovered(actions []string) []string {
	called := map[string]bool{}
	for _, s := range steps() {
		called[s.action()] = true
	}
	var out []string
	for _, action := range actions {
		if !called[action] && !slices.Contains(notInMoto(), action) {
			out = append(out, action+": no step calls it")
		}
	}
	return out
}
