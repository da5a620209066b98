// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package iam_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/slipway-sh/slipway/manifests/iam"
)

// source is the only package that calls AWS.
const source = "../../provisioner/ec2"

const (
	scheduler  = "scheduler.json"
	controller = "controller.json"
)

// callers says which process makes each call. A call that is new in the source belongs here, and in the policies.
func callers() map[string][]string {
	both := []string{controller, scheduler}
	return map[string][]string{
		"ec2:CreateFleet":                   {scheduler},
		"ec2:CreateLaunchTemplate":          {scheduler},
		"ec2:CreateTags":                    {scheduler},
		"ec2:DeleteLaunchTemplate":          both,
		"ec2:DescribeCapacityReservations":  both,
		"ec2:DescribeImages":                {controller},
		"ec2:DescribeInstanceStatus":        {controller},
		"ec2:DescribeInstanceTypeOfferings": both,
		"ec2:DescribeInstanceTypes":         both,
		"ec2:DescribeInstances":             both,
		"ec2:DescribeLaunchTemplates":       both,
		"ec2:DescribePlacementGroups":       {controller},
		"ec2:DescribeSecurityGroups":        {controller},
		"ec2:DescribeSpotPriceHistory":      both,
		"ec2:DescribeSubnets":               both,
		"ec2:RunInstances":                  {scheduler}, // by CreateFleet; as a dry run of the controller in the pod that holds both
		"ec2:TerminateInstances":            {controller},
		"eks:DescribeCluster":               both,
		"iam:AddRoleToInstanceProfile":      {controller},
		"iam:CreateInstanceProfile":         {controller},
		"iam:DeleteInstanceProfile":         {controller},
		"iam:GetInstanceProfile":            {controller},
		"iam:ListInstanceProfiles":          {controller},
		"iam:RemoveRoleFromInstanceProfile": {controller},
		"pricing:GetProducts":               both,
		"sqs:DeleteMessage":                 {controller},
		"sqs:GetQueueUrl":                   {controller},
		"sqs:ReceiveMessage":                {controller},
		"ssm:GetParameter":                  {controller},
	}
}

// implied are actions that AWS asks permission for within other calls.
func implied() map[string][]string {
	return map[string][]string{
		"iam:PassRole":           {controller, scheduler}, // AddRoleToInstanceProfile, RunInstances
		"iam:TagInstanceProfile": {controller},            // CreateInstanceProfile with tags
	}
}

// Every call of the source is granted to those who make it, and to nobody else.
func TestPoliciesGrantWhatIsCalled(t *testing.T) {
	called := callsOf(t)
	if diff := cmp.Diff(slices.Sorted(maps.Keys(callers())), called); diff != "" {
		t.Errorf("calls of %s (-known here +in the source):\n%s", source, diff)
	}
	want := map[string][]string{}
	for _, table := range []map[string][]string{callers(), implied()} {
		for action, files := range table {
			for _, f := range append([]string{"slipway.json"}, files...) {
				want[f] = append(want[f], action)
			}
		}
	}
	for file, actions := range want {
		slices.Sort(actions)
		if diff := cmp.Diff(actions, granted(t, file)); diff != "" {
			t.Errorf("%s (-needed +granted):\n%s", file, diff)
		}
	}
}

// Whatever changes something is granted on resources of this cluster only.
func TestPoliciesAreScoped(t *testing.T) {
	for _, file := range []string{"slipway.json", scheduler, controller} {
		for _, s := range read(t, file).Statement {
			for _, action := range s.Action {
				_, name, _ := strings.Cut(action, ":")
				reads := strings.HasPrefix(name, "Describe") || strings.HasPrefix(name, "Get") || strings.HasPrefix(name, "List")
				conditions, err := json.Marshal(s.Condition)
				if err != nil {
					t.Fatal(err)
				}
				scoped := strings.Contains(string(conditions), "${ClusterName}") || s.Sid == "LaunchInto" || s.Sid == "ReadQueue" || s.Sid == "PassNodeRole"
				if !reads && !scoped {
					t.Errorf("%s: %s (%s) is not limited to what the cluster owns", file, action, s.Sid)
				}
			}
		}
	}
}

type statement struct {
	Sid       string
	Action    []string
	Condition map[string]any
}

func read(t *testing.T, file string) (p struct{ Statement []statement }) {
	t.Helper()
	text, err := fs.ReadFile(iam.Policies, file)
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(text, &p); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return p
}

func granted(t *testing.T, file string) []string {
	t.Helper()
	var out []string
	for _, s := range read(t, file).Statement {
		out = append(out, s.Action...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// callsOf finds the calls in the source: X.service.Action(…), service being a field that holds an SDK client, and
// service.NewActionPaginator(X.service, …).
func callsOf(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(source, "*.go"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no source in %s: %v", source, err)
	}
	found := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, text, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(parsed, func(n ast.Node) bool {
			if call, ok := n.(*ast.CallExpr); ok {
				if action := actionOf(call); action != "" {
					found[action] = true
				}
			}
			return true
		})
	}
	return slices.Sorted(maps.Keys(found))
}

func actionOf(call *ast.CallExpr) string {
	fun, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || !ast.IsExported(fun.Sel.Name) {
		return ""
	}
	services := []string{"ec2", "eks", "iam", "pricing", "sqs", "ssm"}
	if of, isField := fun.X.(*ast.SelectorExpr); isField && slices.Contains(services, of.Sel.Name) {
		name := fun.Sel.Name
		if of.Sel.Name == "sqs" {
			name = strings.TrimSuffix(name, "Batch") // has no permission of its own
		}
		return of.Sel.Name + ":" + name
	}
	name, isNew := strings.CutPrefix(fun.Sel.Name, "New")
	name, isPaginator := strings.CutSuffix(name, "Paginator")
	if pkg, isIdent := fun.X.(*ast.Ident); isIdent && isNew && isPaginator && slices.Contains(services, pkg.Name) {
		return pkg.Name + ":" + name
	}
	return ""
}
