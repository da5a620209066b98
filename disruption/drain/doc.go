// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package drain takes the pods off a node that is about to go.
//
// [Plan] is the rule: given the pods of a node, the PodDisruptionBudgets and the
// time it says what is next for each pod, evict, delete or wait, and what a wait is
// for. It is pure. [Drainer] carries a plan out and is asked again until nothing is
// left; package claim calls it while it ends a NodeClaim.
//
// The order is Karpenter's: workloads, then daemonsets, then what is critical to
// the cluster. Pods leave by the eviction API, so disruption budgets hold, and each
// pod is refused for itself: a budget that allows nothing, two budgets on one pod
// (which the API answers with a server error) or a webhook keeps that pod and no
// other, is asked again at most every ten seconds, and is said in the condition
// Drained, in events and in metrics, with the time since when. do-not-disrupt
// pods are waited for. A node with a deadline (terminationGracePeriod, a spot
// interruption) deletes what is left early enough for each pod's own grace period.
// Mirror pods, pods that have ended, that tolerate the disrupted taint, or whose
// deletion has been due for a minute are not waited for.
//
// # Successors
//
// On a node that is not failing, the last ready pod of a Deployment (or of a
// ReplicaSet of its own), and a pod that a budget keeps only for want of one more,
// leaves when a successor is ready. The workload is asked for one replica more by its
// scale subresource; when all are ready, and the budgets would allow an
// eviction, the replica is taken back and the pod that was marked as the cheapest to
// delete goes. What is under way is in a label of the workload ([SurgeLabel]), so a
// process that dies in between loses nothing. Left alone are workloads that
// HorizontalPodAutoscalers (KEDA's too) scale, strategies without surge, pods with a
// volume only one node can mount, StatefulSets, and who says so ([SurgeAnnotation]); an event says
// why. After ten minutes without a ready successor the pod is evicted like others.
//
// The package never decides which nodes go, never deletes nodes, claims or
// instances, and never removes a pod's finalizer.
//
// Import level 5: imports package claim (whose interface it implements) and the API
// packages; wired by the controller's command.
package drain
