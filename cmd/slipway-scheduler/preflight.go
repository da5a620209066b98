// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/slipway-sh/slipway/scheduler"
)

// checkConfig reads the configuration file for what kube-scheduler cannot check: the plugin's arguments, and that some
// profile enables it.
func checkConfig(ctx context.Context, file string) error {
	cfg, err := options.LoadConfigFromFile(klog.FromContext(ctx), file)
	if err != nil {
		return fmt.Errorf("reading the scheduler configuration %q: %w", file, err)
	}
	some := false
	var errs []error
	for _, p := range cfg.Profiles {
		_, enabled, err := scheduler.ArgsOf(p)
		some = some || enabled
		errs = append(errs, err)
	}
	if !some {
		errs = append(errs, fmt.Errorf("no profile enables plugin %q: list it under profiles[].plugins.multiPoint.enabled", scheduler.Name))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("checking the scheduler configuration %q: %w", file, err)
	}
	return nil
}

// right is something this process does with objects of one kind.
type right struct {
	group, resource string
	verbs           []string
}

// needed are the rights beyond those of system:kube-scheduler and system:volume-scheduler that nothing works without
// (manifests/install), and those of kube-scheduler that show whether these roles are bound at all.
func needed() []right {
	read := []string{"list", "watch"}
	return []right{
		{"karpenter.sh", "nodepools", read},
		{"karpenter.sh", "nodeclaims", []string{"list", "watch", "create", "patch", "delete"}},
		{"karpenter.sh", "nodeclaims/status", []string{"patch"}},
		{"karpenter.k8s.aws", "ec2nodeclasses", read},
		{"apps", "daemonsets", read},
		{"apps", "replicasets", read},
		{"apps", "statefulsets", read},
		{"batch", "jobs", read},
		{"", "limitranges", read},
		{"", "resourcequotas", read},
		{"node.k8s.io", "runtimeclasses", read},
		{"", "pods", read},
		{"", "nodes", read},
		{"", "pods/binding", []string{"create"}},
		{"", "pods/status", []string{"patch"}},
		{"storage.k8s.io", "csinodes", read},
		{"storage.k8s.io", "storageclasses", read},
	}
}

// preflight waits until the API server serves what this process works with and grants what it does, for timeout at most. Its
// error names everything that is missing: an informer of a kind that is not there, or that may not be read, would have the
// process wait for ever and look as if it were starting.
func preflight(ctx context.Context, config *rest.Config, timeout time.Duration) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	for {
		missing := check(ctx, client)
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
func check(ctx context.Context, client kubernetes.Interface) error {
	var missing []error
	kinds := map[string][]string{"karpenter.sh/v1": {"NodePool", "NodeClaim"}, "karpenter.k8s.aws/v1": {"EC2NodeClass"}}
	for _, group := range []string{"karpenter.sh/v1", "karpenter.k8s.aws/v1"} {
		list, err := client.Discovery().ServerResourcesForGroupVersion(group)
		if err != nil && !apierrors.IsNotFound(err) {
			return fmt.Errorf("asking the API server for the kinds of %s: %w", group, err)
		}
		for _, kind := range kinds[group] {
			if list == nil || !slices.ContainsFunc(list.APIResources, func(r metav1.APIResource) bool { return r.Kind == kind }) {
				missing = append(missing, fmt.Errorf("the API server does not serve %s of %s: apply its CustomResourceDefinition", kind, group))
			}
		}
	}
	var denied []string
	for _, r := range needed() {
		for _, verb := range r.verbs {
			ok, err := allowed(ctx, client, r, verb)
			switch {
			case err != nil:
				return fmt.Errorf("asking the API server for permissions: %w", err)
			case !ok:
				denied = append(denied, strings.TrimSuffix(verb+" "+r.resource+"."+r.group, "."))
			}
		}
	}
	if len(denied) > 0 {
		missing = append(missing, fmt.Errorf("the process's user may not %s: bind the ClusterRoles of manifests/install to it", strings.Join(denied, ", ")))
	}
	return errors.Join(missing...)
}

func allowed(ctx context.Context, client kubernetes.Interface, r right, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: sub},
	}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
