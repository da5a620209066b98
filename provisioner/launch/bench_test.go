// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// largeCatalog has 800 types in 3 zones, spot and on-demand: a region's worth.
func largeCatalog() *capacity.Catalog {
	zones := []string{"us-east-1a", "us-east-1b", "us-east-1c"}
	var types []*builder.InstanceTypeBuilder
	for i := range 800 {
		price := 0.05 + float64(i)/100
		types = append(types, builder.InstanceType(fmt.Sprintf("m%d.size%d", i%9, i)).CPU(fmt.Sprint(2+i%64)).Memory("64Gi").Spot(price*0.4, zones...).OnDemand(price, zones...))
	}
	return builder.Catalog(types...)
}

// firstCall stops the time at the first CreateFleet.
type firstCall struct {
	*cloud
	at chan time.Time
}

func (f firstCall) Fleet(ctx context.Context, req ec2.FleetRequest) (ec2.FleetResult, error) {
	f.at <- time.Now()
	return f.cloud.Fleet(ctx, req)
}

// cached reads like an informer cache does, by copying, and drops writes: the fake client would be most of what is measured.
type cached struct {
	client.Client
	class *v1.EC2NodeClass
	pool  *karpv1.NodePool
}

func (c cached) Get(_ context.Context, _ client.ObjectKey, o client.Object, _ ...client.GetOption) error {
	switch o := o.(type) {
	case *v1.EC2NodeClass:
		c.class.DeepCopyInto(o)
	case *karpv1.NodePool:
		c.pool.DeepCopyInto(o)
	}
	return nil
}

func (c cached) Patch(_ context.Context, o client.Object, _ client.Patch, _ ...client.PatchOption) error {
	return apierrors.NewNotFound(schema.GroupResource{}, o.GetName())
}

// BenchmarkLaunchToRequest measures the time from Launch to the CreateFleet request, as metric p50-to-request-µs.
func BenchmarkLaunchToRequest(b *testing.B) {
	for _, tc := range []struct {
		name string
		reqs []corev1.NodeSelectorRequirement
	}{
		{"any", nil},
		{"on-demand", []corev1.NodeSelectorRequirement{builder.In(karpv1.CapacityTypeLabelKey, "on-demand")}},
	} {
		b.Run(tc.name, func(b *testing.B) {
			kube := cached{class: readyClass(), pool: builder.NodePool("default").NodeLabel("team", "a").Obj()}
			r := newRig(kube, newCloud())
			r.Launcher.Catalogs = catalogs{largeCatalog()}
			call := firstCall{r.cloud, make(chan time.Time, 1)}
			r.Launcher.Cloud = call
			ctx := quiet(b.Context())
			var took []time.Duration
			for i := range b.N {
				c := builder.NodeClaim(fmt.Sprintf("c%d", i)).UID(fmt.Sprintf("u%d", i)).Pool("default").Require(tc.reqs...).Request("cpu", "1").Obj()
				began := time.Now()
				r.Launch(ctx, []*karpv1.NodeClaim{c})
				took = append(took, (<-call.at).Sub(began))
			}
			slices.Sort(took)
			b.ReportMetric(float64(took[len(took)/2].Nanoseconds())/1000, "p50-to-request-µs")
		})
	}
}
