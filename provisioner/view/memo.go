// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package view

import (
	"sync"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// memo remembers the class of every pod it has seen, and one Class value a signature, so that converting a pod again
// costs a map look-up and classes can be compared by pointer.
type memo struct {
	mu      sync.Mutex
	pods    map[types.UID]remembered
	classes map[string]*capacity.Class
}

type remembered struct {
	generation int64
	labels     string
	volumes    bool
	class      *capacity.Class
}

func newMemo() *memo {
	return &memo{pods: map[types.UID]remembered{}, classes: map[string]*capacity.Class{}}
}

// class returns the class of the pod. A pod is converted again when its spec or labels changed (generation counts only
// the spec), and always when volumes constrain it, because a claim may have been bound since.
func (m *memo) class(pod *corev1.Pod, volumes func(*corev1.Pod) [][]corev1.NodeSelectorRequirement, ns namespaces) *capacity.Class {
	ls := labels.FormatLabels(pod.Labels)
	m.mu.Lock()
	defer m.mu.Unlock()
	if r, ok := m.pods[pod.UID]; ok && r.generation == pod.Generation && r.labels == ls && !r.volumes {
		return r.class
	}
	vol := volumes(pod)
	s := sign(pod, vol)
	id := s.id()
	c, ok := m.classes[id]
	if !ok {
		c = s.class(id, ns)
		m.classes[id] = c
	}
	m.pods[pod.UID] = remembered{generation: pod.Generation, labels: ls, volumes: len(vol) > 0, class: c}
	return c
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
