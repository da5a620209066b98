// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr"
	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

// cloud is EC2 as far as launches see it: client tokens are honoured, tags are kept, and a script may answer in its place.
type cloud struct {
	mu        sync.Mutex
	sent      []ec2.FleetRequest
	calls     map[string]call
	instances []ec2.Instance
	described int
	// script answers the n-th call (from 0) if it returns true. launch carries the request out.
	script func(n int, req ec2.FleetRequest, launch func(count int32) ec2.FleetResult) (ec2.FleetResult, error, bool)
	// hide makes the first Describe calls not know fresh instances; late makes as many DescribeByTag calls find nothing.
	hide, late int
}

type call struct {
	req    ec2.FleetRequest
	result ec2.FleetResult
}

func (c *cloud) Fleet(ctx context.Context, req ec2.FleetRequest) (ec2.FleetResult, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if ctx.Err() != nil {
		return ec2.FleetResult{}, failure(capacity.Unavailable, "")
	}
	n := len(c.sent)
	c.sent = append(c.sent, req)
	if done, ok := c.calls[req.Token]; ok {
		if !cmp.Equal(done.req, req) {
			return ec2.FleetResult{}, failure(capacity.Conflict, "IdempotentParameterMismatch")
		}
		return done.result, nil
	}
	launch := func(count int32) ec2.FleetResult {
		result := c.launch(req, count)
		c.calls[req.Token] = call{req, result}
		return result
	}
	if c.script != nil {
		if result, err, ok := c.script(n, req, launch); ok {
			if err == nil {
				c.calls[req.Token] = call{req, result}
			}
			return result, err
		}
	}
	return launch(req.Count), nil
}

func (c *cloud) launch(req ec2.FleetRequest, count int32) ec2.FleetResult {
	var out ec2.FleetResult
	o := req.Overrides[0]
	for range count {
		id := fmt.Sprintf("i-%03d", len(c.instances)+1)
		c.instances = append(c.instances, ec2.Instance{
			ID: id, InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: req.CapacityType, State: "pending",
			PrivateDNSName: id + ".ec2.internal", ImageID: o.ImageID, SubnetID: o.SubnetID, Tags: req.Tags, Reservation: reservationOf(o),
		})
		out.Instances = append(out.Instances, ec2.FleetInstance{
			ID: id, InstanceType: o.InstanceType, Zone: o.Zone, CapacityType: req.CapacityType, SubnetID: o.SubnetID, ImageID: o.ImageID, ReservationID: o.ReservationID,
		})
	}
	slices.Reverse(out.Instances) // EC2 promises no order
	return out
}

func reservationOf(o ec2.FleetOverride) *ec2.ReservationRef {
	if o.ReservationID == "" {
		return nil
	}
	return &ec2.ReservationRef{ID: o.ReservationID}
}

func (c *cloud) Describe(_ context.Context, ids []string) ([]ec2.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.described++
	if c.described <= c.hide {
		return nil, failure(capacity.NotFound, "InvalidInstanceID.NotFound")
	}
	return c.where(func(i ec2.Instance) bool { return slices.Contains(ids, i.ID) }), nil
}

func (c *cloud) DescribeByTag(_ context.Context, key string, values []string) ([]ec2.Instance, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.late > 0 {
		c.late--
		return nil, nil
	}
	return c.where(func(i ec2.Instance) bool { return slices.Contains(values, i.Tags[key]) }), nil
}

func (c *cloud) where(keep func(ec2.Instance) bool) []ec2.Instance {
	var out []ec2.Instance
	for _, i := range c.instances {
		if keep(i) {
			out = append(out, i)
		}
	}
	return out
}

func failure(k capacity.Kind, code string, keys ...capacity.OfferingKey) *capacity.Error {
	return &capacity.Error{Kind: k, Code: code, Offerings: keys, Err: fmt.Errorf("%s %s", k, code)}
}

// shortages remembers for good.
type shortages struct {
	mu  sync.Mutex
	out map[capacity.OfferingKey]bool
}

func (s *shortages) Mark(keys ...capacity.OfferingKey) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range keys {
		s.out[k] = true
	}
}

func (s *shortages) Out(k capacity.OfferingKey) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.out[k]
}

type catalogs struct{ catalog *capacity.Catalog }

func (c catalogs) For(*v1.EC2NodeClass) *capacity.Catalog { return c.catalog }

// reports collects outcomes.
type reports struct {
	mu    sync.Mutex
	all   []Outcome
	found func(claim, providerID, nodeName string)
}

func (r *reports) Found(claim, providerID, nodeName string) {
	if r.found != nil {
		r.found(claim, providerID, nodeName)
	}
}

func (r *reports) Report(o Outcome) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.all = append(r.all, o)
}

func (r *reports) list() []Outcome {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.SortedStableFunc(slices.Values(r.all), func(a, b Outcome) int { return strings.Compare(a.Claim.Name, b.Claim.Name) })
}

// store is EC2's launch templates.
type store struct {
	mu      sync.Mutex
	made    []ec2.Template
	deleted []string
	listed  []ec2.StoredTemplate
	fail    func(t ec2.Template) error
	wait    func(t ec2.Template) // before a template is made
}

