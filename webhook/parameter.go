// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"fmt"
	"maps"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applycorev1 "k8s.io/client-go/applyconfigurations/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/webhook/rules"
)

const (
	// parameterEvery is how often what native policies read is looked after: a policy holds natively that much later.
	parameterEvery = 2 * time.Second
	// parameterAgain is when it is written again although nothing has changed here, and after an error.
	parameterAgain = 30 * time.Second
)

// Parameter keeps the ConfigMap that native policies read, whose data are [rules.NativeData]. Every replica does so, all under
// one name as the owner of the data. The ConfigMap itself comes with the installation.
type Parameter struct {
	Kube      kubernetes.Interface
	Namespace string
	State     func() *State
	Clock     clock.WithTicker
	Log       logr.Logger

	written map[string]string
	again   time.Time
}

// Run looks after the ConfigMap until ctx ends.
func (p *Parameter) Run(ctx context.Context) {
	for {
		if s := p.State(); s != nil {
			if err := p.Write(ctx, s); err != nil && ctx.Err() == nil {
				p.Log.Error(err, "writing what native policies read")
			}
		}
		select {
		case <-ctx.Done():
			return
		case <-p.Clock.After(parameterEvery):
		}
	}
}

// Write applies the data if they have changed, or if it is time to do so again.
func (p *Parameter) Write(ctx context.Context, s *State) error {
	now := p.Clock.Now()
	data, _ := rules.NativeData(s.in.Policies, managed(s.in.Namespaces), now)
	due := !now.Before(p.again)
	if !due && (p.written == nil || maps.Equal(data, p.written)) {
		return nil
	}
	p.written, p.again = nil, now.Add(parameterAgain)
	m := applycorev1.ConfigMap(v1alpha1.NativeConfigMap, p.Namespace).WithData(data)
	if _, err := p.Kube.CoreV1().ConfigMaps(p.Namespace).Apply(ctx, m, metav1.ApplyOptions{FieldManager: "slipway-webhook", Force: true}); err != nil {
		return fmt.Errorf("config map %q: %w", p.Namespace+"/"+v1alpha1.NativeConfigMap, err)
	}
	p.written = data
	return nil
}

// managed are the labels of the namespaces that are looked at.
func managed(namespaces []*corev1.Namespace) []map[string]string {
	var out []map[string]string
	for _, ns := range namespaces {
		if ns.Labels[v1alpha1.ManagedLabel] == "true" {
			out = append(out, ns.Labels)
		}
	}
	return out
}
