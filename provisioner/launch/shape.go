// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"encoding/json"
	"maps"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
)

// templateTag tells Slipway's launch templates from Karpenter's, whose names begin alike: only its own are collected.
const templateTag = "slipway.sh/launch-template"

// shape is what all nodes of a pool boot with.
type shape struct {
	Pool          string            `json:"pool"`
	Labels        map[string]string `json:"labels"`
	Taints        []corev1.Taint    `json:"taints"`
	StartupTaints []corev1.Taint    `json:"startupTaints"`
	// Images are pulled while the node boots.
	Images []string `json:"images,omitempty"`
}

// key is equal for equal shapes. (JSON sorts map keys.)
func (s shape) key() string {
	b, err := json.Marshal(s)
	if err != nil {
		return s.Pool // strings and taints always marshal
	}
	return string(b)
}

// shapeOfPool is the shape of the claims a pool makes now.
func shapeOfPool(pool *karpv1.NodePool) shape {
	t := pool.Spec.Template
	return shape{Pool: pool.Name, Labels: t.Labels, Taints: t.Spec.Taints, StartupTaints: t.Spec.StartupTaints}
}

// shapeOfClaim is the shape a claim was made with. Taints are the claim's own. Of its labels those count that its pool gives
// to every claim; if the pool has changed since or is gone, registration writes what is missing.
func shapeOfClaim(ctx context.Context, kube client.Reader, claim *karpv1.NodeClaim) shape {
	s := shape{Pool: claim.Labels[karpv1.NodePoolLabelKey], Taints: claim.Spec.Taints, StartupTaints: claim.Spec.StartupTaints}
	var pool karpv1.NodePool
	if s.Pool == "" || kube.Get(ctx, types.NamespacedName{Name: s.Pool}, &pool) != nil {
		return s
	}
	for k, v := range pool.Spec.Template.Labels {
		if have, ok := claim.Labels[k]; ok && have == v {
			if s.Labels == nil {
				s.Labels = map[string]string{}
			}
			s.Labels[k] = v
		}
	}
	return s
}

// nodeLabels are the labels the kubelet registers with. A kubelet may not set labels of Kubernetes' own domains on its own
// Node (admission plugin NodeRestriction); registration sets those. Custom images get none: their user data is the user's.
func (s shape) nodeLabels() map[string]string {
	out := maps.Clone(s.Labels)
	if out == nil {
		out = map[string]string{}
	}
	maps.DeleteFunc(out, func(k, _ string) bool { return restricted(k) })
	if s.Pool != "" {
		out[karpv1.NodePoolLabelKey] = s.Pool
	}
	out[karpv1.NodeDoNotSyncTaintsLabelKey] = "true"
	return out
}

// restricted reports whether the label's domain is kubernetes.io or k8s.io or below, of which kubelets may set only a few.
func restricted(key string) bool {
	domain, _, ok := strings.Cut(key, "/")
	if !ok {
		return false
	}
	for _, d := range []string{"kubernetes.io", "k8s.io"} {
		if domain == d || strings.HasSuffix(domain, "."+d) {
			return true
		}
	}
	return false
}

// nodeTaints are the taints the kubelet registers with: the claim's, and the one that keeps pods off until registration.
func (s shape) nodeTaints() []corev1.Taint {
	out := make([]corev1.Taint, 0, len(s.Taints)+len(s.StartupTaints)+1)
	out = append(out, s.Taints...)
	out = append(out, s.StartupTaints...)
	return append(out, karpv1.UnregisteredNoExecuteTaint)
}

// variant tells the templates of one class, shape and image apart: how the instance is bought and where it is put.
type variant struct {
	// spot templates tag the spot request, which Karpenter's published IAM policy wants and on-demand launches refuse.
	spot bool
	// tenancy is empty for the default, partition 0 for any.
	tenancy   string
	partition int32
	// reservation is what the instance has to run in, without id if in none.
	reservation ec2.ReservationRef
	// pods is how many pods the node is told to take, 0 to leave it to class and image; efas how many EFA interfaces it gets.
	pods, efas int32
}

// templateOf is the launch template for an image of a class, a shape and a variant.
func templateOf(cluster ec2.Cluster, class *v1.EC2NodeClass, s shape, image string, v variant) (ec2.Template, error) {
	family, err := ec2.Family(class)
	if err != nil {
		return ec2.Template{}, err
	}
	userData, err := ec2.UserData(family, bootstrapOf(cluster, class, s, v.pods))
	if err != nil {
		return ec2.Template{}, err
	}
	t, err := ec2.ClassTemplate(class)
	if err != nil {
		return ec2.Template{}, err
	}
	t.ImageID, t.UserData, t.Tags = image, userData, templateTags(cluster.Name, class, s.Pool)
	t.Spot, t.Tenancy, t.Partition = v.spot, v.tenancy, v.partition
	t.EFAs, t.IPv6 = v.efas, cluster.IPv6()
	if v.reservation.ID != "" {
		t.Reservation = &v.reservation
	}
	if group := ec2.PlacementGroupOf(class); group != nil {
		t.PlacementGroup = group.ID
	}
	t.Name = ec2.TemplateName(t)
	return t, nil
}

func bootstrapOf(cluster ec2.Cluster, class *v1.EC2NodeClass, s shape, pods int32) ec2.Bootstrap {
	b := ec2.ClassBootstrap(cluster, class)
	b.Labels, b.Taints = s.nodeLabels(), s.nodeTaints()
	if ec2.Prepulls(class) {
		b.Images = s.Images
	}
	if pods > 0 {
		b.MaxPods = &pods
	}
	return b
}

// templateTags are the tags of the template and of network interfaces made from it. Karpenter's published IAM policy
// allows templates only with the tags for cluster and pool.
func templateTags(cluster string, class *v1.EC2NodeClass, pool string) map[string]string {
	out := maps.Clone(class.Spec.Tags)
	if out == nil {
		out = map[string]string{}
	}
	out[ec2.TagClusterPrefix+cluster] = "owned"
	out[ec2.TagClusterName] = cluster
	out[ec2.TagNodePool] = pool
	out[ec2.TagNodeClass] = class.Name
	out[templateTag] = "true"
	return out
}
