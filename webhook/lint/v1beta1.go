// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package lint

import (
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

// Change is one difference between a v1beta1 manifest and its v1 form.
type Change struct {
	Field string
	What  string
}

// IsOld reports whether the object is of a version that API servers with Karpenter's v1 definitions refuse.
func IsOld(o *unstructured.Unstructured) bool {
	gv := o.GetAPIVersion()
	return gv == "karpenter.sh/v1beta1" || gv == "karpenter.k8s.aws/v1beta1"
}

// Convert makes the v1 form of a v1beta1 NodePool or EC2NodeClass and says what changes and why. The object stays as it is.
func Convert(old *unstructured.Unstructured) (*unstructured.Unstructured, []Change) {
	o := old.DeepCopy()
	c := &conversion{o: o.Object}
	group, _, _ := strings.Cut(o.GetAPIVersion(), "/")
	o.SetAPIVersion(group + "/v1")
	c.note("apiVersion", "%s/v1beta1 is not served any more: the API server refuses it before admission is asked", group)
	delete(o.Object, "status")
	switch o.GetKind() {
	case "NodePool":
		c.nodePool()
	case "EC2NodeClass":
		c.nodeClass()
	default:
		c.note("kind", "%s objects are written by controllers and not converted; delete them from the repository", o.GetKind())
	}
	return o, c.changes
}

type conversion struct {
	o       map[string]any
	changes []Change
}

func (c *conversion) note(field, format string, args ...any) {
	c.changes = append(c.changes, Change{field, fmt.Sprintf(format, args...)})
}

// get reads a value at a path; nil if there is none. What is no map on the way has nothing below it.
func (c *conversion) get(path ...string) any {
	var at any = c.o
	for _, p := range path {
		m, ok := at.(map[string]any)
		if !ok {
			return nil
		}
		at = m[p]
	}
	return at
}

func (c *conversion) set(value any, path ...string) {
	at := c.o
	for _, p := range path[:len(path)-1] {
		next, ok := at[p].(map[string]any)
		if !ok {
			next = map[string]any{}
			at[p] = next
		}
		at = next
	}
	at[path[len(path)-1]] = value
}

func (c *conversion) remove(path ...string) {
	if m, ok := c.get(path[:len(path)-1]...).(map[string]any); ok {
		delete(m, path[len(path)-1])
	}
}

func (c *conversion) nodePool() {
	if ref, ok := c.get("spec", "template", "spec", "nodeClassRef").(map[string]any); ok {
		group := "karpenter.k8s.aws"
		if v, ok := ref["apiVersion"].(string); ok {
			group, _, _ = strings.Cut(v, "/")
			delete(ref, "apiVersion")
			c.note("spec.template.spec.nodeClassRef.apiVersion", "became group, without a version")
		}
		if ref["group"] == nil {
			ref["group"] = group
			c.note("spec.template.spec.nodeClassRef.group", "is required now")
		}
		if ref["kind"] == nil {
			ref["kind"] = "EC2NodeClass"
			c.note("spec.template.spec.nodeClassRef.kind", "is required now")
		}
	}
	if c.get("spec", "disruption", "consolidationPolicy") == "WhenUnderutilized" {
		c.set("WhenEmptyOrUnderutilized", "spec", "disruption", "consolidationPolicy")
		c.note("spec.disruption.consolidationPolicy", "WhenUnderutilized is called WhenEmptyOrUnderutilized now, which is what it did")
	}
	switch after := c.get("spec", "disruption", "consolidateAfter"); {
	case after == nil:
		c.set("0s", "spec", "disruption", "consolidateAfter")
		c.note("spec.disruption.consolidateAfter", "is required now; 0s consolidates at once, as before, and 1m or more gives pods time to settle")
	case c.get("spec", "disruption", "consolidationPolicy") == "WhenEmptyOrUnderutilized":
		c.note("spec.disruption.consolidateAfter", "%v was refused together with WhenUnderutilized before; now it is how long a node has to be quiet", after)
	}
	if v := c.get("spec", "disruption", "expireAfter"); v != nil {
		c.remove("spec", "disruption", "expireAfter")
		c.set(v, "spec", "template", "spec", "expireAfter")
		c.note("spec.disruption.expireAfter", "moved to spec.template.spec.expireAfter; nodes expire by force now, without waiting for budgets, so set terminationGracePeriod beside it")
	} else {
		c.note("spec.template.spec.expireAfter", "is 720h if it is absent, as before, but expires by force now; Never turns it off")
	}
	if v := c.get("spec", "template", "spec", "kubelet"); v != nil {
		c.remove("spec", "template", "spec", "kubelet")
		c.note("spec.template.spec.kubelet", "moved to spec.kubelet of the EC2NodeClass; put it there: %v", v)
	}
	if c.get("spec", "template", "spec", "resources") != nil {
		c.remove("spec", "template", "spec", "resources")
		c.note("spec.template.spec.resources", "was never read and is gone")
	}
	if list, ok := c.get("spec", "template", "spec", "requirements").([]any); !ok || list == nil {
		c.set([]any{}, "spec", "template", "spec", "requirements")
		c.note("spec.template.spec.requirements", "is required now, empty is possible")
	}
}

// aliases are the image families that had images without a selector.
func aliases() map[string]string {
	return map[string]string{
		"AL2": "al2", "AL2023": "al2023", "Bottlerocket": "bottlerocket", "Windows2019": "windows2019", "Windows2022": "windows2022",
	}
}

func (c *conversion) nodeClass() {
	family, _ := c.get("spec", "amiFamily").(string)
	if c.get("spec", "amiSelectorTerms") == nil {
		if family == "" {
			family = "AL2"
		}
		alias, ok := aliases()[family]
		switch {
		case ok:
			c.set([]any{map[string]any{"alias": alias + "@latest"}}, "spec", "amiSelectorTerms")
			c.remove("spec", "amiFamily")
			c.note("spec.amiSelectorTerms", "is required now; %s@latest is what amiFamily %s meant, and a pinned version is safer", alias, family)
		case family == "Ubuntu":
			c.set("AL2", "spec", "amiFamily")
			c.note("spec.amiFamily", "Ubuntu is gone: select the images by spec.amiSelectorTerms (owner 099720109477) and keep amiFamily AL2, whose user data they read")
		default:
			c.note("spec.amiSelectorTerms", "is required now; amiFamily %s has no images of its own", family)
		}
	}
	if c.get("spec", "metadataOptions", "httpPutResponseHopLimit") == nil {
		c.note("spec.metadataOptions.httpPutResponseHopLimit", "is 1 if it is absent (it was 2): pods without host network cannot reach instance metadata any more")
	}
	if v := c.get("spec", "instanceProfile"); v != nil && c.get("spec", "role") != nil {
		c.remove("spec", "instanceProfile")
		c.note("spec.instanceProfile", "only one of role and instanceProfile is possible; role was kept")
	}
}
