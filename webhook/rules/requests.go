// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

func requestRules() []Rule {
	return []Rule{
		{
			ID: "R001", Title: "CPU request missing", Mode: v1alpha1.Default, Engines: []Engine{Webhook}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "A pod without a request counts as nothing when nodes are bought and filled: nodes get overcommitted and the pod starves first.",
			Example: `slipway R001: spec.containers[api]: no cpu request; using 100m from fallback. Set resources.requests.cpu to keep control. [policy default]`,
			Fix:     "Set resources.requests.cpu.",
			Check:   func(s *Subject, f *Facts) []Finding { return missing(s, f, corev1.ResourceCPU) },
		},
		{
			ID: "R002", Title: "memory request missing", Mode: v1alpha1.Default, Engines: []Engine{Webhook}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "Without a memory request a node takes more pods than its memory holds, and the kernel ends the ones it likes least.",
			Example: `slipway R002: spec.containers[api]: no memory request; using 256Mi from limitRange base. Set resources.requests.memory to keep control. [policy default]`,
			Fix:     "Set resources.requests.memory.",
			Check:   func(s *Subject, f *Facts) []Finding { return missing(s, f, corev1.ResourceMemory) },
		},
		{
			ID: "R003", Title: "disk emptyDir without a bound", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "An emptyDir on disk that may grow without end fills its node's disk; the kubelet then evicts pods that did nothing.",
			Example: `slipway R003: spec.volumes[cache]: emptyDir has no sizeLimit and no container requests ephemeral-storage. Set emptyDir.sizeLimit or resources.requests.ephemeral-storage.`,
			Fix:     "Set emptyDir.sizeLimit or resources.requests.ephemeral-storage.",
			Check:   unboundedDisk,
		},
		{
			ID: "R004", Title: "memory limit is not the memory request", Mode: v1alpha1.Off, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "Pods that use more memory than they asked for share what they did not reserve; consolidation packs nodes by requests, so this is where OOM kills come from.",
			Example: `slipway R004: spec.containers[api]: memory request 1Gi and limit 2Gi differ. Make the memory limit equal to the request.`,
			Fix:     "Make the memory limit equal to the request.",
			Check:   memoryDiffers,
		},
		{
			ID: "R005", Title: "limit far above the request", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "Nodes are bought for requests. The further limits are above them, the more pods can be promised the same memory or CPU.",
			Example: `slipway R005: spec.containers[api]: memory limit 8Gi is 8.0 times the request 1Gi, above the ratio 2. Raise the request or lower the limit.`,
			Fix:     "Raise the request or lower the limit.",
			Check:   ratios,
		},
		{
			ID: "R006", Title: "no default fits the LimitRange", Mode: v1alpha1.Default, Engines: []Engine{Webhook}, Kinds: []Kind{Pod}, Needs: Cluster,
			Why:     "A request outside the namespace's LimitRange would get the pod refused, so none is filled in and the pod counts as nothing.",
			Example: `slipway R006: spec.containers[api].resources.requests.memory: left unset, LimitRange "base" leaves nothing for it. Set the request yourself or widen the LimitRange.`,
			Fix:     "Set the request yourself or widen the LimitRange.",
			Check:   unfit,
		},
		{
			ID: "R007", Title: "request below the floor", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "A request of next to nothing is no request: the scheduler puts any number of such pods on one node.",
			Example: `slipway R007: spec.containers[api]: cpu request 1m is below the floor 10m. Ask for what the container uses.`,
			Fix:     "Ask for what the container uses.",
			Check:   belowFloor,
		},
		{
			ID: "R008", Title: "accelerator node without an accelerator request", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: podsAndWorkloads(), Needs: Nothing,
			Why:     "A pod that selects or tolerates GPU nodes and asks for no GPU can have the most expensive node of the cluster bought for it and leave its GPU idle.",
			Example: `slipway R008: spec.tolerations: tolerates nvidia.com/gpu, but no container asks for an accelerator. Request the accelerator or drop the toleration or selector.`,
			Fix:     "Request the accelerator or drop the toleration or selector.",
			Check:   idleAccelerator,
		},
		{
			ID: "R009", Title: "resize below the floor", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: []Kind{Pod}, Needs: Nothing,
			Why:     "A resize changes what the pod counts for on its node, without any of the checks of its creation.",
			Example: `slipway R009: spec.containers[api]: resize to cpu request 1m, below the floor 10m. Ask for what the container uses.`,
			Fix:     "Ask for what the container uses.",
			Check:   resized,
		},
		{
			ID: "R010", Title: "workload whose pods have no requests", Mode: v1alpha1.Warn, Engines: []Engine{VAP}, Kinds: workloads(), Needs: Nothing,
			Why:     "Defaults are given to pods, never to templates; the template is where to set them. Of a DaemonSet, requests are what every new node is sized for.",
			Example: `slipway R010: spec.template.spec.containers[api]: no memory request. Set resources.requests.memory.`,
			Fix:     "Set the requests in the template.",
			Check:   templateMissing,
		},
		{
			ID: "R011", Title: "requests are a VerticalPodAutoscaler's", Mode: v1alpha1.Audit, Engines: []Engine{Webhook}, Kinds: []Kind{Pod}, Needs: Cluster,
			Why:     "An active VerticalPodAutoscaler writes the requests of its pods. A second writer would make replicas differ, so none is filled in.",
			Example: `slipway R011: spec.containers[api]: requests are left to VerticalPodAutoscaler "api".`,
			Fix:     "Nothing to do.",
			Check:   autoscaled,
		},
	}
}

