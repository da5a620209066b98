// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/fake"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/builder"
)

const providerID = "aws:///us-east-1a/i-0123456789abcdef0"

// kube is a client of the objects that answers the field selectors Gather uses.
func kube(objects ...client.Object) client.Client {
	event := func(of func(*corev1.Event) string) client.IndexerFunc {
		return func(o client.Object) []string { return []string{of(o.(*corev1.Event))} }
	}
	return fake.NewClientBuilder().WithScheme(scheme.Scheme).WithObjects(objects...).
		WithIndex(&corev1.Event{}, "involvedObject.kind", event(func(e *corev1.Event) string { return e.InvolvedObject.Kind })).
		WithIndex(&corev1.Event{}, "involvedObject.name", event(func(e *corev1.Event) string { return e.InvolvedObject.Name })).
		WithIndex(&corev1.Pod{}, "spec.nodeName", func(o client.Object) []string { return []string{o.(*corev1.Pod).Spec.NodeName} }).
		Build()
}

// at is a time some seconds into the story.
func at(seconds int) metav1.Time {
	return metav1.NewTime(builder.Epoch().Add(time.Duration(seconds) * time.Second))
}

func event(o client.Object, kind string, seconds int, reason, message string) *corev1.Event {
	return &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: strings.ToLower(kind) + reason, Namespace: metav1.NamespaceDefault},
		InvolvedObject: corev1.ObjectReference{Kind: kind, Namespace: o.GetNamespace(), Name: o.GetName()},
		EventTime:      metav1.NewMicroTime(at(seconds).Time), Reason: reason, Message: message,
	}
}

