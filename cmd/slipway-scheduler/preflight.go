// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"

	componentbaseconfig "k8s.io/component-base/config"
	"k8s.io/klog/v2"
	"k8s.io/kubernetes/cmd/kube-scheduler/app/options"

	"github.com/slipway-sh/slipway/api/v1alpha1"
	"github.com/slipway-sh/slipway/cmd/internal/preflight"
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

// needed are the kinds and rights beyond those of system:kube-scheduler and system:volume-scheduler that nothing works without
// (manifests/install), those of kube-scheduler that show whether these roles are bound at all, and what the configuration makes necessary:
// a process that may not renew its lease never leads, and one that may not list a kind it watches never begins to provision; both
// look as if they were well.
func needed(lead componentbaseconfig.LeaderElectionConfiguration, own slipwayOptions) preflight.Needs {
	read := []string{"list", "watch"}
	out := preflight.Needs{Rights: []preflight.Right{
		{Group: "karpenter.sh", Resource: "nodepools", Verbs: read},
		{Group: "karpenter.sh", Resource: "nodeclaims", Verbs: []string{"list", "watch", "create", "patch", "delete"}},
		{Group: "karpenter.sh", Resource: "nodeclaims/status", Verbs: []string{"patch"}},
		{Group: "karpenter.k8s.aws", Resource: "ec2nodeclasses", Verbs: read},
		{Group: "apps", Resource: "daemonsets", Verbs: read},
		{Group: "apps", Resource: "replicasets", Verbs: read},
		{Group: "apps", Resource: "statefulsets", Verbs: read},
		{Group: "batch", Resource: "jobs", Verbs: read},
		{Resource: "limitranges", Verbs: read},
		{Resource: "resourcequotas", Verbs: read},
		{Group: "node.k8s.io", Resource: "runtimeclasses", Verbs: read},
		{Resource: "pods", Verbs: read},
		{Resource: "nodes", Verbs: read},
		{Resource: "pods/binding", Verbs: []string{"create"}},
		{Resource: "pods/status", Verbs: []string{"patch"}},
		{Group: "storage.k8s.io", Resource: "csinodes", Verbs: read},
		{Group: "storage.k8s.io", Resource: "storageclasses", Verbs: read},
		{Resource: "namespaces", Verbs: read},
		{Resource: "persistentvolumes", Verbs: read},
		{Resource: "persistentvolumeclaims", Verbs: read},
		{Group: "events.k8s.io", Resource: "events", Verbs: []string{"create", "patch"}},
	}}
	if lead.LeaderElect {
		out.Rights = append(out.Rights,
			preflight.Right{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"create"}, Namespace: lead.ResourceNamespace},
			preflight.Right{Group: "coordination.k8s.io", Resource: "leases", Verbs: []string{"get", "update"}, Namespace: lead.ResourceNamespace, Name: lead.ResourceName},
		)
	}
	if own.admissionNamespace != "" {
		out.Kinds = map[string][]string{v1alpha1.GroupVersion().String(): {"WorkloadPolicy"}}
		out.Rights = append(out.Rights, preflight.Right{Group: v1alpha1.Group, Resource: "workloadpolicies", Verbs: read})
	}
	if !own.disableDisruption {
		out.Rights = append(out.Rights, preflight.Right{Group: "policy", Resource: "poddisruptionbudgets", Verbs: read})
	}
	return out
}
