// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"
)

const (
	// buffersFresh is how long an answer about buffers stands, buffersAbsent how long it is believed that there are none
	// because the API server does not serve them, or not to this process.
	buffersFresh  = 5 * time.Second
	buffersAbsent = 30 * time.Second
	// buffersTimeout bounds the reading of all of them.
	buffersTimeout = 10 * time.Second
	// mostChunks bounds the chunks of one buffer: limits alone, with a template that asks for little, say millions.
	mostChunks = 1000
)

// Buffer is a CapacityBuffer (autoscaling.x-k8s.io/v1beta1): room that is to be kept free for so many pods like these.
type Buffer struct {
	// Chunks stand in for the pods, lowest in priority, each with a UID of its own.
	Chunks []*corev1.Pod

	object   *buffersv1beta1.CapacityBuffer
	template template
	problem  problem
}

// Key is the buffer's namespace and name.
func (b Buffer) Key() types.NamespacedName { return client.ObjectKeyFromObject(b.object) }

// Buffers knows the CapacityBuffers of the cluster and writes their status, in Karpenter's terms. They are read from the API
// server every few seconds, if it serves them; they may be installed at any time. For use by one goroutine.
type Buffers struct {
	// Kube reads and writes without a cache.
	Kube  client.Client
	Clock clock.PassiveClock

	mu   sync.Mutex
	list []Buffer
	next time.Time // the earliest for another look
	told string
}

// Wanted returns the buffers as they were at most 5 seconds ago, sorted. When they cannot be read, those of the last answer
// stand; there are none while the API server does not serve the kind.
func (b *Buffers) Wanted(ctx context.Context) []Buffer {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := b.Clock.Now()
	if now.Before(b.next) {
		return b.list
	}
	ctx, cancel := context.WithTimeout(ctx, buffersTimeout)
	defer cancel()
	b.next = now.Add(buffersFresh)
	var list buffersv1beta1.CapacityBufferList
	switch err := b.Kube.List(ctx, &list); {
	case meta.IsNoMatchError(err), apierrors.IsNotFound(err):
		b.list, b.next = nil, now.Add(buffersAbsent)
		return nil
	case apierrors.IsForbidden(err):
		b.tell(ctx, err)
		b.list, b.next = nil, now.Add(buffersAbsent)
		return nil
	case err != nil:
		b.tell(ctx, err)
		return b.list
	}
	b.told = ""
	out := make([]Buffer, 0, len(list.Items))
	for i := range list.Items {
		if o := &list.Items[i]; o.DeletionTimestamp == nil && served(o) {
			out = append(out, b.resolve(ctx, o))
		}
	}
	slices.SortFunc(out, func(x, y Buffer) int { return strings.Compare(x.Key().String(), y.Key().String()) })
	b.list = out
	return out
}

// tell logs once why buffers cannot be read.
func (b *Buffers) tell(ctx context.Context, err error) {
	if b.told != err.Error() {
		b.told = err.Error()
		logr.FromContextOrDiscard(ctx).Info("CapacityBuffers cannot be read", "reason", b.told)
	}
}

// served reports whether the buffer is of the one strategy there is, which is the default.
func served(o *buffersv1beta1.CapacityBuffer) bool {
	s := o.Spec.ProvisioningStrategy
	return s == nil || *s == "" || *s == buffersv1beta1.ActiveProvisioningStrategy
}

// resolve finds out what the buffer is to hold.
func (b *Buffers) resolve(ctx context.Context, o *buffersv1beta1.CapacityBuffer) Buffer {
	out := Buffer{object: o}
	t, err := b.templateOf(ctx, o)
	if p, ok := errors.AsType[problem](err); ok {
		out.problem = p
		return out
	}
	if err != nil {
		out.problem = problem{reasonResolutionFailed, err.Error()}
		return out
	}
	out.template = t
	n := chunksOf(o.Spec, t)
	out.Chunks = make([]*corev1.Pod, 0, n)
	for i := range n {
		out.Chunks = append(out.Chunks, t.chunk(o, i))
	}
	return out
}

// chunk is the i-th stand-in for a pod of the template. The UID names what it is made of: another template makes other pods.
func (t template) chunk(o *buffersv1beta1.CapacityBuffer, i int) *corev1.Pod {
	p := &corev1.Pod{Spec: *t.pod.Spec.DeepCopy()}
	p.Namespace, p.Name = o.Namespace, fmt.Sprintf("capacity-buffer-%s-%d", o.Name, i)
	p.UID = types.UID(fmt.Sprintf("buffer/%s/%d/%s/%d/%d", o.UID, o.Generation, t.uid, t.generation, i))
	p.Labels, p.Annotations = t.pod.Labels, t.pod.Annotations
	p.Spec.NodeName, p.Spec.SchedulingGates, p.Spec.SchedulingGroup = "", nil, nil
	p.Spec.Priority, p.Spec.PriorityClassName, p.Spec.PreemptionPolicy = new(int32(math.MinInt32)), "", new(corev1.PreemptNever)
	// Volumes of its own a pod has only once it exists.
	p.Spec.Volumes = slices.DeleteFunc(p.Spec.Volumes, func(v corev1.Volume) bool { return v.PersistentVolumeClaim != nil || v.Ephemeral != nil })
	return p
}
