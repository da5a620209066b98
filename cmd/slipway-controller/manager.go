// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"encoding/base64"
	"fmt"
	"net"
	"strconv"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/rest"
	"k8s.io/utils/clock"
	ctrl "sigs.k8s.io/controller-runtime"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	ctrlconfig "sigs.k8s.io/controller-runtime/pkg/config"
	"sigs.k8s.io/controller-runtime/pkg/healthz"
	"sigs.k8s.io/controller-runtime/pkg/manager"
	"sigs.k8s.io/controller-runtime/pkg/metrics"
	"sigs.k8s.io/controller-runtime/pkg/metrics/server"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/cmd/internal/failure"
	"github.com/slipway-sh/slipway/cmd/internal/preflight"
	"github.com/slipway-sh/slipway/cmd/internal/settings"
	"github.com/slipway-sh/slipway/disruption/drain"
	"github.com/slipway-sh/slipway/provisioner/claim"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/interruption"
	"github.com/slipway-sh/slipway/provisioner/nodeclass"
	"github.com/slipway-sh/slipway/provisioner/view"
)

// requestShare is the part of the account's EC2 request budget this process keeps to; the scheduler has the rest.
const requestShare = 0.3

// newManager wires everything the process runs. limits are the time limits of claims, zero for Karpenter's.
func newManager(ctx context.Context, o options, limits claim.Options) (manager.Manager, error) {
	config, err := kubeConfig(o)
	if err != nil {
		return nil, err
	}
	cloud, err := newCloud(ctx, o)
	if err != nil {
		return nil, err
	}
	if err := preflight.Await(ctx, config, needed(), o.StartupTimeout); err != nil {
		return nil, err
	}
	lock, err := newLock(config, o)
	if err != nil {
		return nil, err
	}
	m, err := ctrl.NewManager(config, ctrl.Options{
		Cache: cacheOptions(),
		// Names tell the metrics of controllers apart; that each is there once can be seen here, and tests run several managers.
		Controller:                          ctrlconfig.Controller{SkipNameValidation: new(true)},
		LeaderElection:                      lock != nil,
		LeaderElectionResourceLockInterface: lock,
		LeaderElectionReleaseOnCancel:       true,
		HealthProbeBindAddress:              address(o.BindAddress, o.HealthProbePort),
		Metrics:                             server.Options{BindAddress: address(o.BindAddress, o.MetricsPort)},
	})
	if err != nil {
		return nil, fmt.Errorf("making the controller manager: %w", err)
	}
	if err := m.AddHealthzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	if err := m.AddReadyzCheck("ping", healthz.Ping); err != nil {
		return nil, err
	}
	disrupted, err := addClaims(ctx, m, cloud, limits, karpenter(m, o))
	if err != nil {
		return nil, err
	}
	catalogs, err := newCatalogs(m, cloud)
	if err != nil {
		return nil, err
	}
	if err := addInterruption(ctx, m, catalogs, notices{cloud: cloud, queue: o.InterruptionQueue, disrupted: disrupted}); err != nil {
		return nil, err
	}
	rules, err := newRulebook(m, catalogs)
	if err != nil {
		return nil, err
	}
	return m, addNodeClasses(m, cloud, o, caBundle(o, config), rules)
}

// needed are the rights nothing works without (manifests/install).
func needed() preflight.Needs {
	read := []string{"list", "watch"}
	return preflight.Needs{Rights: []preflight.Right{
		{Group: "karpenter.sh", Resource: "nodepools", Verbs: read},
		{Group: "karpenter.sh", Resource: "nodeclaims", Verbs: read},
		{Group: "karpenter.k8s.aws", Resource: "ec2nodeclasses", Verbs: read},
		{Resource: "pods", Verbs: read},
		{Resource: "nodes", Verbs: read},
	}}
}

func kubeConfig(o options) (*rest.Config, error) {
	config, err := settings.KubeConfig(o.Kubeconfig)
	if err != nil {
		return nil, err
	}
	config.QPS, config.Burst = float32(o.KubeClientQPS), o.KubeClientBurst
	config.UserAgent = "slipway-controller"
	return config, nil
}

