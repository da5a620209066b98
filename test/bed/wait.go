// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"slices"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// AwaitReadyPools waits until the NodePools' Ready condition is true. If ctx ends first, the error says which pool is not
// ready and why.
func AwaitReadyPools(ctx context.Context, b *Bed, names ...string) error {
	c, err := client.New(b.Cluster.Config(), client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	why := ""
	err = Eventually(ctx, "NodePools to be ready", func(ctx context.Context) (bool, error) {
		for _, name := range names {
			np := &karpv1.NodePool{}
			if err := c.Get(ctx, types.NamespacedName{Name: name}, np); err != nil {
				return false, client.IgnoreNotFound(err)
			}
			cond := np.StatusConditions().Root()
			if !cond.IsTrue() {
				why = fmt.Sprintf("NodePool %q is not ready: %s", name, cond.Message)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil && why != "" {
		return fmt.Errorf("%w; %s", err, why)
	}
	return err
}

// Quantile returns the q-quantile (nearest rank) of the durations, which it sorts; 0 if there are none.
func Quantile(ds []time.Duration, q float64) time.Duration {
	if len(ds) == 0 {
		return 0
	}
	slices.Sort(ds)
	return ds[min(int(q*float64(len(ds))), len(ds)-1)]
}
