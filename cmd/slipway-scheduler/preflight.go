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
	componentbaseconfig "k8s.io/component-base/config"
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
	var errs []error
	var first *scheduler.SlipwayArgs
	for i, p := range cfg.Profiles {
		args, enabled, err := scheduler.ArgsOf(p)
		errs = append(errs, err)
		switch {
		case !enabled || err != nil:
		case first == nil:
			first = args
		default:
			if differ := args.Shared(first); differ != "" {
				errs = append(errs, fmt.Errorf("profiles[%d].pluginConfig, plugin %q: %s differs from that of the first profile that enables the plugin; "+
					"batches are made for all profiles together: give it once, or the same everywhere", i, scheduler.Name, differ))
			}
		}
	}
	if first == nil && errors.Join(errs...) == nil {
		errs = append(errs, fmt.Errorf("no profile enables plugin %q: list it under profiles[].plugins.multiPoint.enabled", scheduler.Name))
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("checking the scheduler configuration %q: %w", file, err)
	}
	return nil
}

// right is something this process does with objects of one kind; in a namespace and with one name, unless those are "".
type right struct {
	group, resource string
	verbs           []string
	namespace, name string
}

func (r right) String() string {
	s := strings.TrimSuffix(r.resource+"."+r.group, ".")
	if r.name != "" {
		s += fmt.Sprintf(" %q", r.name)
	}
	if r.namespace != "" {
		s += fmt.Sprintf(" in namespace %q", r.namespace)
	}
	return s
}

// conditional are the rights that the configuration makes necessary: a process that may not renew its lease never leads, and one that
// may not list a kind it watches never begins to provision; both look as if they were well.
func conditional(cc componentbaseconfig.LeaderElectionConfiguration, own slipwayOptions) []right {
	var out []right
	if cc.LeaderElect {
		out = append(out,
			right{group: "coordination.k8s.io", resource: "leases", verbs: []string{"create"}, namespace: cc.ResourceNamespace},
			right{group: "coordination.k8s.io", resource: "leases", verbs: []string{"get", "update"}, namespace: cc.ResourceNamespace, name: cc.ResourceName},
		)
	}
	if own.admissionNamespace != "" {
		out = append(out, right{group: "slipway.sh", resource: "workloadpolicies", verbs: []string{"list", "watch"}})
	}
	if !own.disableDisruption {
		out = append(out, right{group: "policy", resource: "poddisruptionbudgets", verbs: []string{"list", "watch"}})
	}
	return out
}

// needed are the rights beyond those of system:kube-scheduler and system:volume-scheduler that nothing works without
// (manifests/install), and those of kube-scheduler that show whether these roles are bound at all.
func needed() []right {
	read := []string{"list", "watch"}
	return []right{
		{group: "karpenter.sh", resource: "nodepools", verbs: read},
		{group: "karpenter.sh", resource: "nodeclaims", verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{group: "karpenter.sh", resource: "nodeclaims/status", verbs: []string{"patch"}},
		{group: "karpenter.k8s.aws", resource: "ec2nodeclasses", verbs: read},
		{group: "apps", resource: "daemonsets", verbs: read},
		{group: "apps", resource: "replicasets", verbs: read},
		{group: "apps", resource: "statefulsets", verbs: read},
		{group: "batch", resource: "jobs", verbs: read},
		{group: "", resource: "limitranges", verbs: read},
		{group: "", resource: "resourcequotas", verbs: read},
		{group: "node.k8s.io", resource: "runtimeclasses", verbs: read},
		{group: "", resource: "pods", verbs: read},
		{group: "", resource: "nodes", verbs: read},
		{group: "", resource: "pods/binding", verbs: []string{"create"}},
		{group: "", resource: "pods/status", verbs: []string{"patch"}},
		{group: "storage.k8s.io", resource: "csinodes", verbs: read},
		{group: "storage.k8s.io", resource: "storageclasses", verbs: read},
		{group: "", resource: "namespaces", verbs: read},
		{group: "", resource: "persistentvolumes", verbs: read},
		{group: "", resource: "persistentvolumeclaims", verbs: read},
		{group: "events.k8s.io", resource: "events", verbs: []string{"create", "patch"}},
	}
}

// preflight waits until the API server serves what this process works with and grants what it does, for timeout at most. Its
// error names everything that is missing: an informer of a kind that is not there, or that may not be read, would have the
// process wait for ever and look as if it were starting.
func preflight(ctx context.Context, config *rest.Config, more []right, timeout time.Duration) error {
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating a client: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	told := ""
	for {
		missing := check(ctx, client, slices.Concat(needed(), more))
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
func check(ctx context.Context, client kubernetes.Interface, rights []right) error {
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
	for _, r := range rights {
		for _, verb := range r.verbs {
			ok, err := allowed(ctx, client, r, verb)
			switch {
			case err != nil:
				return fmt.Errorf("asking the API server for permissions: %w", err)
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

func allowed(ctx context.Context, client kubernetes.Interface, r right, verb string) (bool, error) {
	resource, sub, _ := strings.Cut(r.resource, "/")
	review := &authorizationv1.SelfSubjectAccessReview{Spec: authorizationv1.SelfSubjectAccessReviewSpec{
		ResourceAttributes: &authorizationv1.ResourceAttributes{Verb: verb, Group: r.group, Resource: resource, Subresource: sub, Namespace: r.namespace, Name: r.name},
	}}
	review, err := client.AuthorizationV1().SelfSubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
	if err != nil {
		return false, err
	}
	return review.Status.Allowed, nil
}
