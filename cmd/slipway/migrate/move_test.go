// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/interceptor"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/test/builder"
)

// played is a fake cluster in which a Deployment's pods follow its replicas at once, and who runs holds the lease.
type played struct {
	client.Client
	denied string // verb that people may not use
	writes []string
	// refuses keeps Slipway from taking the lease.
	refuses bool
}

func newPlayed(t *testing.T, objects map[string]client.Object) *played {
	t.Helper()
	p := &played{}
	inner := world(t, objects).Build()
	p.Client = interceptor.NewClient(inner, interceptor.Funcs{
		Create: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.CreateOption) error {
			if review, ok := o.(*authorizationv1.SelfSubjectAccessReview); ok {
				review.Status.Allowed = review.Spec.ResourceAttributes.Verb != p.denied
				return nil
			}
			p.writes = append(p.writes, "create "+o.GetName())
			return c.Create(ctx, o, opts...)
		},
		Delete: func(ctx context.Context, c client.WithWatch, o client.Object, opts ...client.DeleteOption) error {
			p.writes = append(p.writes, "delete "+o.GetName())
			return c.Delete(ctx, o, opts...)
		},
		Patch: func(ctx context.Context, c client.WithWatch, o client.Object, patch client.Patch, opts ...client.PatchOption) error {
			if err := c.Patch(ctx, o, patch, opts...); err != nil {
				return err
			}
			d := o.(*appsv1.Deployment)
			p.writes = append(p.writes, "scale "+d.Name)
			return p.follow(ctx, c, d)
		},
	})
	return p
}

// follow plays the controllers of Deployments and the elections.
func (p *played) follow(ctx context.Context, c client.Client, d *appsv1.Deployment) error {
	var lease coordinationv1.Lease
	if err := c.Get(ctx, client.ObjectKey{Namespace: "kube-system", Name: "karpenter-leader-election"}, &lease); err != nil {
		return err
	}
	slipway := d.Name == "slipway"
	if slipway && p.refuses {
		return nil
	}
	switch {
	case *d.Spec.Replicas > 0 && slipway, *d.Spec.Replicas == 0 && !slipway:
		lease.Spec.HolderIdentity = new("slipway_0")
	default:
		lease.Spec.HolderIdentity = new("karpenter-1")
	}
	if p.refuses {
		lease.Spec.HolderIdentity = new("")
	}
	return c.Update(ctx, &lease)
}

func (p *played) mover(out *bytes.Buffer) *Mover {
	return &Mover{Kube: p, Names: theNames(), Minor: "37", Patience: 10 * time.Second, Out: out}
}

func (p *played) site(t *testing.T) *Site {
	t.Helper()
	s, err := Gather(t.Context(), p, "37", theNames())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func (p *played) deployment(t *testing.T, namespace, name string) *appsv1.Deployment {
	t.Helper()
	d := &appsv1.Deployment{}
	if err := p.Get(t.Context(), client.ObjectKey{Namespace: namespace, Name: name}, d); err != nil {
		t.Fatal(err)
	}
	return d
}

func TestTakeoverAndBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := newPlayed(t, good())
		var out bytes.Buffer
		// 1. Nothing is changed without being asked for.
		if err := p.mover(&out).Takeover(t.Context(), p.site(t), false); err != nil {
			t.Fatal(err)
		}
		if len(p.writes) > 0 || !strings.Contains(out.String(), "scale to zero: Deployment kube-system/karpenter") || !strings.Contains(out.String(), "Nothing was changed") {
			t.Fatalf("a dry run wrote %v and said\n%s", p.writes, &out)
		}
		// 2. There.
		if err := p.mover(&out).Takeover(t.Context(), p.site(t), true); err != nil {
			t.Fatal(err)
		}
		k := p.deployment(t, "kube-system", "karpenter")
		if *k.Spec.Replicas != 0 || k.Annotations[ReplicasAnnotation] != "2" || !ours(p.site(t).holder()) {
			t.Errorf("Karpenter has %d replicas, annotations %v; the lease is held by %q", *k.Spec.Replicas, k.Annotations, p.site(t).holder())
		}
		if !strings.Contains(out.String(), "Slipway has the cluster: 1 NodeClaim, 0 drifted anew.") {
			t.Errorf("it said\n%s", &out)
		}
		// 3. Once more changes nothing.
		if err := p.mover(&out).Takeover(t.Context(), p.site(t), true); err != nil {
			t.Fatal(err)
		}
		if k := p.deployment(t, "kube-system", "karpenter"); k.Annotations[ReplicasAnnotation] != "2" {
			t.Errorf("the second time Karpenter's replicas are forgotten: %v", k.Annotations)
		}
		// 4. And back.
		if err := p.mover(&out).Handback(t.Context(), p.site(t), true); err != nil {
			t.Fatal(err)
		}
		k, s := p.deployment(t, "kube-system", "karpenter"), p.deployment(t, "slipway-system", "slipway")
		if *k.Spec.Replicas != 2 || k.Annotations[ReplicasAnnotation] != "" || *s.Spec.Replicas != 0 || s.Annotations[ReplicasAnnotation] != "2" {
			t.Errorf("after going back Karpenter is %d %v, Slipway %d %v", *k.Spec.Replicas, k.Annotations, *s.Spec.Replicas, s.Annotations)
		}
		// 5. And there again.
		if err := p.mover(&out).Takeover(t.Context(), p.site(t), true); err != nil {
			t.Fatal(err)
		}
		if s := p.deployment(t, "slipway-system", "slipway"); *s.Spec.Replicas != 2 {
			t.Errorf("Slipway has %d replicas, want the 2 it had", *s.Spec.Replicas)
		}
	})
}

// Whoever began a claim gives it its instance: the move waits.
func TestTakeoverWaitsForLaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		objects := good()
		objects["new"] = builder.NodeClaim("default-2").Pool("default").Obj()
		p := newPlayed(t, objects)
		var out bytes.Buffer
		begun := time.Now()
		go func() {
			time.Sleep(5 * time.Second)
			c := &karpv1.NodeClaim{}
			if p.Get(t.Context(), client.ObjectKey{Name: "default-2"}, c) == nil {
				done := stampedClaim("default-2")
				done.ResourceVersion = c.ResourceVersion
				if err := p.Update(t.Context(), done); err != nil {
					t.Error(err)
				}
				done.Status.ProviderID = "aws:///a/i-2"
				if err := p.Status().Update(t.Context(), done); err != nil {
					t.Error(err)
				}
			}
		}()
		if err := p.mover(&out).Takeover(t.Context(), p.site(t), true); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(begun); waited < 5*time.Second {
			t.Errorf("Karpenter was stopped after %s, in the middle of its launch", waited)
		}
		for _, w := range p.writes {
			if strings.HasPrefix(w, "delete") {
				t.Errorf("wrote %q for a claim that has an instance", w)
			}
		}
	})
}

func TestTakeoverFails(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]client.Object)
		play   func(*played)
		want   []string
		writes int
	}{
		"a launch that does not end": {
			change: func(o map[string]client.Object) { o["new"] = builder.NodeClaim("default-2").Pool("default").Obj() },
			want:   []string{"not within 10s: without an instance: default-2", "Nothing has been changed"},
		},
		"no right to scale": {
			play: func(p *played) { p.denied = "patch" },
			want: []string{"you may not patch deployments karpenter in namespace \"kube-system\"", "Nothing has been changed"},
		},
		"no right to delete": {
			play: func(p *played) { p.denied = "delete" },
			want: []string{"you may not delete nodeclaims", "Nothing has been changed"},
		},
		"a pod that stays": {
			change: func(o map[string]client.Object) {
				o["stuck"] = builder.Pod("karpenter-x").Namespace("kube-system").Label(nameLabel, "karpenter").Obj()
			},
			want:   []string{"not within 10s: still there: kube-system/karpenter-x", "go back: slipway migrate handback --yes"},
			writes: 1,
		},
		"a lease nobody takes": {
			play:   func(p *played) { p.refuses = true },
			want:   []string{`wait until Slipway holds the lease kube-system/karpenter-leader-election: not within 10s: it is held by ""`, "go back"},
			writes: 2,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				objects := good()
				if tt.change != nil {
					tt.change(objects)
				}
				p := newPlayed(t, objects)
				if tt.play != nil {
					tt.play(p)
				}
				err := p.mover(&bytes.Buffer{}).Takeover(t.Context(), p.site(t), true)
				if err == nil {
					t.Fatal("no error")
				}
				for _, want := range tt.want {
					if !strings.Contains(err.Error(), want) {
						t.Errorf("error %q, want %q in it", err, want)
					}
				}
				if len(p.writes) != tt.writes {
					t.Errorf("wrote %v, want %d writes", p.writes, tt.writes)
				}
			})
		})
	}
}

// A claim that Karpenter began while it was being stopped has nobody: it is deleted, unless it got its instance after all.
func TestForget(t *testing.T) {
	objects := good()
	objects["new"] = builder.NodeClaim("default-2").Pool("default").Obj()
	p := newPlayed(t, objects)
	if err := p.mover(&bytes.Buffer{}).forget(t.Context(), []string{"default-1", "default-2", "gone"}); err != nil {
		t.Fatal(err)
	}
	if len(p.writes) != 1 || p.writes[0] != "delete default-2" {
		t.Errorf("wrote %v, want the deletion of default-2 only", p.writes)
	}
}

// A pool that becomes unready and claims that are not stamped keep a move from being done.
func TestSettled(t *testing.T) {
	tests := map[string]struct {
		change func(map[string]client.Object)
		want   string
	}{
		"all well": {},
		"a pool became unready": {
			change: func(o map[string]client.Object) {
				o["pool"] = builder.NodePool("default").NotReady(karpv1.ConditionTypeNodeClassReady, "X", "no class").Annotation(karpv1.NodePoolHashVersionAnnotationKey, karpv1.NodePoolHashVersion).Obj()
			},
			want: `NodePool "default" is not ready: NodeClassReady=False`,
		},
		"a claim is not stamped": {
			change: func(o map[string]client.Object) {
				metav1.SetMetaDataAnnotation(&o["claim"].(*karpv1.NodeClaim).ObjectMeta, karpv1.NodePoolHashVersionAnnotationKey, "v1")
			},
			want: `NodeClaim "default-1" is not stamped`,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				before := newPlayed(t, good()).site(t)
				objects := good()
				if tt.change != nil {
					tt.change(objects)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
				defer cancel()
				err := newPlayed(t, objects).mover(&bytes.Buffer{}).settled(ctx, before)
				if (tt.want == "") != (err == nil) || (err != nil && !strings.Contains(err.Error(), tt.want)) {
					t.Errorf("error %v, want %q", err, tt.want)
				}
			})
		})
	}
}
