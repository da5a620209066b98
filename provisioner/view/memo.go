// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"maps"
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// memo remembers the class of every pod it has seen, and one Class value a signature, so that converting a pod again
// costs a map look-up and classes can be compared by pointer.
type memo struct {
	mu      sync.Mutex
	pods    map[types.UID]remembered
	classes map[string]*capacity.Class
	encoder encoder
}

type remembered struct {
	pod   *corev1.Pod
	class *capacity.Class
}

func newMemo() *memo {
	return &memo{pods: map[types.UID]remembered{}, classes: map[string]*capacity.Class{}}
}

// class returns the class of the pod. A pod is converted again when its spec or labels changed (generation counts only
// the spec), when it was bound, and always when sign says that its signature depends on other objects: then stable is
// false.
func (m *memo) class(pod *corev1.Pod, sign func(*corev1.Pod) (s signature, stable bool)) (c *capacity.Class, stable bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.pods[pod.UID]; ok && r.pod != nil && same(r.pod, pod) {
		return r.class, true
	}
	s, stable := sign(pod)
	id := m.encoder.id(&s)
	c, ok := m.classes[id]
	if !ok {
		c = s.class(id)
		m.classes[id] = c
	}
	r := remembered{class: c}
	if stable {
		r.pod = pod
	}
	m.pods[pod.UID] = r
	return c, stable
}

func same(a, b *corev1.Pod) bool {
	return a == b || (a.Generation == b.Generation && a.Spec.NodeName == b.Spec.NodeName && maps.Equal(a.Labels, b.Labels))
}

// keep forgets every pod for which alive is false, and the classes no pod has any more. Called when the memo has
// outgrown the cluster.
func (m *memo) keep(alive func(types.UID) bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	used := map[string]bool{}
	for uid, r := range m.pods {
		if !alive(uid) {
			delete(m.pods, uid)
			continue
		}
		used[r.class.ID] = true
	}
	for id := range m.classes {
		if !used[id] {
			delete(m.classes, id)
		}
	}
}

func (m *memo) size() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.pods)
}
