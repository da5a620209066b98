// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity_test

import (
	"math"
	"math/big"
	"math/rand/v2"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const gpu, efa = corev1.ResourceName("nvidia.com/gpu"), corev1.ResourceName("vpc.amazonaws.com/efa")

// res builds a vector from name, quantity pairs.
func res(pairs ...string) capacity.Resources {
	list := corev1.ResourceList{}
	for i := 0; i < len(pairs); i += 2 {
		list[corev1.ResourceName(pairs[i])] = resource.MustParse(pairs[i+1])
	}
	return capacity.FromList(list)
}

func TestFromList(t *testing.T) {
	for name, tc := range map[string]struct {
		got, want capacity.Resources
	}{
		"units": {
			res("cpu", "1500m", "memory", "1Gi", "ephemeral-storage", "1k", "pods", "110"),
			capacity.Resources{CPU: 1500, Memory: 1 << 30, Ephemeral: 1000, Pods: 110},
		},
		"parts of a unit are rounded up": {res("cpu", "100u", "memory", "1500m"), capacity.Resources{CPU: 1, Memory: 2}},
		"extended resources are sorted, zeros dropped": {
			res("vpc.amazonaws.com/efa", "2", "nvidia.com/gpu", "1", "hugepages-2Mi", "0"),
			capacity.Resources{Extended: []capacity.Quantity{{Name: gpu, Value: 1}, {Name: efa, Value: 2}}},
		},
		"nothing": {res(), capacity.Resources{}},
	} {
		t.Run(name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, tc.got); diff != "" {
				t.Errorf("resources (-want +got):\n%s", diff)
			}
			if back := capacity.FromList(tc.got.List()); !back.Equal(tc.got) {
				t.Errorf("List reads back as %s, want %s", back, tc.got)
			}
		})
	}
}

func TestArithmetic(t *testing.T) {
	a := res("cpu", "2", "memory", "4Gi", "pods", "3", string(gpu), "1")
	b := res("cpu", "3", "memory", "1Gi", "ephemeral-storage", "1", string(gpu), "1", string(efa), "4")
	for name, tc := range map[string]struct {
		got, want capacity.Resources
	}{
		"sum":                          {a.Add(b), res("cpu", "5", "memory", "5Gi", "pods", "3", "ephemeral-storage", "1", string(gpu), "2", string(efa), "4")},
		"difference may be negative":   {a.Sub(b), capacity.Resources{CPU: -1000, Memory: 3 << 30, Ephemeral: -1, Pods: 3, Extended: []capacity.Quantity{{Name: efa, Value: -4}}}},
		"a difference of zero is zero": {a.Sub(a), capacity.Resources{Extended: []capacity.Quantity{}}},
		"times":                        {a.AddTimes(b, 2), res("cpu", "8", "memory", "6Gi", "pods", "3", "ephemeral-storage", "2", string(gpu), "3", string(efa), "8")},
		"times zero":                   {a.AddTimes(b, 0), a},
		"maximum":                      {a.Max(b), res("cpu", "3", "memory", "4Gi", "pods", "3", "ephemeral-storage", "1", string(gpu), "1", string(efa), "4")},
		"maximum with nothing":         {a.Sub(b).Max(capacity.Resources{}), capacity.Resources{Memory: 3 << 30, Pods: 3}},
		"maximum of opposite signs":    {res(string(gpu), "2").Max(capacity.Resources{Extended: []capacity.Quantity{{Name: gpu, Value: -2}}}), res(string(gpu), "2")},
	} {
		t.Run(name, func(t *testing.T) {
			if !tc.got.Equal(tc.want) {
				t.Errorf("got %s, want %s", tc.got, tc.want)
			}
		})
	}
	if !a.Equal(res("cpu", "2", "memory", "4Gi", "pods", "3", string(gpu), "1")) {
		t.Errorf("arithmetic changed its operand to %s", a)
	}
	if !a.Sub(a).IsZero() || a.IsZero() {
		t.Errorf("IsZero: of a-a %v, of a %v", a.Sub(a).IsZero(), a.IsZero())
	}
}

