// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package launch

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/utils/clock"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/test/builder"
)

func TestImagesOf(t *testing.T) {
	pod := func(images ...string) *corev1.Pod {
		p := &corev1.Pod{}
		for _, i := range images {
			p.Spec.Containers = append(p.Spec.Containers, corev1.Container{Image: i})
		}
		return p
	}
	secret, present, first := pod("secret"), pod("present"), pod("web")
	secret.Spec.ImagePullSecrets = []corev1.LocalObjectReference{{Name: "registry"}}
	present.Spec.Containers[0].ImagePullPolicy = corev1.PullNever
	first.Spec.InitContainers = []corev1.Container{{Image: "migrate"}}
	if d := cmp.Diff([]string{"migrate", "proxy", "web"}, ImagesOf([]*corev1.Pod{first, pod("web", "proxy"), secret, present, pod("$(id)")})); d != "" {
		t.Errorf("images (-want +got):\n%s", d)
	}
	var many []*corev1.Pod
	for i := range 20 {
		many = append(many, pod(fmt.Sprintf("rare-%d", i), "zz-common"))
	}
	if got := ImagesOf(many); len(got) != maxImages || !slices.Contains(got, "zz-common") {
		t.Errorf("of many images: %v", got)
	}
}

func named(pool, images string) *karpv1.NodeClaim {
	return builder.NodeClaim("c").Pool(pool).Annotation(ImagesAnnotation, images).Obj()
}

func TestImagesOfAPoolChangeSeldom(t *testing.T) {
	p := pulls{pools: map[string]*pull{}}
	start := time.Date(2026, 11, 30, 12, 0, 0, 0, time.UTC)
	learn := func(after time.Duration, claims ...*karpv1.NodeClaim) bool {
		now := start.Add(after)
		return p.learn(claims, func(*karpv1.NodeClaim) time.Time { return now }, now)
	}
	want := func(pool string, want ...string) {
		t.Helper()
		if now, _ := p.of(pool); !slices.Equal(now, want) {
			t.Errorf("pool %s pulls %v, want %v", pool, now, want)
		}
	}
	// The first claims decide at once, all those launched together for each pool.
	if !learn(0, named("a", "web,proxy"), named("a", "jobs"), named("b", "web"), named("c", "")) {
		t.Error("first images are no change")
	}
	want("a", "jobs", "proxy", "web")
	want("b", "web")
	want("c")
	// Others wait.
	if learn(time.Minute, named("a", "new")) {
		t.Error("images changed twice within a minute")
	}
	want("a", "jobs", "proxy", "web")
	if learn(2*time.Minute, named("b", "web")) {
		t.Error("the same images are a change")
	}
	if !learn(imagesEvery, named("a", "web")) {
		t.Error("images did not change when they could")
	}
	want("a", "jobs", "new", "proxy", "web")
	if _, before := p.of("a"); !slices.Equal(before, []string{"jobs", "proxy", "web"}) {
		t.Errorf("images before the change: %v", before)
	}
	// With all places taken the images in use keep theirs.
	learn(2*imagesEvery, named("a", "x1,x2,x3,x4,x5,x6,x7,x8"))
	want("a", "jobs", "new", "proxy", "web", "x1", "x2", "x3", "x4")
	// What nobody has asked for in an hour gives way, the oldest first.
	learn(imageBusy+3*imagesEvery, named("a", "y1,y2"))
	want("a", "x1", "x2", "x3", "x4", "x5", "x6", "y1", "y2")
	// And goes in the end.
	p.review(start.Add(imageKept + 24*time.Hour))
	want("a")
	want("b")
	if len(p.pools) != 0 {
		t.Errorf("%d pools without images are remembered", len(p.pools))
	}
}

