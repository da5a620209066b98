// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package snapshot_test

import (
	"strings"
	"testing"
	"time"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/go-logr/logr/testr"
	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"
	crfake "sigs.k8s.io/controller-runtime/pkg/client/fake"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
	"github.com/slipway-sh/slipway/webhook"
	"github.com/slipway-sh/slipway/webhook/snapshot"
)

func now() time.Time { return time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC) }

func catalogue() *capacity.Catalog {
	c := builder.Catalog(
		builder.InstanceType("m5.large").CPU("2").Memory("8Gi").Absent("karpenter.k8s.aws/instance-gpu-name").OnDemand(0.1, "a", "b").Spot(0.03, "a"),
		builder.InstanceType("g5.xlarge").CPU("4").Memory("16Gi").Resource("nvidia.com/gpu", "1").Label("karpenter.k8s.aws/instance-gpu-name", "a10g").OnDemand(1, "b"),
	)
	c.Choices = capacity.NewRequirements(capacity.In("karpenter.k8s.aws/instance-tenancy", "default", "dedicated"))
	return c
}

// What is read back sells the same things under the same labels.
func TestRoundTrip(t *testing.T) {
	want := catalogue()
	m, err := snapshot.Encode("slipway-system", "default", want, now())
	if err != nil {
		t.Fatal(err)
	}
	class, got, at, err := snapshot.Decode(m)
	if err != nil || class != "default" || !at.Equal(now()) {
		t.Fatalf("read back class %q of %s: %v", class, at, err)
	}
	if diff := cmp.Diff(want.Types, got.Types); diff != "" {
		t.Errorf("types (-want +got):\n%s", diff)
	}
	if got.Choices.String() != want.Choices.String() {
		t.Errorf("choices are %s, want %s", got.Choices, want.Choices)
	}
	gpu := capacity.NewRequirements(capacity.Exists("karpenter.k8s.aws/instance-gpu-name"))
	if got.Match(gpu).Len() != 1 {
		t.Errorf("%d offerings have a GPU, want 1", got.Match(gpu).Len())
	}
}

func TestDecodeSaysWhatIsWrong(t *testing.T) {
	good, err := snapshot.Encode("n", "default", catalogue(), now())
	if err != nil {
		t.Fatal(err)
	}
	tests := map[string]struct {
		change func(annotations map[string]string, data map[string][]byte)
		want   string
	}{
		"no class": {func(a map[string]string, _ map[string][]byte) { delete(a, snapshot.ClassAnnotation) }, "annotation slipway.sh/node-class is missing"},
		"no time":  {func(a map[string]string, _ map[string][]byte) { a[snapshot.TimeAnnotation] = "noon" }, "annotation slipway.sh/catalog-at"},
		"no data":  {func(_ map[string]string, d map[string][]byte) { clear(d) }, "binaryData[catalog.json.gz]"},
		"cut off":  {func(_ map[string]string, d map[string][]byte) { d["catalog.json.gz"] = d["catalog.json.gz"][:40] }, "binaryData[catalog.json.gz]"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			m := good.DeepCopy()
			tt.change(m.Annotations, m.BinaryData)
			if _, _, _, err := snapshot.Decode(m); err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("error is %v, want %q", err, tt.want)
			}
		})
	}
}

// A catalogue is written when it changes, not more than every five minutes, and confirmed every half hour.
func TestPublisher(t *testing.T) {
	scheme, err := webhook.NewScheme()
	if err != nil {
		t.Fatal(err)
	}
	class := builder.EC2NodeClass("default").Obj()
	class.UID = "c1"
	kube, clock := fake.NewClientset(), clocktesting.NewFakeClock(now())
	sold := catalogue()
	p := &snapshot.Publisher{
		Kube: kube, Classes: crfake.NewClientBuilder().WithScheme(scheme).WithObjects(class).Build(), Namespace: "slipway-system",
		Catalog: func(*v1.EC2NodeClass) *capacity.Catalog { return sold }, Clock: clock, Log: testr.New(t),
	}
	writes := func() int {
		t.Helper()
		if err := p.Publish(t.Context()); err != nil {
			t.Fatal(err)
		}
		defer kube.ClearActions()
		return len(kube.Actions())
	}
	for _, step := range []struct {
		what  string
		after time.Duration
		new   bool
		want  int
	}{
		{"at first", 0, false, 1},
		{"the same", time.Minute, false, 0},
		{"changed a minute later", time.Minute, true, 0},
		{"five minutes later", 5 * time.Minute, false, 1},
		{"to be confirmed", 31 * time.Minute, false, 1},
	} {
		clock.Step(step.after)
		if step.new {
			sold = catalogue()
		}
		if got := writes(); got != step.want {
			t.Errorf("%s: %d writes, want %d", step.what, got, step.want)
		}
	}
	m, err := kube.CoreV1().ConfigMaps("slipway-system").Get(t.Context(), snapshot.Name("default"), metav1.GetOptions{})
	if err != nil || len(m.OwnerReferences) != 1 || m.OwnerReferences[0].UID != "c1" {
		t.Fatalf("ConfigMap %+v: %v", m, err)
	}
	if _, _, _, err := snapshot.Decode(m); err != nil {
		t.Error(err)
	}
}
