// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Command gen writes the tables of facts that no EC2 call answers: branch network
// interfaces per instance type (the resource vpc.amazonaws.com/pod-eni), network
// bandwidth (the label karpenter.k8s.aws/instance-network-bandwidth, Mbit/s) and,
// for when the price list cannot be asked, on-demand prices (US dollars an hour;
// yuan in China). It takes them from the source of the pinned module
// github.com/aws/karpenter-provider-aws (Apache-2.0), without importing it. Each
// output line is a value and the instance types that have it; lines of the price
// table begin with the region.
package main

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"log"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

func main() {
	if err := run(); err != nil {
		log.Fatal(err)
	}
}

func run() error {
	out, err := exec.Command("go", "list", "-m", "-f", "{{.Dir}}", "github.com/aws/karpenter-provider-aws").Output()
	if err != nil {
		return fmt.Errorf("finding the module: %w", err)
	}
	providers := filepath.Join(strings.TrimSpace(string(out)), "pkg", "providers")
	if err := prices(filepath.Join(providers, "pricing")); err != nil {
		return err
	}
	dir := filepath.Join(providers, "instancetype")
	limits, err := table(filepath.Join(dir, "zz_generated.vpclimits.go"), "Limits", branchInterfaces)
	if err != nil {
		return err
	}
	bandwidth, err := table(filepath.Join(dir, "zz_generated.bandwidth.go"), "InstanceTypeBandwidthMegabits", number)
	if err != nil {
		return err
	}
	if err := write("branch_interfaces.txt", limits); err != nil {
		return err
	}
	return write("network_bandwidth.txt", bandwidth)
}

// prices writes the table of prices from the module's files of it, one for each part of AWS.
func prices(dir string) error {
	var b strings.Builder
	for file, variable := range map[string]string{
		"zz_generated.pricing_aws.go":        "InitialOnDemandPricesAWS",
		"zz_generated.pricing_aws_cn.go":     "InitialOnDemandPricesCN",
		"zz_generated.pricing_aws_us_gov.go": "InitialOnDemandPricesUSGov",
	} {
		path := filepath.Join(dir, file)
		parsed, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return fmt.Errorf("parsing the source: %w", err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			spec, ok := n.(*ast.ValueSpec)
			if !ok || spec.Names[0].Name != variable {
				return true
			}
			for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
				kv := e.(*ast.KeyValueExpr)
				region, err := strconv.Unquote(kv.Key.(*ast.BasicLit).Value)
				if err == nil {
					b.WriteString(regionPrices(region, kv.Value.(*ast.CompositeLit)))
				}
			}
			return false
		})
	}
	lines := slices.Sorted(strings.Lines(b.String()))
	if len(lines) == 0 {
		return fmt.Errorf("finding prices in %q: no entries", dir)
	}
	if err := os.WriteFile("prices.txt", []byte(strings.Join(lines, "")), 0o644); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}

// regionPrices is a line for each price.
func regionPrices(region string, lit *ast.CompositeLit) string {
	byPrice := map[string][]string{}
	for _, e := range lit.Elts {
		kv := e.(*ast.KeyValueExpr)
		name, err := strconv.Unquote(kv.Key.(*ast.BasicLit).Value)
		value, ok := kv.Value.(*ast.BasicLit)
		if err == nil && ok {
			price := strings.TrimRight(strings.TrimRight(value.Value, "0"), ".")
			byPrice[price] = append(byPrice[price], name)
		}
	}
	var b strings.Builder
	for _, p := range slices.Sorted(maps.Keys(byPrice)) {
		slices.Sort(byPrice[p])
		fmt.Fprintf(&b, "%s %s %s\n", region, p, strings.Join(byPrice[p], " "))
	}
	return b.String()
}

// table reads the composite literal of a map variable, keeping the entries that value accepts.
func table(path, variable string, value func(ast.Expr) (int, bool)) (map[string]int, error) {
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
	if err != nil {
		return nil, fmt.Errorf("parsing the source: %w", err)
	}
	out := map[string]int{}
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok || spec.Names[0].Name != variable {
			return true
		}
		for _, e := range spec.Values[0].(*ast.CompositeLit).Elts {
			kv := e.(*ast.KeyValueExpr)
			name, err := strconv.Unquote(kv.Key.(*ast.BasicLit).Value)
			if v, ok := value(kv.Value); ok && err == nil {
				out[name] = v
			}
		}
		return false
	})
	if len(out) == 0 {
		return nil, fmt.Errorf("finding variable %q in %q: no entries", variable, filepath.Base(path))
	}
	return out, nil
}

func number(e ast.Expr) (int, bool) {
	lit, ok := e.(*ast.BasicLit)
	if !ok {
		return 0, false
	}
	n, err := strconv.Atoi(lit.Value)
	return n, err == nil
}

// branchInterfaces reads BranchInterface of an entry whose IsTrunkingCompatible is true.
func branchInterfaces(e ast.Expr) (n int, ok bool) {
	lit, isLit := e.(*ast.CompositeLit)
	if !isLit {
		return 0, false
	}
	trunking := false
	for _, f := range lit.Elts {
		kv := f.(*ast.KeyValueExpr)
		switch kv.Key.(*ast.Ident).Name {
		case "IsTrunkingCompatible":
			id, isID := kv.Value.(*ast.Ident)
			trunking = isID && id.Name == "true"
		case "BranchInterface":
			n, _ = number(kv.Value)
		}
	}
	return n, trunking && n > 0
}

func write(name string, values map[string]int) error {
	byValue := map[int][]string{}
	for k, v := range values {
		byValue[v] = append(byValue[v], k)
	}
	var b strings.Builder
	for _, v := range slices.Sorted(maps.Keys(byValue)) {
		slices.Sort(byValue[v])
		fmt.Fprintf(&b, "%d %s\n", v, strings.Join(byValue[v], " "))
	}
	if err := os.WriteFile(name, []byte(b.String()), 0o644); err != nil {
		return fmt.Errorf("writing the table: %w", err)
	}
	return nil
}
