// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"strings"
	"testing"

	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook/rules"
)

func class(spec string) string { return "metadata: {name: default, generation: 2}\nspec:\n" + spec }

func TestC001(t *testing.T) {
	check(t, "C001", map[string]tc{
		"mixed": {
			kind: rules.NodeClass, object: class("  subnetSelectorTerms: [{tags: {a: b}}, {id: subnet-1, tags: {a: b}}]\n"),
			want: []string{"spec.subnetSelectorTerms[1]: id is mixed with tags"},
		},
		"group": {
			kind: rules.NodeClass, object: class("  securityGroupSelectorTerms: [{id: sg-1, name: x}]\n"),
			want: []string{"spec.securityGroupSelectorTerms[0]: id is mixed with name"},
		},
		"alone": {kind: rules.NodeClass, object: class("  subnetSelectorTerms: [{tags: {a: b}}, {id: subnet-1}]\n")},
	})
}

func TestC002(t *testing.T) {
	check(t, "C002", map[string]tc{
		"latest":    {kind: rules.NodeClass, object: class("  amiSelectorTerms: [{alias: al2023@latest}]\n"), want: []string{`spec.amiSelectorTerms[0].alias: "al2023@latest" follows every new image`}},
		"pinned":    {kind: rules.NodeClass, object: class("  amiSelectorTerms: [{alias: al2023@v20260601}]\n")},
		"malformed": {kind: rules.NodeClass, object: class("  amiSelectorTerms: [{alias: al2023}]\n")},
	})
}

func condition(kind, status, generation string) string {
	return "status: {conditions: [{type: " + kind + ", status: \"" + status + "\", observedGeneration: " + generation + ", message: nothing found, lastTransitionTime: \"2026-01-01T00:00:00Z\", reason: X}]}\n"
}

func TestC003(t *testing.T) {
	check(t, "C003", map[string]tc{
		"not usable":   {kind: rules.NodeClass, object: class("  role: r\n") + condition("InstanceProfileReady", "False", "2"), want: []string{"spec.role: the controller found: nothing found"}},
		"another spec": {kind: rules.NodeClass, object: class("  role: r\n") + condition("InstanceProfileReady", "False", "1")},
		"ready":        {kind: rules.NodeClass, object: class("  role: r\n") + condition("InstanceProfileReady", "True", "2")},
	})
}

func TestC004(t *testing.T) {
	check(t, "C004", map[string]tc{
		"subnets": {kind: rules.NodeClass, object: class("  role: r\n") + condition("SubnetsReady", "False", "2"), want: []string{"spec.subnetSelectorTerms: the controller found: nothing found"}},
		"ready":   {kind: rules.NodeClass, object: class("  role: r\n") + condition("SubnetsReady", "True", "2")},
	})
}

func TestC005(t *testing.T) {
	check(t, "C005", map[string]tc{
		"unknown":                    {kind: rules.NodeClass, object: class("  kubelet: {maxPod: 110}\n"), want: []string{"spec.kubelet.maxPod: there is no such setting"}},
		"a setting of newer classes": {kind: rules.NodeClass, object: class("  kubelet: {topologyManagerPolicy: best-effort, shutdownGracePeriod: 30s}\n")},
		"another type":               {kind: rules.NodeClass, object: class("  kubelet: {registryPullQPS: fast}\n"), want: []string{`spec.kubelet.registryPullQPS: "fast" is no whole number`}},
		"known":                      {kind: rules.NodeClass, object: class("  kubelet: {maxPods: 110, systemReserved: {cpu: 100m}}\n")},
		"none":                       {kind: rules.NodeClass, object: class("  role: r\n")},
	})
}

func TestC006(t *testing.T) {
	check(t, "C006", map[string]tc{
		"too long":   {kind: rules.NodeClass, object: class("  userData: " + strings.Repeat("x", 17002) + "\n"), want: []string{"spec.userData: has 17002 bytes, EC2 takes 16384"}},
		"broken":     {kind: rules.NodeClass, object: class("  userData: |\n    MIME-Version: 1.0\n    Content-Type: multipart/mixed\n\n    --x\n"), want: []string{"spec.userData: begins like MIME, but its headers name no boundary"}},
		"good MIME":  {kind: rules.NodeClass, object: class("  userData: |\n    MIME-Version: 1.0\n    Content-Type: multipart/mixed; boundary=\"x\"\n\n    --x\n")},
		"one script": {kind: rules.NodeClass, object: class("  userData: |\n    #!/bin/bash\n    true\n")},
	})
}

