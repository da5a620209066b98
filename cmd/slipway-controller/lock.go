// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"
	"os"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/client-go/tools/record"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const (
	// renewDeadline is controller-runtime's default: how long the holder tries to renew the lease.
	renewDeadline = 10 * time.Second
	// namespaceFile is where a pod finds the namespace it is in.
	namespaceFile = "/var/run/secrets/kubernetes.io/serviceaccount/namespace"
)

// newLock makes the lock of the leader election, nil without one. It is controller-runtime's but for the holder's name, by which
// slipway-scheduler tells Slipway from Karpenter: both hold the same lease.
func newLock(config *rest.Config, o options) (resourcelock.Interface, error) {
	if o.DisableLeaderElection {
		return nil, nil
	}
	namespace := o.LeaderElectionNamespace
	if namespace == "" {
		raw, err := os.ReadFile(namespaceFile)
		if err != nil {
			return nil, fmt.Errorf("finding the namespace of the lease; set --leader-election-namespace: %w", err)
		}
		namespace = strings.TrimSpace(string(raw))
	}
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming the holder of the lease: %w", err)
	}
	client, err := kubernetes.NewForConfig(rest.AddUserAgent(config, "leader-election"))
	if err != nil {
		return nil, fmt.Errorf("creating the client of the leader election: %w", err)
	}
	id := capacity.LeaseHolderPrefix + host + "_" + string(uuid.NewUUID())
	broadcaster := record.NewBroadcaster()
	broadcaster.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: client.CoreV1().Events("")})
	lock, err := resourcelock.NewFromKubeconfig(resourcelock.LeasesResourceLock, namespace, o.LeaderElectionName, resourcelock.ResourceLockConfig{
		Identity: id, EventRecorder: broadcaster.NewRecorder(scheme.Scheme, corev1.EventSource{Component: id}),
	}, config, renewDeadline)
	if err != nil {
		return nil, fmt.Errorf("making the lock of the leader election: %w", err)
	}
	return lock, nil
}
