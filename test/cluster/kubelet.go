// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

// RunForAnnotation on a pod is how long its containers run before they exit with status 0, as a Go duration
// ("2s"). Without it they run until the pod is deleted. It has no effect where restartPolicy is Always, because
// there a kubelet would start them again. A value that is no positive duration fails the pod with reason
// InvalidRunFor.
const RunForAnnotation = "test.slipway.sh/run-for"

// KubeletOptions configure the fake kubelet. The zero value is usable.
type KubeletOptions struct {
	// PodStart is the time from seeing a pod to its containers being ready. Default: 5 ms.
	PodStart time.Duration
	// ImagePull is how long each image takes to pull that is not on the machine yet, one after the other. A machine pulls
	// those its user data names from the moment it joins. Default: none.
	ImagePull time.Duration
	// PodStop is the time containers take to end after their pod is deleted, at most the pod's grace period.
	// Default: 5 ms.
	PodStop time.Duration
	// LeaseInterval is the time between two heartbeats of a node. It must be well below the cluster's
	// NodeMonitorGracePeriod. Default: 10 s, as a kubelet's.
	LeaseInterval time.Duration
	// Workers is how many API requests are made at a time. Default: 64.
	Workers int
	// Faults, if set, is asked once for each joining machine.
	Faults func(Machine) Faults
}

// Faults are what goes differently on one machine, for scenarios.
type Faults struct {
	// NeverReady keeps the node NotReady, though alive.
	NeverReady bool
	// AgentTaints are put on the node, and taken off, by an agent that is not the kubelet.
	AgentTaints []AgentTaint
	// LateResources are missing from the node until this long after it joined, as a device plugin's are.
	LateResources map[corev1.ResourceName]time.Duration
}

// AgentTaint is a taint that appears After the node joined and stays For a time, or for ever if that is zero.
type AgentTaint struct {
	Taint      corev1.Taint
	After, For time.Duration
}

func (o KubeletOptions) withDefaults() KubeletOptions {
	o.PodStart = cmp.Or(o.PodStart, 5*time.Millisecond)
	o.PodStop = cmp.Or(o.PodStop, 5*time.Millisecond)
	o.LeaseInterval = cmp.Or(o.LeaseInterval, 10*time.Second)
	o.Workers = cmp.Or(o.Workers, 64)
	if o.Faults == nil {
		o.Faults = func(Machine) Faults { return Faults{} }
	}
	return o
}

func (o KubeletOptions) validate() error {
	if o.PodStart < 0 || o.ImagePull < 0 || o.PodStop < 0 || o.LeaseInterval < 0 || o.Workers < 0 {
		return fmt.Errorf("checking kubelet options: negative value in %+v", o)
	}
	return nil
}

// Kubelet plays the kubelets of any number of machines in one process. It creates and keeps their nodes and runs,
// stops and refuses the pods bound to them. Nodes that did not join through it are not its business.
type Kubelet struct {
	opts    KubeletOptions
	client  kubernetes.Interface // as given: reads, and the writes of agents
	node    kubernetes.Interface // as the node of the request's context
	version string
	log     logr.Logger

	pods  cache.SharedIndexInformer
	nodes cache.SharedIndexInformer
	queue workqueue.TypedRateLimitingInterface[task]
	ips   ipPool

	mu       sync.Mutex
	machines map[string]*machine  // by node name
	running  map[string]*podState // by namespace/name

	cancel context.CancelFunc
	done   sync.WaitGroup
}

// NewKubelet starts a fake kubelet without machines. config must be allowed to read nodes and pods, to update
// nodes, and to impersonate nodes; its rate limit is lifted. ctx bounds the start only, and carries the logger; call
// Stop to end it.
func NewKubelet(ctx context.Context, config *rest.Config, opts KubeletOptions) (*Kubelet, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	config = rest.CopyConfig(config)
	config.QPS = -1
	config.ContentType = runtime.ContentTypeProtobuf // built-in kinds only, and cheaper for the API server
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("creating kubelet client: %w", err)
	}
	node, err := kubernetes.NewForConfig(nodeIdentity(config))
	if err != nil {
		return nil, fmt.Errorf("creating kubelet client: %w", err)
	}
	version, err := client.Discovery().ServerVersion()
	if err != nil {
		return nil, fmt.Errorf("reading server version: %w", err)
	}
	k := &Kubelet{
		opts: opts.withDefaults(), client: client, node: node, version: version.GitVersion,
		log:      logr.FromContextOrDiscard(ctx).WithName("fake-kubelet"),
		machines: map[string]*machine{}, running: map[string]*podState{},
		queue: workqueue.NewTypedRateLimitingQueue(
			workqueue.NewTypedItemExponentialFailureRateLimiter[task](5*time.Millisecond, time.Second)),
	}
	if err := k.watch(); err != nil {
		return nil, err
	}
	if err := k.run(ctx); err != nil {
		return nil, err
	}
	return k, nil
}