func newCloud(ctx context.Context, o options) (*ec2.Client, error) {
	config, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithEC2IMDSRegion())
	if err != nil {
		return nil, failure.Config(err)
	}
	if config.Region == "" {
		return nil, failure.NoRegion()
	}
	if err := failure.Credentials(ctx, config); err != nil {
		return nil, err
	}
	return ec2.New(config, ec2.Options{
		ClusterName: o.ClusterName, Region: config.Region, Endpoint: o.ClusterEndpoint, CA: o.ClusterCABundle,
		VMMemoryOverhead: o.VMMemoryOverheadPercent, ReservedENIs: o.ReservedENIs, IsolatedVPC: o.IsolatedVPC, Pacing: requestShare,
	}), nil
}

// cacheOptions keeps only what is read: no managed fields, and of pods only those on nodes, without what runs in them.
func cacheOptions() cache.Options {
	return cache.Options{
		DefaultTransform: cache.TransformStripManagedFields(),
		ByObject: map[client.Object]cache.ByObject{
			&corev1.Pod{}: {
				Field:     fields.OneTermNotEqualSelector("spec.nodeName", ""),
				Transform: stripPod,
			},
		},
	}
}

// stripPod reduces a pod to what draining a node, and buying one like it, look at.
func stripPod(obj any) (any, error) {
	p, ok := obj.(*corev1.Pod)
	if !ok {
		return obj, nil
	}
	return &corev1.Pod{
		TypeMeta: p.TypeMeta,
		ObjectMeta: metav1.ObjectMeta{
			Name: p.Name, Namespace: p.Namespace, UID: p.UID, ResourceVersion: p.ResourceVersion, Annotations: p.Annotations,
			Labels: p.Labels, OwnerReferences: p.OwnerReferences, Finalizers: p.Finalizers,
			CreationTimestamp: p.CreationTimestamp, DeletionTimestamp: p.DeletionTimestamp,
		},
		Spec: corev1.PodSpec{
			NodeName: p.Spec.NodeName, Tolerations: p.Spec.Tolerations, TerminationGracePeriodSeconds: p.Spec.TerminationGracePeriodSeconds,
			Containers: stripContainers(p.Spec.Containers), InitContainers: stripContainers(p.Spec.InitContainers),
			Overhead: p.Spec.Overhead, Resources: p.Spec.Resources, PriorityClassName: p.Spec.PriorityClassName,
			Volumes: stripVolumes(p.Spec.Volumes), Affinity: stripAffinity(p.Spec.Affinity), TopologySpreadConstraints: stripSpread(p.Spec.TopologySpreadConstraints),
		},
		Status: corev1.PodStatus{Phase: p.Status.Phase, StartTime: p.Status.StartTime, Conditions: stripConditions(p.Status.Conditions)},
	}, nil
}

// stripVolumes keeps those that are attached to a node.
func stripVolumes(in []corev1.Volume) []corev1.Volume {
	var out []corev1.Volume
	for _, v := range in {
		switch {
		case v.PersistentVolumeClaim != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: v.PersistentVolumeClaim}})
		case v.Ephemeral != nil:
			out = append(out, corev1.Volume{Name: v.Name, VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}})
		}
	}
	return out
}

// stripConditions keeps whether the pod is ready.
func stripConditions(in []corev1.PodCondition) []corev1.PodCondition {
	for _, c := range in {
		if c.Type == corev1.PodReady {
			return []corev1.PodCondition{{Type: c.Type, Status: c.Status}}
		}
	}
	return nil
}

// stripContainers keeps what containers ask for.
func stripContainers(in []corev1.Container) []corev1.Container {
	out := make([]corev1.Container, len(in))
	for i, c := range in {
		out[i] = corev1.Container{Name: c.Name, Resources: c.Resources, RestartPolicy: c.RestartPolicy}
		for _, p := range c.Ports {
			if p.HostPort > 0 {
				out[i].Ports = append(out[i].Ports, corev1.ContainerPort{ContainerPort: p.ContainerPort, HostPort: p.HostPort})
			}
		}
	}
	return out
}

