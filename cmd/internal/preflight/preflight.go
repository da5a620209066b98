// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"

	"github.com/slipway-sh/slipway/cmd/internal/failure"
)

// Right is something a process does with objects of one kind: in one namespace and with one name, unless those are empty.
// Resource may have a subresource after a slash.
type Right struct {
	Group, Resource string
	Verbs           []string
	Namespace, Name string
}

func (r Right) String() string {
	s := strings.TrimSuffix(r.Resource+"."+r.Group, ".")
	if r.Name != "" {
		s += fmt.Sprintf(" %q", r.Name)
	}
	if r.Namespace != "" {
		s += fmt.Sprintf(" in namespace %q", r.Namespace)
	}
	return s
}

// Needs are what a process cannot do without.
type Needs struct {
	// Kinds are custom resources beyond Karpenter's, by group version.
	Kinds  map[string][]string
	Rights []Right
}

// all are the kinds asked for, Karpenter's included: no process works without those.
func (n Needs) all() map[string][]string {
	out := map[string][]string{"karpenter.sh/v1": {"NodePool", "NodeClaim"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}}
	maps.Copy(out, n.Kinds)
	return out
}

// Await waits until the API server serves what this process works with and grants what it does, for timeout at most. Its
// error names everything that is missing: an informer of a kind that is not there, or that may not be read, would have the
// process wait for ever and look as if it were starting.
func Await(ctx context.Context, config *rest.Config, needed Needs, timeout time.Duration) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	for {
		missing := check(ctx, client, needed)
		if missing == nil {
			return nil
		}
		if ctx.Err() == nil && missing.Error() != told {
			told = missing.Error()
			klog.FromContext(ctx).Info("Waiting for what is needed to start", "missing", told, "timeout", timeout)
		}
		select {
		case <-ctx.Done():
			if told != "" && ctx.Err() != nil {
				missing = errors.New(told) // the last look was cut short
			}
			return fmt.Errorf("cannot start, after waiting for %v: %w", timeout, missing)
		case <-time.After(time.Second):
		}
	}
}

// check returns what is missing, nil if nothing is.
func check(ctx context.Context, client kubernetes.Interface, needed Needs) error {
	var missing []error
	kinds := needed.all()
	for _, group := range slices.Sorted(maps.Keys(kinds)) {
		list, err := client.Discovery().ServerResourcesForGroupVersion(group)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("asking the API server for the kinds of %s: %w", group, failure.Cluster(err, host(client)))
		}
		for _, kind := range kinds[group] {
			if list == nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
				missing = append(missing, fmt.Errorf("the API server does not serve %s of %s: apply its CustomResourceDefinition", kind, group))
			}
		}
	}
	var denied []string
	for _, r := range needed.Rights {
		for _, verb := range r.Verbs {
			ok, err := allowed(ctx, client, r, verb)
			switch {
			case err != nil:
				return fmt.Errorf("asking the API server for permissions: %w", failure.Cluster(err, host(client)))
			case !ok:
				denied = append(denied, verb+" "+r.String())
			}
		}
	}
	if len(denied) > 0 {
		missing = append(missing, fmt.Errorf("the process's user may not %s: bind the roles of manifests/install to it", strings.Join(denied, ", ")))
	}
	return errors.Join(missing...)
}

func allowed(ctx context.Context, client kubernetes.Interface, r Right, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(r.Resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: r.Group, Resource: resource, Subresource: sub, Namespace: r.Namespace, Name: r.Name},
	}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}

// host is where the client's API server is; empty for a client in a test.
func host(client kubernetes.Interface) string {
	if c, ok := client.Discovery().RESTClient().(*rest.RESTClient); ok && c != nil {
		return c.Get().URL().Host
	}
	return ""
}
