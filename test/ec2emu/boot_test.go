// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	clocktesting "k8s.io/utils/clock/testing"
)

// recordingKubelet keeps what joins and leaves; refuse makes Join fail.
type recordingKubelet struct {
	mu     sync.Mutex
	joined []Machine
	left   []string
	leaves chan string // if not nil, tells of each
	refuse int
}

func (k *recordingKubelet) Join(_ context.Context, m Machine) error {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.refuse > 0 {
		k.refuse--
		return errors.New("the API server is away")
	}
	k.joined = append(k.joined, m)
	return nil
}

func (k *recordingKubelet) Leave(_ context.Context, node string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.left = append(k.left, node)
	if k.leaves != nil {
		k.leaves <- node
	}
}

// await returns the next event of a type.
func await(t *testing.T, events <-chan Event, want EventType) Event {
	t.Helper()
	for {
		select {
		case e, ok := <-events:
			if !ok {
				t.Fatalf("events ended before %s", want)
			}
			if e.Type == want {
				return e
			}
		case <-time.After(30 * time.Second):
			t.Fatalf("no event %s", want)
		}
	}
}

func TestGoodUserDataJoins(t *testing.T) {
	b := fleetBed(t, Options{ClusterEndpoint: "https://127.0.0.1:6443", ClusterCA: []byte("ca-bundle")})
	kubelet := &recordingKubelet{}
	b.SetKubelet(kubelet)
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large@c")))
	id := out.Instances[0].InstanceIds[0]
	for _, want := range []EventType{Launched, Running, Joined} {
		if e := await(t, events, want); e.InstanceID != id || e.NodeName != "ip-10-0-64-4.ec2.internal" {
			t.Errorf("event %+v", e)
		}
	}
	kubelet.mu.Lock()
	m := kubelet.joined[0]
	kubelet.mu.Unlock()
	want := Machine{
		InstanceID: id, InstanceType: "m5.large", Zone: "us-east-1c", Region: "us-east-1", Arch: "amd64", OS: "linux", ImageID: b.image(t, "x86_64"),
		NodeName: "ip-10-0-64-4.ec2.internal", InternalIP: "10.0.64.4", ProviderID: "aws:///us-east-1c/" + id,
		Labels: map[string]string{"karpenter.sh/nodepool": "default", "team": "web"},
		Taints: []corev1.Taint{{Key: "karpenter.sh/unregistered", Effect: corev1.TaintEffectNoExecute}},
	}
	capacity, allocatable := m.Capacity, m.Allocatable
	m.Capacity, m.Allocatable = nil, nil
	if diff := cmp.Diff(want, m); diff != "" {
		t.Errorf("machine (-want +got):\n%s", diff)
	}
	// 8192 MiB less 4 % and 140; then 11×29+255 MiB and 100 for eviction.
	wantAmounts := map[corev1.ResourceName][2]string{
		"cpu": {"2", "1930m"}, "memory": {"7724Mi", "7050Mi"}, "pods": {"29", "29"}, "ephemeral-storage": {"107361599488", "95551697715"},
	}
	for name, amounts := range wantAmounts {
		have, usable := capacity[name], allocatable[name]
		if have.String() != amounts[0] && fmt.Sprint(have.Value()) != amounts[0] || usable.String() != amounts[1] && fmt.Sprint(usable.Value()) != amounts[1] {
			t.Errorf("%s: capacity %s (%d), allocatable %s (%d), want %v", name, have.String(), have.Value(), usable.String(), usable.Value(), amounts)
		}
	}
	if !b.Instances()[0].Joined {
		t.Error("the instance is not shown as joined")
	}
}

