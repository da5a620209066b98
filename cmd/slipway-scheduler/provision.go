// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	awsconfig "github.com/aws/aws-sdk-go-v2/config"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/wait"
	toolscache "k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2"
	schedulerconfig "k8s.io/kubernetes/cmd/kube-scheduler/app/config"
	kubescheduler "k8s.io/kubernetes/pkg/scheduler"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/cmd/internal/failure"
	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/provisioner/demand"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/nodeclass"
	"github.com/slipway-sh/slipway/provisioner/view"
	"github.com/slipway-sh/slipway/scheduler"
	"github.com/slipway-sh/slipway/webhook/predict"
	"github.com/slipway-sh/slipway/webhook/snapshot"
)

// requestShare is the part of the account's EC2 request budget this process keeps to; the controller has the rest.
const requestShare = 0.7

// maxBatch closes a batch by size: about what is planned in the time the debounce of a larger one would cost.
const maxBatch = 5000

// lateSink stands in for the provisioner until it exists: the scheduler builds its plugins first.
type lateSink struct {
	p atomic.Pointer[provisioner.Provisioner]
}

func (s *lateSink) bind(p *provisioner.Provisioner) { s.p.Store(p) }

// Offer implements scheduler.Sink.
func (s *lateSink) Offer(pod *corev1.Pod, taken func(node string) bool) (parked bool, node string) {
	if p := s.p.Load(); p != nil {
		return p.Offer(pod, taken)
	}
	return false, ""
}

// OfferGroup implements scheduler.GroupSink.
func (s *lateSink) OfferGroup(group types.NamespacedName, least int, domain string, scheduled, pods []*corev1.Pod) bool {
	p := s.p.Load()
	return p != nil && p.OfferGroup(group, least, domain, scheduled, pods)
}

// Kept implements scheduler.Reservations.
func (s *lateSink) Kept() sets.Set[string] {
	if p := s.p.Load(); p != nil {
		return p.Kept()
	}
	return nil
}

// Against implements scheduler.Reservations.
func (s *lateSink) Against(pod *corev1.Pod, node string) []*corev1.Pod {
	if p := s.p.Load(); p != nil {
		return p.Against(pod, node)
	}
	return nil
}

// dependencies are what the provisioner is built from.
type dependencies struct {
	config    *schedulerconfig.CompletedConfig
	scheduler *kubescheduler.Scheduler
	gate      *scheduler.Gate
	options   slipwayOptions
	// live reads from the API server and not from a cache.
	live client.Client
	// rival is who else acts on classes of karpenter.k8s.aws; nil if nobody ever does.
	rival *rival
	// foretold says what admission makes of pods that do not exist yet; nil if slipway-webhook is not installed.
	foretold *predict.Predictor
}

