// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package source

import (
	"fmt"
	"reflect"
	"sync"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	nodev1 "k8s.io/api/node/v1"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clientgoscheme "k8s.io/client-go/kubernetes/scheme"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	nodelisters "k8s.io/client-go/listers/node/v1"
	storagelisters "k8s.io/client-go/listers/storage/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// Cluster is the objects of a cluster, by type.
type Cluster struct {
	stores map[reflect.Type]cache.Indexer
	// Client holds the NodePools, NodeClaims and EC2NodeClasses.
	Client client.WithWatch
	// catalogs are what can be bought, by class name; see Sell.
	mu       sync.Mutex
	catalogs map[string]*capacity.Catalog
}

// New returns a cluster of the objects. It panics on a type a view does not read, since that is a mistake in the test.
func New(objects ...runtime.Object) *Cluster {
	c := &Cluster{stores: map[reflect.Type]cache.Indexer{}, catalogs: map[string]*capacity.Catalog{}}
	for _, o := range []runtime.Object{
		&corev1.Pod{}, &corev1.Node{}, &corev1.Namespace{}, &corev1.LimitRange{}, &corev1.PersistentVolume{},
		&corev1.PersistentVolumeClaim{}, &appsv1.DaemonSet{}, &storagev1.StorageClass{}, &storagev1.CSINode{}, &nodev1.RuntimeClass{},
	} {
		c.stores[reflect.TypeOf(o)] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, cache.Indexers{cache.NamespaceIndex: cache.MetaNamespaceIndexFunc})
	}
	// The API packages of Karpenter register themselves in client-go's scheme.
	// The plain tracker keeps no field managers, which nobody here asks for and which cost more than all the rest of a write.
	b := fake.NewClientBuilder().WithScheme(clientgoscheme.Scheme).
		WithObjectTracker(clienttesting.NewObjectTracker(clientgoscheme.Scheme, clientgoscheme.Codecs.UniversalDecoder())).
		WithStatusSubresource(&karpv1.NodeClaim{}, &karpv1.NodePool{}, &v1.EC2NodeClass{})
	for _, o := range objects {
		switch o := o.(type) {
		case *karpv1.NodePool:
			b.WithObjects(o)
		case *karpv1.NodeClaim:
			b.WithObjects(o)
		case *v1.EC2NodeClass:
			b.WithObjects(o)
		default:
			c.Put(o)
		}
	}
	c.Client = b.Build()
	return c
}

// Sell says what can be bought for a class from now on. Nil: it is not known yet, as for a class never named.
func (c *Cluster) Sell(class string, catalog *capacity.Catalog) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.catalogs[class] = catalog
}

func (c *Cluster) catalog(class string) *capacity.Catalog {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.catalogs[class]
}

// Put adds or replaces an object that is not one of Karpenter's.
func (c *Cluster) Put(o runtime.Object) {
	if err := c.store(o).Update(o); err != nil {
		panic(fmt.Sprintf("storing a %T: %v", o, err))
	}
}

// Reset replaces all objects that are not Karpenter's.
func (c *Cluster) Reset(objects ...runtime.Object) {
	for _, s := range c.stores {
		for _, o := range s.List() {
			if err := s.Delete(o); err != nil {
				panic(fmt.Sprintf("deleting a %T: %v", o, err))
			}
		}
	}
	for _, o := range objects {
		c.Put(o)
	}
}

// Delete takes such an object out.
func (c *Cluster) Delete(o runtime.Object) {
	if err := c.store(o).Delete(o); err != nil {
		panic(fmt.Sprintf("deleting a %T: %v", o, err))
	}
}

func (c *Cluster) store(o runtime.Object) cache.Indexer {
	s, ok := c.stores[reflect.TypeOf(o)]
	if !ok {
		panic(fmt.Sprintf("a view does not read %T", o))
	}
	return s
}

// Pods lists the pods.
func (c *Cluster) Pods() corelisters.PodLister {
	return corelisters.NewPodLister(c.store(&corev1.Pod{}))
}

// Nodes lists the nodes.
func (c *Cluster) Nodes() corelisters.NodeLister {
	return corelisters.NewNodeLister(c.store(&corev1.Node{}))
}

// Source reads the cluster as it is at the time of each call.
func (c *Cluster) Source() view.Source {
	return view.Source{
		Pods:                   c.Pods(),
		Nodes:                  c.Nodes(),
		Namespaces:             corelisters.NewNamespaceLister(c.store(&corev1.Namespace{})),
		LimitRanges:            corelisters.NewLimitRangeLister(c.store(&corev1.LimitRange{})),
		PersistentVolumes:      corelisters.NewPersistentVolumeLister(c.store(&corev1.PersistentVolume{})),
		PersistentVolumeClaims: corelisters.NewPersistentVolumeClaimLister(c.store(&corev1.PersistentVolumeClaim{})),
		DaemonSets:             appslisters.NewDaemonSetLister(c.store(&appsv1.DaemonSet{})),
		StorageClasses:         storagelisters.NewStorageClassLister(c.store(&storagev1.StorageClass{})),
		CSINodes:               storagelisters.NewCSINodeLister(c.store(&storagev1.CSINode{})),
		RuntimeClasses:         nodelisters.NewRuntimeClassLister(c.store(&nodev1.RuntimeClass{})),
		Karpenter:              c.Client,
		Catalog:                func(class *v1.EC2NodeClass) *capacity.Catalog { return c.catalog(class.Name) },
		Available:              func(k *capacity.Catalog) capacity.Set { return capacity.FullSet(len(k.Offerings)) },
	}
}
