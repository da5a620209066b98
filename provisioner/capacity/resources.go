// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package capacity

import (
	"fmt"
	"math"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// Resources is an integer vector of quantities: CPU in millicores, Memory and
// Ephemeral (storage) in bytes, Pods as a count, and extended resources (for
// instance nvidia.com/gpu) as counts. Negative values are possible and mean an
// over-committed remainder. The zero value is the empty vector. Arithmetic
// saturates at the ends of int64: an absurd quantity stays absurd and never
// wraps around into one that fits.
type Resources struct {
	CPU       int64
	Memory    int64
	Ephemeral int64
	Pods      int64
	// Extended holds every other resource, sorted by name, without zero values.
	Extended []Quantity
	// Volumes counts attached volumes by CSI driver, sorted by its name. What is asked for or used counts volumes; what a node
	// or type has is its attach limit, and a driver that is not listed there has no limit. No Kubernetes resource list holds
	// them: the limits are in CSINodes.
	Volumes []Quantity
}

// Quantity is an amount of one extended resource, in the resource's own unit, or of volumes of one CSI driver.
type Quantity struct {
	Name  corev1.ResourceName
	Value int64
}

// FromList converts a Kubernetes resource list. CPU is rounded up to whole
// millicores and everything else to whole units, as the scheduler does
// (resource.Quantity.MilliValue and Value round up). What does not fit into
// int64 becomes its largest (or smallest) value.
func FromList(list corev1.ResourceList) Resources {
	var r Resources
	for name, q := range list {
		r.set(name, q)
	}
	slices.SortFunc(r.Extended, func(a, b Quantity) int { return strings.Compare(string(a.Name), string(b.Name)) })
	return r
}

func (r *Resources) set(name corev1.ResourceName, q resource.Quantity) {
	switch name {
	case corev1.ResourceCPU:
		r.CPU = scaled(q, resource.Milli)
	case corev1.ResourceMemory:
		r.Memory = scaled(q, 0)
	case corev1.ResourceEphemeralStorage:
		r.Ephemeral = scaled(q, 0)
	case corev1.ResourcePods:
		r.Pods = scaled(q, 0)
	default:
		if v := scaled(q, 0); v != 0 {
			r.Extended = append(r.Extended, Quantity{Name: name, Value: v})
		}
	}
}

// scaled is the quantity in units of 10^scale, which resource.Quantity itself gets wrong beyond int64.
func scaled(q resource.Quantity, scale resource.Scale) int64 {
	f := q.AsApproximateFloat64()
	if scale == resource.Milli {
		f *= 1000
	}
	switch {
	case f >= math.MaxInt64:
		return math.MaxInt64
	case f <= math.MinInt64:
		return math.MinInt64
	}
	return q.ScaledValue(scale)
}

// List converts back to a Kubernetes resource list; zero quantities are left out, and volumes, which are no resource.
func (r Resources) List() corev1.ResourceList {
	list := corev1.ResourceList{}
	if r.CPU != 0 {
		list[corev1.ResourceCPU] = *resource.NewMilliQuantity(r.CPU, resource.DecimalSI)
	}
	if r.Memory != 0 {
		list[corev1.ResourceMemory] = *resource.NewQuantity(r.Memory, resource.BinarySI)
	}
	if r.Ephemeral != 0 {
		list[corev1.ResourceEphemeralStorage] = *resource.NewQuantity(r.Ephemeral, resource.BinarySI)
	}
	if r.Pods != 0 {
		list[corev1.ResourcePods] = *resource.NewQuantity(r.Pods, resource.DecimalSI)
	}
	for _, q := range r.Extended {
		list[q.Name] = *resource.NewQuantity(q.Value, resource.DecimalSI)
	}
	return list
}

// Get returns the quantity of one resource in the units of [Resources].
func (r Resources) Get(name corev1.ResourceName) int64 {
	switch name {
	case corev1.ResourceCPU:
		return r.CPU
	case corev1.ResourceMemory:
		return r.Memory
	case corev1.ResourceEphemeralStorage:
		return r.Ephemeral
	case corev1.ResourcePods:
		return r.Pods
	}
	for _, q := range r.Extended {
		if q.Name == name {
			return q.Value
		}
	}
	return 0
}

// Add returns r + o.
func (r Resources) Add(o Resources) Resources { return r.AddTimes(o, 1) }

// Sub returns r - o. Components may become negative.
func (r Resources) Sub(o Resources) Resources { return r.AddTimes(o, -1) }

// AddTimes returns r + n·o.
func (r Resources) AddTimes(o Resources, n int64) Resources {
	r.CPU = plus(r.CPU, times(n, o.CPU))
	r.Memory = plus(r.Memory, times(n, o.Memory))
	r.Ephemeral = plus(r.Ephemeral, times(n, o.Ephemeral))
	r.Pods = plus(r.Pods, times(n, o.Pods))
	if len(o.Extended) > 0 && n != 0 {
		r.Extended = slices.DeleteFunc(merge(r.Extended, o.Extended, n), func(q Quantity) bool { return q.Value == 0 })
	}
	if len(o.Volumes) > 0 && n != 0 {
		r.Volumes = mergeVolumes(r.Volumes, o.Volumes, n)
	}
	return r
}

// merge returns a + n·b as a new sorted slice; both inputs stay as they are.
func merge(a, b []Quantity, n int64) []Quantity {
	out := make([]Quantity, 0, len(a)+len(b))
	i, j := 0, 0
	for i < len(a) || j < len(b) {
		switch {
		case j == len(b) || (i < len(a) && a[i].Name < b[j].Name):
			out = append(out, a[i])
			i++
		case i == len(a) || b[j].Name < a[i].Name:
			out = append(out, Quantity{Name: b[j].Name, Value: times(n, b[j].Value)})
			j++
		default:
			out = append(out, Quantity{Name: a[i].Name, Value: plus(a[i].Value, times(n, b[j].Value))})
			i, j = i+1, j+1
		}
	}
	return out
}

// Max returns the component-wise maximum.
func (r Resources) Max(o Resources) Resources {
	out := Resources{
		CPU:       max(r.CPU, o.CPU),
		Memory:    max(r.Memory, o.Memory),
		Ephemeral: max(r.Ephemeral, o.Ephemeral),
		Pods:      max(r.Pods, o.Pods),
	}
	out.Extended = maxExtended(r.Extended, o.Extended)
	out.Volumes = maxExtended(r.Volumes, o.Volumes)
	return out
}

// maxExtended is the maximum by name, a missing name counting as zero; zeros are left out.
func maxExtended(a, b []Quantity) []Quantity {
	var out []Quantity
	add := func(name corev1.ResourceName, v int64) {
		if v != 0 {
			out = append(out, Quantity{Name: name, Value: v})
		}
	}
	for i, j := 0, 0; i < len(a) || j < len(b); {
		switch {
		case j == len(b) || (i < len(a) && a[i].Name < b[j].Name):
			add(a[i].Name, max(a[i].Value, 0))
			i++
		case i == len(a) || b[j].Name < a[i].Name:
			add(b[j].Name, max(b[j].Value, 0))
			j++
		default:
			add(a[i].Name, max(a[i].Value, b[j].Value))
			i, j = i+1, j+1
		}
	}
	return out
}

// Min returns the component-wise minimum. An extended resource that one side lacks is absent; a volume limit that one side
// lacks is the other's.
func (r Resources) Min(o Resources) Resources {
	out := Resources{
		CPU:       min(r.CPU, o.CPU),
		Memory:    min(r.Memory, o.Memory),
		Ephemeral: min(r.Ephemeral, o.Ephemeral),
		Pods:      min(r.Pods, o.Pods),
	}
	for _, q := range r.Extended {
		if v := min(q.Value, o.Get(q.Name)); v > 0 {
			out.Extended = append(out.Extended, Quantity{Name: q.Name, Value: v})
		}
	}
	out.Volumes = minLimits(r.Volumes, o.Volumes)
	return out
}

// Fits reports whether r can be taken out of free. A resource of which r asks
// nothing never blocks, even when free is already negative there: that is how
// the scheduler's NodeResourcesFit treats it.
func (r Resources) Fits(free Resources) bool {
	return (r.CPU <= free.CPU || r.CPU <= 0) &&
		(r.Memory <= free.Memory || r.Memory <= 0) &&
		(r.Ephemeral <= free.Ephemeral || r.Ephemeral <= 0) &&
		(r.Pods <= free.Pods || r.Pods <= 0) &&
		r.extendedFits(free) && r.volumesFit(free)
}

func (r Resources) extendedFits(free Resources) bool {
	for _, q := range r.Extended {
		if q.Value > 0 && q.Value > free.Get(q.Name) {
			return false
		}
	}
	return true
}

// Count returns how many times r fits into free, or math.MaxInt64 if r asks for
// nothing.
func (r Resources) Count(free Resources) int64 {
	n := int64(math.MaxInt64)
	for _, p := range [...][2]int64{{r.CPU, free.CPU}, {r.Memory, free.Memory}, {r.Ephemeral, free.Ephemeral}, {r.Pods, free.Pods}} {
		if p[0] > 0 {
			n = min(n, max(p[1], 0)/p[0])
		}
	}
	for _, q := range r.Extended {
		if q.Value > 0 {
			n = min(n, max(free.Get(q.Name), 0)/q.Value)
		}
	}
	for _, q := range r.Volumes {
		if limit, ok := free.VolumeLimit(string(q.Name)); ok && q.Value > 0 {
			n = min(n, max(limit, 0)/q.Value)
		}
	}
	return n
}

// Shortage returns the first resource (CPU, memory, ephemeral-storage, pods, then
// extended ones by name, then volumes) of which r asks more than free has, with both amounts in
// the units of [Resources]; ok is false when r fits.
func (r Resources) Shortage(free Resources) (name corev1.ResourceName, asked, have int64, ok bool) {
	for _, n := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory, corev1.ResourceEphemeralStorage, corev1.ResourcePods} {
		if a, h := r.Get(n), free.Get(n); a > 0 && a > h {
			return n, a, h, true
		}
	}
	for _, q := range r.Extended {
		if h := free.Get(q.Name); q.Value > 0 && q.Value > h {
			return q.Name, q.Value, h, true
		}
	}
	for _, q := range r.Volumes {
		if h, limited := free.VolumeLimit(string(q.Name)); limited && q.Value > 0 && q.Value > h {
			return "volumes of CSI driver " + q.Name, q.Value, h, true
		}
	}
	return "", 0, 0, false
}

