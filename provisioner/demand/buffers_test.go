// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/kubernetes/scheme"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	buffersv1beta1 "sigs.k8s.io/karpenter/pkg/apis/autoscaling/v1beta1"

	"github.com/slipway-sh/slipway/test/builder"
)

func templateSpec(cpu string) corev1.PodTemplateSpec {
	return corev1.PodTemplateSpec{
		ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "web"}},
		Spec: corev1.PodSpec{
			NodeName:        "nowhere",
			SchedulingGates: []corev1.PodSchedulingGate{{Name: "later"}},
			Volumes: []corev1.Volume{
				{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data"}}},
				{Name: "tmp", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
			},
			Containers: []corev1.Container{{Name: "c", Image: "registry.example/c:1", Resources: corev1.ResourceRequirements{
				Requests: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse(cpu), corev1.ResourceMemory: resource.MustParse("1Gi")},
			}}},
		},
	}
}

func buffer(spec buffersv1beta1.CapacityBufferSpec) *buffersv1beta1.CapacityBuffer {
	return &buffersv1beta1.CapacityBuffer{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "spare", UID: "b", Generation: 1}, Spec: spec}
}

// world is an API server with a PodTemplate of half a core and a Deployment of ten pods of one core.
func world(more ...client.Object) client.WithWatch {
	objects := slices.Concat(more, []client.Object{
		&corev1.PodTemplate{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "half", UID: "t", Generation: 3}, Template: templateSpec("500m")},
		&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: "web", UID: "d"}, Spec: appsv1.DeploymentSpec{Replicas: new(int32(10)), Template: templateSpec("1")}},
	})
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).WithStatusSubresource(&buffersv1beta1.CapacityBuffer{}).Build()
}

func TestBufferSizes(t *testing.T) {
	half, web := &buffersv1beta1.LocalObjectRef{Name: "half"}, &buffersv1beta1.ScalableRef{Kind: "Deployment", Name: "web"}
	for name, tc := range map[string]struct {
		spec   buffersv1beta1.CapacityBufferSpec
		want   int
		reason string // of ReadyForProvisioning, where it is false
	}{
		"replicas of a template":     {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(3))}, 3, ""},
		"none":                       {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(0))}, 0, ""},
		"nothing said":               {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half}, 0, ""},
		"limits alone":               {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Limits: buffersv1beta1.Limits{"cpu": resource.MustParse("2200m")}}, 4, ""},
		"the tightest of limits":     {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Limits: buffersv1beta1.Limits{"cpu": resource.MustParse("10"), "memory": resource.MustParse("2Gi")}}, 2, ""},
		"limits below replicas":      {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(9)), Limits: buffersv1beta1.Limits{"cpu": resource.MustParse("1")}}, 2, ""},
		"limits above replicas":      {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(1)), Limits: buffersv1beta1.Limits{"cpu": resource.MustParse("1")}}, 1, ""},
		"limits of something else":   {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(3)), Limits: buffersv1beta1.Limits{"nvidia.com/gpu": resource.MustParse("1")}}, 3, ""},
		"percentage, rounded up":     {buffersv1beta1.CapacityBufferSpec{ScalableRef: web, Percentage: new(int32(25))}, 3, ""},
		"percentage above replicas":  {buffersv1beta1.CapacityBufferSpec{ScalableRef: web, Percentage: new(int32(50)), Replicas: new(int32(2))}, 5, ""},
		"replicas above percentage":  {buffersv1beta1.CapacityBufferSpec{ScalableRef: web, Percentage: new(int32(10)), Replicas: new(int32(2))}, 2, ""},
		"percentage of a template":   {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Percentage: new(int32(50)), Replicas: new(int32(2))}, 2, ""},
		"bounded":                    {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(1000000))}, mostChunks, ""},
		"negative limits":            {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Limits: buffersv1beta1.Limits{"cpu": resource.MustParse("-1")}}, 0, ""},
		"template missing":           {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "gone"}}, 0, reasonTemplateNotFound},
		"workload missing":           {buffersv1beta1.CapacityBufferSpec{ScalableRef: &buffersv1beta1.ScalableRef{Kind: "StatefulSet", Name: "web"}}, 0, reasonScalableNotFound},
		"kind not served":            {buffersv1beta1.CapacityBufferSpec{ScalableRef: &buffersv1beta1.ScalableRef{Kind: "Job", Name: "web"}}, 0, reasonResolutionFailed},
		"group not served":           {buffersv1beta1.CapacityBufferSpec{ScalableRef: &buffersv1beta1.ScalableRef{APIGroup: "example.com", Kind: "Deployment", Name: "web"}}, 0, reasonResolutionFailed},
		"neither":                    {buffersv1beta1.CapacityBufferSpec{Replicas: new(int32(1))}, 0, reasonResolutionFailed},
		"both":                       {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, ScalableRef: web, Replicas: new(int32(1))}, 0, reasonResolutionFailed},
		"apps is said":               {buffersv1beta1.CapacityBufferSpec{ScalableRef: &buffersv1beta1.ScalableRef{APIGroup: "apps", Kind: "Deployment", Name: "web"}, Replicas: new(int32(1))}, 1, ""},
		"the strategy is the active": {buffersv1beta1.CapacityBufferSpec{PodTemplateRef: half, Replicas: new(int32(3)), ProvisioningStrategy: new(buffersv1beta1.ActiveProvisioningStrategy)}, 3, ""},
	} {
		t.Run(name, func(t *testing.T) {
			kube := world(buffer(tc.spec))
			b := &Buffers{Kube: kube, Clock: clocktesting.NewFakePassiveClock(builder.Epoch())}
			got := b.Wanted(t.Context())
			if len(got) != 1 || len(got[0].Chunks) != tc.want {
				t.Fatalf("buffers %+v, want one of %d chunks", got, tc.want)
			}
			b.Tell(t.Context(), got[0], Kept{There: tc.want})
			written := &buffersv1beta1.CapacityBuffer{}
			if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "spare"}, written); err != nil {
				t.Fatal(err)
			}
			ready := meta.FindStatusCondition(written.Status.Conditions, buffersv1beta1.ReadyForProvisioningCondition)
			if ready == nil || (ready.Status == metav1.ConditionTrue) != (tc.reason == "") || tc.reason != "" && ready.Reason != tc.reason {
				t.Errorf("condition %+v, want reason %q", ready, tc.reason)
			}
			if tc.reason == "" && (written.Status.Replicas == nil || int(*written.Status.Replicas) != tc.want) {
				t.Errorf("status.replicas %v, want %d", written.Status.Replicas, tc.want)
			}
			provisioning := meta.IsStatusConditionTrue(written.Status.Conditions, buffersv1beta1.ProvisioningCondition)
			if want := tc.reason == "" && tc.want > 0; provisioning != want {
				t.Errorf("Provisioning is true: %v, want %v", provisioning, want)
			}
		})
	}
}

