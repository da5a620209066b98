// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/eks"
)

// clusterFresh is how long an answer of EKS is used: the version changes at an upgrade, everything else never.
const clusterFresh = 5 * time.Minute

// Cluster is what a booting node has to know about the cluster.
type Cluster struct {
	Name string
	// Version is the Kubernetes minor, for instance 1.37; images are published by it.
	Version string
	// Endpoint is the API server's URL.
	Endpoint string
	// CA is the API server's certificate authority, PEM in base64.
	CA string
	// ServiceCIDR is the range of Service addresses; nodes compute the DNS server's address from it.
	ServiceCIDR string
}

// IPv6 reports whether Services, and so pods, have IPv6 addresses.
func (c Cluster) IPv6() bool { return strings.Contains(c.ServiceCIDR, ":") }

type clusterAnswer struct {
	cluster Cluster
	at      time.Time
}

// Cluster returns the cluster's properties: those set in [Options], the others as EKS DescribeCluster reports them. An
// answer is used for five minutes, and for as long as EKS does not give another.
func (c *Client) Cluster(ctx context.Context) (Cluster, error) {
	own := Cluster{
		Name: c.opts.ClusterName, Version: c.opts.KubernetesVersion,
		Endpoint: c.opts.Endpoint, CA: c.opts.CA, ServiceCIDR: c.opts.ServiceCIDR,
	}
	if own.Version != "" && own.Endpoint != "" && own.CA != "" && own.ServiceCIDR != "" {
		return own, nil
	}
	last := c.cluster.Load()
	now := c.opts.Clock.Now()
	if last != nil && now.Sub(last.at) < clusterFresh {
		return last.cluster, nil
	}
	out, err := c.eks.DescribeCluster(ctx, &eks.DescribeClusterInput{Name: aws.String(c.opts.ClusterName)})
	if err != nil {
		if last != nil {
			return last.cluster, nil
		}
		return Cluster{}, wrap(err, "describing cluster %q", c.opts.ClusterName)
	}
	k := out.Cluster
	if k == nil {
		return Cluster{}, nothing("describing the cluster")
	}
	own.Version = cmp.Or(own.Version, aws.ToString(k.Version))
	own.Endpoint = cmp.Or(own.Endpoint, aws.ToString(k.Endpoint))
	if k.CertificateAuthority != nil {
		own.CA = cmp.Or(own.CA, aws.ToString(k.CertificateAuthority.Data))
	}
	if n := k.KubernetesNetworkConfig; n != nil {
		own.ServiceCIDR = cmp.Or(own.ServiceCIDR, aws.ToString(n.ServiceIpv4Cidr), aws.ToString(n.ServiceIpv6Cidr))
	}
	c.cluster.Store(&clusterAnswer{cluster: own, at: now})
	return own, nil
}