func tell(t *testing.T, kube client.Client, kind, name string, seconds int) string {
	t.Helper()
	key := types.NamespacedName{Name: name}
	if kind == "pod" {
		key.Namespace = metav1.NamespaceDefault
	}
	facts, err := Gather(t.Context(), kube, kind, key)
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	if err := facts.Tell(at(seconds).Time).Write(&out); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// claim is one bought for pod default/web at second 1, with every condition it has at second 2 and later.
func claim(change func(*builder.NodeClaimBuilder)) *karpv1.NodeClaim {
	b := builder.NodeClaim("general-x").Pool("general")
	change(b)
	c := b.Obj()
	c.CreationTimestamp = at(1)
	c.Annotations = map[string]string{provisioner.PodsAnnotation: "default/web,default/other", provisioner.PriceAnnotation: "0.096"}
	for i := range c.Status.Conditions {
		c.Status.Conditions[i].LastTransitionTime = at(2 + 10*i)
	}
	return c
}

func TestStories(t *testing.T) {
	pod := func(change func(*builder.PodBuilder)) *corev1.Pod {
		b := builder.Pod("web").Scheduler("slipway")
		change(b)
		p := b.Obj()
		p.CreationTimestamp = at(0)
		for i := range p.Status.Conditions {
			p.Status.Conditions[i].LastTransitionTime = at(40)
		}
		return p
	}
	waiting := pod(func(b *builder.PodBuilder) { b.Unschedulable("0/3 nodes are available") })
	node := builder.Node("ip-10-0-1-1").Obj()
	node.Spec.ProviderID = providerID
	node.Labels = map[string]string{corev1.LabelInstanceTypeStable: "m5.large", corev1.LabelTopologyZone: "us-east-1a", karpv1.CapacityTypeLabelKey: "spot"}
	launched := func(b *builder.NodeClaimBuilder) { b.Launched(providerID, "m5.large", "us-east-1a", "spot") }
	unready := builder.NodePool("general").NotReady(karpv1.ConditionTypeNodeClassReady, "NodeClassNotReady", "EC2NodeClass \"default\": no subnet matches").Obj()
	unready.Spec.Limits = karpv1.Limits{corev1.ResourceCPU: resource.MustParse("100")}
	unready.Status.Resources = corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8")}

	tests := map[string]struct {
		objects    []client.Object
		kind, name string
		want       []string // in this order
	}{
		"pod that fits nowhere": {
			[]client.Object{waiting, event(waiting, "Pod", 1, "FailedScheduling", "nearest NodePool \"general\": limit reached")},
			"pod", "web",
			[]string{
				"pod default/web\n", "created for scheduler slipway", "+1s", "FailedScheduling: nearest NodePool",
				"It has waited 50s, and no node is on its way for it: nearest NodePool \"general\": limit reached",
			},
		},
		"pod nobody schedules": {
			[]client.Object{pod(func(b *builder.PodBuilder) { b.Scheduler("slipwya") })},
			"pod", "web",
			[]string{`scheduler "slipwya" has not said anything about it: is it running?`},
		},
		"pod whose node boots": {
			[]client.Object{waiting, claim(launched)},
			"pod", "web",
			[]string{
				"created", "nodeclaim general-x", "written for NodePool general, planned at $0.096 an hour, for default/web, default/other", "+2s", "Launched",
				"It has waited 50s and waits for its node: nodeclaim general-x is instance " + providerID + " (m5.large, us-east-1a, spot) for 48s; it boots and has not joined yet.",
			},
		},
		"pod whose node cannot be bought": {
			[]client.Object{waiting, claim(func(b *builder.NodeClaimBuilder) {
				b.False(karpv1.ConditionTypeLaunched, "LaunchFailed", "EC2 has no capacity")
			})},
			"pod", "web",
			[]string{"Launched is false: EC2 has no capacity", "general-x is not launched yet, 49s after it was written: EC2 has no capacity."},
		},
		"pod on its node": {
			[]client.Object{pod(func(b *builder.PodBuilder) { b.On("ip-10-0-1-1") }), node},
			"pod", "web",
			[]string{"It is on node ip-10-0-1-1 (m5.large, us-east-1a, spot)"},
		},
		"node that is kept": {
			[]client.Object{
				node, claim(func(b *builder.NodeClaimBuilder) { launched(b); b.Registered("ip-10-0-1-1").Initialized() }),
				event(node, "Node", 45, "DisruptionBlocked", "pod \"default/db\" has do-not-disrupt"),
				builder.Pod("db").On("ip-10-0-1-1").Obj(),
			},
			"node", "ip-10-0-1-1",
			[]string{
				"nodeclaim general-x\n", "node ip-10-0-1-1", "DisruptionBlocked: pod",
				"general-x is node ip-10-0-1-1 (m5.large, us-east-1a, spot), usable. Pods on its node: 1. What keeps it: pod \"default/db\" has do-not-disrupt.",
			},
		},
		"node of others": {
			[]client.Object{node}, "node", "ip-10-0-1-1", []string{"Slipway has not bought it and leaves it alone."},
		},
		"pool that cannot be used": {
			[]client.Object{unready, claim(launched)},
			"nodepool", "general",
			[]string{
				"NodeClassReady is false: EC2NodeClass \"default\": no subnet matches",
				"NodeClaims: 1. Used of its limits: cpu 8 of 100. Nothing is bought from it: EC2NodeClass \"default\": no subnet matches.",
			},
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			got := tell(t, kube(tt.objects...), tt.kind, tt.name, 50)
			rest := got
			for _, want := range tt.want {
				_, after, ok := strings.Cut(rest, want)
				if !ok {
					t.Fatalf("the story lacks, after what comes before it, %q:\n%s", want, got)
				}
				rest = after
			}
		})
	}
}

func TestGatherMissing(t *testing.T) {
	for kind, want := range map[string]string{
		"pod": `reading pod /gone: pods "gone" not found`, "node": `reading node "gone"`,
		"nodeclaim": `reading NodeClaim "gone"`, "nodepool": `reading NodePool "gone"`, "secret": `cannot explain a "secret"`,
	} {
		_, err := Gather(t.Context(), kube(), kind, types.NamespacedName{Name: "gone"})
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: error %v, want one with %q", kind, err, want)
		}
	}
}
