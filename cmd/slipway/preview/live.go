// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/aws/aws-sdk-go-v2/config"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/logging"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	policyv1 "k8s.io/api/policy/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/cmd/internal/failure"
	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// ReadCluster adds what a cluster has to the input: its pools and classes with their status, nodes, NodeClaims and bound pods, and,
// if pending, the pods that wait for a node. What the input has already by the same name wins, so that a changed manifest can be
// tried on a live cluster.
func (in *Input) ReadCluster(ctx context.Context, kube client.Reader, pending bool) error {
	have := map[string]bool{}
	for _, p := range in.Pools {
		have[key(p)] = true
	}
	for _, c := range in.Classes {
		have[key(c)] = true
	}
	for _, o := range in.Objects {
		have[key(o)] = true
	}
	lists := []client.ObjectList{
		&karpv1.NodePoolList{}, &v1.EC2NodeClassList{}, &karpv1.NodeClaimList{}, &corev1.NodeList{}, &corev1.PodList{}, &corev1.NamespaceList{},
		&corev1.LimitRangeList{}, &corev1.PersistentVolumeList{}, &corev1.PersistentVolumeClaimList{}, &appsv1.DaemonSetList{},
		&storagev1.StorageClassList{}, &storagev1.CSINodeList{}, &nodev1.RuntimeClassList{},
	}
	if in.running {
		lists = append(lists, &policyv1.PodDisruptionBudgetList{})
	}
	for _, list := range lists {
		if err := kube.List(ctx, list); err != nil {
			return fmt.Errorf("reading the cluster: %w", err)
		}
		err := meta.EachListItem(list, func(o runtime.Object) error {
			if object, ok := o.(client.Object); ok && !have[key(object)] {
				in.live(object, pending)
			}
			return nil
		})
		if err != nil {
			return fmt.Errorf("reading the cluster: %w", err)
		}
	}
	return nil
}

func key(o client.Object) string { return fmt.Sprintf("%T/%s/%s", o, o.GetNamespace(), o.GetName()) }

// live puts an object of a cluster where it belongs.
func (in *Input) live(o client.Object, pending bool) {
	switch o := o.(type) {
	case *karpv1.NodePool:
		in.Pools = append(in.Pools, o)
	case *v1.EC2NodeClass:
		in.Classes = append(in.Classes, o)
	case *policyv1.PodDisruptionBudget:
		in.PDBs = append(in.PDBs, o)
	case *corev1.Pod:
		switch {
		case o.Status.Phase == corev1.PodSucceeded || o.Status.Phase == corev1.PodFailed || o.DeletionTimestamp != nil:
		case o.Spec.NodeName != "":
			in.Objects = append(in.Objects, o)
		case pending && len(o.Spec.SchedulingGates) == 0:
			in.Pods = append(in.Pods, o)
		}
	default:
		in.Objects = append(in.Objects, o)
	}
}

// Region is where the cluster is, by its nodes and the subnets of its classes; empty if neither tells.
func (in *Input) Region() string {
	for _, o := range in.Objects {
		n, ok := o.(*corev1.Node)
		if !ok {
			continue
		}
		if region := cmp.Or(n.Labels[corev1.LabelTopologyRegion], strings.TrimRight(n.Labels[corev1.LabelTopologyZone], "abcdefghijklmnopqrstuvwxyz")); region != "" {
			return region
		}
	}
	for _, c := range in.Classes {
		for _, s := range c.Status.Subnets {
			return strings.TrimRight(s.Zone, "abcdefghijklmnopqrstuvwxyz")
		}
	}
	return ""
}

// Live asks AWS, with the credentials that its own tools would use, what the region sells to this account. An empty region is
// the one that these are configured for.
func Live(ctx context.Context, region string) (*Market, error) {
	loaded, err := config.LoadDefaultConfig(ctx, config.WithLogger(logging.Nop{}))
	if err != nil {
		return nil, fmt.Errorf("reading the AWS configuration: %w", err)
	}
	switch {
	case loaded.Region == "" && region == "":
		return nil, errors.New("the cluster does not tell its AWS region: set AWS_REGION")
	case loaded.Region != "" && region != "" && loaded.Region != region:
		return nil, fmt.Errorf("AWS is configured for region %s and the cluster is in %s: set AWS_REGION=%s, or choose another --context", loaded.Region, region, region)
	case loaded.Region == "":
		loaded.Region = region
	}
	if _, err := loaded.Credentials.Retrieve(ctx); err != nil {
		return nil, fmt.Errorf("there are no AWS credentials to ask for prices with: log in (aws sso login, AWS_PROFILE), or plan with --embedded-prices (%w)", failure.Root(err))
	}
	m := &Market{live: true}
	if m.Catalogs, err = ec2.NewCatalogs(ec2.New(loaded, ec2.Options{Region: loaded.Region, VMMemoryOverhead: 0.075})); err != nil {
		return nil, fmt.Errorf("asking AWS what it sells: %w", err)
	}
	if err := m.Catalogs.Refresh(ctx); err != nil {
		return nil, explainAWS(err, loaded.Region)
	}
	return m, nil
}

// explainAWS says what is wrong with reaching AWS and what to do.
func explainAWS(err error, region string) error {
	var coded smithy.APIError
	if !errors.As(err, &coded) {
		return fmt.Errorf("AWS does not answer in region %s: is that the right AWS_REGION, and can it be reached from here? (%w)", region, failure.Root(err))
	}
	switch coded.ErrorCode() {
	case "ExpiredToken", "ExpiredTokenException", "RequestExpired":
		return fmt.Errorf("the AWS credentials have expired: log in again (aws sso login), or plan with --embedded-prices (%s)", coded.ErrorCode())
	case "AuthFailure", "UnrecognizedClientException", "InvalidClientTokenId", "SignatureDoesNotMatch":
		return fmt.Errorf("AWS does not accept the credentials in region %s: choose another AWS_PROFILE, or plan with --embedded-prices (%s)", region, coded.ErrorCode())
	case "UnauthorizedOperation", "AccessDenied", "AccessDeniedException":
		return fmt.Errorf("the AWS credentials may not read what is sold (manifests/iam/scheduler.json has the rights): use another AWS_PROFILE, or plan with --embedded-prices (%s)", coded.ErrorMessage())
	}
	return fmt.Errorf("asking AWS what it sells in region %s: %w", region, failure.Root(err))
}