func TestChunks(t *testing.T) {
	kube := world(buffer(buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "half"}, Replicas: new(int32(2))}))
	clock := clocktesting.NewFakePassiveClock(builder.Epoch())
	b := &Buffers{Kube: kube, Clock: clock}
	chunks := b.Wanted(t.Context())[0].Chunks
	p := chunks[0]
	if p.Spec.NodeName != "" || p.Spec.SchedulingGates != nil || len(p.Spec.Volumes) != 1 || p.Spec.Volumes[0].Name != "tmp" || *p.Spec.Priority >= 0 {
		t.Errorf("chunk %+v: want a pod without node, gates and claims of volumes, of the lowest priority", p.Spec)
	}
	if p.Labels["app"] != "web" || p.UID == chunks[1].UID {
		t.Errorf("chunks %s and %s with labels %v: want two pods with the template's labels", p.UID, chunks[1].UID, p.Labels)
	}
	// A change of the template makes other pods.
	template := &corev1.PodTemplate{}
	if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "half"}, template); err != nil {
		t.Fatal(err)
	}
	template.Template, template.Generation = templateSpec("2"), 4
	if err := kube.Update(t.Context(), template); err != nil {
		t.Fatal(err)
	}
	if got := b.Wanted(t.Context())[0].Chunks[0]; got != p {
		t.Error("buffers were read again at once")
	}
	clock.SetTime(builder.Epoch().Add(buffersFresh))
	if got := b.Wanted(t.Context())[0].Chunks[0]; got.UID == p.UID || got.Spec.Containers[0].Resources.Requests.Cpu().String() != "2" {
		t.Errorf("chunk %s after the template has changed, was %s", got.UID, p.UID)
	}
}