func TestC007(t *testing.T) {
	check(t, "C007", map[string]tc{
		"both": {
			kind: rules.NodeClass, object: class("  metadataOptions: {httpTokens: optional, httpPutResponseHopLimit: 2}\n"),
			want: []string{
				`spec.metadataOptions.httpTokens: "optional" allows IMDSv1`,
				"spec.metadataOptions.httpPutResponseHopLimit: 2 lets pods reach the node's credentials",
			},
		},
		"strict":  {kind: rules.NodeClass, object: class("  metadataOptions: {httpTokens: required, httpPutResponseHopLimit: 1}\n")},
		"nothing": {kind: rules.NodeClass, object: class("  role: r\n")},
	})
}

func TestC008(t *testing.T) {
	check(t, "C008", map[string]tc{
		"in use":   {kind: rules.NodeClass, op: rules.Delete, object: class("  role: r\n"), facts: others(builder.NodePool("general").Obj()), want: []string{`: NodePools "general" refer to this class`}},
		"not used": {kind: rules.NodeClass, op: rules.Delete, object: class("  role: r\n"), facts: others(builder.NodePool("general").Class("other").Obj())},
		"update":   {kind: rules.NodeClass, op: rules.Update, object: class("  role: r\n"), facts: others(builder.NodePool("general").Obj())},
	})
}

func TestK001(t *testing.T) {
	claim := func(value string) string {
		return "metadata: {name: general-x}\nspec: {requirements: [{key: a, operator: In, values: [" + value + "]}]}"
	}
	check(t, "K001", map[string]tc{
		"changed": {kind: rules.NodeClaim, object: claim("a"), old: claim("b"), want: []string{"spec: spec is immutable"}},
		"same":    {kind: rules.NodeClaim, object: claim("a"), old: claim("a")},
	})
}

func TestK002(t *testing.T) {
	object := "metadata: {name: x}"
	check(t, "K002", map[string]tc{
		"a person":     {kind: rules.NodeClaim, object: object, user: "ann", want: []string{": NodeClaims are written by controllers; this buys an instance"}},
		"a controller": {kind: rules.NodeClaim, object: object, user: "system:serviceaccount:slipway-system:slipway"},
		"nobody known": {kind: rules.NodeClaim, object: object},
		"deletion":     {kind: rules.NodeClaim, object: object, user: "ann", op: rules.Delete},
	})
}

func TestG002(t *testing.T) {
	field := "metadata.annotations[slipway.sh/except]: "
	excepting := func(value string) string { return pod(annotated("slipway.sh/except", `"`+value+`"`), full) }
	check(t, "G002", map[string]tc{
		"no reason":    {kind: rules.Pod, object: excepting("S005=;until=2026-07-20"), want: []string{field + "exception from S005 has no reason"}},
		"no end":       {kind: rules.Pod, object: excepting("S005=moving"), want: []string{field + "exception from S005 has no end"}},
		"no rule":      {kind: rules.Pod, object: excepting("X1=moving;until=2026-07-20"), want: []string{field + `"X1=moving;until=2026-07-20" does not begin with a rule's id such as R005`}},
		"unknown rule": {kind: rules.Pod, object: excepting("S999=moving;until=2026-07-20"), want: []string{field + "there is no rule S999"}},
		"no date":      {kind: rules.Pod, object: excepting("S005=moving;until=soon"), want: []string{field + `"S005=moving;until=soon" does not end with ;until=YYYY-MM-DD`}},
		"too long":     {kind: rules.Pod, object: excepting("S005=moving;until=2027-07-20"), want: []string{field + "exception from S005 is for longer than 720h"}},
		"good":         {kind: rules.Pod, object: excepting("S005=moving;until=2026-07-20, R005=batch;until=2026-07-02")},
		"none":         {kind: rules.Pod, object: pod("", full)},
	})
	check(t, "G002", map[string]tc{
		"over":  {kind: rules.Pod, object: excepting("S005=moving;until=2026-06-30"), want: []string{field + "exception from S005 ended on 2026-06-30"}, mild: true},
		"today": {kind: rules.Pod, object: excepting("S005=moving;until=2026-07-01")},
	})
}
