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
	"github.com/awslabs/operatorpkg/status"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
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
	// PDBs limit how many pods may be evicted.
	PDBs []*policyv1.PodDisruptionBudget
	// StoodIn are nodes of pools that came without a NodeClaim and were given one.
	StoodIn []string
	// Ignored are kinds that were given and say nothing about nodes, each with how many.
	Ignored map[string]int

	// running says that nodes and what runs on them are read, and not what would be created.
	running bool
}

// ReadRunning reads manifests of a cluster that runs, such as kubectl writes them: Nodes, NodeClaims and pods count as they are, and
// workloads are ignored, whose pods are there themselves. A pool's Node without a NodeClaim gets one.
func ReadRunning(paths []string, stdin io.Reader) (*Input, error) {
	in := &Input{Ignored: map[string]int{}, running: true}
	if err := in.readAll(paths, stdin); err != nil {
		return nil, err
	}
	in.claimNodes()
	return in, nil
}

// ReadFiles reads manifests of files, of all *.yaml, *.yml and *.json files of folders, and, for "-", of stdin. An error
// names the file and the object; objects of different files may refer to each other.
func ReadFiles(paths []string, stdin io.Reader) (*Input, error) {
	in := &Input{Ignored: map[string]int{}}
	if err := in.readAll(paths, stdin); err != nil {
		return nil, err
	}
	return in, nil
}

func (in *Input) readAll(paths []string, stdin io.Reader) error {
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
		return err
	}
	in.Objects = append(in.Objects, in.namespaces()...)
	return nil
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
		disruptionDefaults(o)
		in.Pools = append(in.Pools, o)
	case *v1.EC2NodeClass:
		in.Classes = append(in.Classes, o)
	default:
		if in.running && in.placeRunning(o) {
			return nil
		}
		pods, workload := podsOf(o)
		switch {
		case workload && in.running && kind != "Pod":
			in.Ignored[kind]++
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

// disruptionDefaults fills in what the definition of NodePools has as defaults for disruption.
func disruptionDefaults(p *karpv1.NodePool) {
	d := &p.Spec.Disruption
	d.ConsolidationPolicy = cmp.Or(d.ConsolidationPolicy, karpv1.ConsolidationPolicyWhenEmptyOrUnderutilized)
	if d.ConsolidateAfter.Duration == nil && len(d.ConsolidateAfter.Raw) == 0 {
		d.ConsolidateAfter = karpv1.MustParseNillableDuration("0s")
	}
	if len(d.Budgets) == 0 {
		d.Budgets = []karpv1.Budget{{Nodes: "10%"}}
	}
}

// placeRunning puts an object of a running cluster where it belongs; false for those that are read as any manifest is.
func (in *Input) placeRunning(o client.Object) bool {
	switch o := o.(type) {
	case *policyv1.PodDisruptionBudget:
		in.PDBs = append(in.PDBs, o)
	case *corev1.Node, *karpv1.NodeClaim:
		in.Objects = append(in.Objects, o)
	case *corev1.Pod:
		if o.Spec.NodeName == "" {
			return false
		}
		if o.Status.Phase != corev1.PodSucceeded && o.Status.Phase != corev1.PodFailed {
			in.Objects = append(in.Objects, o)
		}
	default:
		return false
	}
	return true
}

// claimNodes makes the NodeClaims of nodes that came without: as old as the node, and done.
func (in *Input) claimNodes() {
	claimed := map[string]bool{}
	for _, o := range in.Objects {
		if c, ok := o.(*karpv1.NodeClaim); ok {
			claimed[c.Status.NodeName] = true
		}
	}
	classes := map[string]*karpv1.NodeClassReference{}
	for _, p := range in.Pools {
		classes[p.Name] = p.Spec.Template.Spec.NodeClassRef
	}
	for _, o := range slices.Clone(in.Objects) {
		n, ok := o.(*corev1.Node)
		if !ok || claimed[n.Name] || n.Labels[karpv1.NodePoolLabelKey] == "" {
			continue
		}
		n.Spec.ProviderID = cmp.Or(n.Spec.ProviderID, "manifest:///"+n.Name)
		n.Labels[karpv1.NodeRegisteredLabelKey], n.Labels[karpv1.NodeInitializedLabelKey] = "true", "true"
		if len(n.Status.Conditions) == 0 {
			n.Status.Conditions = []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}
		}
		c := &karpv1.NodeClaim{ObjectMeta: metav1.ObjectMeta{
			Name: n.Name, UID: types.UID("nodeclaim//" + n.Name), Labels: n.Labels, CreationTimestamp: n.CreationTimestamp,
		}}
		c.Spec.NodeClassRef, c.Spec.Taints = classes[n.Labels[karpv1.NodePoolLabelKey]], n.Spec.Taints
		c.Status.NodeName, c.Status.ProviderID = n.Name, n.Spec.ProviderID
		c.Status.Capacity, c.Status.Allocatable = n.Status.Capacity, n.Status.Allocatable
		for _, kind := range []string{karpv1.ConditionTypeLaunched, karpv1.ConditionTypeRegistered, karpv1.ConditionTypeInitialized} {
			c.Status.Conditions = append(c.Status.Conditions, status.Condition{
				Type: kind, Status: metav1.ConditionTrue, Reason: kind, LastTransitionTime: n.CreationTimestamp,
			})
		}
		in.Objects, in.StoodIn = append(in.Objects, c), append(in.StoodIn, n.Name)
	}
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
