// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/aws/karpenter-provider-aws/pkg/apis"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/yaml"
)

// fieldOwner is the field manager of everything this package applies.
const fieldOwner = client.FieldOwner("slipway-test-cluster")

// ApplyCRDs installs the custom resources of Karpenter and its AWS provider, as pinned in go.mod, and returns when
// they are served. The provider's copies of the karpenter.sh kinds are used, because they carry its own rules.
func (c *Cluster) ApplyCRDs(ctx context.Context) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	for _, crd := range [][]byte{apis.NodePoolCRD, apis.NodeClaimCRD, apis.NodeOverlayCRD, apis.EC2NodeClassCRD} {
		if err := applyAll(ctx, cl, crd); err != nil {
			return err
		}
	}
	for _, crd := range apis.CRDs {
		if err := c.awaitServed(ctx, cl, crd); err != nil {
			return err
		}
	}
	return nil
}

// awaitServed waits until the kind is established and every served version answers.
func (c *Cluster) awaitServed(ctx context.Context, cl client.Client, crd *apiextensionsv1.CustomResourceDefinition) error {
	return c.poll(ctx, fmt.Sprintf("custom resource %q", crd.Name), func(ctx context.Context) (bool, error) {
		var now apiextensionsv1.CustomResourceDefinition
		if err := cl.Get(ctx, client.ObjectKeyFromObject(crd), &now); err != nil {
			return false, err
		}
		established := false
		for _, condition := range now.Status.Conditions {
			if condition.Type == apiextensionsv1.Established && condition.Status == apiextensionsv1.ConditionTrue {
				established = true
			}
		}
		if !established {
			return false, nil
		}
		for _, version := range now.Spec.Versions {
			if !version.Served {
				continue
			}
			list := &unstructured.UnstructuredList{}
			list.SetAPIVersion(now.Spec.Group + "/" + version.Name)
			list.SetKind(now.Spec.Names.ListKind)
			if err := cl.List(ctx, list, client.Limit(1)); err != nil {
				return false, err
			}
		}
		return true, nil
	})
}

// Apply applies manifests (YAML or JSON, any number of documents) by server-side apply, as "kubectl apply
// --server-side --force-conflicts" does, in their order. Objects without a namespace go to "default". A manifest may
// use a kind that an earlier document of it defines. The error of a refused object names it and wraps the API
// server's answer; what came before it stays.
func (c *Cluster) Apply(ctx context.Context, manifests []byte) error {
	cl, err := c.client()
	if err != nil {
		return err
	}
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		err := c.poll(ctx, fmt.Sprintf("kind %q", object.GetKind()), func(context.Context) (bool, error) {
			// Serving a new kind starts a moment after its definition is accepted.
			_, err := cl.RESTMapper().RESTMapping(object.GroupVersionKind().GroupKind(), object.GroupVersionKind().Version)
			if meta.IsNoMatchError(err) && definesKind(objects) {
				return false, err
			}
			return true, nil
		})
		if err != nil {
			return err
		}
		if err := applyObject(ctx, cl, object); err != nil {
			return err
		}
	}
	return nil
}

// definesKind tells whether one of the objects is a custom resource definition.
func definesKind(objects []*unstructured.Unstructured) bool {
	for _, o := range objects {
		if o.GetKind() == "CustomResourceDefinition" {
			return true
		}
	}
	return false
}

func applyAll(ctx context.Context, cl client.Client, manifests []byte) error {
	objects, err := decode(manifests)
	if err != nil {
		return err
	}
	for _, object := range objects {
		if err := applyObject(ctx, cl, object); err != nil {
			return err
		}
	}
	return nil
}

func applyObject(ctx context.Context, cl client.Client, object *unstructured.Unstructured) error {
	what := fmt.Sprintf("%s %q", object.GetKind(), object.GetName())
	namespaced, err := cl.IsObjectNamespaced(object)
	if err != nil {
		return fmt.Errorf("applying %s: %w", what, err)
	}
	if namespaced && object.GetNamespace() == "" {
		object.SetNamespace("default")
	}
	if err := cl.Apply(ctx, client.ApplyConfigurationFromUnstructured(object), fieldOwner, client.ForceOwnership); err != nil {
		return fmt.Errorf("applying %s: %w", what, err)
	}
	return nil
}

// decode splits manifests into objects and flattens lists.
func decode(manifests []byte) ([]*unstructured.Unstructured, error) {
	var objects []*unstructured.Unstructured
	reader := utilyaml.NewYAMLReader(bufio.NewReader(bytes.NewReader(manifests)))
	for n := 1; ; n++ {
		document, err := reader.Read()
		if errors.Is(err, io.EOF) {
			return objects, nil
		}
		if err != nil {
			return nil, fmt.Errorf("reading manifest document %d: %w", n, err)
		}
		object := &unstructured.Unstructured{}
		if err := yaml.Unmarshal(document, &object.Object); err != nil {
			return nil, fmt.Errorf("parsing manifest document %d: %w", n, err)
		}
		if len(object.Object) == 0 {
			continue // only comments
		}
		if object.IsList() {
			err = object.EachListItem(func(item runtime.Object) error {
				objects = append(objects, item.(*unstructured.Unstructured))
				return nil
			})
			if err != nil {
				return nil, fmt.Errorf("parsing list in manifest document %d: %w", n, err)
			}
			continue
		}
		if object.GetAPIVersion() == "" || object.GetKind() == "" || object.GetName() == "" {
			return nil, fmt.Errorf("parsing manifest document %d: apiVersion, kind or metadata.name is missing", n)
		}
		objects = append(objects, object)
	}
}

// client returns an administrator's client that knows custom resource definitions and, untyped, everything served.
func (c *Cluster) client() (client.Client, error) {
	scheme := runtime.NewScheme()
	if err := apiextensionsv1.AddToScheme(scheme); err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	cl, err := client.New(c.Config(), client.Options{Scheme: scheme})
	if err != nil {
		return nil, fmt.Errorf("creating client: %w", err)
	}
	return cl, nil
}