func TestBadUserDataDoesNotJoin(t *testing.T) {
	tests := []struct {
		name     string
		opts     Options
		userData string
		change   func(*bed)
		want     string
	}{
		{name: "none", want: "it is empty"},
		{name: "script only", userData: "#!/bin/bash\necho hi", want: "parsing NodeConfig"},
		{name: "another cluster", userData: strings.Replace(nodeConfig, "name: demo", "name: prod", 1), want: `no cluster "prod"`},
		{name: "no endpoint", userData: strings.Replace(nodeConfig, "apiServerEndpoint: https://127.0.0.1:6443", "", 1), want: "apiServerEndpoint is missing"},
		{name: "another endpoint", opts: Options{ClusterEndpoint: "https://127.0.0.1:1"}, userData: nodeConfig, want: "no route to"},
		{name: "another CA", opts: Options{ClusterCA: []byte("other")}, userData: nodeConfig, want: "unknown authority"},
		{name: "forbidden label", userData: strings.Replace(nodeConfig, "team=web", "node-restriction.kubernetes.io/team=web", 1), want: "node-restriction.kubernetes.io/team"},
		{name: "no role", userData: nodeConfig, want: "gives no role", change: func(b *bed) {
			_, err := b.iam.RemoveRoleFromInstanceProfile(context.Background(), &iam.RemoveRoleFromInstanceProfileInput{
				InstanceProfileName: aws.String("nodes"), RoleName: aws.String("KarpenterNodeRole-demo"),
			})
			if err != nil {
				panic(err)
			}
		}},
		{name: "hangs", opts: Options{NeverRegisters: 1}, userData: nodeConfig, want: "NeverRegisters"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			test.opts.InstantBoot = true
			b := start(t, test.opts)
			b.profile(t)
			b.template(t, test.userData)
			if test.change != nil {
				test.change(b)
			}
			kubelet := &recordingKubelet{}
			b.SetKubelet(kubelet)
			events := b.Subscribe(t.Context())
			out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")))
			if e := await(t, events, NotJoined); !strings.Contains(e.Reason, test.want) {
				t.Errorf("reason %q, want %q in it", e.Reason, test.want)
			}
			if len(kubelet.joined) != 0 {
				t.Errorf("joined %+v", kubelet.joined)
			}
			console := must[*ec2.GetConsoleOutputOutput](t)(b.ec2.GetConsoleOutput(t.Context(), &ec2.GetConsoleOutputInput{InstanceId: aws.String(out.Instances[0].InstanceIds[0])}))
			text, err := base64.StdEncoding.DecodeString(*console.Output)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.Contains(string(text), "nodeadm: ") && !strings.Contains(string(text), "kubelet: ") {
				t.Errorf("console says nothing: %q", text)
			}
		})
	}
}

func TestBottlerocketJoins(t *testing.T) {
	b := fleetBed(t, Options{})
	kubelet := &recordingKubelet{}
	b.SetKubelet(kubelet)
	image := must[*ssm.GetParameterOutput](t)(b.ssm.GetParameter(t.Context(), &ssm.GetParameterInput{Name: aws.String("/aws/service/bottlerocket/aws-k8s-1.37/arm64/latest/image_id")}))
	settings := `[settings.kubernetes]
api-server = "https://127.0.0.1:6443"
cluster-name = "demo"
cluster-certificate = "Y2E="
max-pods = 20
[settings.kubernetes.static-pods.warm]
enabled = true
manifest = "a2luZDogUG9kCnNwZWM6IHtjb250YWluZXJzOiBbe2ltYWdlOiBuZ2lueDoxfV19Cg=="
[settings.kubernetes.node-labels]
team = "web"
`
	must[*ec2.CreateLaunchTemplateOutput](t)(b.ec2.CreateLaunchTemplate(t.Context(), &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String("rocket"),
		LaunchTemplateData: &ec2types.RequestLaunchTemplateData{
			ImageId: image.Parameter.Value, UserData: aws.String(base64.StdEncoding.EncodeToString([]byte(settings))),
			IamInstanceProfile: &ec2types.LaunchTemplateIamInstanceProfileSpecificationRequest{Name: aws.String("nodes")},
		},
	}))
	in := fleet(1, onDemandType, "m6g.large")
	in.LaunchTemplateConfigs[0].LaunchTemplateSpecification.LaunchTemplateName = aws.String("rocket")
	events := b.Subscribe(t.Context())
	must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), in))
	await(t, events, Joined)
	m := kubelet.joined[0]
	if m.Arch != "arm64" || m.Labels["team"] != "web" || m.Capacity.Pods().Value() != 20 || !slices.Equal(m.Images, []string{"nginx:1"}) {
		t.Errorf("machine %+v", m)
	}
}

// A kubelet whose cluster is away goes on trying.
func TestJoinIsRetried(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Now())
	b := fleetBed(t, Options{Clock: clock})
	kubelet := &recordingKubelet{refuse: 2}
	b.SetKubelet(kubelet)
	events := b.Subscribe(t.Context())
	must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")))
	for range 2 {
		if e := await(t, events, NotJoined); e.Reason != "the API server is away" {
			t.Errorf("reason %q", e.Reason)
		}
		stepUntilWaited(clock, joinRetry, 2) // the agenda's timer and the kubelet's
	}
	await(t, events, Joined)
}

// stepUntilWaited steps once as many timers wait as must.
func stepUntilWaited(clock *clocktesting.FakeClock, d time.Duration, waiters int) {
	for clock.Waiters() < waiters {
		runtime.Gosched()
	}
	clock.Step(d)
}

// An instance's whole life on a fake clock, as EC2 shows it.
func TestLife(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock})
	b.profile(t)
	b.template(t, nodeConfig)
	kubelet := &recordingKubelet{leaves: make(chan string, 1)}
	b.SetKubelet(kubelet)
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")))
	id := out.Instances[0].InstanceIds[0]
	state := func() string {
		out, err := b.ec2.DescribeInstances(t.Context(), &ec2.DescribeInstancesInput{InstanceIds: []string{id}})
		if err != nil {
			return code(err)
		}
		return string(out.Reservations[0].Instances[0].State.Name)
	}
	terminate := func() ec2types.InstanceStateChange {
		out := must[*ec2.TerminateInstancesOutput](t)(b.ec2.TerminateInstances(t.Context(), &ec2.TerminateInstancesInput{InstanceIds: []string{id}}))
		return out.TerminatingInstances[0]
	}
	if got := state(); got != "pending" {
		t.Errorf("after the launch: %s", got)
	}
	clock.Step(5 * time.Minute)
	await(t, events, Joined)
	if got := state(); got != "running" {
		t.Errorf("after the boot: %s", got)
	}
	if m := kubelet.joined[0]; m.ReadyAfter < time.Second || m.ReadyAfter > time.Minute {
		t.Errorf("ready after %v", m.ReadyAfter)
	}
	if c := terminate(); c.PreviousState.Name != "running" || c.CurrentState.Name != "shutting-down" {
		t.Errorf("terminating: %+v", c)
	}
	if c := terminate(); c.PreviousState.Name != "shutting-down" {
		t.Errorf("terminating again: %+v", c)
	}
	clock.Step(5 * time.Minute)
	await(t, events, Terminated)
	if got := state(); got != "terminated" {
		t.Errorf("at the end: %s", got)
	}
	if got := b.world.subnets["subnet-0c0ffee0000000001"].free; got != 8187 {
		t.Errorf("%d free addresses, want all back", got)
	}
	select {
	case left := <-kubelet.leaves:
		if left != "ip-10-0-0-4.ec2.internal" {
			t.Errorf("node %q left", left)
		}
	case <-time.After(30 * time.Second):
		t.Error("the node does not leave")
	}
	clock.Step(time.Hour)
	for deadline := time.Now().Add(30 * time.Second); state() != "InvalidInstanceID.NotFound"; {
		if time.Now().After(deadline) {
			t.Fatal("a terminated instance stays visible for good")
		}
	}
}

// A machine that is terminated while it boots never joins.
func TestTerminatedWhileBooting(t *testing.T) {
	clock := clocktesting.NewFakeClock(time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC))
	b := start(t, Options{Clock: clock})
	b.profile(t)
	b.template(t, nodeConfig)
	kubelet := &recordingKubelet{}
	b.SetKubelet(kubelet)
	events := b.Subscribe(t.Context())
	out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(t.Context(), fleet(1, onDemandType, "m5.large")))
	if !b.Terminate(out.Instances[0].InstanceIds[0]) || b.Terminate("i-00000000000000000") {
		t.Error("Terminate does not know its instances")
	}
	clock.Step(time.Hour)
	await(t, events, Terminated)
	if len(kubelet.joined) != 0 || len(kubelet.left) != 0 {
		t.Errorf("joined %v, left %v", kubelet.joined, kubelet.left)
	}
}