// IsZero reports whether every component is zero.
func (r Resources) IsZero() bool {
	return r.CPU == 0 && r.Memory == 0 && r.Ephemeral == 0 && r.Pods == 0 && len(r.Extended) == 0 && len(r.Volumes) == 0
}

// Equal reports component-wise equality.
func (r Resources) Equal(o Resources) bool {
	return r.CPU == o.CPU && r.Memory == o.Memory && r.Ephemeral == o.Ephemeral && r.Pods == o.Pods &&
		slices.Equal(r.Extended, o.Extended) && slices.Equal(r.Volumes, o.Volumes)
}

// FormatQuantity prints an amount of a resource in the unit people write it in:
// CPU in cores or millicores, memory and storage in binary units.
func FormatQuantity(name corev1.ResourceName, v int64) string {
	switch name {
	case corev1.ResourceCPU:
		return resource.NewMilliQuantity(v, resource.DecimalSI).String()
	case corev1.ResourceMemory, corev1.ResourceEphemeralStorage:
		const gi = 1 << 30
		if v >= gi && v%gi != 0 {
			return fmt.Sprintf("%.2fGi", float64(v)/gi)
		}
		return resource.NewQuantity(v, resource.BinarySI).String()
	default:
		return resource.NewQuantity(v, resource.DecimalSI).String()
	}
}

// String prints the non-zero components, largest concern first, for messages and tests.
func (r Resources) String() string {
	var parts []string
	add := func(name corev1.ResourceName, v int64) {
		if v != 0 {
			parts = append(parts, string(name)+"="+FormatQuantity(name, v))
		}
	}
	add(corev1.ResourceCPU, r.CPU)
	add(corev1.ResourceMemory, r.Memory)
	add(corev1.ResourceEphemeralStorage, r.Ephemeral)
	add(corev1.ResourcePods, r.Pods)
	for _, q := range r.Extended {
		add(q.Name, q.Value)
	}
	for _, q := range r.Volumes {
		add("volumes/"+q.Name, q.Value)
	}
	return strings.Join(parts, " ")
}
