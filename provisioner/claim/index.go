// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package claim

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// Fields the cache is indexed by.
const (
	fieldClaimProviderID = "status.providerID"
	fieldNodeProviderID  = "spec.providerID"
	fieldPodNodeName     = "spec.nodeName"
)

// Indexes are the fields the package's reads need, as functions a cache or a fake client can be given.
func Indexes() []Index {
	return []Index{
		{&karpv1.NodeClaim{}, fieldClaimProviderID, func(o client.Object) []string {
			return nonEmpty(o.(*karpv1.NodeClaim).Status.ProviderID)
		}},
		{&corev1.Node{}, fieldNodeProviderID, func(o client.Object) []string {
			return nonEmpty(o.(*corev1.Node).Spec.ProviderID)
		}},
		{&corev1.Pod{}, fieldPodNodeName, func(o client.Object) []string {
			return nonEmpty(o.(*corev1.Pod).Spec.NodeName)
		}},
	}
}

// Index is one indexed field.
type Index struct {
	Object  client.Object
	Field   string
	Extract client.IndexerFunc
}

// AddIndexes adds all [Indexes] to a cache.
func AddIndexes(ctx context.Context, indexer client.FieldIndexer) error {
	for _, i := range Indexes() {
		if err := indexer.IndexField(ctx, i.Object, i.Field, i.Extract); err != nil {
			return fmt.Errorf("indexing %T by %q: %w", i.Object, i.Field, err)
		}
	}
	return nil
}

func nonEmpty(s string) []string {
	if s == "" {
		return nil
	}
	return []string{s}
}

// launchIDs are the values of the launch tag that the claim's instance may have: the UID always, the group's id for claims
// that share a launch. Package launch shortens a group id that is too long for a client token the same way.
func launchIDs(c *karpv1.NodeClaim) (own, group string) {
	const maxID = 56
	group = cmp.Or(c.Annotations[capacity.LaunchGroupAnnotation], string(c.UID))
	if len(group) > maxID {
		sum := sha256.Sum256([]byte(group))
		group = hex.EncodeToString(sum[:20])
	}
	return string(c.UID), group
}

// instanceID is the last part of a provider id (aws:///<zone>/<id>), "" if it has none.
func instanceID(providerID string) string {
	return providerID[strings.LastIndex(providerID, "/")+1:]
}

// nodesOf returns the Nodes with the claim's provider id.
func nodesOf(ctx context.Context, kube client.Reader, claim *karpv1.NodeClaim) ([]corev1.Node, error) {
	if claim.Status.ProviderID == "" {
		return nil, nil
	}
	var nodes corev1.NodeList
	if err := kube.List(ctx, &nodes, client.MatchingFields{fieldNodeProviderID: claim.Status.ProviderID}); err != nil {
		return nil, fmt.Errorf("listing the nodes of NodeClaim %q: %w", claim.Name, err)
	}
	return nodes.Items, nil
}