func TestFits(t *testing.T) {
	type want struct {
		Fits  bool
		Count int64
		Short corev1.ResourceName
		Asked int64
		Have  int64
	}
	for name, tc := range map[string]struct {
		ask, free capacity.Resources
		want      want
	}{
		"exactly":                         {res("cpu", "2", "memory", "2Gi"), res("cpu", "2", "memory", "2Gi"), want{Fits: true, Count: 1}},
		"the scarcest resource counts":    {res("cpu", "1", "memory", "3Gi", "pods", "1"), res("cpu", "8", "memory", "10Gi", "pods", "9"), want{Fits: true, Count: 3}},
		"too much CPU":                    {res("cpu", "1001m"), res("cpu", "1"), want{Short: "cpu", Asked: 1001, Have: 1000}},
		"no pod slot":                     {res("pods", "1"), res("cpu", "1"), want{Short: "pods", Asked: 1}},
		"missing extended resource":       {res(string(gpu), "1"), res("cpu", "1"), want{Short: gpu, Asked: 1}},
		"extended resources count":        {res(string(gpu), "2"), res(string(gpu), "5"), want{Fits: true, Count: 2}},
		"nothing asked fits anywhere":     {res(), res(), want{Fits: true, Count: math.MaxInt64}},
		"over-committed where not asked":  {res("cpu", "1"), capacity.Resources{CPU: 1000, Memory: -1, Extended: []capacity.Quantity{{Name: gpu, Value: -1}}}, want{Fits: true, Count: 1}},
		"over-committed where asked":      {res("cpu", "1"), capacity.Resources{CPU: -1}, want{Short: "cpu", Asked: 1000, Have: -1}},
		"negative asks block nothing":     {capacity.Resources{CPU: -5, Extended: []capacity.Quantity{{Name: gpu, Value: -1}}}, capacity.Resources{CPU: -9}, want{Fits: true, Count: math.MaxInt64}},
		"the first shortage is named":     {res("memory", "1", "ephemeral-storage", "1", string(gpu), "1"), res(), want{Short: "memory", Asked: 1}},
		"ephemeral storage is a resource": {res("ephemeral-storage", "2"), res("ephemeral-storage", "1"), want{Short: "ephemeral-storage", Asked: 2, Have: 1}},
	} {
		t.Run(name, func(t *testing.T) {
			got := want{Fits: tc.ask.Fits(tc.free), Count: tc.ask.Count(tc.free)}
			name, asked, have, short := tc.ask.Shortage(tc.free)
			got.Short, got.Asked, got.Have = name, asked, have
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("fit (-want +got):\n%s", diff)
			}
			if short == got.Fits {
				t.Errorf("Shortage says %v, Fits %v", short, got.Fits)
			}
		})
	}
}

func TestPrintedResources(t *testing.T) {
	for want, r := range map[string]capacity.Resources{
		"":                                   {},
		"cpu=1500m":                          res("cpu", "1500m"),
		"memory=512Mi":                       res("memory", "512Mi"),
		"memory=1.50Gi":                      res("memory", "1536Mi"),
		"memory=2Gi":                         res("memory", "2Gi"),
		"cpu=2 pods=3 " + string(gpu) + "=1": res("cpu", "2", "pods", "3", string(gpu), "1"),
	} {
		if got := r.String(); got != want {
			t.Errorf("String() = %q, want %q", got, want)
		}
	}
}

