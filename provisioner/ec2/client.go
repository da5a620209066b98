// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"sync/atomic"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/aws/ratelimit"
	"github.com/aws/aws-sdk-go-v2/aws/retry"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	"github.com/aws/aws-sdk-go-v2/service/eks"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/pricing"
	"github.com/aws/aws-sdk-go-v2/service/sqs"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"k8s.io/utils/clock"
)

// DefaultVMMemoryOverhead is the share of an instance's memory that its hypervisor and kernel keep, by default.
const DefaultVMMemoryOverhead = 0.075

// Options are the settings of a [Client].
type Options struct {
	// ClusterName is the EKS cluster's name; tags and names of everything made are built on it. Required.
	ClusterName string
	// Region is the AWS region; that of the configuration if empty.
	Region string
	// Clock is the wall clock if nil.
	Clock clock.PassiveClock
	// Endpoint, CA (base64), ServiceCIDR and KubernetesVersion ("1.37") replace what EKS says about the cluster, each
	// where it is set. With all four set EKS is never asked.
	Endpoint, CA, ServiceCIDR, KubernetesVersion string
	// VMMemoryOverhead is the share of memory a virtual machine does not show, [DefaultVMMemoryOverhead] if 0.
	VMMemoryOverhead float64
	// ReservedENIs are network interfaces per node that pods cannot use (custom networking reserves one).
	ReservedENIs int
	// Pacing is this process's share, 0 to 1, of the account's budget of EC2 requests; calls wait where EC2 would throttle
	// them. 0 sends without waiting.
	Pacing float64
	// IsolatedVPC says that the IAM and Pricing endpoints cannot be reached: no price is asked for there.
	IsolatedVPC bool
}

// Client speaks to AWS. It is safe for concurrent use and holds no lock during a call.
type Client struct {
	ec2     *ec2.Client
	eks     *eks.Client
	iam     *iam.Client
	pricing *pricing.Client
	sqs     *sqs.Client
	ssm     *ssm.Client

	opts    Options
	cluster atomic.Pointer[clusterAnswer]
}

// New returns a client. Reads are tried three times within about two seconds;
// calls that buy something are sent once, because whoever sends them repeats
// them with the same token.
func New(cfg aws.Config, opts Options) *Client {
	opts.Region = cmp.Or(opts.Region, cfg.Region)
	cfg.Region = opts.Region
	if opts.Clock == nil {
		opts.Clock = clock.RealClock{}
	}
	opts.VMMemoryOverhead = cmp.Or(opts.VMMemoryOverhead, DefaultVMMemoryOverhead)
	cfg.Retryer = func() aws.Retryer {
		return retry.NewStandard(func(o *retry.StandardOptions) {
			o.MaxAttempts = 3
			o.MaxBackoff = 2 * time.Second
			// The SDK's own retry quota is shared by all calls of a client: one throttled call would stop the others.
			o.RateLimiter = ratelimit.None
		})
	}
	return &Client{
		ec2: ec2.NewFromConfig(cfg, func(o *ec2.Options) {
			if opts.Pacing > 0 {
				o.APIOptions = append(o.APIOptions, newPacer(opts.Pacing).attach)
			}
		}),
		eks: eks.NewFromConfig(cfg),
		iam: iam.NewFromConfig(cfg),
		pricing: pricing.NewFromConfig(cfg, func(o *pricing.Options) {
			o.Region = pricingRegion(opts.Region)
		}),
		sqs:  sqs.NewFromConfig(cfg),
		ssm:  ssm.NewFromConfig(cfg),
		opts: opts,
	}
}

// ClusterName returns the name of the cluster the client buys for.
func (c *Client) ClusterName() string { return c.opts.ClusterName }

// Region returns the AWS region the client buys in.
func (c *Client) Region() string { return c.opts.Region }

// once makes one attempt of an EC2 call.
func once(o *ec2.Options) { o.Retryer = aws.NopRetryer{} }
