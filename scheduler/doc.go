// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package scheduler makes a kube-scheduler the trigger of capacity.
//
// It is one scheduling plugin, named Slipway, and the hooks around it. When no
// node fits a pod, PostFilter hands the pod to a [Sink] in the very scheduling
// cycle that found out, and closes the pod's [Gate]. A pod behind a closed gate
// is not retried: no cluster event, no backoff and no flush moves it until the
// gate is released, because its node became usable or its capacity is not
// coming. Its Filter keeps the room of arriving nodes for the pods they were
// bought for ([Reservations]). [Hook] adds what the plugin interface does not
// offer: the case of a cluster without nodes, the moment the active queue has
// drained, whether this process leads, pods that provision before they preempt,
// and pod groups ([GroupSink]). [Nominator] writes status.nominatedNodeName.
//
// The package owns the gate and the conversation with the scheduling queue. It
// decides nothing about capacity, buys nothing, and does no I/O in the
// scheduling cycle: every call made there is memory only.
//
// Locks are ordered queue before gate. PreEnqueue runs under the queue's lock
// and takes the gate's, so nothing here calls into the queue while it holds the
// gate's lock.
//
// Import level 5.
package scheduler