// stripSpread keeps that there are rules, not what they say.
func stripSpread(in []corev1.TopologySpreadConstraint) []corev1.TopologySpreadConstraint {
	for _, c := range in {
		if c.WhenUnsatisfiable == corev1.DoNotSchedule {
			return []corev1.TopologySpreadConstraint{{WhenUnsatisfiable: c.WhenUnsatisfiable}}
		}
	}
	return nil
}

// stripAffinity keeps that there are rules that keep pods apart, not what they say.
func stripAffinity(a *corev1.Affinity) *corev1.Affinity {
	if a == nil || a.PodAntiAffinity == nil || len(a.PodAntiAffinity.RequiredDuringSchedulingIgnoredDuringExecution) == 0 {
		return nil
	}
	return &corev1.Affinity{PodAntiAffinity: &corev1.PodAntiAffinity{RequiredDuringSchedulingIgnoredDuringExecution: []corev1.PodAffinityTerm{{}}}}
}

// caBundle is the API server's certificate authority in base64, as Karpenter has it for the hash of node classes: the flag,
// else what this process trusts itself; nil if that is the system's.
func caBundle(o options, config *rest.Config) *string {
	if o.ClusterCABundle != "" {
		return &o.ClusterCABundle
	}
	config = rest.CopyConfig(config)
	if err := rest.LoadTLSFiles(config); err != nil || len(config.CAData) == 0 {
		return nil
	}
	return new(base64.StdEncoding.EncodeToString(config.CAData))
}

// address joins host and port; port 0 means no listener, which is also "0" to the manager.
func address(host string, port int) string {
	if port == 0 {
		return "0"
	}
	return net.JoinHostPort(host, strconv.Itoa(port))
}

// karpenter tells whether Karpenter acts in the cluster: it may hold its lease in another namespace than this process does. Nil
// if its lease has no name, and so cannot be looked for.
func karpenter(m manager.Manager, o options) claim.Rival {
	if o.LeaderElectionName == "" {
		return nil
	}
	return &view.Lease{Live: m.GetAPIReader(), Name: o.LeaderElectionName, Clock: clock.RealClock{}}
}

// addClaims adds what looks after NodeClaims, Nodes and instances without either, and returns the counter of deleted claims.
func addClaims(ctx context.Context, m manager.Manager, cloud *ec2.Client, opts claim.Options, rival claim.Rival) (disrupted *prometheus.CounterVec, err error) {
	if err := claim.AddIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, err
	}
	measured := claim.NewMetrics()
	metrics.Registry.MustRegister(measured.Collectors()...)
	opts.Kube, opts.Live, opts.Cloud = m.GetClient(), m.GetAPIReader(), claim.Batch(cloud, clock.RealClock{})
	opts.Events, opts.Metrics = m.GetEventRecorder("karpenter"), measured
	if opts.Drainer, err = newDrainer(ctx, m); err != nil {
		return nil, err
	}
	if err := claim.New(opts).SetupWithManager(m); err != nil {
		return nil, fmt.Errorf("adding the NodeClaim reconciler: %w", err)
	}
	if err := claim.NewNode(opts).SetupWithManager(m); err != nil {
		return nil, fmt.Errorf("adding the Node reconciler: %w", err)
	}
	if err := m.Add(claim.NewCollector(opts, cloud, rival)); err != nil {
		return nil, fmt.Errorf("adding the collector: %w", err)
	}
	return measured.ClaimsDisrupted, nil
}

// newDrainer makes what takes pods off nodes, and adds what it does by itself.
func newDrainer(ctx context.Context, m manager.Manager) (*drain.Drainer, error) {
	if err := drain.AddIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return nil, err
	}
	measured := drain.NewMetrics()
	metrics.Registry.MustRegister(measured.Collectors()...)
	d := drain.New(drain.Options{Kube: m.GetClient(), Live: m.GetAPIReader(), Events: m.GetEventRecorder("karpenter"), Metrics: measured})
	if err := m.Add(d); err != nil {
		return nil, fmt.Errorf("adding the drainer: %w", err)
	}
	return d, nil
}

