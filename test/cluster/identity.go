// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"context"
	"net/http"

	"k8s.io/client-go/rest"
)

// nodeKey is the context key of the node as which a request is made.
type nodeKey struct{}

// asNode makes the requests of ctx be made as this node's kubelet.
func asNode(ctx context.Context, node string) context.Context {
	return context.WithValue(ctx, nodeKey{}, node)
}

// nodeIdentity returns a configuration whose clients make a request as the node named by the request's context, all
// over the same connection. The credentials of config must be allowed to impersonate.
func nodeIdentity(config *rest.Config) *rest.Config {
	config = rest.CopyConfig(config)
	config.Wrap(func(next http.RoundTripper) http.RoundTripper {
		return roundTripper(func(r *http.Request) (*http.Response, error) {
			if node, ok := r.Context().Value(nodeKey{}).(string); ok {
				r = r.Clone(r.Context()) // a round tripper may not change the request it is given
				r.Header.Set("Impersonate-User", "system:node:"+node)
				r.Header.Set("Impersonate-Group", "system:nodes")
			}
			return next.RoundTrip(r)
		})
	})
	return config
}

type roundTripper func(*http.Request) (*http.Response, error)

func (f roundTripper) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }
