// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package rules

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/mail"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	kubelet "k8s.io/kubelet/config/v1beta1"

	"github.com/slipway-sh/slipway/api/v1alpha1"
)

// maxUserData is EC2's limit on user data before base64, in bytes.
const maxUserData = 16384

func nodeClassRules() []Rule {
	only := []Kind{NodeClass}
	return []Rule{
		{
			ID: "C001", Title: "id mixed with other selectors", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "A term with an id ignores nothing: it selects what has the id and the tags. Karpenter's own check misses it when another term is in order.",
			Example: `slipway C001: spec.subnetSelectorTerms[1]: id is mixed with tags. Use the id alone.`,
			Fix:     "Use the id alone.",
			Check:   mixedIDs,
		},
		{
			ID: "C002", Title: "image alias @latest", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Every image AWS publishes drifts all nodes of the class, untested and on AWS's calendar.",
			Example: `slipway C002: spec.amiSelectorTerms[0].alias: "al2023@latest" follows every new image. Pin a version such as al2023@v20260601.`,
			Fix:     "Pin a version such as al2023@v20260601.",
			Check:   latestImage,
		},
		{
			ID: "C003", Title: "role or instance profile not usable", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Without an instance profile no instance can be launched. The controller asks IAM; admission repeats what it found for the same spec.",
			Example: `slipway C003: spec.role: the controller found: role "KarpenterNodeRole-demo" does not exist.`,
			Fix:     "Create the role, or correct its name.",
			Check: func(s *Subject, _ *Facts) []Finding {
				return resolved(s, "spec.role", v1.ConditionTypeInstanceProfileReady)
			},
		},
		{
			ID: "C004", Title: "selectors that find nothing", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "Without subnet, security group and image no instance can be launched. The controller asks EC2; admission repeats what it found for the same spec.",
			Example: `slipway C004: spec.subnetSelectorTerms: the controller found: no subnets match.`,
			Fix:     "Compare the terms with the tags in EC2.",
			Check: func(s *Subject, _ *Facts) []Finding {
				return slices.Concat(
					resolved(s, "spec.subnetSelectorTerms", v1.ConditionTypeSubnetsReady),
					resolved(s, "spec.securityGroupSelectorTerms", v1.ConditionTypeSecurityGroupsReady),
					resolved(s, "spec.amiSelectorTerms", v1.ConditionTypeAMIsReady),
				)
			},
		},
		{
			ID: "C005", Title: "kubelet setting that does not exist", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "A kubelet that cannot read its configuration does not start: every node of the class would boot and never join.",
			Example: `slipway C005: spec.kubelet.maxPod: there is no such setting. Did you mean "maxPods"?`,
			Fix:     "Compare with the kubelet's configuration API.",
			Check:   kubeletSettings,
		},
		{
			ID: "C006", Title: "user data too long or unreadable", Mode: v1alpha1.Warn, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Nothing,
			Why:     "EC2 refuses user data above 16384 bytes, and broken MIME parts are skipped by cloud-init without a word.",
			Example: `slipway C006: spec.userData: has 17002 bytes, EC2 takes 16384. Fetch the rest at boot.`,
			Fix:     "Fetch the rest at boot.",
			Check:   userData,
		},
		{
			ID: "C007", Title: "instance metadata open to pods", Mode: v1alpha1.Warn, Engines: []Engine{VAP, Controller}, Kinds: only, Needs: Nothing,
			Why:     "With IMDSv1, or a hop limit above 1, any pod can take the node's AWS credentials.",
			Example: `slipway C007: spec.metadataOptions.httpTokens: "optional" allows IMDSv1. Use required.`,
			Fix:     "Use httpTokens required and hop limit 1.",
			Check:   openMetadata,
		},
		{
			ID: "C008", Title: "deletion of a class that is in use", Mode: v1alpha1.Enforce, Always: true, Engines: []Engine{Webhook, Controller}, Kinds: only, Needs: Cluster,
			Why:     "Nothing can be bought by the pools that refer to it; its finalizer keeps a class with nodes.",
			Example: `slipway C008: NodePools "general" refer to this class. Point them at another class first.`,
			Fix:     "Point them at another class first.",
			Check:   classInUse,
		},
	}
}

func mixedIDs(s *Subject, _ *Facts) []Finding {
	var out []Finding
	spec := &s.Class.Spec
	add := func(list string, i int, id string, others ...string) {
		if others = slices.DeleteFunc(others, func(o string) bool { return o == "" }); id != "" && len(others) > 0 {
			out = append(out, Finding{Field: fmt.Sprintf("spec.%s[%d]", list, i), Problem: "id is mixed with " + strings.Join(others, ", ")})
		}
	}
	for i, t := range spec.SubnetSelectorTerms {
		add("subnetSelectorTerms", i, t.ID, has("tags", len(t.Tags) > 0))
	}
	for i, t := range spec.SecurityGroupSelectorTerms {
		add("securityGroupSelectorTerms", i, t.ID, has("tags", len(t.Tags) > 0), has("name", t.Name != ""))
	}
	for i, t := range spec.CapacityReservationSelectorTerms {
		add("capacityReservationSelectorTerms", i, t.ID, has("tags", len(t.Tags) > 0), has("ownerID", t.OwnerID != ""))
	}
	for i, t := range spec.AMISelectorTerms {
		add("amiSelectorTerms", i, t.ID, has("tags", len(t.Tags) > 0), has("name", t.Name != ""), has("owner", t.Owner != ""), has("alias", t.Alias != ""))
	}
	return out
}

