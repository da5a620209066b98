// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"context"
	"fmt"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
)

// grant creates Slipway's namespace and the rights of the installation, and writes a kubeconfig a process: each runs as the
// service account it is installed with.
func (b *Bed) grant(ctx context.Context) error {
	namespace := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: Namespace}}
	if _, err := b.Client.CoreV1().Namespaces().Create(ctx, namespace, metav1.CreateOptions{}); err != nil {
		return fmt.Errorf("creating namespace %q: %w", Namespace, err)
	}
	if err := b.Cluster.Apply(ctx, b.installation.Rights); err != nil {
		return fmt.Errorf("granting Slipway's rights: %w", err)
	}
	for _, name := range []string{Scheduler, Controller} {
		if err := b.Cluster.WriteKubeconfig(b.kubeconfig(name), serviceAccount(b.installation.containers[name].account), serviceAccountGroups()...); err != nil {
			return err
		}
	}
	return nil
}

// As returns the client configuration of a service account in Slipway's namespace.
func (b *Bed) As(name string) (*rest.Config, error) {
	return b.Cluster.User(serviceAccount(name), serviceAccountGroups()...)
}

// kubeconfig is the file a process reads. It goes with the cluster.
func (b *Bed) kubeconfig(name string) string {
	return filepath.Join(b.Cluster.Dir(), name+".kubeconfig")
}

// serviceAccount is the user a service account in Slipway's namespace is.
func serviceAccount(name string) string { return "system:serviceaccount:" + Namespace + ":" + name }

func serviceAccountGroups() []string {
	return []string{"system:serviceaccounts", "system:serviceaccounts:" + Namespace}
}

// Refused lists what the process has logged of requests that its service account has no right to: what it does and
// the installation does not grant.
func (b *Bed) Refused(name string) ([]string, error) {
	p := b.Process(name)
	if p == nil {
		return nil, nil
	}
	log, err := p.Log()
	if err != nil {
		return nil, fmt.Errorf("reading the log of %s: %w", name, err)
	}
	defer log.Close()
	var refused []string
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if strings.Contains(lines.Text(), `forbidden: User`) {
			refused = append(refused, lines.Text())
		}
	}
	return refused, lines.Err()
}