// startProvisioner builds the provisioner and everything below it and starts their loops. What acts on the cluster waits
// until this process leads.
func startProvisioner(ctx context.Context, d dependencies) (*provisioner.Provisioner, *launch.Launcher, error) {
	log.SetLogger(klog.FromContext(ctx))
	ctx = log.IntoContext(ctx, klog.FromContext(ctx).WithName("slipway"))
	// 1. The cluster.
	kube, objects, err := newClient(d.config.KubeConfig)
	if err != nil {
		return nil, nil, err
	}
	if d.live, err = newLive(d.config.KubeConfig); err != nil {
		return nil, nil, err
	}
	d.rival = newRival(d.live, d.options.karpenterLease)
	// 2. The cloud.
	cloud, err := newCloud(ctx, d.options)
	if err != nil {
		return nil, nil, err
	}
	catalogs, err := ec2.NewCatalogs(cloud)
	if err != nil {
		return nil, nil, err
	}
	shortages := ec2.NewShortages(clock.RealClock{})
	// 3. The provisioner, and the launcher that reports to it.
	slots := ec2.NewSlots(cloud, shortages, clock.RealClock{})
	if d.foretold, err = newPredictor(ctx, d, objects); err != nil {
		return nil, nil, err
	}
	prov, err := newProvisioner(ctx, d, kube, market{catalogs, shortages, slots})
	if err != nil {
		return nil, nil, err
	}
	templates := launch.NewTemplates(kube, cloud, cloud, clock.RealClock{})
	subnets := launch.NewSubnets(cloud, kube, clock.RealClock{})
	tagger := launch.NewTagger(cloud)
	launches := launch.NewMetrics()
	launcher := launch.New(launch.Options{
		Kube: kube, Live: d.live, Cloud: cloud, Catalogs: catalogs, Shortages: shortages, Templates: templates, Subnets: subnets, Slots: slots, Tagger: tagger,
		Reporter: prov, Events: d.config.EventBroadcaster.NewRecorder("slipway"), Metrics: launches,
		ClusterName: cloud.ClusterName(), Region: cloud.Region(), Rival: d.rival.last(),
	})
	prov.Launcher = launcher
	for _, c := range slices.Concat(launches.Collectors(), prov.Metrics.Collectors(), catalogs.Metrics.Collectors()) {
		if err := register(c); err != nil {
			return nil, nil, err
		}
	}
	// 4. Watches and loops.
	classes, err := watch(ctx, d, prov, objects)
	if err != nil {
		return nil, nil, err
	}
	disrupt, err := newDisruption(ctx, d, prov, cloud, objects)
	if err != nil {
		return nil, nil, err
	}
	if err := prepare(ctx, catalogs, classes); err != nil {
		return nil, nil, err
	}
	go func() { fatal(ctx, "cache of NodePools, NodeClaims and EC2NodeClasses", objects.Start(ctx)) }()
	go func() { fatal(ctx, "catalogues", catalogs.Run(ctx)) }()
	go announce(ctx, catalogs, prov, kube)
	acting := leaderLoops{
		kube: kube, objects: objects, templates: templates, subnets: subnets, slots: slots, tagger: tagger, shortages: shortages,
		launcher: launcher, prov: prov, rival: d.rival, cloud: cloud, checker: newChecker(d.options, kube, cloud),
	}
	if !d.options.disableDisruption {
		acting.disrupt = disrupt
	}
	go acting.run(ctx)
	go publish(ctx, d, kube, catalogs, prov)
	return prov, launcher, nil
}

// newChecker makes what asks EC2 whether this process may launch, nil if the controller asks.
func newChecker(o slipwayOptions, kube client.Client, cloud *ec2.Client) *nodeclass.LaunchChecker {
	if !o.dryRun {
		return nil
	}
	return &nodeclass.LaunchChecker{Kube: kube, Launches: cloud, Clock: clock.RealClock{}}
}

// newCloud reads the AWS configuration of the environment.
func newCloud(ctx context.Context, o slipwayOptions) (*ec2.Client, error) {
	aws, err := awsconfig.LoadDefaultConfig(ctx, awsconfig.WithEC2IMDSRegion())
	if err != nil {
		return nil, failure.Config(err)
	}
	if aws.Region == "" {
		return nil, failure.NoRegion()
	}
	return ec2.New(aws, ec2.Options{
		ClusterName: o.clusterName, Region: aws.Region, Endpoint: o.clusterEndpoint, CA: o.clusterCABundle,
		VMMemoryOverhead: o.vmMemoryOverhead, ReservedENIs: o.reservedENIs, IsolatedVPC: o.isolatedVPC, Pacing: requestShare,
	}), nil
}

// publish writes what can be bought for slipway-webhook, if that is wanted, once this process leads.
func publish(ctx context.Context, d dependencies, kube client.Reader, catalogs *ec2.Catalogs, prov *provisioner.Provisioner) {
	if d.options.catalogNamespace == "" || !prov.AwaitLead(ctx) {
		return
	}
	p := &snapshot.Publisher{
		Kube: d.config.Client, Classes: kube, Catalog: catalogs.For, Namespace: d.options.catalogNamespace, Clock: clock.RealClock{}, Log: log.FromContext(ctx),
	}
	p.Run(ctx)
}