func has(name string, is bool) string {
	if is {
		return name
	}
	return ""
}

func latestImage(s *Subject, _ *Facts) []Finding {
	var out []Finding
	for i, t := range s.Class.Spec.AMISelectorTerms {
		if strings.HasSuffix(t.Alias, "@latest") {
			out = append(out, Finding{Field: fmt.Sprintf("spec.amiSelectorTerms[%d].alias", i), Problem: fmt.Sprintf("%q follows every new image", t.Alias)})
		}
	}
	return out
}

// resolved repeats what the controller found out about the class, if it was about this spec.
func resolved(s *Subject, field, condition string) []Finding {
	for _, c := range s.Class.Status.Conditions {
		if c.Type == condition && c.IsFalse() && c.ObservedGeneration == s.Class.Generation {
			return []Finding{{Field: field, Problem: "the controller found: " + c.Message}}
		}
	}
	return nil
}

// kubeletSettings reads spec.kubelet from the raw object, because Karpenter's newer schema lets any key through there.
func kubeletSettings(s *Subject, _ *Facts) []Finding {
	var raw struct {
		Spec struct {
			Kubelet map[string]json.RawMessage `json:"kubelet"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(s.Raw, &raw); err != nil {
		return []Finding{{Field: "spec.kubelet", Problem: "is not an object"}}
	}
	types := KubeletFields()
	var out []Finding
	for _, key := range slices.Sorted(maps.Keys(raw.Spec.Kubelet)) {
		t, ok := types[key]
		if !ok {
			x := Finding{Field: "spec.kubelet." + key, Problem: "there is no such setting"}
			if near := closest(key, slices.Sorted(maps.Keys(types))); near != "" {
				x.Fix = fmt.Sprintf("Did you mean %q?", near)
			}
			out = append(out, x)
			continue
		}
		if err := json.Unmarshal(raw.Spec.Kubelet[key], reflect.New(t).Interface()); err != nil {
			out = append(out, Finding{Field: "spec.kubelet." + key, Problem: fmt.Sprintf("%s is no %s", clip(string(raw.Spec.Kubelet[key]), 40), kindOf(t))})
		}
	}
	return out
}

// KubeletFields are the settings of the kubelet's own API, and Karpenter's where it has them with another type.
func KubeletFields() map[string]reflect.Type {
	out := map[string]reflect.Type{}
	for _, t := range []reflect.Type{reflect.TypeFor[kubelet.KubeletConfiguration](), reflect.TypeFor[v1.KubeletConfiguration]()} {
		for field := range t.Fields() {
			name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
			if name != "" && name != "kind" && name != "apiVersion" {
				out[name] = field.Type
			}
		}
	}
	return out
}

func kindOf(t reflect.Type) string {
	if t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch t.Kind() {
	case reflect.Bool:
		return "boolean"
	case reflect.Int32, reflect.Int64, reflect.Int:
		return "whole number"
	case reflect.Slice:
		return "list"
	case reflect.Map:
		return "map of strings"
	default:
		return t.Name()
	}
}

func userData(s *Subject, _ *Facts) []Finding {
	if s.Class.Spec.UserData == nil {
		return nil
	}
	data := *s.Class.Spec.UserData
	if len(data) > maxUserData {
		return []Finding{{Field: "spec.userData", Problem: fmt.Sprintf("has %d bytes, EC2 takes %d", len(data), maxUserData)}}
	}
	if !strings.HasPrefix(strings.TrimSpace(data), "MIME-Version:") && !strings.HasPrefix(strings.TrimSpace(data), "Content-Type: multipart") {
		return nil
	}
	m, err := mail.ReadMessage(strings.NewReader(strings.TrimSpace(data)))
	if err != nil || !strings.Contains(m.Header.Get("Content-Type"), "boundary=") {
		return []Finding{{Field: "spec.userData", Problem: "begins like MIME, but its headers name no boundary", Fix: `Begin with Content-Type: multipart/mixed; boundary="…".`}}
	}
	return nil
}

func openMetadata(s *Subject, _ *Facts) []Finding {
	m := s.Class.Spec.MetadataOptions
	if m == nil {
		return nil
	}
	var out []Finding
	if m.HTTPTokens != nil && *m.HTTPTokens != "required" {
		out = append(out, Finding{Field: "spec.metadataOptions.httpTokens", Problem: fmt.Sprintf("%q allows IMDSv1", *m.HTTPTokens), Fix: "Use required."})
	}
	if m.HTTPPutResponseHopLimit != nil && *m.HTTPPutResponseHopLimit > 1 {
		out = append(out, Finding{
			Field:   "spec.metadataOptions.httpPutResponseHopLimit",
			Problem: fmt.Sprintf("%d lets pods reach the node's credentials", *m.HTTPPutResponseHopLimit), Fix: "Use 1.",
		})
	}
	return out
}

func classInUse(s *Subject, f *Facts) []Finding {
	if s.Operation != Delete || f.Pools == nil || s.Meta.Annotations[v1alpha1.ConfirmDeleteAnnotation] == s.Meta.Name {
		return nil
	}
	var names []string
	for _, p := range f.Pools() {
		if classRef(p, s.Class) {
			names = append(names, fmt.Sprintf("%q", p.Name))
		}
	}
	if len(names) == 0 {
		return nil
	}
	slices.Sort(names)
	return []Finding{{Problem: fmt.Sprintf("NodePools %s refer to this class", listed(names))}}
}
