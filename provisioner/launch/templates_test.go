// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestTemplatesAreMadeBeforeTheyAreNeeded(t *testing.T) {
	unready := builder.EC2NodeClass("unready").UID("unready").Ready().NotReady(v1.ConditionTypeAMIsReady, "AMINotFound", "").Obj()
	kube := newKube(t, readyClass(), unready,
		builder.NodePool("tainted").NodeLabel("kubernetes.io/forbidden", "x").Taint("dedicated", "a", corev1.TaintEffectNoSchedule).
			StartupTaint("cni", "", corev1.TaintEffectNoSchedule).Obj(),
		builder.NodePool("waiting").Class("unready").Obj(),
		builder.NodePool("dangling").Class("missing").Obj())
	s := &store{}
	templates := NewTemplates(kube, s, eks{}, clock.RealClock{})
	if err := templates.sync(quiet(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(s.made) != 8 {
		t.Fatalf("%d templates, want 2 pools × 2 images × 2 markets", len(s.made))
	}
	if err := templates.sync(quiet(t.Context())); err != nil || len(s.made) != 8 {
		t.Errorf("a second look made %d templates more (error %v)", len(s.made)-8, err)
	}

	claim := builder.NodeClaim("c").Pool("tainted").Label("kubernetes.io/forbidden", "x").Label("chosen", "per-claim").
		Taint("dedicated", "a", corev1.TaintEffectNoSchedule).StartupTaint("cni", "", corev1.TaintEffectNoSchedule).Obj()
	var class v1.EC2NodeClass
	if err := kube.Get(t.Context(), client.ObjectKey{Name: builder.DefaultClass}, &class); err != nil {
		t.Fatal(err)
	}
	name, err := templates.nameOf(quiet(t.Context()), &class, shapeOfClaim(t.Context(), kube, claim), "ami-amd64", variant{spot: true})
	if err != nil {
		t.Fatal(err)
	}
	i := slices.IndexFunc(s.made, func(m ec2.Template) bool { return m.Name == name })
	if i < 0 {
		t.Fatalf("a claim of the pool boots from %q, which was not made", name)
	}
	data := s.made[i].UserData
	for _, want := range []string{"karpenter.sh/nodepool=tainted", "karpenter.sh/do-not-sync-taints=true", "karpenter.sh/unregistered", "dedicated", "cni"} {
		if !strings.Contains(data, want) {
			t.Errorf("user data lacks %q:\n%s", want, data)
		}
	}
	for _, not := range []string{"kubernetes.io/forbidden", "per-claim"} {
		if strings.Contains(data, not) {
			t.Errorf("user data has %q, which kubelets may not set or which differs by claim", not)
		}
	}
	wantTags := map[string]string{
		"kubernetes.io/cluster/demo": "owned", "eks:eks-cluster-name": "demo", "karpenter.sh/nodepool": "tainted",
		"karpenter.k8s.aws/ec2nodeclass": builder.DefaultClass, "slipway.sh/launch-template": "true",
	}
	if d := cmp.Diff(wantTags, s.made[i].Tags); d != "" {
		t.Errorf("tags (-want +got):\n%s", d)
	}
}

func TestTemplatesAreForTheMarketsOfThePool(t *testing.T) {
	onDemand, spot := variant{}, variant{spot: true}
	pool := func(reqs ...corev1.NodeSelectorRequirement) *karpv1.NodePool {
		return builder.NodePool("p").Require(reqs...).Obj()
	}
	for name, tc := range map[string]struct {
		pool *karpv1.NodePool
		want []variant
	}{
		"no requirement": {pool(), []variant{onDemand, spot}},
		"spot only":      {pool(builder.In(karpv1.CapacityTypeLabelKey, "spot")), []variant{spot}},
		"on demand only": {pool(builder.In(karpv1.CapacityTypeLabelKey, "on-demand")), []variant{onDemand}},
		"reserved":       {pool(builder.In(karpv1.CapacityTypeLabelKey, "reserved")), nil}, // made for the reservation when it is used
		"both":           {pool(builder.In(karpv1.CapacityTypeLabelKey, "spot", "on-demand")), []variant{onDemand, spot}},
		"dedicated":      {pool(builder.In(v1.LabelInstanceTenancy, "dedicated")), []variant{{tenancy: "dedicated"}, {spot: true, tenancy: "dedicated"}}},
		"any tenancy":    {pool(builder.In(v1.LabelInstanceTenancy, "dedicated", "default")), []variant{onDemand, spot}},
	} {
		t.Run(name, func(t *testing.T) {
			if d := cmp.Diff(tc.want, variants(tc.pool), cmp.AllowUnexported(variant{})); d != "" {
				t.Errorf("variants (-want +got):\n%s", d)
			}
		})
	}
}

func TestOneFailingTemplateDoesNotStopTheOthers(t *testing.T) {
	kube := newKube(t, readyClass())
	s := &store{fail: func(t ec2.Template) error {
		if t.ImageID == "ami-amd64" {
			return failure(capacity.Unauthorized, "UnauthorizedOperation")
		}
		return nil
	}}
	err := NewTemplates(kube, s, eks{}, clock.RealClock{}).sync(quiet(t.Context()))
	if capacity.KindOf(err) != capacity.Unauthorized || len(s.made) != 2 || s.made[0].ImageID != "ami-arm64" || s.made[1].ImageID != "ami-arm64" {
		t.Errorf("error %v, made %v; want the arm64 templates and the others' error", err, s.made)
	}
}

func TestUnusedTemplatesAreCollected(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		ours := map[string]string{templateTag: "true"}
		s := &store{listed: []ec2.StoredTemplate{{Name: "karpenter.k8s.aws/left-over", Tags: ours}, {Name: "karpenter.k8s.aws/karpenters"}}}
		templates := NewTemplates(kube, s, eks{}, clock.RealClock{})
		go templates.Run(quiet(t.Context()))
		time.Sleep(59 * time.Minute)
		synctest.Wait()
		if got := s.removed(); len(got) != 0 {
			t.Errorf("deleted %v within the hour", got)
		}
		pool := builder.NodePool("default").Obj()
		if err := kube.Delete(t.Context(), pool); err != nil {
			t.Fatal(err)
		}
		templates.trigger()
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if d := cmp.Diff([]string{"karpenter.k8s.aws/left-over"}, s.removed()); d != "" {
			t.Errorf("deleted after an hour (-want +got):\n%s", d)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		if got := s.removed(); len(got) != 5 || slices.Contains(got, "karpenter.k8s.aws/karpenters") {
			t.Errorf("deleted %v, want the templates of the deleted pool too, and never Karpenter's", got)
		}
	})
}