// market is what can be bought, and what there is none of.
type market struct {
	catalogs  *ec2.Catalogs
	shortages *ec2.Shortages
	slots     *ec2.Slots
}

func newProvisioner(ctx context.Context, d dependencies, kube client.Client, m market) (*provisioner.Provisioner, error) {
	nominator, err := scheduler.NewNominator(d.scheduler)
	if err != nil {
		return nil, err
	}
	args, err := profileArgs(d.config)
	if err != nil {
		return nil, err
	}
	for _, p := range d.config.ComponentConfig.Profiles {
		if slices.Contains(d.options.serveSchedulers, p.SchedulerName) {
			return nil, fmt.Errorf("--serve-schedulers: %q is a profile of this process, whose pods need no serving", p.SchedulerName)
		}
	}
	judge, err := newJudge(ctx, d)
	if err != nil {
		return nil, err
	}
	factory := d.config.InformerFactory
	if err := factory.Core().V1().Pods().Informer().AddIndexers(demand.Indexers()); err != nil {
		return nil, fmt.Errorf("indexing pods by owner: %w", err)
	}
	owners := &demand.Owners{
		Pods: factory.Core().V1().Pods().Informer().GetIndexer(), ReplicaSets: factory.Apps().V1().ReplicaSets().Lister(),
		StatefulSets: factory.Apps().V1().StatefulSets().Lister(), Jobs: factory.Batch().V1().Jobs().Lister(),
		Quotas: factory.Core().V1().ResourceQuotas().Lister(), Scales: demand.NewScales(scaleReader{kube}, clock.RealClock{}),
	}
	buffers := &demand.Buffers{Kube: d.live, Clock: clock.RealClock{}}
	core, storage := d.config.InformerFactory.Core().V1(), d.config.InformerFactory.Storage().V1()
	var admission view.Admission
	if d.foretold != nil {
		admission = d.foretold
	}
	return provisioner.New(provisioner.Options{
		Kube: kube,
		Live: d.live,
		Pods: core.Pods().Lister(),
		Views: view.New(view.Source{
			Pods: core.Pods().Lister(), Nodes: core.Nodes().Lister(), Namespaces: core.Namespaces().Lister(), LimitRanges: core.LimitRanges().Lister(),
			PersistentVolumes: core.PersistentVolumes().Lister(), PersistentVolumeClaims: core.PersistentVolumeClaims().Lister(),
			DaemonSets: d.config.InformerFactory.Apps().V1().DaemonSets().Lister(), StorageClasses: storage.StorageClasses().Lister(),
			CSINodes: storage.CSINodes().Lister(), RuntimeClasses: d.config.InformerFactory.Node().V1().RuntimeClasses().Lister(),
			Admission: admission, Karpenter: kube, Rival: d.rival.last(), Catalog: m.catalogs.For, Available: m.shortages.Available,
			Reserved: func(reservation string) int { return int(m.slots.Free(reservation)) },
		}),
		Gate: d.gate, Nominator: nominator, Judge: judge, Owners: owners, LookAhead: int(*args.LookAhead), Buffers: buffers,
		Serve: sets.New(d.options.serveSchedulers...), Events: d.config.EventBroadcaster.NewRecorder("slipway"),
		Clock: clock.RealClock{}, Metrics: provisioner.NewMetrics(), Logger: log.FromContext(ctx),
		Batch: demand.Options{Debounce: args.BatchDebounce.Duration, MaxAge: args.BatchMax.Duration, MaxSize: maxBatch, Look: int(*args.EarlyLaunch)},
	}), nil
}

// profileArgs returns the arguments of the first profile that enables the plugin; the provisioner is one for all of them.
func profileArgs(cc *schedulerconfig.CompletedConfig) (*scheduler.SlipwayArgs, error) {
	for _, p := range cc.ComponentConfig.Profiles {
		if args, enabled, err := scheduler.ArgsOf(p); err != nil || enabled {
			return args, err
		}
	}
	return nil, fmt.Errorf("no profile of the scheduler configuration enables plugin %q", scheduler.Name)
}

