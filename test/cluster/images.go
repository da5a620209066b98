// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"time"

	corev1 "k8s.io/api/core/v1"
)

// imageStore is when each image is on a machine, or will be. A machine pulls one image after the other.
type imageStore struct {
	there map[string]time.Time
	busy  time.Time // until when it pulls
}

// pull asks for images, each of which takes a time, and returns when the last is there: now if all are.
func (s *imageStore) pull(images []string, now time.Time, each time.Duration) time.Time {
	if each == 0 {
		return now
	}
	if s.there == nil {
		s.there = map[string]time.Time{}
	}
	last := now
	for _, image := range images {
		at, known := s.there[image]
		if !known {
			if s.busy.Before(now) {
				s.busy = now
			}
			s.busy = s.busy.Add(each)
			at = s.busy
			s.there[image] = at
		}
		if at.After(last) {
			last = at
		}
	}
	return last
}

// imagesOf are the images of a pod's containers.
func imagesOf(pod *corev1.Pod) []string {
	var out []string
	for _, list := range [...][]corev1.Container{pod.Spec.InitContainers, pod.Spec.Containers} {
		for i := range list {
			out = append(out, list[i].Image)
		}
	}
	return out
}
