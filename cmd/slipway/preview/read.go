// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package preview

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/controller-runtime/pkg/client"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/yaml"
)

// Input is a cluster and the pods that want a place in it.
type Input struct {
	// Pools and Classes are what may be bought and how.
	Pools   []*karpv1.NodePool
	Classes []*v1.EC2NodeClass
	// Objects are the other objects a plan depends on: daemonsets, volumes, limit ranges, namespaces …
	Objects []client.Object
	// Pods want a place; those of workloads are named after them.
	Pods []*corev1.Pod
	// Ignored are kinds that were given and say nothing about nodes, each with how many.
	Ignored map[string]int
}

// ReadFiles reads manifests of files, of all *.yaml, *.yml and *.json files of folders, and, for "-", of stdin. An error
// names the file and the object; objects of different files may refer to each other.
func ReadFiles(paths []string, stdin io.Reader) (*Input, error) {
	in := &Input{Ignored: map[string]int{}}
	var errs []error
	for _, path := range paths {
		files, err := expand(path)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		for _, file := range files {
			if err := in.readFile(file, stdin); err != nil {
				errs = append(errs, fmt.Errorf("%s: %w", file, err))
			}
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	in.Objects = append(in.Objects, in.namespaces()...)
	return in, nil
}

// expand lists the files a path stands for, in the order of their names.
func expand(path string) ([]string, error) {
	if path == "-" {
		return []string{path}, nil
	}
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.IsDir() {
		return []string{path}, nil
	}
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml", "*.json"} {
		found, err := filepath.Glob(filepath.Join(path, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("%s has no *.yaml, *.yml or *.json files", path)
	}
	slices.Sort(files)
	return files, nil
}

func (in *Input) readFile(file string, stdin io.Reader) error {
	if file == "-" {
		return in.read(stdin)
	}
	f, err := os.Open(file)
	if err != nil {
		return err
	}
	defer f.Close()
	return in.read(f)
}

// read adds all documents, Lists included.
func (in *Input) read(r io.Reader) error {
	documents := utilyaml.NewYAMLReader(bufio.NewReader(r))
	for n := 1; ; n++ {
		document, err := documents.Read()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if err := in.add(document); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

// add adds one document. A field that its kind does not have is an error: it is a misspelt one more often than not.
func (in *Input) add(document []byte) error {
	raw := map[string]any{}
	if err := yaml.Unmarshal(document, &raw); err != nil {
		return err
	}
	if len(raw) == 0 {
		return nil
	}
	u := &unstructured.Unstructured{Object: raw}
	if u.IsList() {
		return u.EachListItem(func(item runtime.Object) error {
			text, err := yaml.Marshal(item)
			if err != nil {
				return err
			}
			return in.add(text)
		})
	}
	kind := u.GroupVersionKind()
	what := strings.TrimSpace(fmt.Sprintf("%s %s", kind.Kind, u.GetName()))
	if strings.HasPrefix(kind.Group, "karpenter.") && kind.Version != "v1" {
		return fmt.Errorf("%s: apiVersion %q is not served any more; convert it to %s/v1 (see \"slipway lint\")", what, u.GetAPIVersion(), kind.Group)
	}
	typed, err := scheme.Scheme.New(kind)
	if runtime.IsNotRegisteredError(err) {
		in.Ignored[cmp.Or(kind.Kind, "objects without a kind")]++
		return nil
	}
	if err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	if err := yaml.UnmarshalStrict(document, typed); err != nil {
		return fmt.Errorf("%s: %w", what, err)
	}
	o, ok := typed.(client.Object)
	if !ok {
		in.Ignored[kind.Kind]++
		return nil
	}
	if o.GetName() == "" && o.GetGenerateName() == "" {
		return fmt.Errorf("%s: metadata.name is missing", what)
	}
	return in.place(o, kind.Kind)
}

// place puts an object where it belongs.
func (in *Input) place(o client.Object, kind string) error {
	o.SetUID(types.UID(cmp.Or(string(o.GetUID()), strings.ToLower(kind)+"/"+o.GetNamespace()+"/"+o.GetName())))
	o.SetResourceVersion("")
	if namespaced(o) && o.GetNamespace() == "" {
		o.SetNamespace(metav1.NamespaceDefault)
	}
	switch o := o.(type) {
	case *karpv1.NodePool:
		in.Pools = append(in.Pools, o)
	case *v1.EC2NodeClass:
		in.Classes = append(in.Classes, o)
	default:
		pods, workload := podsOf(o)
		switch {
		case workload:
			in.Pods = append(in.Pods, pods...)
		case reads(o):
			in.Objects = append(in.Objects, o)
		default:
			in.Ignored[kind]++
		}
	}
	return nil
}

// namespaced reports whether objects of o's kind are in namespaces, for the kinds a plan reads.
func namespaced(o client.Object) bool {
	switch o.(type) {
	case *karpv1.NodePool, *karpv1.NodeClaim, *v1.EC2NodeClass, *corev1.Node, *corev1.Namespace, *corev1.PersistentVolume:
		return false
	}
	kinds, _, err := scheme.Scheme.ObjectKinds(o)
	return err == nil && len(kinds) > 0 && !slices.Contains([]string{"StorageClass", "CSINode", "RuntimeClass", "PriorityClass"}, kinds[0].Kind)
}

// namespaces makes those that objects are in and no manifest defines.
func (in *Input) namespaces() []client.Object {
	missing := map[string]bool{}
	for _, p := range in.Pods {
		missing[p.Namespace] = true
	}
	for _, o := range in.Objects {
		if o.GetNamespace() != "" {
			missing[o.GetNamespace()] = true
		}
	}
	for _, o := range in.Objects {
		if ns, ok := o.(*corev1.Namespace); ok {
			metav1.SetMetaDataLabel(&ns.ObjectMeta, corev1.LabelMetadataName, ns.Name)
			delete(missing, ns.Name)
		}
	}
	var out []client.Object
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		out = append(out, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{
			Name: name, Labels: map[string]string{corev1.LabelMetadataName: name},
		}})
	}
	return out
}
