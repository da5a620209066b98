// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package migrate

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
)

// ReplicasAnnotation on a Deployment that a move has scaled to zero is how many replicas it had.
const ReplicasAnnotation = "slipway.sh/replicas-before-migration"

// every is how often a move looks whether what it waits for has come.
const every = time.Second

// Mover moves a cluster from one to the other.
type Mover struct {
	Kube  client.Client
	Names Names
	// Minor is that of the API server's version.
	Minor string
	// Patience is how long each step may take.
	Patience time.Duration
	// Out is told each step as it begins.
	Out io.Writer
}

// step is one of a move. wayBack says how to undo it, for the message of a step that fails.
type step struct {
	what    string
	do      func(context.Context) error
	wayBack string
}

// move is a direction: who hands over to whom.
type move struct {
	from, to         []appsv1.Deployment
	fromName, toName string
	// begun tells the claims that from launches.
	begun func(*karpv1.NodeClaim) bool
	// taken reports whether a holder of Karpenter's lease is to's.
	taken func(holder string) bool
}

// Takeover gives the cluster of site to Slipway. Without act it only says what it would do. Its error says what is left to do by
// hand, or how to go back.
func (m *Mover) Takeover(ctx context.Context, s *Site, act bool) error {
	return m.run(ctx, s, move{
		from: s.Karpenter, to: s.Slipway, fromName: "Karpenter", toName: "Slipway", begun: shared, taken: ours,
	}, act)
}

// Handback gives the cluster of site to Karpenter.
func (m *Mover) Handback(ctx context.Context, s *Site, act bool) error {
	return m.run(ctx, s, move{
		from: s.Slipway, to: s.Karpenter, fromName: "Slipway", toName: "Karpenter",
		begun: func(*karpv1.NodeClaim) bool { return true },
		taken: func(holder string) bool { return holder != "" && !ours(holder) },
	}, act)
}

func (m *Mover) run(ctx context.Context, s *Site, v move, act bool) error {
	before := drifted(s.Claims)
	var lost []string
	back := "slipway migrate takeover --yes"
	if v.toName == "Slipway" {
		back = "slipway migrate handback --yes"
	}
	steps := []step{
		{what: "see that you may do all of it", do: func(ctx context.Context) error { return m.allowed(ctx, v) }},
		{what: fmt.Sprintf("wait until the NodeClaims that %s has begun have their instances", v.fromName), do: func(ctx context.Context) error {
			return m.launched(ctx, v.begun)
		}},
		{what: "scale to zero: " + describe(v.from), wayBack: back, do: func(ctx context.Context) error { return m.stop(ctx, v.from) }},
		{what: fmt.Sprintf("wait until %s's pods are gone", v.fromName), wayBack: back, do: func(ctx context.Context) error {
			var err error
			lost, err = m.gone(ctx, v)
			return err
		}},
		{what: "delete NodeClaims that were left without an instance; their pods are planned anew", wayBack: back, do: func(ctx context.Context) error {
			return m.forget(ctx, lost)
		}},
		{what: "scale up: " + describe(v.to), wayBack: back, do: func(ctx context.Context) error { return m.start(ctx, v.to) }},
		{what: fmt.Sprintf("wait until %s holds the lease %s/%s", v.toName, s.leaseNamespace(), s.Lease), wayBack: back, do: func(ctx context.Context) error {
			return m.held(ctx, s.leaseNamespace(), v.taken)
		}},
		{what: "wait until the NodePools are ready and every NodeClaim's hashes are of one version", wayBack: back, do: func(ctx context.Context) error {
			return m.settled(ctx, s)
		}},
	}
	for i, st := range steps {
		fmt.Fprintf(m.Out, "%d. %s\n", i+1, st.what)
		if !act {
			continue
		}
		limited, cancel := context.WithTimeoutCause(ctx, m.Patience, fmt.Errorf("not within %s", m.Patience))
		err := st.do(limited)
		cancel()
		if err != nil {
			if st.wayBack != "" {
				return fmt.Errorf("step %d, %s: %w. Run the command again to go on, or go back: %s", i+1, st.what, err, st.wayBack)
			}
			return fmt.Errorf("step %d, %s: %w. Nothing has been changed", i+1, st.what, err)
		}
	}
	if !act {
		_, err := fmt.Fprintln(m.Out, "\nNothing was changed. Do it with --yes.")
		return err
	}
	return m.tell(ctx, v, before, lost)
}

func describe(all []appsv1.Deployment) string {
	var out []string
	for i := range all {
		out = append(out, fmt.Sprintf("Deployment %s/%s", all[i].Namespace, all[i].Name))
	}
	return strings.Join(out, ", ")
}

// allowed asks the API server for the rights of all steps, so that none ends a move in its middle.
func (m *Mover) allowed(ctx context.Context, v move) error {
	needs := []authorizationv1.ResourceAttributes{{Verb: "delete", Group: "karpenter.sh", Resource: "nodeclaims"}}
	for _, d := range slices.Concat(v.from, v.to) {
		needs = append(needs, authorizationv1.ResourceAttributes{Verb: "patch", Group: "apps", Resource: "deployments", Namespace: d.Namespace, Name: d.Name})
	}
	for i := range needs {
		review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{ResourceAttributes: &needs[i]}}
		if err := m.Kube.Create(ctx, review); err != nil {
			return fmt.Errorf("asking for your rights: %w", err)
		}
		if !review.Status.Allowed {
			n := needs[i]
			return fmt.Errorf("you may not %s %s %s in namespace %q: ask for that right, or use another --context", n.Verb, n.Resource, n.Name, n.Namespace)
		}
	}
	return nil
}

// until polls, and tells what was missing if the time is up.
func (m *Mover) until(ctx context.Context, ok func(context.Context) (missing string, err error)) error {
	missing := ""
	err := wait.PollUntilContextCancel(ctx, every, true, func(ctx context.Context) (done bool, err error) {
		missing, err = ok(ctx)
		return missing == "", err
	})
	if ctx.Err() != nil && missing != "" {
		return fmt.Errorf("%w: %s", context.Cause(ctx), missing)
	}
	return err
}

func (m *Mover) claims(ctx context.Context) ([]karpv1.NodeClaim, error) {
	var list karpv1.NodeClaimList
	if err := m.Kube.List(ctx, &list); err != nil {
		return nil, fmt.Errorf("listing NodeClaims: %w", err)
	}
	return list.Items, nil
}

func (m *Mover) launched(ctx context.Context, begun func(*karpv1.NodeClaim) bool) error {
	return m.until(ctx, func(ctx context.Context) (string, error) {
		claims, err := m.claims(ctx)
		if err != nil {
			return "", err
		}
		if open := nameless(claims, begun); len(open) > 0 {
			return "without an instance: " + names(open), nil
		}
		return "", nil
	})
}

