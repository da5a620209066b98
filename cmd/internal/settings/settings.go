// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"strings"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client/config"
)

// Kubeconfig is the flag without an environment variable of Slipway's: client-go reads KUBECONFIG itself.
const Kubeconfig = "kubeconfig"

// Config is the flag that names the configuration file.
const Config = "config"

// Parse reads a configuration file of the kind (see [Read]), environment variables of the flags' names in upper case with
// underscores, and flags; each overrides the one before. It adds the flag --config. Its errors name the flag, variable or key;
// flag.ErrHelp is one of them.
func Parse(fs *flag.FlagSet, kind string, args []string, getenv func(string) string) error {
	file := fs.String("config", "", "configuration file ("+kind+" of "+APIVersion+"); environment and flags override it")
	// 1. Flags: they name the file, and are set again at the end.
	if err := fs.Parse(args); err != nil {
		if errors.Is(err, flag.ErrHelp) {
			return err
		}
		return unknown(fs, args, err)
	}
	var invalid []error
	if fs.NArg() > 0 {
		invalid = append(invalid, fmt.Errorf("unexpected argument %q", fs.Arg(0)))
	}
	given := map[string]string{}
	fs.Visit(func(f *flag.Flag) { given[f.Name] = f.Value.String() })
	// 2. The file.
	if *file != "" {
		if err := Read(fs, kind, *file); err != nil {
			invalid = append(invalid, err)
		}
	}
	// 3. The environment.
	fs.VisitAll(func(f *flag.Flag) {
		name := strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if v := getenv(name); v != "" && f.Name != Kubeconfig && f.Name != Config {
			if err := fs.Set(f.Name, v); err != nil {
				invalid = append(invalid, fmt.Errorf("environment variable %s (flag --%s): %q: %w", name, f.Name, v, err))
			}
		}
	})
	// 4. The flags again.
	for name, v := range given {
		if err := fs.Set(name, v); err != nil {
			invalid = append(invalid, fmt.Errorf("flag --%s: %q: %w", name, v, err))
		}
	}
	return errors.Join(invalid...)
}

// unknown adds the nearest known flag to the error of parsing, if a flag of args is not known.
func unknown(fs *flag.FlagSet, args []string, err error) error {
	for _, arg := range args {
		name, _, _ := strings.Cut(strings.TrimLeft(arg, "-"), "=")
		if !strings.HasPrefix(arg, "-") || name == "" || fs.Lookup(name) != nil {
			continue
		}
		var known []string
		fs.VisitAll(func(f *flag.Flag) { known = append(known, f.Name) })
		if near := Nearest(name, known); near != "" {
			return fmt.Errorf("%w (did you mean --%s?)", err, near)
		}
		return err
	}
	return err
}

// Nearest is the known name that the fewest changes of a letter make of name, empty if that takes more than a third of it.
func Nearest(name string, known []string) string {
	best, least := "", len(name)/3+1
	for _, k := range known {
		if d := distance(name, k); d < least {
			best, least = k, d
		}
	}
	return best
}

// distance is Levenshtein's.
func distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		diagonal := row[0]
		row[0] = i + 1
		for j := range len(b) {
			change := diagonal
			if a[i] != b[j] {
				change++
			}
			diagonal = row[j+1]
			row[j+1] = min(change, row[j]+1, row[j+1]+1)
		}
	}
	return row[len(b)]
}

// Level is a log level by its name, in slog's numbers; a logr level n is -n there.
func Level(name string) (slog.Level, error) {
	switch name {
	case "debug":
		return slog.LevelDebug, nil
	case "info":
		return slog.LevelInfo, nil
	case "error":
		return slog.LevelError, nil
	}
	return 0, fmt.Errorf("%q is not debug, info or error", name)
}

// Port checks that a port is one, or 0 where that means none.
func Port(port int, none bool) error {
	if port < 0 || port > 65535 || port == 0 && !none {
		return fmt.Errorf("%d is not a port", port)
	}
	return nil
}

// KubeConfig reads the file, or without one the in-cluster credentials or the user's own kubeconfig.
func KubeConfig(file string) (c *rest.Config, err error) {
	if file != "" {
		c, err = clientcmd.BuildConfigFromFlags("", file)
	} else {
		c, err = config.GetConfig()
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	return c, nil
}