func TestDescribeInstances(t *testing.T) {
	b := fleetBed(t, Options{})
	ctx := t.Context()
	var ids []string
	for _, pool := range []string{"m5.large", "m5.large@b", "c5.large@c"} {
		out := must[*ec2.CreateFleetOutput](t)(b.ec2.CreateFleet(ctx, fleet(4, onDemandType, pool)))
		ids = append(ids, out.Instances[0].InstanceIds...)
	}
	must[*ec2.CreateTagsOutput](t)(b.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: ids[:2], Tags: tags("Name", "node-1", "karpenter.sh/nodeclaim", "a")}))
	events := b.Subscribe(ctx)
	b.Terminate(ids[11])
	await(t, events, Terminated)
	tests := []struct {
		name  string
		in    ec2.DescribeInstancesInput
		want  []string
		error string
	}{
		{name: "all", want: ids},
		{name: "by id", in: ec2.DescribeInstancesInput{InstanceIds: ids[3:5]}, want: ids[3:5]},
		{name: "by tag", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("tag:Name", "node-*")}}, want: ids[:2]},
		{name: "by tag key and state", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("tag-key", "karpenter.sh/nodepool"), filter("instance-state-name", "pending", "running")}}, want: ids[:11]},
		{name: "by zone", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("availability-zone", "us-east-1b")}}, want: ids[4:8]},
		{name: "by type", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("instance-type", "c5.*")}}, want: ids[8:]},
		{name: "gone ones have no subnet", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("subnet-id", "subnet-0c0ffee0000000003")}}, want: ids[8:11]},
		{name: "unknown", in: ec2.DescribeInstancesInput{InstanceIds: []string{"i-00000000000000000"}}, error: "InvalidInstanceID.NotFound"},
		{name: "malformed", in: ec2.DescribeInstancesInput{InstanceIds: []string{"node-1"}}, error: "InvalidInstanceID.Malformed"},
		{name: "ids and pages", in: ec2.DescribeInstancesInput{InstanceIds: ids[:1], MaxResults: aws.Int32(5)}, error: "InvalidParameterCombination"},
		{name: "unknown filter", in: ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("colour", "red")}}, error: "InvalidParameterValue"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			out, err := b.ec2.DescribeInstances(ctx, &test.in)
			wantCode(t, err, test.error)
			if err == nil {
				if diff := cmp.Diff(test.want, instanceIDs(out)); diff != "" {
					t.Errorf("(-want +got):\n%s", diff)
				}
			}
		})
	}
	var paged []string
	for pages := ec2.NewDescribeInstancesPaginator(b.ec2, &ec2.DescribeInstancesInput{MaxResults: aws.Int32(5)}); pages.HasMorePages(); {
		paged = append(paged, instanceIDs(must[*ec2.DescribeInstancesOutput](t)(pages.NextPage(ctx)))...)
	}
	if diff := cmp.Diff(ids, paged); diff != "" {
		t.Errorf("pages (-want +got):\n%s", diff)
	}
	status := must[*ec2.DescribeInstanceStatusOutput](t)(b.ec2.DescribeInstanceStatus(ctx, &ec2.DescribeInstanceStatusInput{Filters: []ec2types.Filter{filter("instance-status.status", "impaired")}}))
	if len(status.InstanceStatuses) != 0 {
		t.Errorf("impaired: %+v", status.InstanceStatuses)
	}
	_, err := b.ec2.CreateTags(ctx, &ec2.CreateTagsInput{Resources: []string{"i-00000000000000000"}, Tags: tags("a", "b")})
	wantCode(t, err, "InvalidInstanceID.NotFound")
	must[*ec2.DeleteTagsOutput](t)(b.ec2.DeleteTags(ctx, &ec2.DeleteTagsInput{Resources: ids[:1], Tags: []ec2types.Tag{{Key: aws.String("Name")}}}))
	out := must[*ec2.DescribeInstancesOutput](t)(b.ec2.DescribeInstances(ctx, &ec2.DescribeInstancesInput{Filters: []ec2types.Filter{filter("tag:Name", "*")}}))
	if diff := cmp.Diff(ids[1:2], instanceIDs(out)); diff != "" {
		t.Errorf("after DeleteTags (-want +got):\n%s", diff)
	}
}

