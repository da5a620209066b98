// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package judge

import (
	"context"
	"fmt"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/events"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/kubernetes/pkg/scheduler/apis/config/latest"
	"k8s.io/kubernetes/pkg/scheduler/profile"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/hypothesis"
	"github.com/slipway-sh/slipway/scheduler/simulate"
)

// Judge is a provisioner.Judge.
type Judge struct {
	judge   *simulate.Judge
	factory informers.SharedInformerFactory
	cancel  context.CancelFunc
	// Took is the time spent in Verify so far, Trials how many pods it was asked about, Refused how many of them it refused.
	Took            time.Duration
	Trials, Refused int
}

var _ provisioner.Judge = &Judge{}

// New builds a judge as a scheduler process does, from the live profile before the informers start, and waits until it
// has seen the objects. They must be of Kubernetes' own kinds. Close ends it.
func New(ctx context.Context, objects ...runtime.Object) (*Judge, error) {
	ctx, cancel := context.WithCancel(klog.NewContext(ctx, logr.Discard()))
	j := &Judge{cancel: cancel}
	if err := j.start(ctx, objects); err != nil {
		cancel()
		return nil, err
	}
	return j, nil
}

func (j *Judge) start(ctx context.Context, objects []runtime.Object) error {
	client := fake.NewClientset(objects...)
	j.factory = scheduler.NewInformerFactory(client, 0, nil)
	standard, err := latest.Default()
	if err != nil {
		return fmt.Errorf("reading the default configuration: %w", err)
	}
	live := standard.Profiles[0]
	broadcaster := events.NewBroadcaster(&events.EventSinkImpl{Interface: client.EventsV1()})
	s, err := scheduler.New(ctx, client, j.factory, nil, profile.NewRecorderFactory(broadcaster), scheduler.WithProfiles(live))
	if err != nil {
		return fmt.Errorf("building a scheduler: %w", err)
	}
	if j.judge, err = simulate.New(ctx, simulate.Options{Profile: live, Live: s.Profiles[live.SchedulerName]}); err != nil {
		return err
	}
	j.factory.Start(ctx.Done())
	j.factory.WaitForCacheSync(ctx.Done())
	for !j.judge.HasSynced() {
		if ctx.Err() != nil {
			return fmt.Errorf("waiting for the judge to see the cluster: %w", ctx.Err())
		}
		time.Sleep(100 * time.Microsecond)
	}
	return nil
}

// Close ends the judge's informers.
func (j *Judge) Close() {
	j.cancel()
	j.factory.Shutdown()
}

// Verify implements provisioner.Judge.
func (j *Judge) Verify(ctx context.Context, nodes []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	return j.VerifyWithout(ctx, nil, nodes, trials)
}

// VerifyWithout is Verify on the cluster without some of its nodes and the pods on them.
func (j *Judge) VerifyWithout(ctx context.Context, gone []string, nodes []hypothesis.Node, trials []hypothesis.Trial) ([]hypothesis.Refusal, error) {
	start := time.Now()
	refusals, err := j.judge.VerifyWithout(ctx, gone, nodes, trials)
	j.Took += time.Since(start)
	j.Trials, j.Refused = j.Trials+len(trials), j.Refused+len(refusals)
	if err != nil {
		return nil, fmt.Errorf("asking the judge: %w", err)
	}
	return refusals, nil
}