// TestResourcesSaturate checks that absurd quantities stay absurd, whatever is computed with them.
func TestResourcesSaturate(t *testing.T) {
	huge := res("cpu", "1e30", "memory", "9e18", "example.com/x", "1e40")
	if huge.CPU != math.MaxInt64 || huge.Get("example.com/x") != math.MaxInt64 {
		t.Errorf("FromList = %+v, want the largest values", huge)
	}
	if low := res("cpu", "-1e30"); low.CPU != math.MinInt64 {
		t.Errorf("FromList of a negative quantity = %d", low.CPU)
	}
	if huge.Fits(res("cpu", "9e9", "memory", "1Ei", "example.com/x", "5")) {
		t.Error("an absurd request fits")
	}
	twice := huge.Add(huge)
	if twice.CPU != math.MaxInt64 || twice.Memory != math.MaxInt64 || twice.Get("example.com/x") != math.MaxInt64 {
		t.Errorf("sum = %+v, want the largest values", twice)
	}
	left := capacity.Resources{}.AddTimes(huge, -1000)
	if left.CPU != math.MinInt64 || left.Memory != math.MinInt64 || left.Get("example.com/x") != math.MinInt64 {
		t.Errorf("remainder = %+v, want the smallest values", left)
	}
	if back := (capacity.Resources{}).AddTimes(left, math.MinInt64); back.CPU != math.MaxInt64 {
		t.Errorf("smallest · smallest = %d, want the largest", back.CPU)
	}
	if n := huge.Count(huge); n != 1 {
		t.Errorf("Count of itself = %d", n)
	}
}

// TestAddTimesAgainstBigInts is a property: the exact result, cut off at the ends of int64.
func TestAddTimesAgainstBigInts(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	value := func() int64 { return int64(r.Uint64()) >> r.IntN(64) }
	for range 100000 {
		a, b, n := value(), value(), value()
		want := new(big.Int).Add(big.NewInt(a), new(big.Int).Mul(big.NewInt(b), big.NewInt(n)))
		product := new(big.Int).Mul(big.NewInt(b), big.NewInt(n))
		if !product.IsInt64() { // the product is cut off first
			end := int64(math.MaxInt64)
			if product.Sign() < 0 {
				end = math.MinInt64
			}
			want = new(big.Int).Add(big.NewInt(a), big.NewInt(end))
		}
		switch {
		case want.IsInt64():
		case want.Sign() < 0:
			want = big.NewInt(math.MinInt64)
		default:
			want = big.NewInt(math.MaxInt64)
		}
		if got := (capacity.Resources{Memory: a}).AddTimes(capacity.Resources{Memory: b}, n).Memory; got != want.Int64() {
			t.Fatalf("%d + %d·%d = %d, want %s", a, n, b, got, want)
		}
	}
}

func TestVolumes(t *testing.T) {
	const ebs, efs = "ebs.csi.aws.com", "efs.csi.aws.com"
	var none capacity.Resources
	two := none.WithVolumes(ebs, 2)
	node := res("cpu", "4").WithVolumes(ebs, 3)
	if !two.Fits(node) || two.Fits(node.Sub(two)) {
		t.Errorf("two volumes fit %v times into a limit of three", two.Count(node))
	}
	if full := node.Sub(two).Sub(none.WithVolumes(ebs, 1)); none.WithVolumes(ebs, 1).Fits(full) {
		t.Error("a limit that is used up has turned into no limit")
	}
	if left := node.Sub(none.WithVolumes(efs, 40)); !none.WithVolumes(efs, 40).Fits(left) {
		t.Error("a driver without a limit has got one")
	}
	if got := two.Add(none.WithVolumes(efs, 1)).Add(two).String(); got != "volumes/ebs.csi.aws.com=4 volumes/efs.csi.aws.com=1" {
		t.Errorf("sum of what is asked = %q", got)
	}
	if got := node.Min(res("cpu", "2")).String(); got != "cpu=2 volumes/ebs.csi.aws.com=3" {
		t.Errorf("least of a limit and none = %q", got)
	}
	name, asked, have, short := none.WithVolumes(ebs, 4).Shortage(node)
	if !short || name != "volumes of CSI driver ebs.csi.aws.com" || asked != 4 || have != 3 {
		t.Errorf("Shortage = %q %d %d %v", name, asked, have, short)
	}
	if got := len(node.List()); got != 1 {
		t.Errorf("a resource list holds %d resources, want cpu only", got)
	}
	if n := two.Count(node.WithVolumes(ebs, 9)); n != 4 {
		t.Errorf("Count = %d, want 4", n)
	}
}