// missing reports containers without a request, with what they get if they get something.
func missing(s *Subject, f *Facts, name corev1.ResourceName) []Finding {
	if s.Static() || s.Operation != Create || podLevel(&s.Template.Spec, name) {
		return nil
	}
	var out []Finding
	for _, c := range s.containers() {
		if _, ok := asked(c.Container, name); ok || (c.init && !c.sidecar) {
			continue
		}
		out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("no %s request", name)})
	}
	if len(out) == 0 || f.Recommended == nil {
		return out
	}
	d := &defaulter{s: s, f: f}
	if vpa, ok := d.recommendation(); ok && vpa.Active {
		return nil // R011 says so
	}
	return out
}

// Filled words the defaults as findings of R001, R002, and R006 for what could not be filled in.
func Filled(s *Subject, set []Default, left []Skipped) []Finding {
	var out []Finding
	for _, x := range set {
		rule, list := "R001", "containers"
		if x.Resource == corev1.ResourceMemory {
			rule = "R002"
		}
		if x.Init {
			list = "initContainers"
		}
		out = append(out, Finding{
			Rule: rule, Field: fmt.Sprintf("%sspec.%s[%s]", s.Path, list, x.Container),
			Problem: fmt.Sprintf("no %s request; using %s from %s", x.Resource, x.Value.String(), x.Source),
			Fix:     fmt.Sprintf("Set resources.requests.%s to keep control.", x.Resource),
		})
	}
	for _, l := range left {
		out = append(out, Finding{
			Rule: "R006", Field: l.Path, Problem: "left unset, " + l.Why, Fix: "Set the request yourself or widen the LimitRange.",
		})
	}
	return out
}

func unboundedDisk(s *Subject, _ *Facts) []Finding {
	spec := &s.Template.Spec
	if podLevel(spec, corev1.ResourceEphemeralStorage) {
		return nil
	}
	for _, c := range s.containers() {
		if _, ok := asked(c.Container, corev1.ResourceEphemeralStorage); ok {
			return nil
		}
	}
	var out []Finding
	for _, v := range spec.Volumes {
		if v.EmptyDir != nil && v.EmptyDir.SizeLimit == nil && v.EmptyDir.Medium != corev1.StorageMediumMemory {
			out = append(out, Finding{
				Field:   fmt.Sprintf("%sspec.volumes[%s]", s.Path, v.Name),
				Problem: "emptyDir has no sizeLimit and no container requests ephemeral-storage",
			})
		}
	}
	return out
}

func memoryDiffers(s *Subject, _ *Facts) []Finding {
	var out []Finding
	for _, c := range s.containers() {
		request, asks := c.Resources.Requests[corev1.ResourceMemory]
		limit, bounded := c.Resources.Limits[corev1.ResourceMemory]
		switch {
		case asks && bounded && request.Cmp(limit) != 0:
			out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("memory request %s and limit %s differ", request.String(), limit.String())})
		case asks && !bounded:
			out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("memory request %s has no limit", request.String())})
		}
	}
	return out
}

