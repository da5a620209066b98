// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"net/http"
	"regexp"
	"slices"
)

// clusterPath is the one resource of EKS that is emulated.
var clusterPath = regexp.MustCompile(`^/clusters/([^/]+)$`)

// eksAction finds the action of a REST request; unknown ones are named by path.
func eksAction(method, path string) (string, []string) {
	if m := clusterPath.FindStringSubmatch(path); m != nil && method == http.MethodGet {
		return "DescribeCluster", m[1:]
	}
	return method + " " + path, nil
}

func (e *Emulator) describeCluster(c *call) (any, error) {
	if c.path[0] != e.opts.ClusterName && !slices.Contains(e.opts.ClusterAliases, c.path[0]) {
		err := invalid("ResourceNotFoundException", "No cluster found for name: %s.", c.path[0])
		err.status = http.StatusNotFound
		return nil, err
	}
	var subnets, groups []string
	for _, s := range e.world.subnetList {
		subnets = append(subnets, s.ID)
	}
	for _, g := range e.world.groups {
		groups = append(groups, g.ID)
	}
	var own string
	if len(groups) > 0 {
		own = groups[0]
	}
	return map[string]any{"cluster": map[string]any{
		"name":                 c.path[0],
		"arn":                  e.arn("eks", "cluster/"+c.path[0]),
		"status":               "ACTIVE",
		"version":              e.opts.KubernetesVersion,
		"platformVersion":      "eks.1",
		"endpoint":             e.opts.ClusterEndpoint,
		"createdAt":            float64(e.start.Unix()),
		"roleArn":              "arn:aws:iam::" + e.opts.AccountID + ":role/eks-" + e.opts.ClusterName,
		"certificateAuthority": map[string]any{"data": base64.StdEncoding.EncodeToString(e.opts.ClusterCA)},
		"kubernetesNetworkConfig": map[string]any{
			"serviceIpv4Cidr": e.opts.ServiceCIDR, "ipFamily": "ipv4",
		},
		"resourcesVpcConfig": map[string]any{
			"vpcId": vpcID, "subnetIds": subnets, "securityGroupIds": groups, "clusterSecurityGroupId": own,
			"endpointPublicAccess": true, "endpointPrivateAccess": true, "publicAccessCidrs": []string{"0.0.0.0/0"},
		},
		"tags": map[string]string{},
	}}, nil
}
