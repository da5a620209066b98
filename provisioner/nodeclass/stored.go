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
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/slipway-sh/slipway/provisioner/ec2"
	"github.com/slipway-sh/slipway/webhook/rules"
)

// checkStored refuses what the API package cannot see or would drop without a word: fields that only a later version of the
// CRD has, kubelet settings that do not exist, with which a kubelet does not start, and settings that spec.kubelet cannot carry
// out. Where they are seen depends on the CRD: one of Karpenter v1.15 or later stores any key of spec.kubelet; an older one
// stores none it does not know, so that such a key is only in what kubectl noted as last applied (kubectl apply itself refuses
// it unless told not to validate).
func (r *ClassReconciler) checkStored(ctx context.Context, class *v1.EC2NodeClass) (*verdict, error) {
	raw, err := r.stored(ctx, class)
	if err != nil {
		return nil, err
	}
	if v := judgeFields(raw); v != nil {
		return v, nil
	}
	kubelet, _, err := unstructured.NestedMap(raw.Object, "spec", "kubelet")
	if err != nil {
		return nil, fmt.Errorf("reading spec.kubelet of EC2NodeClass %q: %w", class.Name, err)
	}
	if v := judgeKubelet("spec.kubelet", slices.Sorted(maps.Keys(kubelet)), true); v != nil {
		return v, nil
	}
	if v := judgeKubelet("spec.kubelet", appliedKubelet(class, raw.GetManagedFields()), true); v != nil {
		v.message += fmt.Sprintf(" (seen in the annotation %s: apply the class again, or remove the annotation)", corev1.LastAppliedConfigAnnotation)
		return v, nil
	}
	return judgeUserData(class), nil
}

// judgeUserData looks at the kubelet's settings in user data of the families whose form has them.
func judgeUserData(class *v1.EC2NodeClass) *verdict {
	config, err := ec2.NodeConfigKubelet(class)
	if err != nil {
		return fails(reasonInvalid, "%v", err)
	}
	if v := judgeKubelet("spec.userData: NodeConfig: spec.kubelet.config", slices.Sorted(maps.Keys(config)), false); v != nil {
		return v
	}
	unknown, err := ec2.UnknownSettings(class)
	switch {
	case err != nil:
		return fails(reasonInvalid, "%v", err)
	case len(unknown) > 0:
		return fails(reasonKubelet, "spec.userData: settings.kubernetes.%s: Bottlerocket has no such setting, and does not boot with it; correct or remove it", unknown[0])
	}
	return nil
}

// judgeFields refuses fields of the spec that the API package lacks: what they ask for would not be done.
func judgeFields(raw *unstructured.Unstructured) *verdict {
	err := runtime.DefaultUnstructuredConverter.FromUnstructuredWithValidation(raw.Object, &v1.EC2NodeClass{}, true)
	strict, ok := runtime.AsStrictDecodingError(err)
	if !ok {
		return nil
	}
	for _, e := range strict.Errors() {
		_, field, _ := strings.Cut(e.Error(), `"`)
		field = strings.TrimSuffix(field, `"`)
		if !strings.HasPrefix(field, "spec.") || strings.HasPrefix(field, "spec.kubelet.") {
			continue
		}
		return fails(reasonInvalid, "%s: not carried out here: the EC2NodeClass of Karpenter v1.14 has no such field; remove it", field)
	}
	return nil
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

// stored returns the class as it is stored; an empty object if it is not to be looked at, or gone.
func (r *ClassReconciler) stored(ctx context.Context, class *v1.EC2NodeClass) (*unstructured.Unstructured, error) {
	raw := &unstructured.Unstructured{Object: map[string]any{}}
	if r.Live == nil {
		return raw, nil
	}
	raw.SetGroupVersionKind(schema.GroupVersionKind{Group: "karpenter.k8s.aws", Version: "v1", Kind: "EC2NodeClass"})
	if err := r.Live.Get(ctx, client.ObjectKeyFromObject(class), raw); client.IgnoreNotFound(err) != nil {
		return nil, fmt.Errorf("reading EC2NodeClass %q: %w", class.Name, err)
	}
	return raw, nil
}

// appliedKubelet returns the names in spec.kubelet of what kubectl applied last; none if spec.kubelet has been changed since,
// by whatever else: kubectl edit, Helm and server-side apply leave the annotation as it is.
func appliedKubelet(class *v1.EC2NodeClass, fields []metav1.ManagedFieldsEntry) []string {
	text := []byte(class.Annotations[corev1.LastAppliedConfigAnnotation])
	var names struct {
		Spec struct {
			Kubelet map[string]json.RawMessage `json:"kubelet"`
		} `json:"spec"`
	}
	if err := json.Unmarshal(text, &names); err != nil {
		return nil // there is none, or it is not kubectl's
	}
	var applied v1.EC2NodeClass
	if err := json.Unmarshal(text, &applied); err != nil || !equality.Semantic.DeepEqual(applied.Spec.Kubelet, class.Spec.Kubelet) {
		return nil
	}
	if rewritten(fields) {
		return nil
	}
	return slices.Sorted(maps.Keys(names.Spec.Kubelet))
}

// rewritten reports whether spec.kubelet has had another writer since kubectl noted what it applied. Who applies on the server
// says all it wants of the spec, and so of the kubelet, even where it names nothing of it.
func rewritten(fields []metav1.ManagedFieldsEntry) bool {
	noted := slices.IndexFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		return owns(e, "f:metadata", "f:annotations", "f:"+corev1.LastAppliedConfigAnnotation)
	})
	if noted < 0 {
		return false
	}
	return slices.ContainsFunc(fields, func(e metav1.ManagedFieldsEntry) bool {
		if e.Subresource != "" || !fields[noted].Time.Before(e.Time) {
			return false
		}
		return owns(e, "f:spec", "f:kubelet") || e.Operation == metav1.ManagedFieldsOperationApply && owns(e, "f:spec")
	})
}

// owns reports whether the entry has the field at the path.
func owns(e metav1.ManagedFieldsEntry, path ...string) bool {
	if e.FieldsV1 == nil {
		return false
	}
	at := json.RawMessage(e.FieldsV1.GetRawBytes())
	for _, key := range path {
		var in map[string]json.RawMessage
		if err := json.Unmarshal(at, &in); err != nil || in[key] == nil {
			return false
		}
		at = in[key]
	}
	return true
}
