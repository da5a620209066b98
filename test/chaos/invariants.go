// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package chaos

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner"
	"github.com/slipway-sh/slipway/test/bed"
)

// What violations of two kinds say: a pod with a second node on its way, and one that nothing was going to happen to.
const (
	SecondLaunch = "launched twice"
	Forgotten    = "pods were forgotten"
)

// watcher checks what has to hold at every instant, as far as looking again and again can tell.
type watcher struct {
	w          *world
	violations []string
	seen       map[string]bool
}

func newWatcher(w *world) *watcher { return &watcher{w: w, seen: map[string]bool{}} }

func (t *watcher) run(ctx context.Context) {
	for pause(ctx, 100*time.Millisecond) == nil {
		var claims karpv1.NodeClaimList
		if err := t.w.kube.List(ctx, &claims); err != nil {
			continue // what cannot be read now is read at the end
		}
		t.limits(claims.Items)
		t.instances(claims.Items)
		t.launches(claims.Items)
	}
}

// launches: no pod has a second node on its way while its first is.
func (t *watcher) launches(claims []karpv1.NodeClaim) {
	first := map[string]string{}
	for i := range claims {
		c := &claims[i]
		if c.DeletionTimestamp != nil || c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() || c.Annotations[provisioner.PodsAnnotation] == "" {
			continue
		}
		for pod := range strings.SplitSeq(c.Annotations[provisioner.PodsAnnotation], ",") {
			if other := first[pod]; other != "" {
				t.violated("pod %s was "+SecondLaunch+": NodeClaims %s and %s are on their way for it", pod, other, c.Name)
			}
			first[pod] = c.Name
		}
	}
}

// violated notes a violation once.
func (t *watcher) violated(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !t.seen[text] {
		t.seen[text] = true
		t.violations = append(t.violations, text)
	}
}

// limits: the first pool never has more claims than its limit on nodes.
func (t *watcher) limits(claims []karpv1.NodeClaim) {
	nodes := 0
	for i := range claims {
		if claims[i].DeletionTimestamp.IsZero() && claims[i].Labels[karpv1.NodePoolLabelKey] == "first" {
			nodes++
		}
	}
	if nodes > mostNodes {
		t.violated("NodePool first has %d nodes, its limit is %d", nodes, mostNodes)
	}
}

// instances: no instance belongs to two claims.
func (t *watcher) instances(claims []karpv1.NodeClaim) {
	owner := map[string]string{}
	for i := range claims {
		c := &claims[i]
		if c.Status.ProviderID == "" {
			continue
		}
		if other := owner[c.Status.ProviderID]; other != "" {
			t.violated("instance %s belongs to NodeClaims %s and %s", c.Status.ProviderID, other, c.Name)
		}
		owner[c.Status.ProviderID] = c.Name
	}
}

// settle waits until everything has come to rest and stays so, and says what has not.
func (w *world) settle(ctx context.Context) []string {
	ctx, cancel := context.WithTimeout(ctx, rest)
	defer cancel()
	calm := 0
	var unrest []string
	for calm < 10 {
		now := w.unrest(ctx)
		if ctx.Err() == nil {
			unrest = now // what is read as the time ends is cut short
		}
		if calm++; len(now) > 0 {
			calm = 0
		}
		if pause(ctx, 300*time.Millisecond) != nil {
			return append(unrest, fmt.Sprintf("not at rest %s after the storm", rest))
		}
	}
	return nil
}

// unrest is what is not as it has to be in the end.
func (w *world) unrest(ctx context.Context) []string {
	var pods corev1.PodList
	var claims karpv1.NodeClaimList
	if err := w.kube.List(ctx, &pods, client.InNamespace(namespace)); err != nil {
		return []string{err.Error()}
	}
	if err := w.kube.List(ctx, &claims); err != nil {
		return []string{err.Error()}
	}
	var out []string
	// Every pod runs, and every Deployment has as many as it should.
	have := map[string]int32{}
	for i := range pods.Items {
		p := &pods.Items[i]
		if p.Status.Phase == corev1.PodFailed {
			continue // its kubelet refused it, or its machine has died: it never comes back, and its owner makes another
		}
		if p.Status.Phase != corev1.PodRunning || p.DeletionTimestamp != nil {
			out = append(out, fmt.Sprintf("pod %s is %s on node %q", p.Name, p.Status.Phase, p.Spec.NodeName))
		}
		have[p.Labels["app"]]++
	}
	for _, name := range slices.Sorted(maps.Keys(w.deployments)) {
		if have[name] != w.deployments[name] {
			out = append(out, fmt.Sprintf("Deployment %s has %d pods, want %d", name, have[name], w.deployments[name]))
		}
	}
	// Every claim is a usable node with an instance of its own, and every instance has its claim.
	instances := map[string]string{}
	for _, i := range w.alive() {
		instances[i.ID] = "nobody"
	}
	for i := range claims.Items {
		c := &claims.Items[i]
		id := c.Status.ProviderID[strings.LastIndexByte(c.Status.ProviderID, '/')+1:]
		if c.DeletionTimestamp != nil || !c.StatusConditions().Get(karpv1.ConditionTypeInitialized).IsTrue() {
			out = append(out, fmt.Sprintf("NodeClaim %s is not a usable node", c.Name))
		}
		if instances[id] == "" {
			out = append(out, fmt.Sprintf("NodeClaim %s has no living instance (%q)", c.Name, id))
			continue
		}
		instances[id] = c.Name
	}
	for _, id := range slices.Sorted(maps.Keys(instances)) {
		if instances[id] == "nobody" {
			out = append(out, fmt.Sprintf("instance %s has no NodeClaim", id))
		}
	}
	return out
}

// afterwards is what the processes themselves show of the storm.
func (w *world) afterwards(ctx context.Context) []string {
	var out []string
	if families, err := w.Metrics(ctx, bed.Scheduler); err != nil {
		out = append(out, err.Error())
	} else if f := families["slipway_provisioner_forgotten_total"]; f != nil {
		for _, m := range f.GetMetric() {
			if n := m.GetCounter().GetValue(); n > 0 {
				out = append(out, fmt.Sprintf("%.0f "+Forgotten+" (%v)", n, m.GetLabel()))
			}
		}
	}
	for _, name := range []string{bed.Scheduler, bed.Controller} {
		refused, err := w.Refused(name)
		if err != nil {
			out = append(out, err.Error())
		}
		if len(refused) > 0 {
			out = append(out, fmt.Sprintf("%s is refused %d requests, first: %s", name, len(refused), refused[0]))
		}
		log, err := os.ReadFile(filepath.Join(w.Cluster.Dir(), name+".log"))
		if err != nil {
			out = append(out, err.Error())
		}
		for _, bad := range []string{"panic:", "DATA RACE", "fatal error:"} {
			if at := strings.Index(string(log), bad); at >= 0 {
				out = append(out, fmt.Sprintf("%s: %s", name, firstLines(string(log[at:]), 12)))
			}
		}
	}
	return out
}

func firstLines(text string, n int) string {
	lines := strings.SplitN(text, "\n", n+1)
	return strings.Join(lines[:min(n, len(lines))], "\n")
}
