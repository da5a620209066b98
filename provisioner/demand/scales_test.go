// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/test/builder"
)

// fakeScale answers after a tenth of a second and counts.
type fakeScale struct {
	mu       sync.Mutex
	replicas int32
	selector string
	uid      types.UID
	err      error
	asked    int
}

func (f *fakeScale) Scale(ctx context.Context, _ string, _ metav1.OwnerReference) (*autoscalingv1.Scale, error) {
	f.mu.Lock()
	f.asked++
	f.mu.Unlock()
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case <-time.After(100 * time.Millisecond):
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{UID: f.uid}, Spec: autoscalingv1.ScaleSpec{Replicas: f.replicas}, Status: autoscalingv1.ScaleStatus{Selector: f.selector},
	}, f.err
}

func TestScales(t *testing.T) {
	resource := schema.GroupResource{Group: "example.com", Resource: "things"}
	pod := builder.Pod("p").UID("p").Label("app", "x").Obj()
	owner := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: "o", UID: "o"}
	for name, tc := range map[string]struct {
		scale *fakeScale
		// then changes what is answered after the first answer.
		then func(f *fakeScale)
		// wait passes between the first answer and the last look.
		wait  time.Duration
		want  string
		asked int
	}{
		"known after the first pod":      {scale: &fakeScale{replicas: 7}, want: "7 true", asked: 1},
		"asked again when stale":         {scale: &fakeScale{replicas: 7}, then: func(f *fakeScale) { f.replicas = 3 }, wait: 3 * time.Second, want: "3 true", asked: 3},
		"the last answer stands a while": {scale: &fakeScale{replicas: 7}, then: func(f *fakeScale) { f.err = errors.New("connection refused") }, wait: 10 * time.Second, want: "7 true", asked: 10},
		"and not for ever":               {scale: &fakeScale{replicas: 7}, then: func(f *fakeScale) { f.err = errors.New("connection refused") }, wait: time.Minute, want: "0 false", asked: 41},
		"no subresource":                 {scale: &fakeScale{err: apierrors.NewNotFound(resource, "o")}, wait: time.Minute, want: "0 false", asked: 1},
		"gone":                           {scale: &fakeScale{replicas: 7}, then: func(f *fakeScale) { f.err = apierrors.NewNotFound(resource, "o") }, wait: time.Minute, want: "0 false", asked: 2},
		"no permission":                  {scale: &fakeScale{err: apierrors.NewForbidden(resource, "o", errors.New("no"))}, wait: time.Minute, want: "0 false", asked: 1},
		"another of the name":            {scale: &fakeScale{replicas: 7, uid: "other"}, want: "0 false", asked: 1},
		"selects the pod":                {scale: &fakeScale{replicas: 7, selector: "app=x", uid: "o"}, want: "7 true", asked: 1},
		"does not select the pod":        {scale: &fakeScale{replicas: 7, selector: "app=y"}, want: "0 false", asked: 1},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := tc.scale
				s := NewScales(f, clock.RealClock{})
				look := func() string {
					n, ok := s.Replicas(t.Context(), pod, owner)
					return fmt.Sprint(n, ok)
				}
				if got := look(); got != "0 false" {
					t.Errorf("before anything is known: %s", got)
				}
				time.Sleep(200 * time.Millisecond)
				if tc.then != nil {
					f.mu.Lock()
					tc.then(f)
					f.mu.Unlock()
				}
				for end := time.Now().Add(tc.wait); time.Now().Before(end); time.Sleep(500 * time.Millisecond) {
					look()
				}
				synctest.Wait()
				if got := look(); got != tc.want {
					t.Errorf("Replicas() = %s, want %s", got, tc.want)
				}
				synctest.Wait()
				f.mu.Lock()
				defer f.mu.Unlock()
				if low, high := tc.asked*8/10, tc.asked*12/10+1; f.asked < low || f.asked > high {
					t.Errorf("asked %d times, want about %d", f.asked, tc.asked)
				}
			})
		})
	}
}

// TestScalesIsBounded checks that neither memory nor requests grow with the number of owners.
func TestScalesIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeScale{replicas: 1}
		s := NewScales(f, clock.RealClock{})
		ask := func(i int) {
			uid := types.UID(fmt.Sprint(i))
			s.Replicas(t.Context(), &corev1.Pod{}, metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: string(uid), UID: uid})
		}
		for i := range 2 * scaleMost {
			ask(i)
		}
		known := func() (owners int) {
			s.mu.Lock()
			defer s.mu.Unlock()
			return len(s.owners)
		}
		if known() != scaleMost || len(s.slots) != scaleReaders {
			t.Errorf("%d owners and %d requests under way, want %d and %d", known(), len(s.slots), scaleMost, scaleReaders)
		}
		time.Sleep(scaleUnused + time.Minute)
		ask(-1)
		if n := known(); n != 1 {
			t.Errorf("%d owners are remembered that nobody asks about", n-1)
		}
		synctest.Wait()
	})
}