// watch sets up the informers.
func (k *Kubelet) watch() error {
	k.pods = coreinformers.NewFilteredPodInformer(k.client, metav1.NamespaceAll, 0,
		cache.Indexers{byNode: func(o any) ([]string, error) { return []string{o.(*corev1.Pod).Spec.NodeName}, nil }},
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermNotEqualSelector("spec.nodeName", "").String()
		})
	k.nodes = coreinformers.NewNodeInformer(k.client, 0, cache.Indexers{})
	enqueue := func(o any) {
		if key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(o); err == nil {
			k.queue.Add(task{kind: syncPod, pod: key})
		}
	}
	_, podErr := k.pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: enqueue, UpdateFunc: func(_, o any) { enqueue(o) }, DeleteFunc: enqueue,
	})
	_, nodeErr := k.nodes.AddEventHandler(cache.ResourceEventHandlerFuncs{DeleteFunc: func(o any) {
		if tombstone, ok := o.(cache.DeletedFinalStateUnknown); ok {
			o = tombstone.Obj
		}
		if node, ok := o.(*corev1.Node); ok {
			k.forget(node)
		}
	}})
	if err := errors.Join(podErr, nodeErr); err != nil {
		return fmt.Errorf("watching pods and nodes: %w", err)
	}
	return nil
}

// byNode is the index of pods by the node they are bound to.
const byNode = "node"

// run starts the informers and workers and waits for the first lists.
func (k *Kubelet) run(ctx context.Context) error {
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	k.cancel = cancel
	k.done.Go(func() { k.pods.RunWithContext(running) })
	k.done.Go(func() { k.nodes.RunWithContext(running) })
	for range k.opts.Workers {
		k.done.Go(func() { k.work(running) })
	}
	if !cache.WaitForCacheSync(ctx.Done(), k.pods.HasSynced, k.nodes.HasSynced) {
		k.Stop()
		return fmt.Errorf("listing pods and nodes: %w", context.Cause(ctx))
	}
	return nil
}

// Stop ends all kubelets: their nodes fall silent. It returns when nothing of them runs any more.
func (k *Kubelet) Stop() {
	k.cancel()
	k.queue.ShutDown()
	k.done.Wait()
}

// StartKubelet starts a fake kubelet for a cluster's nodes that ends with the test. It fails the test if it can't.
func StartKubelet(t TB, c *Cluster, opts KubeletOptions) *Kubelet {
	t.Helper()
	k, err := NewKubelet(t.Context(), c.Config(), opts)
	if err != nil {
		t.Fatalf("%v", err)
	}
	t.Cleanup(k.Stop)
	return k
}

// taskKind says what is to be done.
type taskKind int

const (
	syncPod taskKind = iota
	renewLease
	becomeReady
	showResource
	addTaint
	removeTaint
)

// task is one thing to do, by one worker at a time.
type task struct {
	kind     taskKind
	pod      string              // syncPod: namespace/name
	machine  *machine            // all others
	taint    int                 // addTaint, removeTaint: which of the machine's agent taints
	resource corev1.ResourceName // showResource
}

// work does tasks until the queue is shut down. A failed one is tried again, less and less often.
func (k *Kubelet) work(ctx context.Context) {
	for {
		t, shutdown := k.queue.Get()
		if shutdown {
			return
		}
		if err := k.do(ctx, t); err != nil && ctx.Err() == nil {
			k.log.V(1).Info("kubelet task failed and is tried again", "pod", t.pod, "node", t.machine.name(), "reason", err.Error())
			k.queue.AddRateLimited(t)
		} else {
			k.queue.Forget(t)
		}
		k.queue.Done(t)
	}
}

func (k *Kubelet) do(ctx context.Context, t task) error {
	if t.machine != nil && k.isGone(t.machine) {
		return nil
	}
	switch t.kind {
	case syncPod:
		return k.syncPod(ctx, t.pod)
	case renewLease:
		return k.renewLease(ctx, t)
	case becomeReady:
		return k.becomeReady(ctx, t.machine)
	case showResource:
		return k.showResource(ctx, t.machine, t.resource)
	case addTaint, removeTaint:
		return k.taint(ctx, t)
	}
	return fmt.Errorf("unknown task %d", t.kind)
}