func (s *store) EnsureTemplate(_ context.Context, t ec2.Template) error {
	if s.wait != nil {
		s.wait(t)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fail != nil {
		if err := s.fail(t); err != nil {
			return err
		}
	}
	s.made = append(s.made, t)
	return nil
}

func (s *store) DeleteTemplate(_ context.Context, name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.deleted = append(s.deleted, name)
	return nil
}

// removed are the templates deleted so far.
func (s *store) removed() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.deleted)
}

func (s *store) Templates(context.Context) ([]ec2.StoredTemplate, error) { return s.listed, nil }

type eks struct{}

func (eks) Cluster(context.Context) (ec2.Cluster, error) {
	return ec2.Cluster{Name: "demo", Version: "1.37", Endpoint: "https://api", CA: "Y2E=", ServiceCIDR: "10.100.0.0/16"}, nil
}

type finder func() ([]ec2.Subnet, error)

func (f finder) Subnets(context.Context, []v1.SubnetSelectorTerm) ([]ec2.Subnet, error) { return f() }

type events struct {
	mu      sync.Mutex
	reasons []string
}

func (e *events) Eventf(_, _ runtime.Object, _, reason, _, _ string, _ ...any) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.reasons = append(e.reasons, reason)
}

// rig is a launcher with everything around it. Its catalogue has m5.large (spot 0.04, on-demand 0.096), m6g.large (arm64, spot
// 0.03, on-demand 0.077) and g5.xlarge (a GPU, on-demand 1.0) in us-east-1a and b.
type rig struct {
	*Launcher
	kube    client.Client
	cloud   *cloud
	out     *shortages
	reports *reports
	store   *store
	events  *events
}

func newRig(kube client.Client, ec2side *cloud) *rig {
	r := &rig{kube: kube, cloud: ec2side, out: &shortages{out: map[capacity.OfferingKey]bool{}}, reports: &reports{}, store: &store{}, events: &events{}}
	clk := clock.RealClock{}
	r.Launcher = New(Options{
		Kube: kube, Cloud: ec2side, Catalogs: catalogs{testCatalog()}, Shortages: r.out,
		Templates: NewTemplates(kube, r.store, eks{}, clk),
		Subnets:   NewSubnets(finder(func() ([]ec2.Subnet, error) { return nil, nil }), kube, clk),
		Reporter:  r.reports, Events: r.events, Clock: clk, ClusterName: "demo", Region: "us-east-1",
	})
	return r
}

func testCatalog() *capacity.Catalog {
	zones := []string{"us-east-1a", "us-east-1b"}
	return builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Spot(0.04, zones...).OnDemand(0.096, zones...),
		builder.InstanceType("m6g.large").Arch("arm64").CPU("2").Memory("8Gi").Spot(0.03, zones...).OnDemand(0.077, zones...),
		builder.InstanceType("g5.xlarge").CPU("4").Memory("16Gi").Resource(v1.ResourceNVIDIAGPU, "1").OnDemand(1.0, zones...),
	)
}

func newCloud() *cloud { return &cloud{calls: map[string]call{}} }

func newKube(t *testing.T, objects ...client.Object) client.Client {
	t.Helper()
	objects = append(objects, builder.NodePool("default").NodeLabel("team", "a").Obj())
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithStatusSubresource(&karpv1.NodeClaim{}, &v1.EC2NodeClass{}).Build()
}

func readyClass() *v1.EC2NodeClass {
	return builder.EC2NodeClass(builder.DefaultClass).UID("class").Ready().Obj()
}

// create writes claims and returns them as the API server would.
func create(t *testing.T, kube client.Client, claims ...*karpv1.NodeClaim) []*karpv1.NodeClaim {
	t.Helper()
	for _, c := range claims {
		if err := kube.Create(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	return claims
}

// claims builds n claims; with a group they share a launch.
func claims(n int, group string) []*karpv1.NodeClaim {
	var out []*karpv1.NodeClaim
	for i := range n {
		name := fmt.Sprintf("claim-%d", i)
		b := builder.NodeClaim(name).UID("uid-"+name).Pool("default").Label("team", "a").Created(time.Now()).Request("cpu", "1")
		if group != "" {
			b.Annotation(LaunchGroupAnnotation, group)
		}
		out = append(out, b.Obj())
	}
	return out
}

func get(t *testing.T, kube client.Client, name string) *karpv1.NodeClaim {
	t.Helper()
	c := &karpv1.NodeClaim{}
	if err := kube.Get(t.Context(), client.ObjectKey{Name: name}, c); err != nil {
		t.Fatal(err)
	}
	return c
}

// quiet is a context without logging.
func quiet(ctx context.Context) context.Context { return logr.NewContext(ctx, logr.Discard()) }

func tokens(sent []ec2.FleetRequest) []string {
	var out []string
	for _, r := range sent {
		out = append(out, fmt.Sprintf("%s×%d", r.Token, r.Count))
	}
	return out
}
