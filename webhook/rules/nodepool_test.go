// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules_test

import (
	"testing"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// nodePool is a pool named general; the text is below spec.
func nodePool(spec string) string {
	return "metadata: {name: general}\nspec:\n" + spec
}

// requiring is a pool with requirements, as flow YAML.
func requiring(requirements string) string {
	return nodePool("  template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: default}, requirements: [" + requirements + "]}}\n")
}

// budgets is a pool with these budgets, as flow YAML.
func budgets(list string) string {
	return nodePool("  template: {spec: {requirements: []}}\n  disruption: {budgets: [" + list + "]}\n")
}

// sells is a catalogue of an m5.large and a c6i.xlarge for class default, which is ready.
func sells(f *rules.Facts) {
	cat := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").OnDemand(0.1, "a", "b"),
		builder.InstanceType("c6i.xlarge").CPU("4").Memory("8Gi").OnDemand(0.2, "a"),
	)
	f.Catalog = func(class string) *capacity.Catalog {
		if class != "default" {
			return nil
		}
		return cat
	}
	f.Class = func(name string) *v1.EC2NodeClass {
		if name != "default" {
			return nil
		}
		return builder.EC2NodeClass(name).Obj()
	}
}

func TestN001(t *testing.T) {
	check(t, "N001", map[string]tc{
		"missing": {
			kind: rules.NodePool, facts: sells,
			object: nodePool("  template: {spec: {nodeClassRef: {group: karpenter.k8s.aws, kind: EC2NodeClass, name: defaults}}}\n"),
			want:   []string{`spec.template.spec.nodeClassRef: EC2NodeClass "defaults" does not exist`},
		},
		"there":               {kind: rules.NodePool, object: requiring(""), facts: sells},
		"classes not known":   {kind: rules.NodePool, object: requiring("")},
		"another kind's pool": {kind: rules.NodePool, object: nodePool("  template: {spec: {nodeClassRef: {group: x, kind: KwokNodeClass, name: x}}}\n"), facts: sells},
	})
}

func TestN002(t *testing.T) {
	check(t, "N002", map[string]tc{
		"nothing": {
			kind: rules.NodePool, facts: sells,
			object: requiring(`{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}, {key: kubernetes.io/arch, operator: In, values: [arm64]}`),
			want:   []string{"spec.template.spec.requirements: match none of 2 instance types"},
		},
		"something":           {kind: rules.NodePool, object: requiring(`{key: node.kubernetes.io/instance-type, operator: In, values: [m5.large]}`), facts: sells},
		"catalogue not known": {kind: rules.NodePool, object: requiring(`{key: node.kubernetes.io/instance-type, operator: In, values: [x1.large]}`)},
	})
}

func TestN003(t *testing.T) {
	check(t, "N003", map[string]tc{
		"two sets": {
			kind:   rules.NodePool,
			object: requiring(`{key: kubernetes.io/arch, operator: In, values: [amd64]}, {key: beta.kubernetes.io/arch, operator: In, values: [arm64]}`),
			want:   []string{"spec.template.spec.requirements[kubernetes.io/arch]: In [amd64] and In [arm64] exclude each other"},
		},
		"crossing bounds": {
			kind:   rules.NodePool,
			object: requiring(`{key: karpenter.k8s.aws/instance-generation, operator: Gt, values: ["6"]}, {key: karpenter.k8s.aws/instance-generation, operator: Lt, values: ["5"]}`),
			want:   []string{"spec.template.spec.requirements[karpenter.k8s.aws/instance-generation]: Exists >=7 and Exists <=4 exclude each other"},
		},
		"a label of the template": {
			kind:   rules.NodePool,
			object: nodePool("  template: {metadata: {labels: {tier: web}}, spec: {requirements: [{key: tier, operator: In, values: [db]}]}}\n"),
			want:   []string{`spec.template.spec.requirements[tier]: In [db] excludes the template's label "web"`},
		},
		"narrowing": {kind: rules.NodePool, object: requiring(`{key: kubernetes.io/arch, operator: Exists}, {key: kubernetes.io/arch, operator: In, values: [arm64]}`)},
	})
}

