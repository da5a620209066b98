// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"context"
	"fmt"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/cluster"
)

func TestKwok(t *testing.T) {
	c := cluster.Start(t, cluster.Options{Kubelet: cluster.Kwok, TempDir: t.TempDir()})
	client := clientFor(t, c.Config())
	for name, annotations := range map[string]map[string]string{
		"played": {cluster.KwokAnnotation: cluster.KwokAnnotationValue}, "left-alone": nil,
	} {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: annotations}}
		if _, err := client.CoreV1().Nodes().Create(t.Context(), node, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	awaitReady(t, client, "played")
	bind(t, client, "default", "played", podNamed("soak", "100m"))
	awaitPod(t, client, "default", "soak", "Running")
	node, err := client.CoreV1().Nodes().Get(t.Context(), "left-alone", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if len(node.Status.Conditions) != 0 {
		t.Errorf("node without the annotation has conditions %v, want none", node.Status.Conditions)
	}
	if err := client.CoreV1().Pods("default").Delete(t.Context(), "soak", metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
	eventually(t, "deleted pod to go", func(ctx context.Context) string {
		if _, err := client.CoreV1().Pods("default").Get(ctx, "soak", metav1.GetOptions{}); !apierrors.IsNotFound(err) {
			return fmt.Sprint(err)
		}
		return ""
	})
}
