// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	// The API packages of Karpenter register their kinds in client-go's scheme.
	_ "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/cmd/internal/failure"
)

// answerWithin bounds a request, so that a wrong address is told within seconds.
const answerWithin = 15 * time.Second

// target is the cluster a command asks, chosen by kubectl's flags.
type target struct {
	rules     clientcmd.ClientConfigLoadingRules
	overrides clientcmd.ConfigOverrides
	host      string
}

// addFlags adds those of kubectl's flags that choose a cluster and a namespace.
func (c *target) addFlags(cmd *cobra.Command) {
	c.rules = *clientcmd.NewDefaultClientConfigLoadingRules()
	f := cmd.Flags()
	f.StringVar(&c.rules.ExplicitPath, clientcmd.RecommendedConfigPathFlag, "", "path of the kubeconfig file")
	f.StringVar(&c.overrides.CurrentContext, clientcmd.FlagContext, "", "context of the kubeconfig file to use")
	f.StringVarP(&c.overrides.Context.Namespace, clientcmd.FlagNamespace, "n", "", "namespace; the context's if empty")
}

// connect returns a reader of the cluster and the namespace that was chosen.
func (c *target) connect() (kube client.Reader, namespace string, err error) {
	config, err := c.config()
	if err != nil {
		return nil, "", err
	}
	if namespace, _, err = c.deferred().Namespace(); err != nil {
		return nil, "", fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.Timeout = answerWithin
	kube, err = client.New(config, client.Options{Scheme: scheme.Scheme})
	return kube, namespace, c.explainError(err)
}

// answers asks for one NodePool, to know whether the cluster can be asked anything and is one of Slipway's.
func (c *target) answers(ctx context.Context) error {
	kube, _, err := c.connect()
	if err != nil {
		return err
	}
	return c.explainError(kube.List(ctx, &karpv1.NodePoolList{}, client.Limit(1)))
}

// writer returns a client for the kinds of the scheme.
func (c *target) writer(kinds *runtime.Scheme) (client.Client, error) {
	config, err := c.config()
	if err != nil {
		return nil, err
	}
	config.Timeout = answerWithin
	kube, err := client.New(config, client.Options{Scheme: kinds})
	return kube, c.explainError(err)
}

// minor is that of the API server's version.
func (c *target) minor() (string, error) {
	config, err := c.config()
	if err != nil {
		return "", err
	}
	config.Timeout = answerWithin
	discoverer, err := discovery.NewDiscoveryClientForConfig(config)
	if err != nil {
		return "", fmt.Errorf("asking for the API server's version: %w", err)
	}
	version, err := discoverer.ServerVersion()
	if err != nil {
		return "", fmt.Errorf("asking for the API server's version: %w", err)
	}
	return version.Minor, nil
}

func (c *target) deferred() clientcmd.ClientConfig {
	return clientcmd.NewNonInteractiveDeferredLoadingClientConfig(&c.rules, &c.overrides)
}

// config says how the chosen cluster is reached; its requests have no bound in time yet.
func (c *target) config() (*rest.Config, error) {
	config, err := c.deferred().ClientConfig()
	if clientcmd.IsEmptyConfig(err) {
		return nil, errors.New("no cluster is configured: set KUBECONFIG or --kubeconfig")
	}
	if err != nil {
		return nil, fmt.Errorf("reading the kubeconfig: %w", err)
	}
	config.WarningHandler = rest.NoWarnings{}
	c.host = config.Host
	return config, nil
}

// explainError says what is wrong with reaching a cluster and what to do, in one sentence.
func (c *target) explainError(err error) error {
	return failure.Cluster(err, c.host)
}
