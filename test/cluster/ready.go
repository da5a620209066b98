// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
)

// readyPoll is how often readiness is asked for.
const readyPoll = 25 * time.Millisecond

// errStopped says that Stop was called while something was waited for.
var errStopped = errors.New("cluster is stopped")

// startTimeout bounds each wait of a start when the caller's context does not.
const startTimeout = 2 * time.Minute

// poll asks until the answer is yes. A process that dies meanwhile ends it. When time is up, the error holds the
// last answer of what, if there was one.
func (c *Cluster) poll(ctx context.Context, what string, ask func(context.Context) (bool, error)) error {
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	tick := time.NewTicker(readyPoll)
	defer tick.Stop()
	var last error
	for {
		done, err := ask(ctx)
		if done {
			return nil
		}
		if err != nil && ctx.Err() == nil {
			last = err
		}
		select {
		case <-c.over:
			return fmt.Errorf("waiting for %s: %w", what, cmp.Or(c.overErr, errStopped))
		case <-ctx.Done():
			if last != nil {
				return fmt.Errorf("waiting for %s: %w (last answer: %w)", what, ctx.Err(), last)
			}
			return fmt.Errorf("waiting for %s: %w", what, ctx.Err())
		case <-tick.C:
		}
	}
}

// awaitAPIServer waits for /readyz, which includes the hooks that write the RBAC rules and the priority classes.
func (c *Cluster) awaitAPIServer(ctx context.Context) error {
	config := c.Config()
	config.Timeout = 5 * time.Second // a hanging answer is asked again
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	return c.poll(ctx, "kube-apiserver", func(ctx context.Context) (bool, error) {
		err := client.Discovery().RESTClient().Get().AbsPath("/readyz").Do(ctx).Error()
		return err == nil, err
	})
}

// AwaitNamespace creates the namespace if need be and waits until pods can be created in it, which is when it has
// its default service account.
func (c *Cluster) AwaitNamespace(ctx context.Context, name string) error {
	client, err := kubernetes.NewForConfig(c.admin)
	if err != nil {
		return fmt.Errorf("creating client: %w", err)
	}
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}
	if _, err := client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("creating namespace %q: %w", name, err)
	}
	return c.poll(ctx, fmt.Sprintf("the default service account of namespace %q", name), func(ctx context.Context) (bool, error) {
		_, err := client.CoreV1().ServiceAccounts(name).Get(ctx, "default", metav1.GetOptions{})
		return err == nil, err
	})
}

// PIDs yields the name and process id of every component and program, in the order of their start.
func (c *Cluster) PIDs() iter.Seq2[string, int] {
	return func(yield func(string, int) bool) {
		c.mu.Lock()
		processes := slices.Clone(c.processes) // the caller may stop the cluster meanwhile
		c.mu.Unlock()
		for _, p := range processes {
			if !yield(p.name, p.cmd.Process.Pid) {
				return
			}
		}
	}
}
