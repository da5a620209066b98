// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/slipway-sh/slipway/webhook/rules"
)

// operation is one step of a JSON patch (RFC 6902).
type operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value,omitempty"`
}

// patch collects the changes of one pod. It is made from the raw object, so that fields these types do not know and the
// spelling of quantities stay as they are, and it only adds what is not there: a second pass has nothing to do. Parents are
// made first, because a patch that does not apply is an error that no failurePolicy forgives.
type patch struct {
	pod skeleton
	ops []operation
}

// skeleton is the part of a pod that is patched, as it came.
type skeleton struct {
	Metadata *metadata `json:"metadata"`
	Spec     *spec     `json:"spec"`
}

type spec struct {
	NodeSelector     map[string]string `json:"nodeSelector"`
	Tolerations      []json.RawMessage `json:"tolerations"`
	Priority         *json.RawMessage  `json:"priority"`
	PreemptionPolicy *json.RawMessage  `json:"preemptionPolicy"`
	Containers       []sized           `json:"containers"`
	InitContainers   []sized           `json:"initContainers"`
}

type metadata struct {
	Annotations map[string]string `json:"annotations"`
}

type sized struct {
	Resources *struct {
		Requests map[string]json.RawMessage `json:"requests"`
	} `json:"resources"`
}

func newPatch(raw []byte) (*patch, error) {
	p := &patch{}
	if err := utiljson.Unmarshal(raw, &p.pod); err != nil {
		return nil, fmt.Errorf("reading the pod: %w", err)
	}
	if p.pod.Spec == nil {
		return nil, errors.New("reading the pod: it has no spec")
	}
	return p, nil
}

func (p *patch) add(value any, path ...string) {
	for i, part := range path {
		path[i] = strings.ReplaceAll(strings.ReplaceAll(part, "~", "~0"), "/", "~1") // a Replacer is 9 KB
	}
	p.ops = append(p.ops, operation{Op: "add", Path: "/" + strings.Join(path, "/"), Value: value})
}

// requests fills in the defaults. Those of one container that has no requests at all are one step.
func (p *patch) requests(set []rules.Default) {
	type place struct {
		init  bool
		index int
	}
	var order []place
	byPlace := map[place]map[string]string{}
	for _, d := range set {
		at := place{d.Init, d.Index}
		if byPlace[at] == nil {
			byPlace[at], order = map[string]string{}, append(order, at)
		}
		byPlace[at][string(d.Resource)] = d.Value.String()
	}
	for _, at := range order {
		list, containers := "containers", p.pod.Spec.Containers
		if at.init {
			list, containers = "initContainers", p.pod.Spec.InitContainers
		}
		if at.index >= len(containers) {
			continue
		}
		base := []string{"spec", list, fmt.Sprint(at.index), "resources"}
		switch r := containers[at.index].Resources; {
		case r == nil:
			p.add(map[string]any{"requests": byPlace[at]}, base...)
		case r.Requests == nil:
			p.add(byPlace[at], append(base, "requests")...)
		default:
			for _, name := range []corev1.ResourceName{corev1.ResourceCPU, corev1.ResourceMemory} {
				if q, ok := byPlace[at][string(name)]; ok {
					p.add(q, append(append([]string{}, base...), "requests", string(name))...)
				}
			}
		}
	}
}

// annotate sets an annotation, replacing the value it may have.
func (p *patch) annotate(key, value string) {
	if p.pod.Metadata == nil {
		p.pod.Metadata = &metadata{}
		p.add(map[string]any{}, "metadata")
	}
	if p.pod.Metadata.Annotations == nil {
		p.pod.Metadata.Annotations = map[string]string{}
		p.add(map[string]string{key: value}, "metadata", "annotations")
	} else if p.pod.Metadata.Annotations[key] != value {
		p.add(value, "metadata", "annotations", key)
	}
	p.pod.Metadata.Annotations[key] = value
}

// sel adds a node selector for a key that has none.
func (p *patch) sel(key, value string) {
	if _, ok := p.pod.Spec.NodeSelector[key]; ok {
		return
	}
	if p.pod.Spec.NodeSelector == nil {
		p.pod.Spec.NodeSelector = map[string]string{}
		p.add(map[string]string{key: value}, "spec", "nodeSelector")
	} else {
		p.add(value, "spec", "nodeSelector", key)
	}
	p.pod.Spec.NodeSelector[key] = value
}

func (p *patch) tolerate(t corev1.Toleration) {
	if p.pod.Spec.Tolerations == nil {
		p.add([]corev1.Toleration{t}, "spec", "tolerations")
	} else {
		p.add(t, "spec", "tolerations", "-")
	}
	p.pod.Spec.Tolerations = append(p.pod.Spec.Tolerations, nil)
}

// prioritise gives the pod a priority class. The API server has filled in the priority of the class it had, or of none, and
// refuses a pod whose priority is not its class's; both fields are filled in again after the patch.
func (p *patch) prioritise(class string) {
	p.add(class, "spec", "priorityClassName")
	if p.pod.Spec.Priority != nil {
		p.ops = append(p.ops, operation{Op: "remove", Path: "/spec/priority"})
	}
	if p.pod.Spec.PreemptionPolicy != nil {
		p.ops = append(p.ops, operation{Op: "remove", Path: "/spec/preemptionPolicy"})
	}
}

// bytes is the patch as JSON, nil if it is empty.
func (p *patch) bytes() ([]byte, error) {
	if len(p.ops) == 0 {
		return nil, nil
	}
	out, err := json.Marshal(p.ops)
	if err != nil {
		return nil, fmt.Errorf("writing the patch: %w", err)
	}
	return out, nil
}