func ratios(s *Subject, f *Facts) []Finding {
	var out []Finding
	for _, c := range s.containers() {
		for _, name := range defaulted() {
			request, limit, most := c.Resources.Requests[name], c.Resources.Limits[name], f.Policy.Requests.MaxRatio.Of(name)
			if most == nil || request.Sign() <= 0 || limit.Sign() <= 0 {
				continue
			}
			if r := limit.AsApproximateFloat64() / request.AsApproximateFloat64(); r > most.AsApproximateFloat64() {
				out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("%s limit %s is %.1f times the request %s, above the ratio %s",
					name, limit.String(), r, request.String(), most.String())})
			}
		}
	}
	return out
}

func unfit(s *Subject, f *Facts) []Finding {
	if s.Operation != Create {
		return nil
	}
	_, left := Defaults(s, f)
	return Filled(s, nil, left)
}

func belowFloor(s *Subject, f *Facts) []Finding {
	if s.Operation == Resize {
		return nil // R009
	}
	return floorFindings(s, f, "%s request %s is below the floor %s")
}

func resized(s *Subject, f *Facts) []Finding {
	if s.Operation != Resize {
		return nil
	}
	return floorFindings(s, f, "resize to %s request %s, below the floor %s")
}

func floorFindings(s *Subject, f *Facts, format string) []Finding {
	var out []Finding
	for _, c := range s.containers() {
		for _, name := range defaulted() {
			q, ok := c.Resources.Requests[name]
			floor := f.Policy.Requests.Floor.Of(name)
			if ok && floor != nil && q.Cmp(*floor) < 0 {
				out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf(format, name, q.String(), floor.String())})
			}
		}
	}
	return out
}

// accelerator reports whether a resource, taint or label key is about accelerators.
func accelerator(key string) bool {
	for _, part := range []string{"nvidia.com/", "amd.com/gpu", "aws.amazon.com/neuron", "habana.ai/", "/instance-gpu-", "/instance-accelerator-"} {
		if strings.Contains(key, part) {
			return true
		}
	}
	return false
}

func idleAccelerator(s *Subject, _ *Facts) []Finding {
	spec := &s.Template.Spec
	if s.OfDaemonSet() || len(spec.ResourceClaims) > 0 {
		return nil // drivers and exporters run beside accelerators; claims ask in their own way
	}
	for _, c := range s.containers() {
		for _, list := range []corev1.ResourceList{c.Resources.Requests, c.Resources.Limits} {
			for name := range list {
				if accelerator(string(name)) {
					return nil
				}
			}
		}
	}
	for _, t := range spec.Tolerations {
		if accelerator(t.Key) {
			return []Finding{{Field: s.Path + "spec.tolerations", Problem: fmt.Sprintf("tolerates %s, but no container asks for an accelerator", t.Key)}}
		}
	}
	for key := range spec.NodeSelector {
		if accelerator(key) {
			return []Finding{{Field: s.Path + "spec.nodeSelector", Problem: fmt.Sprintf("selects by %s, but no container asks for an accelerator", key)}}
		}
	}
	return nil
}

func templateMissing(s *Subject, _ *Facts) []Finding {
	var out []Finding
	for _, name := range defaulted() {
		if podLevel(&s.Template.Spec, name) {
			continue
		}
		for _, c := range s.containers() {
			if c.init && !c.sidecar {
				continue
			}
			_, request := c.Resources.Requests[name]
			_, limit := c.Resources.Limits[name]
			switch {
			case request:
			case limit && s.Kind == DaemonSet:
				out = append(out, Finding{
					Field: c.path, Problem: fmt.Sprintf("only a %s limit; autoscalers that read the template count nothing", name),
					Fix: fmt.Sprintf("Set resources.requests.%s.", name),
				})
			case !limit:
				out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("no %s request", name), Fix: fmt.Sprintf("Set resources.requests.%s.", name)})
			}
		}
	}
	return out
}

func autoscaled(s *Subject, f *Facts) []Finding {
	if s.Operation != Create {
		return nil
	}
	d := &defaulter{s: s, f: f}
	vpa, ok := d.recommendation()
	if !ok || !vpa.Active {
		return nil
	}
	var out []Finding
	for _, c := range s.containers() {
		_, cpu := asked(c.Container, corev1.ResourceCPU)
		_, memory := asked(c.Container, corev1.ResourceMemory)
		if !c.init && vpa.sets(c.Name) && (!cpu || !memory) {
			out = append(out, Finding{Field: c.path, Problem: fmt.Sprintf("requests are left to VerticalPodAutoscaler %q", vpa.Name)})
		}
	}
	return out
}
