// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package house

// Module is the import path of the tree the rules are about.
const Module = "github.com/slipway-sh/slipway"

// TestLevel is the level of commands and tests, the only ones whose units may import each other.
const TestLevel = 6

// Unit is a folder of the tree with its level. A package imports packages of its
// own unit and of lower levels, never of a higher one and never of another unit
// of the same level: what two units share belongs below both.
type Unit struct {
	Path  string // below the module's root
	Level int
	// Bare says that the unit is this one package: every folder below it has to be a unit of its own.
	Bare bool
}

// Units is the table of import levels, docs/architecture.md in short.
func Units() []Unit {
	return []Unit{
		{Path: "api", Level: 0},
		{Path: "manifests", Level: 0},
		{Path: "provisioner/capacity", Level: 1},
		{Path: "provisioner/plan", Level: 2},
		{Path: "provisioner/ec2", Level: 3},
		{Path: "provisioner/view", Level: 3},
		{Path: "provisioner/demand", Level: 3},
		{Path: "provisioner/hypothesis", Level: 3},
		{Path: "webhook/rules", Level: 3},
		{Path: "provisioner/launch", Level: 4},
		{Path: "provisioner/claim", Level: 4},
		{Path: "provisioner/nodeclass", Level: 4},
		{Path: "provisioner/interruption", Level: 4},
		{Path: "scheduler/simulate", Level: 4},
		{Path: "provisioner", Level: 5, Bare: true},
		{Path: "scheduler", Level: 5, Bare: true},
		{Path: "disruption", Level: 5},
		{Path: "webhook", Level: 5},
		{Path: "cmd", Level: TestLevel},
		{Path: "test", Level: TestLevel},
	}
}

// Ban keeps an outside import path, and everything below it, out of parts of the tree.
type Ban struct {
	Import string
	// In are the units or folders the ban covers; empty means the whole tree.
	In []string
	// Except are folders the ban does not cover. Except may also name import paths below Import.
	Except []string
	// Tests says that the ban covers _test.go files too.
	Tests  bool
	Reason string
}

// Bans is the table of forbidden outside imports.
func Bans() []Ban {
	pure := []string{"provisioner/capacity", "provisioner/plan"}
	const same = "the same input gives the same answer on any machine"
	return []Ban{
		{
			Import: "github.com/aws/aws-sdk-go-v2", Except: []string{"provisioner/ec2", "cmd", "test"},
			Reason: "EC2 is spoken in provisioner/ec2, where its error codes become kinds",
		},
		{
			Import: "github.com/aws/smithy-go", Except: []string{"provisioner/ec2", "cmd", "test"},
			Reason: "EC2 is spoken in provisioner/ec2, where its error codes become kinds",
		},
		{
			Import: "k8s.io/kubernetes", Except: []string{"scheduler", "cmd/slipway-scheduler", "test"},
			Reason: "Kubernetes' internals change with every minor: only the scheduler and its judge live in them",
		},
		{
			Import: "sigs.k8s.io/karpenter", Except: []string{"sigs.k8s.io/karpenter/pkg/apis", "test"}, Tests: true,
			Reason: "the product shares Karpenter's API and none of its code",
		},
		{
			Import: "github.com/aws/karpenter-provider-aws", Except: []string{"github.com/aws/karpenter-provider-aws/pkg/apis", "test"}, Tests: true,
			Reason: "the product shares Karpenter's API and none of its code",
		},
		{Import: "os", In: pure, Reason: same},
		{Import: "net", In: pure, Reason: same},
		{Import: "syscall", In: pure, Reason: same},
		{Import: "math/rand", In: pure, Reason: same},
		{Import: "crypto/rand", In: pure, Reason: same},
		{Import: "context", In: pure, Reason: "pure functions take values and finish"},
		{Import: "log", In: pure, Reason: "results say what was decided; callers log it"},
		{Import: "github.com/go-logr", In: pure, Reason: "results say what was decided; callers log it"},
		{Import: "k8s.io/klog", In: pure, Reason: "results say what was decided; callers log it"},
		{Import: "k8s.io/client-go", In: pure, Reason: "package view reads the cluster"},
		{Import: "k8s.io/utils/clock", In: pure, Reason: same},
		{Import: "sigs.k8s.io/controller-runtime", In: pure, Reason: "package view reads the cluster"},
		{Import: "github.com/prometheus", In: pure, Reason: "callers measure"},
		{Import: "testing", Except: []string{"test"}, Reason: "test helpers live in test/"},
		{Import: "github.com/onsi", Tests: true, Reason: "tests use the standard library and go-cmp"},
		{Import: "github.com/stretchr/testify", Tests: true, Reason: "tests use the standard library and go-cmp"},
		{Import: "github.com/golang/mock", Tests: true, Reason: "tests use the standard library and go-cmp"},
		{Import: "go.uber.org/mock", Tests: true, Reason: "tests use the standard library and go-cmp"},
	}
}

// PureOf are the packages in which the clock must not be read.
func PureOf() []string { return []string{"provisioner/capacity", "provisioner/plan"} }

// clockReaders are the functions of package time that read the clock or wait for it.
func clockReaders() []string {
	return []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}
}

// Header is how every Go file begins, apart from build constraints, which may come after it.
func Header() []string {
	return []string{"// Copyright The Slipway Authors.", "// SPDX-License-Identifier: Apache-2.0"}
}

// MaxMain is how many lines the file of a command's main function may have, and any main function.
const MaxMain = 100