// TestBuffersComeAndGo goes through the states of the API: absent, installed, out of reach, forbidden.
func TestBuffersComeAndGo(t *testing.T) {
	var fails error
	kube := interceptor.NewClient(world(buffer(buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "half"}, Replicas: new(int32(2))})), interceptor.Funcs{
		List: func(ctx context.Context, c client.WithWatch, list client.ObjectList, opts ...client.ListOption) error {
			if fails != nil {
				return fails
			}
			return c.List(ctx, list, opts...)
		},
	})
	clock := clocktesting.NewFakePassiveClock(builder.Epoch())
	b := &Buffers{Kube: kube, Clock: clock}
	kind := schema.GroupKind{Group: buffersv1beta1.Group, Kind: "CapacityBuffer"}
	resource := schema.GroupResource{Group: buffersv1beta1.Group, Resource: "capacitybuffers"}
	for _, step := range []struct {
		what  string
		fails error
		after time.Duration
		want  int
	}{
		{"not installed", &meta.NoKindMatchError{GroupKind: kind}, 0, 0},
		{"installed a moment ago", nil, buffersFresh, 0},
		{"installed", nil, buffersAbsent, 1},
		{"out of reach", errors.New("connection refused"), buffersFresh, 1},
		{"back", nil, buffersFresh, 1},
		{"not allowed any more", apierrors.NewForbidden(resource, "", errors.New("no")), buffersFresh, 0},
		{"removed", apierrors.NewNotFound(resource, ""), buffersAbsent, 0},
		{"installed again", nil, buffersAbsent, 1},
	} {
		fails = step.fails
		clock.SetTime(clock.Now().Add(step.after))
		if got := b.Wanted(t.Context()); len(got) != step.want {
			t.Errorf("%s: %d buffers, want %d", step.what, len(got), step.want)
		}
	}
}

func TestBufferOfAnotherStrategyIsLeftAlone(t *testing.T) {
	spec := buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "half"}, Replicas: new(int32(2)), ProvisioningStrategy: new("example.com/standby")}
	b := &Buffers{Kube: world(buffer(spec)), Clock: clocktesting.NewFakePassiveClock(builder.Epoch())}
	if got := b.Wanted(t.Context()); len(got) != 0 {
		t.Errorf("buffers %+v, want none", got)
	}
}

// TestBufferStatusIsWrittenOnce checks what is told, and that nothing is written while it stays the same.
func TestBufferStatusIsWrittenOnce(t *testing.T) {
	writes := 0
	kube := interceptor.NewClient(world(buffer(buffersv1beta1.CapacityBufferSpec{PodTemplateRef: &buffersv1beta1.LocalObjectRef{Name: "half"}, Replicas: new(int32(3))})), interceptor.Funcs{
		SubResourcePatch: func(ctx context.Context, c client.Client, sub string, o client.Object, p client.Patch, opts ...client.SubResourcePatchOption) error {
			writes++
			return c.SubResource(sub).Patch(ctx, o, p, opts...)
		},
	})
	b := &Buffers{Kube: kube, Clock: clocktesting.NewFakePassiveClock(builder.Epoch())}
	told := b.Wanted(t.Context())[0]
	for _, step := range []struct {
		kept   Kept
		writes int
		want   string
	}{
		{Kept{Coming: 3}, 1, "RequiresNewCapacity: 0 of 3 chunks have room on usable nodes, 3 on nodes that are on their way"},
		{Kept{Coming: 3}, 1, "RequiresNewCapacity: 0 of 3 chunks have room on usable nodes, 3 on nodes that are on their way"},
		{Kept{There: 2, Why: "the pool's limit is reached"}, 2, "RequiresNewCapacity: 2 of 3 chunks have room on usable nodes, 0 on nodes that are on their way; the pool's limit is reached"},
		{Kept{There: 3}, 3, "FitsExistingCapacity: All 3 chunks have room on usable nodes"},
	} {
		b.Tell(t.Context(), told, step.kept)
		written := &buffersv1beta1.CapacityBuffer{}
		if err := kube.Get(t.Context(), client.ObjectKey{Namespace: "default", Name: "spare"}, written); err != nil {
			t.Fatal(err)
		}
		c := meta.FindStatusCondition(written.Status.Conditions, buffersv1beta1.ProvisioningCondition)
		if c == nil {
			t.Fatal("no condition Provisioning")
		}
		if diff := cmp.Diff(step.want, c.Reason+": "+c.Message); diff != "" || writes != step.writes {
			t.Errorf("after %+v, %d writes, want %d; told (-want +got):\n%s", step.kept, writes, step.writes, diff)
		}
		if written.Status.PodTemplateRef == nil || written.Status.PodTemplateRef.Name != "half" || *written.Status.PodTemplateGeneration != 3 {
			t.Errorf("status %+v does not name its template", written.Status)
		}
	}
}