func TestForeignAnnotationsBringNoScript(t *testing.T) {
	p := pulls{pools: map[string]*pull{}}
	now := time.Now()
	at := func(*karpv1.NodeClaim) time.Time { return now }
	p.learn([]*karpv1.NodeClaim{named("a", "web,a' 'b; reboot,$(id),,"+strings.Repeat("x,", 1000))}, at, now)
	if images, _ := p.of("a"); !slices.Equal(images, []string{"web", "x"}) {
		t.Errorf("images %v", images)
	}
	for i := range 2 * maxNamed {
		p.learn([]*karpv1.NodeClaim{named("a", fmt.Sprintf("image-%d", i))}, at, now)
	}
	if n := len(p.pools["a"].named); n > maxNamed {
		t.Errorf("%d images are remembered", n)
	}
}

// The first launch with new images waits for one template and takes the others as they were; the next finds all.
func TestLaunchPullsTheImagesOfItsPods(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		if err := r.Templates.sync(quiet(t.Context())); err != nil {
			t.Fatal(err)
		}
		ahead, waited := len(r.store.made), 0
		r.cloud.script = func(int, ec2.FleetRequest, func(int32) ec2.FleetResult) (ec2.FleetResult, error, bool) {
			r.store.mu.Lock()
			defer r.store.mu.Unlock()
			waited = len(r.store.made) - ahead
			return ec2.FleetResult{}, nil, false
		}
		c := claims(1, "")
		c[0].Annotations = map[string]string{ImagesAnnotation: "nginx:1,redis"}
		r.Launch(quiet(t.Context()), create(t, kube, c...))
		synctest.Wait()
		if len(r.cloud.sent) != 1 || waited != 1 {
			t.Fatalf("%d calls were sent, the first after %d new templates, want 1 and 1", len(r.cloud.sent), waited)
		}
		with := map[string]bool{}
		for _, o := range r.cloud.sent[0].Overrides {
			i := slices.IndexFunc(r.store.made, func(m ec2.Template) bool { return m.Name == o.TemplateName })
			with[o.ImageID] = strings.Contains(r.store.made[i].UserData, "'nginx:1' 'redis'")
		}
		if d := cmp.Diff(map[string]bool{"ami-arm64": true, "ami-amd64": false}, with); d != "" {
			t.Errorf("machine images whose nodes pull (-want +got):\n%s", d)
		}
		if err := r.Templates.sync(quiet(t.Context())); err != nil || len(r.store.made) != 2*ahead {
			t.Errorf("%d templates in the end, want those with images beside the %d without (error %v)", len(r.store.made), ahead, err)
		}
	})
}

// A template with new images that cannot be made is no reason not to launch.
func TestLaunchGoesOnWithoutImages(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kube := newKube(t, readyClass())
		r := newRig(kube, newCloud())
		if err := r.Templates.sync(quiet(t.Context())); err != nil {
			t.Fatal(err)
		}
		r.store.fail = func(ec2.Template) error { return failure(capacity.Throttled, "RequestLimitExceeded") }
		c := claims(1, "")
		c[0].Annotations = map[string]string{ImagesAnnotation: "nginx:1"}
		r.Launch(quiet(t.Context()), create(t, kube, c...))
		synctest.Wait()
		if len(r.cloud.sent) != 1 || len(r.cloud.sent[0].Overrides) != 4 {
			t.Errorf("sent %v, want one call with the templates there are", r.cloud.sent)
		}
	})
}

// A process that starts goes on with what nodes pulled before.
func TestImagesOutliveTheProcess(t *testing.T) {
	old := builder.NodeClaim("old").Pool("default").Annotation(ImagesAnnotation, "nginx:1").Obj()
	old.CreationTimestamp.Time = time.Now().Add(-time.Hour)
	s := &store{}
	if err := NewTemplates(newKube(t, readyClass(), old), s, eks{}, clock.RealClock{}).sync(quiet(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(s.made) != 4 {
		t.Errorf("%d templates", len(s.made))
	}
	for _, m := range s.made {
		if !strings.Contains(m.UserData, "'nginx:1'") {
			t.Errorf("template %s does not pull the image", m.Name)
		}
	}
}
