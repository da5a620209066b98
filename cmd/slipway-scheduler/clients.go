// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/cache"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// newClient returns a client without limits that reads from a cache, and the cache, which is not started yet.
func newClient(config *rest.Config) (client.Client, cache.Cache, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.ContentType = -1, ""
	config.AcceptContentTypes = ""
	objects, err := cache.New(config, cache.Options{Scheme: scheme.Scheme, DefaultTransform: cache.TransformStripManagedFields()})
	if err != nil {
		return nil, nil, fmt.Errorf("creating the cache: %w", err)
	}
	kube, err := client.New(config, client.Options{Scheme: scheme.Scheme, Cache: &client.CacheOptions{Reader: objects}})
	if err != nil {
		return nil, nil, fmt.Errorf("creating the client: %w", err)
	}
	return kube, objects, nil
}

// newLive returns a client without limits that reads from the API server.
func newLive(config *rest.Config) (client.Client, error) {
	config = rest.CopyConfig(config)
	config.QPS, config.ContentType, config.AcceptContentTypes = -1, "", ""
	live, err := client.New(config, client.Options{Scheme: scheme.Scheme})
	if err != nil {
		return nil, fmt.Errorf("creating the uncached client: %w", err)
	}
	return live, nil
}