// stop scales to zero and notes what was there before.
func (m *Mover) stop(ctx context.Context, all []appsv1.Deployment) error {
	for i := range all {
		err := m.scale(ctx, &all[i], func(d *appsv1.Deployment) {
			if n := replicas(d); n > 0 {
				metav1.SetMetaDataAnnotation(&d.ObjectMeta, ReplicasAnnotation, strconv.Itoa(int(n)))
			}
			d.Spec.Replicas = new(int32(0))
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// usual is how many replicas the charts have.
const usual = 2

// start scales what is at zero to what it had.
func (m *Mover) start(ctx context.Context, all []appsv1.Deployment) error {
	for i := range all {
		err := m.scale(ctx, &all[i], func(d *appsv1.Deployment) {
			n, err := strconv.ParseInt(d.Annotations[ReplicasAnnotation], 10, 32)
			if err != nil || n < 1 {
				n = usual
			}
			delete(d.Annotations, ReplicasAnnotation)
			if replicas(d) == 0 {
				d.Spec.Replicas = new(int32(n))
			}
		})
		if err != nil {
			return err
		}
	}
	return nil
}

func (m *Mover) scale(ctx context.Context, which *appsv1.Deployment, change func(*appsv1.Deployment)) error {
	d := &appsv1.Deployment{}
	if err := m.Kube.Get(ctx, client.ObjectKeyFromObject(which), d); err != nil {
		return fmt.Errorf("reading Deployment %s/%s: %w", which.Namespace, which.Name, err)
	}
	stored := d.DeepCopy()
	change(d)
	if err := m.Kube.Patch(ctx, d, client.MergeFrom(stored)); err != nil {
		return fmt.Errorf("scaling Deployment %s/%s: %w", d.Namespace, d.Name, err)
	}
	return nil
}

// gone waits for the end of from's pods. It returns the claims that then have no instance; to may launch some of them by itself.
func (m *Mover) gone(ctx context.Context, v move) (lost []string, err error) {
	err = m.until(ctx, func(ctx context.Context) (string, error) {
		var left []string
		for i := range v.from {
			selector, err := metav1.LabelSelectorAsSelector(v.from[i].Spec.Selector)
			if err != nil {
				return "", fmt.Errorf("reading the selector of Deployment %s/%s: %w", v.from[i].Namespace, v.from[i].Name, err)
			}
			var pods corev1.PodList
			if err := m.Kube.List(ctx, &pods, client.InNamespace(v.from[i].Namespace), client.MatchingLabelsSelector{Selector: selector}); err != nil {
				return "", fmt.Errorf("listing pods: %w", err)
			}
			for j := range pods.Items {
				left = append(left, pods.Items[j].Namespace+"/"+pods.Items[j].Name)
			}
		}
		if len(left) > 0 {
			return "still there: " + names(left), nil
		}
		return "", nil
	})
	if err != nil {
		return nil, err
	}
	claims, err := m.claims(ctx)
	return nameless(claims, v.begun), err
}

// forget deletes those of the claims that have no instance still.
func (m *Mover) forget(ctx context.Context, lost []string) error {
	var errs []error
	for _, name := range lost {
		c := &karpv1.NodeClaim{}
		if err := m.Kube.Get(ctx, client.ObjectKey{Name: name}, c); err != nil {
			errs = append(errs, client.IgnoreNotFound(err))
			continue
		}
		if c.Status.ProviderID != "" {
			continue
		}
		// The very one that was read: one that has been launched since is not deleted.
		err := m.Kube.Delete(ctx, c, client.Preconditions{UID: &c.UID, ResourceVersion: &c.ResourceVersion})
		if client.IgnoreNotFound(err) != nil {
			errs = append(errs, fmt.Errorf("deleting NodeClaim %q: %w", name, err))
		}
	}
	return errors.Join(errs...)
}

func (m *Mover) held(ctx context.Context, namespace string, taken func(string) bool) error {
	return m.until(ctx, func(ctx context.Context) (string, error) {
		s, err := Gather(ctx, m.Kube, m.Minor, m.Names)
		if err != nil {
			return "", err
		}
		for i := range s.Leases {
			l := &s.Leases[i]
			if l.Namespace == namespace && l.Spec.HolderIdentity != nil && taken(*l.Spec.HolderIdentity) {
				return "", nil
			}
		}
		return fmt.Sprintf("it is held by %q", s.holder()), nil
	})
}

// settled waits until pools that were ready are so again, and until pools and claims carry hashes of one version each.
func (m *Mover) settled(ctx context.Context, before *Site) error {
	var were []string
	for i := range before.Pools {
		if p := &before.Pools[i]; p.StatusConditions().Root().IsTrue() {
			were = append(were, p.Name)
		}
	}
	return m.until(ctx, func(ctx context.Context) (string, error) {
		var pools karpv1.NodePoolList
		if err := m.Kube.List(ctx, &pools); err != nil {
			return "", fmt.Errorf("listing NodePools: %w", err)
		}
		versions := map[string]string{}
		for i := range pools.Items {
			p := &pools.Items[i]
			versions[p.Name] = p.Annotations[karpv1.NodePoolHashVersionAnnotationKey]
			if slices.Contains(were, p.Name) && !p.StatusConditions().Root().IsTrue() {
				return fmt.Sprintf("NodePool %q is not ready: %s", p.Name, p.StatusConditions().Root().Message), nil
			}
		}
		claims, err := m.claims(ctx)
		if err != nil {
			return "", err
		}
		for i := range claims {
			c := &claims[i]
			want, known := versions[c.Labels[karpv1.NodePoolLabelKey]]
			if known && c.Status.ProviderID != "" && c.Annotations[karpv1.NodePoolHashVersionAnnotationKey] != want {
				return fmt.Sprintf("NodeClaim %q is not stamped", c.Name), nil
			}
		}
		return "", nil
	})
}

// tell sums the move up.
func (m *Mover) tell(ctx context.Context, v move, before, lost []string) error {
	claims, err := m.claims(ctx)
	if err != nil {
		return err
	}
	anew := slices.DeleteFunc(drifted(claims), func(name string) bool { return slices.Contains(before, name) })
	fmt.Fprintf(m.Out, "\n%s has the cluster: %s, %d drifted anew.\n", v.toName, count(len(claims), "NodeClaim", "NodeClaims"), len(anew))
	if len(lost) > 0 {
		fmt.Fprintf(m.Out, "\n%s ended between asking EC2 and writing it down, perhaps, for: %s.\nAn instance that no NodeClaim has is ended by %s within minutes: docs/migrating.md, \"Instances without a claim\".\n", v.fromName, names(lost), v.toName)
	}
	return nil
}
