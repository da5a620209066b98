// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/awslabs/operatorpkg/status"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/test/ec2emu"
)

// zones the account has subnets in: all of the region.
func zones() []string {
	return []string{"us-east-1a", "us-east-1b", "us-east-1c", "us-east-1d", "us-east-1e", "us-east-1f"}
}

// world is an account, the product's client of it, and a node class that is resolved and ready.
type world struct {
	emu      *ec2emu.Emulator
	cloud    *ec2.Client
	catalogs *ec2.Catalogs
	class    *v1.EC2NodeClass
	wire     *wire
}

// wire notes when CreateFleet requests leave the SDK and when their answers have come.
type wire struct {
	next aws.HTTPClient

	mu     sync.Mutex
	fleets []exchange
}

type exchange struct{ sent, answered time.Time }

// Do implements aws.HTTPClient.
func (w *wire) Do(r *http.Request) (*http.Response, error) {
	if r.Body == nil {
		return w.next.Do(r)
	}
	sent := time.Now()
	form, err := io.ReadAll(r.Body)
	if err != nil {
		return nil, err
	}
	r.Body = io.NopCloser(bytes.NewReader(form))
	out, err := w.next.Do(r)
	if bytes.Contains(form, []byte("Action=CreateFleet&")) {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.fleets = append(w.fleets, exchange{sent, time.Now()})
	}
	return out, err
}

// take returns what was noted since it was last asked.
func (w *wire) take() []exchange {
	w.mu.Lock()
	defer w.mu.Unlock()
	out := w.fleets
	w.fleets = nil
	return out
}

// newWorld starts an account. The class and the catalogue are ready when it returns. Only where the account throttles do
// the product's calls keep to EC2's buckets.
func newWorld(ctx context.Context, o ec2emu.Options) (_ *world, err error) {
	o.Seed, o.Zones, o.InstantBoot = 1, zones(), true
	for i, z := range o.Zones {
		o.Subnets = append(o.Subnets, ec2emu.Subnet{
			ID: fmt.Sprintf("subnet-0bench0000000000%d", i), Zone: z, CIDR: fmt.Sprintf("10.0.%d.0/19", 32*i),
			Tags: map[string]string{"karpenter.sh/discovery": "demo"},
		})
	}
	o.ClusterEndpoint, o.ClusterCA = "https://127.0.0.1:6443", []byte("-----BEGIN CERTIFICATE-----\nAA==\n-----END CERTIFICATE-----\n")
	w := &world{}
	if w.emu, err = ec2emu.Start(ctx, o); err != nil {
		return nil, err
	}
	pacing := 0.0
	if o.Throttle {
		pacing = 1
	}
	config := w.emu.AWSConfig()
	w.wire = &wire{next: config.HTTPClient}
	config.HTTPClient = w.wire
	w.cloud = ec2.New(config, ec2.Options{ClusterName: "demo", Pacing: pacing})
	if w.catalogs, err = ec2.NewCatalogs(w.cloud); err != nil {
		return nil, err
	}
	if err := w.resolve(ctx); err != nil {
		return nil, err
	}
	if err := w.catalogs.Refresh(ctx); err != nil {
		return nil, err
	}
	if w.catalogs.For(w.class) == nil {
		return nil, fmt.Errorf("there is no catalogue for the class")
	}
	return w, nil
}

// resolve fills in the class's status from what the account has, as the controller does.
func (w *world) resolve(ctx context.Context) error {
	class := builder.EC2NodeClass(builder.DefaultClass).UID("class").Ready().Obj()
	class.ResourceVersion = "1"
	class.Status.Subnets, class.Status.SecurityGroups, class.Status.AMIs = nil, nil, nil
	subnets, err := w.cloud.Subnets(ctx, class.Spec.SubnetSelectorTerms)
	if err != nil {
		return err
	}
	for _, s := range subnets {
		class.Status.Subnets = append(class.Status.Subnets, v1.Subnet{ID: s.ID, Zone: s.Zone, ZoneID: s.ZoneID})
	}
	groups, err := w.cloud.SecurityGroups(ctx, class.Spec.SecurityGroupSelectorTerms)
	if err != nil {
		return err
	}
	for _, g := range groups {
		class.Status.SecurityGroups = append(class.Status.SecurityGroups, v1.SecurityGroup{ID: g.ID, Name: g.Name})
	}
	images, err := w.cloud.Images(ctx, class)
	if err != nil {
		return err
	}
	for _, i := range images {
		class.Status.AMIs = append(class.Status.AMIs, v1.AMI{ID: i.ID, Name: i.Name, Requirements: i.Requirements})
	}
	if class.Status.InstanceProfile, err = w.cloud.EnsureInstanceProfile(ctx, class); err != nil {
		return err
	}
	if len(subnets) == 0 || len(groups) == 0 || len(images) == 0 || !class.StatusConditions().Get(status.ConditionReady).IsTrue() {
		return fmt.Errorf("the class resolves to %d subnets, %d groups and %d images", len(subnets), len(groups), len(images))
	}
	w.class = class
	return nil
}

