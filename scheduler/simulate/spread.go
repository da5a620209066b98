// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package simulate

import (
	"math"
	"reflect"

	fwk "k8s.io/kube-scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework"
	"k8s.io/kubernetes/pkg/scheduler/framework/plugins/names"
)

// spreadStateKey is where PodTopologySpread keeps its PreFilter state.
const spreadStateKey fwk.StateKey = "PreFilter" + names.PodTopologySpread

// repairSpread recomputes the two emptiest domains of each spread constraint.
//
// The plugin's AddPod counts correctly, but keeps only the two smallest domains
// it has met ("critical paths"), which holds for preemption's changes on a single
// node, as its source warns. With pods placed in many domains a third domain may
// be the smallest, and the plugin would allow a skew it must not. The counts of
// all domains are in the state, so the minimum is found again from them. The
// state's type is not exported but its fields are; if they have changed their
// shape this returns false, and the caller runs PreFilter instead.
func repairSpread(state *framework.CycleState) bool {
	data, err := state.Read(spreadStateKey)
	if err != nil {
		return false
	}
	value := reflect.Indirect(reflect.ValueOf(data))
	if value.Kind() != reflect.Struct {
		return false
	}
	countsField, pathsField := value.FieldByName("TpValueToMatchNum"), value.FieldByName("CriticalPaths")
	if !countsField.IsValid() || !pathsField.IsValid() || pathsField.Kind() != reflect.Slice {
		return false
	}
	counts, ok := reflect.TypeAssert[[]map[string]int](countsField)
	if !ok || len(counts) != pathsField.Len() {
		return false
	}
	for i, domains := range counts {
		if !setCriticalPaths(reflect.Indirect(pathsField.Index(i)), emptiest(domains)) {
			return false
		}
	}
	return true
}

// criticalPath has the shape of the plugin's own.
type criticalPath struct {
	TopologyValue string
	MatchNum      int
}

// emptiest returns the two domains with the fewest matching pods.
func emptiest(domains map[string]int) [2]criticalPath {
	paths := [2]criticalPath{{MatchNum: math.MaxInt32}, {MatchNum: math.MaxInt32}}
	for value, n := range domains {
		switch {
		case n < paths[0].MatchNum:
			paths[0], paths[1] = criticalPath{value, n}, paths[0]
		case n < paths[1].MatchNum:
			paths[1] = criticalPath{value, n}
		}
	}
	return paths
}

func setCriticalPaths(to reflect.Value, paths [2]criticalPath) bool {
	if to.Kind() != reflect.Array || !to.CanSet() || to.Len() != len(paths) {
		return false
	}
	shape := reflect.TypeFor[criticalPath]()
	for i, path := range paths {
		if !shape.ConvertibleTo(to.Index(i).Type()) {
			return false
		}
		to.Index(i).Set(reflect.ValueOf(path).Convert(to.Index(i).Type()))
	}
	return true
}