// watch connects the provisioner with its informers and returns the one of EC2NodeClasses.
func watch(ctx context.Context, d dependencies, prov *provisioner.Provisioner, objects cache.Cache) (cache.Informer, error) {
	core := d.config.InformerFactory.Core().V1()
	in := provisioner.Informers{
		Pods: core.Pods().Informer(), Nodes: core.Nodes().Informer(), NodeLister: core.Nodes().Lister(),
		Namespaces: core.Namespaces().Informer(), CSINodes: d.config.InformerFactory.Storage().V1().CSINodes().Informer(),
	}
	var err error
	if in.Claims, err = objects.GetInformer(ctx, &karpv1.NodeClaim{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watching NodeClaims: %w", err)
	}
	if in.Pools, err = objects.GetInformer(ctx, &karpv1.NodePool{}, cache.BlockUntilSynced(false)); err != nil {
		return nil, fmt.Errorf("watching NodePools: %w", err)
	}
	classes, err := objects.GetInformer(ctx, &v1.EC2NodeClass{}, cache.BlockUntilSynced(false))
	if err != nil {
		return nil, fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	in.NodeClass = classes
	return classes, prov.Watch(ctx, in)
}

// reservations are the ids of the capacity reservations of all classes.
func reservations(ctx context.Context, kube client.Reader) []string {
	var classes v1.EC2NodeClassList
	if err := kube.List(ctx, &classes, client.UnsafeDisableDeepCopy); err != nil {
		klog.FromContext(ctx).Info("Capacity reservations are not counted this time", "reason", err.Error())
		return nil
	}
	var out []string
	for i := range classes.Items {
		for _, r := range classes.Items[i].Status.CapacityReservations {
			out = append(out, r.ID)
		}
	}
	return out
}

// prepare builds the catalogue of every class when the class changes, a tenth of a second's work that the first pod would
// wait for otherwise.
func prepare(ctx context.Context, catalogs *ec2.Catalogs, classes cache.Informer) error {
	build := func(obj any) {
		if class, ok := obj.(*v1.EC2NodeClass); ok && ctx.Err() == nil {
			catalogs.For(class)
		}
	}
	_, err := classes.AddEventHandler(toolscache.ResourceEventHandlerFuncs{AddFunc: build, UpdateFunc: func(_, obj any) { build(obj) }})
	if err != nil {
		return fmt.Errorf("watching EC2NodeClasses: %w", err)
	}
	return nil
}

// announce builds the first catalogues as soon as that is possible and tells the provisioner.
func announce(ctx context.Context, catalogs *ec2.Catalogs, prov *provisioner.Provisioner, kube client.Reader) {
	for !catalogs.Complete() {
		select {
		case <-ctx.Done():
			return
		case <-time.After(50 * time.Millisecond):
		}
	}
	var classes v1.EC2NodeClassList
	if err := kube.List(ctx, &classes); err != nil {
		klog.FromContext(ctx).Info("Catalogues will be built when they are asked for", "reason", err.Error())
	}
	for i := range classes.Items {
		catalogs.For(&classes.Items[i])
	}
	prov.Changed()
}

// retryReturned has pods without a place planned again when EC2 may have again what it was out of.
func retryReturned(ctx context.Context, shortages *ec2.Shortages, prov *provisioner.Provisioner) {
	before := shortages.Returned()
	wait.UntilWithContext(ctx, func(context.Context) {
		if now := shortages.Returned(); now != before {
			before = now
			prov.Changed()
		}
	}, time.Second)
}

func register(c prometheus.Collector) error {
	if err := legacyregistry.Registerer().Register(c); err != nil {
		return fmt.Errorf("registering metrics: %w", err)
	}
	return nil
}

// fatal ends the process when a loop that has to run for ever ends with an error: a scheduler without its provisioner
// would look healthy and buy nothing. The next leader takes over.
func fatal(ctx context.Context, what string, err error) {
	if err != nil && ctx.Err() == nil {
		klog.FromContext(ctx).Error(err, "A loop has ended that must not", "loop", what)
		klog.FlushAndExit(klog.ExitFlushTimeout, 1)
	}
}
