// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"

	"github.com/slipway-sh/slipway/test/cluster"
)

// Installation is what a rendered installation says of Slipway's processes. Nothing here runs containers; the bed starts
// the same programs with the same arguments, configuration and identity instead.
type Installation struct {
	// Rights are the documents that say what the service accounts may do, and the namespaces they are about.
	Rights []byte
	// SchedulerConfig is the KubeSchedulerConfiguration.
	SchedulerConfig []byte

	containers map[string]container
}

// container is one of the processes, by its binary's name.
type container struct {
	account string
	args    []string
	env     []string
}

// ReadInstallation reads rendered manifests. The error names what a bed needs and they lack.
func ReadInstallation(manifests []byte) (*Installation, error) {
	in := &Installation{containers: map[string]container{}}
	var rights [][]byte
	rightsKinds := []string{"Namespace", "ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding", "FlowSchema"}
	documents := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, fmt.Errorf("reading the installation: %w", err)
		}
		var kind struct {
			Kind string `json:"kind"`
		}
		if err := yaml.Unmarshal(document, &kind); err != nil {
			return nil, fmt.Errorf("reading the installation: %w", err)
		}
		switch {
		case slices.Contains(rightsKinds, kind.Kind):
			rights = append(rights, document)
		case kind.Kind == "ConfigMap":
			err = in.addConfig(document)
		case kind.Kind == "Deployment":
			err = in.addContainers(document)
		}
		if err != nil {
			return nil, fmt.Errorf("reading %s: %w", kind.Kind, err)
		}
	}
	in.Rights = bytes.Join(rights, []byte("\n---\n"))
	if in.SchedulerConfig == nil {
		return nil, errors.New("reading the installation: it has no ConfigMap with scheduler.yaml")
	}
	for _, name := range []string{Scheduler, Controller} {
		if _, ok := in.containers[name]; !ok {
			return nil, fmt.Errorf("reading the installation: no Deployment runs %s", name)
		}
	}
	return in, nil
}

// Process is what a process is installed with, by its binary's name: its service account, arguments and environment.
func (in *Installation) Process(name string) (account string, args, env []string) {
	c := in.containers[name]
	return c.account, slices.Clone(c.args), slices.Clone(c.env)
}

// command starts a process of the binary as it is installed. The name tells two of one binary apart: a standby is a second
// replica, and in no manifest by a name of its own.
func (in *Installation) command(name, binary, path string, args, env []string) cluster.Command {
	installed := in.containers[binary]
	// The last of two values of a flag or variable counts.
	return cluster.Command{Name: name, Path: path, Args: slices.Concat(installed.args, args), Env: slices.Concat(installed.env, env)}
}

func (in *Installation) addConfig(document []byte) error {
	var m corev1.ConfigMap
	if err := yaml.UnmarshalStrict(document, &m); err != nil {
		return err
	}
	if config, ok := m.Data["scheduler.yaml"]; ok {
		in.SchedulerConfig = []byte(config)
	}
	return nil
}

func (in *Installation) addContainers(document []byte) error {
	var d appsv1.Deployment
	if err := yaml.UnmarshalStrict(document, &d); err != nil {
		return err
	}
	for i := range d.Spec.Template.Spec.Containers {
		c := &d.Spec.Template.Spec.Containers[i]
		out := container{account: d.Spec.Template.Spec.ServiceAccountName, args: c.Args}
		for _, e := range c.Env {
			if e.ValueFrom == nil {
				out.env = append(out.env, e.Name+"="+e.Value)
			}
		}
		in.containers["slipway-"+c.Name] = out
	}
	return nil
}