func TestN004(t *testing.T) {
	check(t, "N004", map[string]tc{
		"all wrong": {
			kind: rules.NodePool, object: requiring(`{key: karpenter.sh/capacity-type, operator: In, values: [on_demand]}`),
			want: []string{`spec.template.spec.requirements[karpenter.sh/capacity-type]: "on_demand" is not one of on-demand, reserved, spot`},
		},
		"some wrong": {
			kind: rules.NodePool, object: requiring(`{key: kubernetes.io/arch, operator: In, values: [amd64, x86_64]}`), mild: true,
			want: []string{`spec.template.spec.requirements[kubernetes.io/arch]: "x86_64" is not one of amd64, arm64`},
		},
		"not on sale": {
			kind: rules.NodePool, object: requiring(`{key: node.kubernetes.io/instance-type, operator: In, values: [m5.huge]}`), facts: sells, mild: true,
			want: []string{`spec.template.spec.requirements[node.kubernetes.io/instance-type]: nothing on sale has "m5.huge"`},
		},
		"known": {kind: rules.NodePool, object: requiring(`{key: kubernetes.io/arch, operator: In, values: [amd64]}`), facts: sells},
	})
}

func TestN005(t *testing.T) {
	check(t, "N005", map[string]tc{
		"day 7": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "0 9 * * 7", duration: 8h}`),
			want: []string{`spec.disruption.budgets[0].schedule: "0 9 * * 7" cannot be read: end of range (7) above maximum (6): 7; the budget would allow no disruption at all`},
		},
		"minute 61": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "61 25 * * *", duration: 8h}`),
			want: []string{`spec.disruption.budgets[0].schedule: "61 25 * * *" cannot be read: end of range (61) above maximum (59): 61; the budget would allow no disruption at all`},
		},
		"a macro that only begins right": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "@dailyX", duration: 8h}`),
			want: []string{`spec.disruption.budgets[0].schedule: "@dailyX" cannot be read: unrecognized descriptor: @dailyX; the budget would allow no disruption at all`},
		},
		"30 February": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "0 0 30 2 *", duration: 8h}`), mild: true,
			want: []string{`spec.disruption.budgets[0].schedule: "0 0 30 2 *" never comes; Karpenter counts it as always active`},
		},
		"never lifts": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "@daily", duration: 24h}`), mild: true,
			want: []string{`spec.disruption.budgets[0].schedule: "@daily" starts again before its 24h are over, so it never lifts`},
		},
		"never lifts, by the minute": {
			kind: rules.NodePool, object: budgets(`{nodes: "1", schedule: "* * * * *", duration: 24h}`), mild: true,
			want: []string{`spec.disruption.budgets[0].schedule: "* * * * *" starts again before its 24h are over, so it never lifts`},
		},
		"weekdays lift at the weekend": {kind: rules.NodePool, object: budgets(`{nodes: "0", schedule: "0 0 * * 1-5", duration: 24h}`)},
		"a reason that is never allowed": {
			kind: rules.NodePool, object: budgets(`{nodes: "10%"}, {nodes: "0", reasons: [Drifted]}`), mild: true,
			want: []string{"spec.disruption.budgets[1]: no node is ever disrupted for Drifted"},
		},
		"nothing is ever allowed": {
			kind: rules.NodePool, object: budgets(`{nodes: "0%"}`), mild: true,
			want: []string{"spec.disruption.budgets[0]: no node is ever disrupted for Drifted, Empty, Underutilized"},
		},
		"a daily window": {kind: rules.NodePool, object: budgets(`{nodes: "0", schedule: "@daily", duration: 10m, reasons: [Underutilized]}`)},
		"once a year":    {kind: rules.NodePool, object: budgets(`{nodes: "0", schedule: "0 0 24 12 *", duration: 48h}`)},
		"no schedule":    {kind: rules.NodePool, object: budgets(`{nodes: "10%"}`)},
	})
}

func TestN006(t *testing.T) {
	limited := func(cpu string) string {
		return nodePool("  limits: {cpu: " + cpu + "}\n  template: {spec: {nodeClassRef: {kind: EC2NodeClass, name: default}, requirements: []}}\n")
	}
	check(t, "N006", map[string]tc{
		"absent": {kind: rules.NodePool, object: requiring(""), want: []string{"spec.limits: no limits: a mistake in a workload can buy any number of nodes"}},
		"below":  {kind: rules.NodePool, object: limited("1500m"), facts: sells, want: []string{"spec.limits.cpu: 1500m is below 2, what the smallest matching type has"}},
		"enough": {kind: rules.NodePool, object: limited("2"), facts: sells},
		"static": {kind: rules.NodePool, object: nodePool("  replicas: 3\n  template: {spec: {requirements: []}}\n")},
	})
}

func others(list ...*karpv1.NodePool) func(*rules.Facts) {
	return func(f *rules.Facts) { f.Pools = func() []*karpv1.NodePool { return list } }
}

func TestN007(t *testing.T) {
	arm := `{key: kubernetes.io/arch, operator: In, values: [arm64]}`
	check(t, "N007", map[string]tc{
		"overlap": {
			kind: rules.NodePool, object: requiring(arm), facts: others(builder.NodePool("more").Obj()),
			want: []string{`spec.weight: "general" and "more" have weight 0 and take the same pods`},
		},
		"itself":         {kind: rules.NodePool, object: requiring(arm), facts: others(builder.NodePool("general").Obj())},
		"other weight":   {kind: rules.NodePool, object: requiring(arm), facts: others(builder.NodePool("more").Weight(10).Obj())},
		"other taints":   {kind: rules.NodePool, object: requiring(arm), facts: others(builder.NodePool("more").Taint("a", "b", "NoSchedule").Obj())},
		"other machines": {kind: rules.NodePool, object: requiring(arm), facts: others(builder.NodePool("more").Require(builder.In("kubernetes.io/arch", "amd64")).Obj())},
	})
}

func TestN008(t *testing.T) {
	check(t, "N008", map[string]tc{
		"endless": {
			kind: rules.NodePool, object: nodePool("  template: {spec: {expireAfter: 720h, requirements: []}}\n"),
			want: []string{"spec.template.spec: expireAfter 720h without terminationGracePeriod: one protected pod keeps an expired node for ever"},
		},
		"bounded": {kind: rules.NodePool, object: nodePool("  template: {spec: {expireAfter: 720h, terminationGracePeriod: 1h, requirements: []}}\n")},
		"never":   {kind: rules.NodePool, object: nodePool("  template: {spec: {expireAfter: Never, requirements: []}}\n")},
	})
}

func TestN009(t *testing.T) {
	check(t, "N009", map[string]tc{
		"architecture": {
			kind:   rules.NodePool,
			object: requiring(`{key: kubernetes.io/os, operator: In, values: [linux]}, {key: karpenter.sh/capacity-type, operator: In, values: [spot]}`),
			want:   []string{"spec.template.spec.requirements: nothing on kubernetes.io/arch: amd64 and arm64 nodes are bought, by price"},
		},
		"all said": {kind: rules.NodePool, object: requiring(`{key: kubernetes.io/os, operator: Exists}, {key: kubernetes.io/arch, operator: Exists}, {key: karpenter.sh/capacity-type, operator: Exists}`)},
	})
}

func TestN010(t *testing.T) {
	at := func(after, policy string) string {
		return nodePool("  disruption: {consolidateAfter: " + after + ", consolidationPolicy: " + policy + "}\n")
	}
	check(t, "N010", map[string]tc{
		"0s":         {kind: rules.NodePool, object: at("0s", "WhenEmptyOrUnderutilized"), want: []string{"spec.disruption.consolidateAfter: 0s consolidates with every change"}},
		"when empty": {kind: rules.NodePool, object: at("0s", "WhenEmpty")},
		"30s":        {kind: rules.NodePool, object: at("30s", "WhenEmptyOrUnderutilized")},
		"never":      {kind: rules.NodePool, object: at("Never", "WhenEmptyOrUnderutilized")},
	})
}

func TestN011(t *testing.T) {
	claims := func(n int, arch string) func(*rules.Facts) {
		return func(f *rules.Facts) {
			f.Claims = func(string) []*karpv1.NodeClaim {
				var out []*karpv1.NodeClaim
				for range n {
					c := &karpv1.NodeClaim{}
					c.Labels = map[string]string{"kubernetes.io/arch": arch}
					out = append(out, c)
				}
				return out
			}
		}
	}
	labelled := func(tier string) string {
		return nodePool("  template: {metadata: {labels: {tier: " + tier + "}}, spec: {requirements: []}}\n  disruption: {budgets: [{nodes: 10%}]}\n")
	}
	check(t, "N011", map[string]tc{
		"template": {
			kind: rules.NodePool, object: labelled("a"), old: labelled("b"), facts: claims(60, "amd64"),
			want: []string{`spec.template: drifts 60 of 60 nodes of "general"; budgets allow 6 at a time`},
		},
		"requirements": {
			kind: rules.NodePool, object: requiring(`{key: kubernetes.io/arch, operator: In, values: [arm64]}`), old: requiring(""), facts: claims(3, "amd64"),
			want: []string{`spec.template: drifts 3 of 3 nodes of "general"; budgets do not bound it`},
		},
		"requirements that still hold": {kind: rules.NodePool, object: requiring(`{key: kubernetes.io/arch, operator: In, values: [amd64]}`), old: requiring(""), facts: claims(3, "amd64")},
		"something else":               {kind: rules.NodePool, object: nodePool("  weight: 1\n"), old: nodePool("  weight: 2\n"), facts: claims(60, "amd64")},
		"no nodes":                     {kind: rules.NodePool, object: labelled("a"), old: labelled("b"), facts: claims(0, "")},
	})
}

func TestN012(t *testing.T) {
	holding := func(n string) string { return "metadata: {name: general}\nstatus: {nodes: " + n + "}\n" }
	check(t, "N012", map[string]tc{
		"nodes": {
			kind: rules.NodePool, op: rules.Delete, object: holding("60"),
			want: []string{`metadata.annotations[slipway.sh/confirm-delete]: "general" has 60 nodes that would go with it`},
		},
		"confirmed": {kind: rules.NodePool, op: rules.Delete, object: "metadata: {name: general, annotations: {slipway.sh/confirm-delete: general}}\nstatus: {nodes: 60}\n"},
		"empty":     {kind: rules.NodePool, op: rules.Delete, object: holding("0")},
		"update":    {kind: rules.NodePool, op: rules.Update, object: holding("60")},
		"definition": {
			kind: rules.Definition, op: rules.Delete, object: "metadata: {name: nodeclaims.karpenter.sh}",
			want: []string{`metadata.annotations[slipway.sh/confirm-delete]: deleting "nodeclaims.karpenter.sh" deletes all of its objects and with them nodes, past every budget`},
		},
		"another definition": {kind: rules.Definition, op: rules.Delete, object: "metadata: {name: widgets.example.com}"},
	})
}

func TestN013(t *testing.T) {
	tainted := func(effects string) string {
		return nodePool("  template: {spec: {taints: [" + effects + "]}}\n")
	}
	check(t, "N013", map[string]tc{
		"twice":         {kind: rules.NodePool, object: tainted("{key: a, value: x, effect: NoSchedule}, {key: a, value: z, effect: NoSchedule}"), want: []string{"spec.template.spec.taints: a:NoSchedule is there twice"}},
		"other effects": {kind: rules.NodePool, object: tainted("{key: a, effect: NoSchedule}, {key: a, effect: NoExecute}")},
	})
}

func TestN014(t *testing.T) {
	used := func(cpu string) string {
		return nodePool("  limits: {cpu: 100}\nstatus: {resources: {cpu: " + cpu + "}}\n")
	}
	check(t, "N014", map[string]tc{
		"above": {kind: rules.NodePool, object: used("240"), want: []string{"spec.limits.cpu: 100 is below 240, what the pool's nodes have"}},
		"below": {kind: rules.NodePool, object: used("100")},
	})
}
