// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package nodeclass

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// checkKubelet refuses kubelet settings that do not exist, with which a kubelet does not start, and settings that spec.kubelet
// cannot carry out and that would be dropped without a word. Where they are seen depends on the CRD: one of Karpenter v1.15 or
// later stores any key; an older one stores none it does not know, so that such a key is only in what kubectl noted as last
// applied (kubectl apply itself refuses it unless told not to validate).
func (r *ClassReconciler) checkKubelet(ctx context.Context, class *v1.EC2NodeClass) (*verdict, error) {
	stored, err := r.storedKubelet(ctx, class)
	if err != nil {
		return nil, err
	}
	if v := judgeKubelet("spec.kubelet", stored, true); v != nil {
		return v, nil
	}
	if v := judgeKubelet("spec.kubelet", appliedKubelet(class), true); v != nil {
		v.message += fmt.Sprintf(" (seen in the annotation %s: apply the class again)", corev1.LastAppliedConfigAnnotation)
		return v, nil
	}
	config, err := ec2.NodeConfigKubelet(class)
	if err != nil {
		return fails(reasonInvalid, "%v", err), nil
	}
	return judgeKubelet("spec.userData: NodeConfig: spec.kubelet.config", slices.Sorted(maps.Keys(config)), false), nil
}

// judgeKubelet looks at the names of settings. typed says that only those of EC2NodeClass are carried out.
func judgeKubelet(field string, settings []string, typed bool) *verdict {
	known, ours := rules.KubeletFields(), classSettings()
	for _, s := range settings {
		switch _, ok := known[s]; {
		case s == "kind" || s == "apiVersion":
		case !ok:
			return fails(reasonKubelet, "%s.%s: the kubelet has no such setting; correct or remove it", field, s)
		case typed && !slices.Contains(ours, s):
			return fails(reasonKubeletElsewhere, "%s.%s: not carried out here; move it to a NodeConfig in spec.userData (AL2023: spec.kubelet.config), or remove it", field, s)
		}
	}
	return nil
}

// classSettings are the settings that EC2NodeClass has a field for.
func classSettings() []string {
	var out []string
	for field := range reflect.TypeFor[v1.KubeletConfiguration]().Fields() {
		name, _, _ := strings.Cut(field.Tag.Get("json"), ",")
		out = append(out, name)
	}
	return out
}

// storedKubelet returns the names in spec.kubelet as it is stored, in order; none if the class has none or is gone.
func (r *ClassReconciler) storedKubelet(ctx context.Context, class *v1.EC2NodeClass) ([]string, error) {
	if r.Live == nil || class.Spec.Kubelet == nil {
		return nil, nil
	}
	raw := &unstructured.Unstructured{}
	raw.SetGroupVersionKind(schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"})
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(class), raw); err != nil {
		return nil, client.IgnoreNotFound(err)
	}
	kubelet, _, err := unstructured.NestedMap(raw.Object, "spec", "kubelet")
	if err != nil {
		return nil, fmt.Errorf("reading spec.kubelet of EC2NodeClass %q: %w", class.Name, err)
	}
	return slices.Sorted(maps.Keys(kubelet)), nil
}

// appliedKubelet returns the names in spec.kubelet of what kubectl applied last.
func appliedKubelet(class *v1.EC2NodeClass) []string {
	var applied struct {
		Spec struct {
			Kubelet map[string]json.RawMessage `json:"kubelet"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(class.Annotations[corev1.LastAppliedConfigAnnotation]), &applied); err != nil {
		return nil // there is none, or it is not kubectl's
	}
	return slices.Sorted(maps.Keys(applied.Spec.Kubelet))
}