// rig is a launcher against the account.
type rig struct {
	*launch.Launcher
	kube      *memory
	templates *launch.Templates
	shortages *ec2.Shortages
	outcomes  chan launch.Outcome
}

// Found implements launch.Reporter.
func (*rig) Found(_, _, _ string) {}

// Report implements launch.Reporter.
func (r *rig) Report(o launch.Outcome) { r.outcomes <- o }

// launcher builds a launcher with a memory of its own.
func (w *world) launcher(pools ...*karpv1.NodePool) *rig {
	r := &rig{kube: newMemory(w.class, pools...), shortages: ec2.NewShortages(clock.RealClock{}), outcomes: make(chan launch.Outcome, 10_000)}
	r.templates = launch.NewTemplates(r.kube, w.cloud, w.cloud, clock.RealClock{})
	r.Launcher = launch.New(launch.Options{
		Kube: r.kube, Cloud: w.cloud, Catalogs: w.catalogs, Shortages: r.shortages, Templates: r.templates,
		Subnets: launch.NewSubnets(w.cloud, r.kube, clock.RealClock{}), Reporter: r, ClusterName: "demo", Region: w.emu.Region(),
	})
	return r
}

type requirements = []karpv1.NodeSelectorRequirementWithMinValues

// ask is what a claim asks for: CPUs, and a launch group and requirements if it has any.
type ask struct {
	group string
	cpu   int
	reqs  requirements
}

// claim writes a claim of the pool.
func (r *rig) claim(ctx context.Context, name, pool string, a ask) (*karpv1.NodeClaim, error) {
	b := builder.NodeClaim(name).UID("uid-"+name).Pool(pool).Created(time.Now()).Request("cpu", strconv.Itoa(a.cpu))
	if a.group != "" {
		b.Annotation(launch.LaunchGroupAnnotation, a.group)
	}
	c := b.Obj()
	c.Finalizers = []string{karpv1.TerminationFinalizer}
	c.Spec.Requirements = append(c.Spec.Requirements, a.reqs...)
	return c, r.kube.Create(ctx, c)
}

// in is a requirement that a label has one of the values.
func in(key string, values ...string) karpv1.NodeSelectorRequirementWithMinValues {
	return karpv1.NodeSelectorRequirementWithMinValues{Key: key, Operator: "In", Values: values}
}

// await collects n outcomes that are final.
func (r *rig) await(ctx context.Context, n int) ([]launch.Outcome, error) {
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var out []launch.Outcome
	for len(out) < n {
		select {
		case o := <-r.outcomes:
			if !o.Retrying {
				out = append(out, o)
			}
		case <-ctx.Done():
			return out, fmt.Errorf("%d of %d launches ended within %s", len(out), n, limit)
		}
	}
	return out, nil
}

// limit bounds each wait; reaching it is a failure, not a figure.
const limit = 2 * time.Minute

// since are the requests that came after the first n.
func (w *world) since(n int) []ec2emu.Request { return w.emu.Requests()[n:] }

func mutating(r ec2emu.Request) bool {
	return r.Service == "ec2" && !strings.HasPrefix(r.Action, "Describe") && !strings.HasPrefix(r.Action, "Get")
}

// launchOf is the launch id in a CreateFleet request's tags.
func launchOf(r ec2emu.Request) string {
	for key, values := range r.Form {
		if strings.HasSuffix(key, ".Key") && values[0] == ec2.TagLaunch {
			return r.Form.Get(strings.TrimSuffix(key, ".Key") + ".Value")
		}
	}
	return ""
}