// notices are where AWS says what happens to instances, and what counts the nodes that go for it.
type notices struct {
	cloud     *ec2.Client
	queue     string // its name, may be empty
	disrupted *prometheus.CounterVec
}

// addInterruption adds what reacts to notices of AWS. Without a queue's name only instance status is looked at.
func addInterruption(ctx context.Context, m manager.Manager, catalogs *ec2.Catalogs, n notices) error {
	if err := interruption.AddIndexes(ctx, m.GetFieldIndexer()); err != nil {
		return err
	}
	// Notices come in crowds, and a replacement is worth nothing if it waits for the client's rate limit.
	config := rest.CopyConfig(m.GetConfig())
	config.QPS = -1
	kube, err := client.New(config, client.Options{Scheme: m.GetScheme(), Mapper: m.GetRESTMapper(), Cache: &client.CacheOptions{Reader: m.GetCache()}})
	if err != nil {
		return fmt.Errorf("making the client of the interruption controller: %w", err)
	}
	measured := interruption.NewMetrics()
	metrics.Registry.MustRegister(measured.Collectors()...)
	reactor := interruption.New(interruption.Options{
		Kube: kube, Events: m.GetEventRecorder("karpenter"), Catalogs: catalogs, Disrupted: n.disrupted, Metrics: measured,
	})
	if err := m.Add(interruption.NewPoller(reactor, n.cloud)); err != nil {
		return fmt.Errorf("adding the instance status poller: %w", err)
	}
	if err := m.Add(interruption.NewBlockWatcher(reactor, n.cloud)); err != nil {
		return fmt.Errorf("adding what watches the ends of capacity blocks: %w", err)
	}
	if n.queue == "" {
		return nil
	}
	open := func(ctx context.Context) (interruption.Queue, error) { return n.cloud.Queue(ctx, n.queue) }
	if err := m.Add(interruption.NewConsumer(reactor, open)); err != nil {
		return fmt.Errorf("adding the interruption queue: %w", err)
	}
	return nil
}

// newRulebook makes what judges pools and classes by the rules of admission.
func newRulebook(m manager.Manager, catalogs *ec2.Catalogs) (*nodeclass.Rulebook, error) {
	if err := v1alpha1.AddToScheme(m.GetScheme()); err != nil {
		return nil, fmt.Errorf("registering WorkloadPolicy: %w", err)
	}
	return &nodeclass.Rulebook{Live: m.GetAPIReader(), Catalog: catalogs.For, Clock: clock.RealClock{}}, nil
}

// addNodeClasses adds what looks after EC2NodeClasses and NodePools.
func addNodeClasses(m manager.Manager, cloud *ec2.Client, o options, ca *string, rules *nodeclass.Rulebook) error {
	classes := &nodeclass.ClassReconciler{
		Kube: m.GetClient(), Network: cloud, Images: cloud, Profiles: cloud, Templates: cloud, Reserved: cloud,
		Events: m.GetEventRecorder("karpenter"), Clock: clock.RealClock{}, Live: m.GetAPIReader(), CABundle: ca, Rules: rules,
	}
	switch {
	case o.DisableDryRun:
	case o.DryRunByScheduler:
		classes.LaunchesElsewhere = true
	default:
		classes.Launches = cloud
	}
	if err := classes.SetupWithManager(m); err != nil {
		return fmt.Errorf("adding the EC2NodeClass reconciler: %w", err)
	}
	if err := m.Add(&nodeclass.ProfileCollector{Live: m.GetAPIReader(), Store: cloud, Clock: clock.RealClock{}}); err != nil {
		return fmt.Errorf("adding the collector of instance profiles: %w", err)
	}
	if err := (&nodeclass.ObserveReconciler{Kube: m.GetClient()}).SetupWithManager(m); err != nil {
		return fmt.Errorf("adding the reconciler of observed capacity: %w", err)
	}
	pools := &nodeclass.PoolReconciler{Kube: m.GetClient(), Events: m.GetEventRecorder("karpenter"), Clock: clock.RealClock{}, Rules: rules}
	if err := pools.SetupWithManager(m); err != nil {
		return fmt.Errorf("adding the NodePool reconciler: %w", err)
	}
	return nil
}
