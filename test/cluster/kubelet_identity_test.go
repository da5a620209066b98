// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster_test

import (
	"slices"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/slipway-sh/slipway/test/cluster"
)

// TestWritesAreJudgedAsANodes looks at who the fake kubelet is for the API server.
func TestWritesAreJudgedAsANodes(t *testing.T) {
	c := shared.Get(t)
	client := clientFor(t, cluster.NodeIdentity(c.Config()))
	ctx := cluster.AsNode(t.Context(), "mine")
	review, err := client.AuthenticationV1().SelfSubjectReviews().Create(ctx, &authenticationv1.SelfSubjectReview{}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if got := review.Status.UserInfo; got.Username != "system:node:mine" || !slices.Contains(got.Groups, "system:nodes") {
		t.Errorf("user is %q in %v, want system:node:mine in system:nodes", got.Username, got.Groups)
	}
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "other"}}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating another node: %v, want forbidden", err)
	}
	node.Name, node.Labels = "mine", map[string]string{"node-restriction.kubernetes.io/x": "y"}
	if _, err := client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{}); !apierrors.IsForbidden(err) {
		t.Errorf("creating its node with a restricted label: %v, want forbidden", err)
	}
}

func TestRejoiningTakesOver(t *testing.T) {
	c := shared.Get(t)
	ns, client := namespace(t, c), clientFor(t, c.Config())
	first := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 300 * time.Millisecond})
	m := machineNamed("again")
	join(t, first, client, m)
	awaitReady(t, client, "again")
	bind(t, client, ns, "again", podNamed("old", "3"))
	started := awaitPod(t, client, ns, "old", "Running").Status.StartTime
	first.Stop()

	second := cluster.StartKubelet(t, c, cluster.KubeletOptions{LeaseInterval: 300 * time.Millisecond})
	m.Labels = map[string]string{"team": "green"}
	join(t, second, client, m)
	awaitReady(t, client, "again")
	bind(t, client, ns, "again", podNamed("new", "2"))
	awaitPod(t, client, ns, "new", "Failed OutOfcpu") // the old pod still holds its 3 of 4
	if got := awaitPod(t, client, ns, "old", "Running").Status.StartTime; !got.Equal(started) {
		t.Errorf("pod that ran through was started anew: %v, want %v", got, started)
	}
	node, err := client.CoreV1().Nodes().Get(t.Context(), "again", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if node.Labels["team"] != "green" {
		t.Errorf("label is %q, want the new user data's", node.Labels["team"])
	}
}