func TestSubnets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		class := builder.EC2NodeClass(builder.DefaultClass).ResolvedSubnet("s1", "a", "").ResolvedSubnet("s2", "a", "").ResolvedSubnet("s3", "b", "").Ready().Obj()
		kube := newKube(t, class)
		s := NewSubnets(finder(func() ([]ec2.Subnet, error) {
			return []ec2.Subnet{{ID: "s1", FreeAddresses: 100}, {ID: "s2", FreeAddresses: 150}, {ID: "s3", FreeAddresses: 5}}, nil
		}), kube, clock.RealClock{})
		expect := func(when, a, b string) {
			t.Helper()
			got := s.pick(class)
			want := map[string]string{}
			if a != "" {
				want["a"] = a
			}
			if b != "" {
				want["b"] = b
			}
			if d := cmp.Diff(want, got); d != "" {
				t.Errorf("%s (-want +got):\n%s", when, d)
			}
		}
		expect("nothing known: the smallest id", "s1", "s3")
		s.refresh(quiet(t.Context()))
		expect("most free addresses", "s2", "s3")
		booked := s.book("s2", 60)
		expect("booked ones count", "s1", "s3")
		s.unbook("s2", booked)
		expect("given back", "s2", "s3")
		booked = s.book("s1", 100)
		time.Sleep(90 * time.Second)
		s.unbook("s1", booked)
		time.Sleep(time.Minute)
		expect("given back is given back once: when it would have run out nothing is left over", "s2", "s3")
		late := s.book("s1", 100)
		time.Sleep(3 * time.Minute)
		s.book("s1", 10)
		s.unbook("s1", late)
		expect("given back after it ran out", "s2", "s3")
		time.Sleep(3 * time.Minute)
		s.book("s2", 60)
		time.Sleep(3 * time.Minute)
		expect("a booking lapses", "s2", "s3")
		s.exhausted("s3")
		expect("a full subnet takes its zone out", "s2", "")
		time.Sleep(3 * time.Minute)
		expect("and comes back", "s2", "s3")
		s.free["s2"] = 0
		expect("nothing left by EC2's own count", "s1", "s3")
	})
}
