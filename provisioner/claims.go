// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package provisioner

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/log"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/provisioner/launch"
	"github.com/slipway-sh/slipway/provisioner/plan"
)

// Annotations Slipway writes on the NodeClaims of its plans.
const (
	// PodsAnnotation lists the pods (namespace/name, comma separated) the claim was bought for. It is how a plan survives a restart.
	PodsAnnotation = "slipway.sh/pods"
	// AheadAnnotation is how many pods the claim was bought for beyond those: pods their owners had still to create.
	AheadAnnotation = "slipway.sh/pods-ahead"
	// OfferedAnnotation is when the first of those pods failed to schedule, PlannedAnnotation when the plan was made (RFC 3339
	// with nanoseconds). Together with the claim's conditions they are the time line of a launch.
	OfferedAnnotation = "slipway.sh/offered-at"
	PlannedAnnotation = capacity.PlannedAnnotation
	// PriceAnnotation is the cheapest acceptable offering's price in US dollars an hour, as planned.
	PriceAnnotation = "slipway.sh/planned-price"
)

// draft is a NodeClaim to be written, with the pods it is for: all of them, and those that exist.
type draft struct {
	claim        *karpv1.NodeClaim
	places, pods []*corev1.Pod
	what         string // its likeliest instance, for people
}

// drafts turns launches into claims. Equal launches get one launch group, so that they share one CreateFleet call. The pods
// of a launch whose pool is gone meanwhile are planned again; the other launches go on.
func (p *Provisioner) drafts(ctx context.Context, launches []plan.Launch, pods map[types.UID]*corev1.Pod, offered map[types.UID]time.Time, now time.Time) []draft {
	groups := groupLaunches(launches)
	images := imagesByPool(launches, pods)
	out := make([]draft, 0, len(launches))
	for i, l := range launches {
		var d draft
		first := now
		for _, q := range l.Pods {
			pod := pods[q.UID]
			d.places = append(d.places, pod)
			t, there := offered[q.UID]
			if !there {
				continue // a seat
			}
			d.pods = append(d.pods, pod)
			if t.Before(first) {
				first = t
			}
		}
		np := &karpv1.NodePool{}
		if err := p.Kube.Get(ctx, types.NamespacedName{Name: l.Pool.Name}, np); err != nil {
			log.FromContext(ctx).Error(err, "reading the NodePool of a plan", "nodePool", l.Pool.Name)
			p.again(ctx, d.pods)
			continue
		}
		d.claim = launch.NewClaim(np, l)
		d.what = "planned as " + instanceWords(l.Offerings[0].Type.Name, l.Offerings[0].CapacityType, l.Price())
		a := d.claim.Annotations
		a[PodsAnnotation] = joinPods(d.pods)
		if list := images[l.Pool.Name]; list != "" {
			a[launch.ImagesAnnotation] = list
		}
		if ahead := len(d.places) - len(d.pods); ahead > 0 {
			a[AheadAnnotation] = strconv.Itoa(ahead)
		}
		a[OfferedAnnotation] = first.UTC().Format(time.RFC3339Nano)
		a[PlannedAnnotation] = now.UTC().Format(time.RFC3339Nano)
		a[PriceAnnotation] = fmt.Sprintf("%.5f", l.Price())
		if groups[i] != "" {
			a[launch.LaunchGroupAnnotation] = groups[i]
		}
		out = append(out, d)
	}
	return out
}

// imagesByPool lists the images of the pods that nodes of each pool are bought for. It is one list for all claims of a pool:
// they boot from the same launch template.
func imagesByPool(launches []plan.Launch, pods map[types.UID]*corev1.Pod) map[string]string {
	members := map[string][]*corev1.Pod{}
	for _, l := range launches {
		for _, q := range l.Pods {
			if pod := pods[q.UID]; pod != nil {
				members[l.Pool.Name] = append(members[l.Pool.Name], pod)
			}
		}
	}
	out := make(map[string]string, len(members))
	for pool, of := range members {
		out[pool] = strings.Join(launch.ImagesOf(of), ",")
	}
	return out
}

// groupLaunches gives launches that differ in nothing but their pods a common id; a launch without a twin gets none.
func groupLaunches(launches []plan.Launch) []string {
	keys := make([]string, len(launches))
	count := map[string]int{}
	for i, l := range launches {
		keys[i] = l.Pool.Name + "|" + fullString(l.Requirements) + "|" + l.Requests.String()
		count[keys[i]]++
	}
	ids := map[string]string{}
	out := make([]string, len(launches))
	for i, k := range keys {
		if count[k] < 2 {
			continue
		}
		if ids[k] == "" {
			ids[k] = string(uuid.NewUUID())
		}
		out[i] = ids[k]
	}
	return out
}

// fullString prints requirements without shortening value lists.
func fullString(r capacity.Requirements) string {
	var b strings.Builder
	for _, k := range r.Keys() {
		for _, s := range r[k].Selectors() {
			fmt.Fprintf(&b, "%s %s %v;", s.Key, s.Operator, s.Values)
		}
	}
	return b.String()
}

func joinPods(pods []*corev1.Pod) string {
	names := make([]string, len(pods))
	for i, p := range pods {
		names[i] = p.Namespace + "/" + p.Name
	}
	return strings.Join(names, ",")
}

// splitPods reads a PodsAnnotation.
func splitPods(s string) []types.NamespacedName {
	var out []types.NamespacedName
	for item := range strings.SplitSeq(s, ",") {
		if ns, name, ok := strings.Cut(item, "/"); ok {
			out = append(out, types.NamespacedName{Namespace: ns, Name: name})
		}
	}
	return slices.Clip(out)
}

// instanceWords describes an instance with its price in US dollars an hour.
func instanceWords(instanceType, capacityType string, price float64) string {
	return fmt.Sprintf("%s %s at $%.4g/h", instanceType, capacityType, price)
}

// words are instanceWords for a node that is on its way, "" if its instance is not known yet.
func words(n *capacity.Node) string {
	if n.InstanceType == "" {
		return ""
	}
	return instanceWords(n.InstanceType, n.CapacityType, n.Price)
}
