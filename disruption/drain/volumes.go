// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package drain

import (
	"context"
	"fmt"
	"slices"

	corev1 "k8s.io/api/core/v1"
	storagev1 "k8s.io/api/storage/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// fieldAttachmentNode is the index of VolumeAttachments by node.
	fieldAttachmentNode = "spec.nodeName"
	// fieldPodController is the index of pods by the UID of what makes them.
	fieldPodController = "slipway.sh/controller-uid"
)

// AddIndexes adds the fields the package's reads need beside those of package claim.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	if err := indexer.IndexField(ctx, &storagev1.VolumeAttachment{}, fieldAttachmentNode, AttachmentNode); err != nil {
		return fmt.Errorf("indexing VolumeAttachments by %q: %w", fieldAttachmentNode, err)
	}
	if err := indexer.IndexField(ctx, &corev1.Pod{}, fieldPodController, PodController); err != nil {
		return fmt.Errorf("indexing Pods by %q: %w", fieldPodController, err)
	}
	return nil
}

// PodController is the index: the UID of a pod's controller.
func PodController(o client.Object) []string {
	if owner := metav1.GetControllerOf(o); owner != nil {
		return []string{string(owner.UID)}
	}
	return nil
}

// AttachmentNode is the index: the node of a VolumeAttachment.
func AttachmentNode(o client.Object) []string {
	a, ok := o.(*storagev1.VolumeAttachment)
	if !ok || a.Spec.NodeName == "" {
		return nil
	}
	return []string{a.Spec.NodeName}
}

// Attached implements [claim.Drainer]: the attachments to the node that end when its pods have left, by name. Those of pods
// that stay (because they tolerate the disrupted taint, or cannot be removed) do not end and are left out.
func (d *Drainer) Attached(ctx context.Context, node *corev1.Node) ([]string, error) {
	var attachments storagev1.VolumeAttachmentList
	if err := d.Kube.List(ctx, &attachments, client.MatchingFields{fieldAttachmentNode: node.Name}, client.UnsafeDisableDeepCopy); err != nil {
		return nil, fmt.Errorf("listing the VolumeAttachments of node %q: %w", node.Name, err)
	}
	if len(attachments.Items) == 0 {
		return nil, nil
	}
	kept, err := d.keptVolumes(ctx, node)
	if err != nil {
		return nil, err
	}
	var out []string
	for _, a := range attachments.Items {
		if v := a.Spec.Source.PersistentVolumeName; v == nil || !kept[*v] {
			out = append(out, a.Name)
		}
	}
	slices.Sort(out)
	return out, nil
}

// keptVolumes are the PersistentVolumes of pods that stay on the node.
func (d *Drainer) keptVolumes(ctx context.Context, node *corev1.Node) (map[string]bool, error) {
	pods, err := podsOn(ctx, d.Kube, node.Name)
	if err != nil {
		return nil, err
	}
	out := map[string]bool{}
	for _, p := range pods {
		if hasToLeave(p, d.Clock.Now()) || p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
			continue
		}
		for _, v := range p.Spec.Volumes {
			var name string
			switch {
			case v.PersistentVolumeClaim != nil:
				name = v.PersistentVolumeClaim.ClaimName
			case v.Ephemeral != nil:
				name = p.Name + "-" + v.Name
			default:
				continue
			}
			c := &corev1.PersistentVolumeClaim{}
			err := d.Live.Get(ctx, types.NamespacedName{Namespace: p.Namespace, Name: name}, c)
			switch {
			case err == nil:
				out[c.Spec.VolumeName] = true
			case !apierrors.IsNotFound(err):
				return nil, fmt.Errorf("reading PersistentVolumeClaim %q: %w", p.Namespace+"/"+name, err)
			}
		}
	}
	return out, nil
}