func instanceIDs(out *ec2.DescribeInstancesOutput) []string {
	var ids []string
	for _, r := range out.Reservations {
		for _, i := range r.Instances {
			ids = append(ids, *i.InstanceId)
		}
	}
	return ids
}

// Quantiles of many drawn boots lie where the table says.
func TestBootTimes(t *testing.T) {
	b := start(t, Options{Seed: 5})
	offer, image := b.catalog.byName["m5.large"], b.world.images[b.image(t, "x86_64")]
	var registered, ready []float64
	for n := range 4000 {
		// Each in its own hour, so that the shared factor varies, too.
		i := &instance{id: fmt.Sprint(n), launched: b.start.Add(time.Duration(n) * time.Hour), launchSpec: launchSpec{offer: offer, image: image, subnet: b.world.subnetList[0]}}
		d := b.drawDelays(i)
		if d.running > d.registered || d.registered > d.ready {
			t.Fatalf("out of order: %+v", d)
		}
		registered, ready = append(registered, d.registered.Seconds()), append(ready, d.ready.Seconds())
	}
	check := func(name string, got []float64, want quantiles) {
		slices.Sort(got)
		for i, q := range []float64{0.1, 0.5, 0.9} {
			at := got[int(q*float64(len(got)))]
			// The shared factor widens the table's spread a little.
			if math.Abs(at/want[i]-1) > 0.12 {
				t.Errorf("%s p%.0f is %.1f s, want about %.0f", name, q*100, at, want[i])
			}
		}
		if slowest := got[len(got)-1]; slowest < stragglerMin*want[1]*0.8 {
			t.Errorf("%s: the slowest took %.1f s, there are no stragglers", name, slowest)
		}
	}
	p := bootProfile(AL2023, false)
	check("registered", registered, p.registered)
	check("ready", ready, p.ready)
}

func TestQuantilesAreMet(t *testing.T) {
	q := quantiles{23, 26, 32, 42}
	for i, z := range []float64{-z90, 0, z90, z99} {
		if got := q.at(z); math.Abs(got-q[i]) > 1e-9 {
			t.Errorf("at(%v) = %v, want %v", z, got, q[i])
		}
	}
}

func TestMachineResources(t *testing.T) {
	b := start(t, Options{})
	tests := []struct {
		instanceType string
		pods, cpu    int64
		device       corev1.ResourceName
		count        int64
	}{
		{"m5.large", 29, 2, "", 0},
		{"t3.small", 11, 2, "", 0},
		{"c5.4xlarge", 234, 16, "", 0},
		{"m5.24xlarge", 737, 96, "", 0},
		{"g5.12xlarge", 737, 48, "nvidia.com/gpu", 4},
		{"inf2.24xlarge", 737, 96, "aws.amazon.com/neuron", 6},
	}
	for _, test := range tests {
		t.Run(test.instanceType, func(t *testing.T) {
			offer := b.catalog.byName[test.instanceType]
			if got := eniPods(offer); got != test.pods {
				t.Errorf("%d pods, want %d", got, test.pods)
			}
			if got := int64(aws.ToInt32(offer.info.VCpuInfo.DefaultVCpus)); got != test.cpu {
				t.Errorf("%d CPUs, want %d", got, test.cpu)
			}
			if test.device != "" && devices(offer)[test.device] != test.count {
				t.Errorf("devices %v", devices(offer))
			}
		})
	}
	// Karpenter assumes that 92.5 % of the memory (less 64 MiB on arm64) are
	// there: real machines have more, and so must these.
	for _, offer := range b.catalog.offers {
		mem := aws.ToInt64(offer.info.MemoryInfo.SizeInMiB)
		have := visibleMemory(offer) / mib
		if offer.arch() == "arm64" {
			mem -= 64
		}
		if assumed := mem - int64(math.Ceil(float64(mem)*0.075)); have < assumed {
			t.Errorf("%s has %d MiB, less than the %d assumed", offer.name, have, assumed)
		}
	}
}

func TestReservedCPU(t *testing.T) {
	for cpus, want := range map[int64]int64{1: 60, 2: 70, 4: 80, 8: 90, 96: 310} {
		if got := reservedMilliCPU(cpus); got != want {
			t.Errorf("%d CPUs reserve %dm, want %dm", cpus, got, want)
		}
	}
}
