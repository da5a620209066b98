// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"slices"

	"github.com/slipway-sh/slipway/test/ec2emu/wire"
)

// handlers are the emulated actions of each service.
func (e *Emulator) handlers() map[string]map[string]handler {
	return map[string]map[string]handler{
		"ec2":     e.ec2Handlers(),
		"iam":     e.iamHandlers(),
		"sts":     {"GetCallerIdentity": typed(wire.Query, e.getCallerIdentity)},
		"ssm":     {"GetParameter": e.getParameter, "GetParameters": e.getParameters},
		"eks":     {"DescribeCluster": e.describeCluster},
		"pricing": {"GetProducts": e.getProducts},
		"sqs":     e.sqsHandlers(),
	}
}

// Actions lists what is emulated, as "ec2 CreateFleet", sorted.
func (e *Emulator) Actions() []string {
	var out []string
	for service, actions := range e.actions {
		for action := range actions {
			out = append(out, service+" "+action)
		}
	}
	slices.Sort(out)
	return out
}

func (e *Emulator) ec2Handlers() map[string]handler {
	actions := map[string]handler{
		"CreateTags":                     typed(wire.EC2, e.createTags),
		"DeleteLaunchTemplate":           typed(wire.EC2, e.deleteLaunchTemplate),
		"DeleteTags":                     typed(wire.EC2, e.deleteTags),
		"DescribeAvailabilityZones":      typed(wire.EC2, e.describeAvailabilityZones),
		"DescribeCapacityReservations":   typed(wire.EC2, e.describeCapacityReservations),
		"DescribePlacementGroups":        typed(wire.EC2, e.describePlacementGroups),
		"DescribeImages":                 typed(wire.EC2, e.describeImages),
		"DescribeInstanceStatus":         typed(wire.EC2, e.describeInstanceStatus),
		"DescribeInstanceTypeOfferings":  typed(wire.EC2, e.describeInstanceTypeOfferings),
		"DescribeInstanceTypes":          typed(wire.EC2, e.describeInstanceTypes),
		"DescribeInstances":              typed(wire.EC2, e.describeInstances),
		"DescribeLaunchTemplateVersions": typed(wire.EC2, e.describeLaunchTemplateVersions),
		"DescribeLaunchTemplates":        typed(wire.EC2, e.describeLaunchTemplates),
		"DescribeSecurityGroups":         typed(wire.EC2, e.describeSecurityGroups),
		"DescribeSpotPriceHistory":       typed(wire.EC2, e.describeSpotPriceHistory),
		"DescribeSubnets":                typed(wire.EC2, e.describeSubnets),
		"DescribeTags":                   typed(wire.EC2, e.describeTags),
		"GetConsoleOutput":               typed(wire.EC2, e.getConsoleOutput),
		"TerminateInstances":             typed(wire.EC2, e.terminateInstances),
	}
	for name, h := range actions {
		actions[name] = answeringDryRun(h)
	}
	// These check their parameters first, as a dry run of EC2 does.
	actions["CreateFleet"] = typed(wire.EC2, e.createFleet)
	actions["CreateLaunchTemplate"] = typed(wire.EC2, e.createLaunchTemplate)
	actions["RunInstances"] = typed(wire.EC2, e.runInstances)
	return actions
}

// answeringDryRun lets an action answer a dry run without having an effect.
func answeringDryRun(h handler) handler {
	return func(c *call) (any, error) {
		if c.form.Get("DryRun") == "true" {
			return nil, dryRun()
		}
		return h(c)
	}
}

func (e *Emulator) iamHandlers() map[string]handler {
	return map[string]handler{
		"AddRoleToInstanceProfile":      typed(wire.Query, e.addRole),
		"CreateInstanceProfile":         typed(wire.Query, e.createInstanceProfile),
		"DeleteInstanceProfile":         typed(wire.Query, e.deleteInstanceProfile),
		"GetInstanceProfile":            typed(wire.Query, e.getInstanceProfile),
		"GetRole":                       typed(wire.Query, e.getRole),
		"ListInstanceProfiles":          typed(wire.Query, e.listInstanceProfiles),
		"RemoveRoleFromInstanceProfile": typed(wire.Query, e.removeRole),
		"TagInstanceProfile":            typed(wire.Query, e.tagInstanceProfile),
	}
}
