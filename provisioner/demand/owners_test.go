// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package demand

import (
	"context"
	"fmt"
	"math"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	appslisters "k8s.io/client-go/listers/apps/v1"
	batchlisters "k8s.io/client-go/listers/batch/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"

	"github.com/slipway-sh/slipway/test/builder"
)

// owners reads the objects.
func owners(t *testing.T, objects ...runtime.Object) *Owners {
	t.Helper()
	stores := map[string]cache.Indexer{}
	store := func(kind string, indexers cache.Indexers) cache.Indexer {
		indexers[cache.NamespaceIndex] = cache.MetaNamespaceIndexFunc
		stores[kind] = cache.NewIndexer(cache.MetaNamespaceKeyFunc, indexers)
		return stores[kind]
	}
	o := &Owners{
		Pods:         store("*v1.Pod", Indexers()),
		ReplicaSets:  appslisters.NewReplicaSetLister(store("*v1.ReplicaSet", cache.Indexers{})),
		StatefulSets: appslisters.NewStatefulSetLister(store("*v1.StatefulSet", cache.Indexers{})),
		Jobs:         batchlisters.NewJobLister(store("*v1.Job", cache.Indexers{})),
		Quotas:       corelisters.NewResourceQuotaLister(store("*v1.ResourceQuota", cache.Indexers{})),
		Scales:       scales{"rollout": 7},
	}
	for _, obj := range objects {
		if err := stores[fmt.Sprintf("%T", obj)].Add(obj); err != nil {
			t.Fatal(err)
		}
	}
	return o
}

type scales map[string]int

func (s scales) Replicas(_ context.Context, _ *corev1.Pod, owner metav1.OwnerReference) (int, bool) {
	n, ok := s[owner.Name]
	return n, ok
}

// owned is a pod of the owner, which may be anything with a name, its UID.
func owned(apiVersion, kind, owner, name string, change ...func(*corev1.Pod)) *corev1.Pod {
	p := builder.Pod(name).UID(name).CPU("500m").Memory("1Gi").Obj()
	p.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: owner, UID: types.UID(owner), Controller: new(true)}}
	for _, f := range change {
		f(p)
	}
	return p
}

func named(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID(name)}
}

func TestComing(t *testing.T) {
	rs := func(n int32, conditions ...appsv1.ReplicaSetCondition) *appsv1.ReplicaSet {
		return &appsv1.ReplicaSet{ObjectMeta: named("web"), Spec: appsv1.ReplicaSetSpec{Replicas: &n}, Status: appsv1.ReplicaSetStatus{Conditions: conditions}}
	}
	sts := func(n int32, policy appsv1.PodManagementPolicyType) *appsv1.StatefulSet {
		return &appsv1.StatefulSet{ObjectMeta: named("db"), Spec: appsv1.StatefulSetSpec{Replicas: &n, PodManagementPolicy: policy}}
	}
	job := func(parallelism, completions int32, change ...func(*batchv1.Job)) *batchv1.Job {
		j := &batchv1.Job{ObjectMeta: named("batch"), Spec: batchv1.JobSpec{Parallelism: &parallelism}}
		if completions > 0 {
			j.Spec.Completions = &completions
		}
		for _, f := range change {
			f(j)
		}
		return j
	}
	web := func(name string, change ...func(*corev1.Pod)) *corev1.Pod {
		return owned("apps/v1", "ReplicaSet", "web", name, change...)
	}
	db := owned("apps/v1", "StatefulSet", "db", "db-0")
	task := owned("batch/v1", "Job", "batch", "task-0")
	bound := func(p *corev1.Pod) { p.Spec.NodeName = "n" }
	deleted := func(p *corev1.Pod) { p.DeletionTimestamp = new(metav1.Now()) }
	failed := func(p *corev1.Pod) { p.Status.Phase = corev1.PodFailed }
	quota := func(hard, used string, change ...func(*corev1.ResourceQuota)) *corev1.ResourceQuota {
		list := func(s string) corev1.ResourceList {
			return corev1.ResourceList{"requests.cpu": resource.MustParse(s), "pods": resource.MustParse("1k"), "services": resource.MustParse("0")}
		}
		q := &corev1.ResourceQuota{ObjectMeta: named("q"), Spec: corev1.ResourceQuotaSpec{Hard: list(hard)}, Status: corev1.ResourceQuotaStatus{Used: list(used)}}
		q.Status.Used["pods"] = resource.MustParse("1")
		for _, f := range change {
			f(q)
		}
		return q
	}
	for name, tt := range map[string]struct {
		pod     *corev1.Pod
		objects []runtime.Object
		want    int
		pending int
	}{
		"no owner":                               {builder.Pod("bare").Obj(), nil, 0, 0},
		"owner unknown":                          {web("p"), []runtime.Object{web("p")}, 0, 1},
		"a ReplicaSet that has just begun":       {web("p"), []runtime.Object{rs(10), web("p")}, 9, 1},
		"bound pods are there, not pending":      {web("p"), []runtime.Object{rs(10), web("p"), web("b", bound)}, 8, 1},
		"deleted and failed pods are replaced":   {web("p"), []runtime.Object{rs(10), web("p"), web("d", deleted), web("f", failed)}, 9, 1},
		"another pod waits behind a gate":        {web("p"), []runtime.Object{rs(10), web("p"), web("g", func(p *corev1.Pod) { p.Spec.SchedulingGates = []corev1.PodSchedulingGate{{Name: "kueue"}} })}, 0, 1},
		"all there":                              {web("p"), []runtime.Object{rs(1), web("p")}, 0, 1},
		"scaled down below what is there":        {web("p"), []runtime.Object{rs(0), web("p")}, 0, 1},
		"its pods are refused":                   {web("p"), []runtime.Object{rs(10, appsv1.ReplicaSetCondition{Type: appsv1.ReplicaSetReplicaFailure, Status: corev1.ConditionTrue}), web("p")}, 0, 1},
		"another of the same name":               {web("p", func(p *corev1.Pod) { p.OwnerReferences[0].UID = "older" }), []runtime.Object{rs(10)}, 0, 0},
		"a StatefulSet in parallel":              {db, []runtime.Object{sts(5, appsv1.ParallelPodManagement), db}, 4, 1},
		"a StatefulSet in order":                 {db, []runtime.Object{sts(5, appsv1.OrderedReadyPodManagement), db}, 0, 1},
		"a Job":                                  {task, []runtime.Object{job(8, 100), task}, 7, 1},
		"a Job near its end":                     {task, []runtime.Object{job(8, 100, func(j *batchv1.Job) { j.Status.Succeeded = 97 }), task}, 2, 1},
		"a Job without completions":              {task, []runtime.Object{job(8, 0), task}, 7, 1},
		"a Job without completions that is done": {task, []runtime.Object{job(8, 0, func(j *batchv1.Job) { j.Status.Succeeded = 1 }), task}, 0, 1},
		"a Job that is suspended":                {task, []runtime.Object{job(8, 100, func(j *batchv1.Job) { j.Spec.Suspend = new(true) }), task}, 0, 1},
		"a Job that has failed": {task, []runtime.Object{job(8, 100, func(j *batchv1.Job) {
			j.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailureTarget, Status: corev1.ConditionTrue}}
		}), task}, 0, 1},
		"a Job some of whose indexes have failed":          {task, []runtime.Object{job(10, 10, failedAt("1,3-5")), task}, 5, 1},
		"a Job of fewer completions since they failed":     {task, []runtime.Object{job(10, 4, failedAt("1,3-5,7")), task}, 1, 1},
		"a Job whose failed indexes do not limit it":       {task, []runtime.Object{job(3, 100, failedAt("1,3-5")), task}, 2, 1},
		"a Job whose failed indexes cannot be read":        {task, []runtime.Object{job(10, 10, failedAt("1,x,5-y,7-6")), task}, 8, 1},
		"a Job with as many failed indexes as it may have": {task, []runtime.Object{job(10, 10, failedAt("1,3"), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = new(int32(2)) }), task}, 7, 1},
		"a Job with more failed indexes than it may have":  {task, []runtime.Object{job(10, 10, failedAt("1,3-4"), func(j *batchv1.Job) { j.Spec.MaxFailedIndexes = new(int32(2)) }), task}, 0, 1},
		"a Job that replaces pods once they have ended": {task, []runtime.Object{job(8, 100, func(j *batchv1.Job) {
			j.Spec.PodReplacementPolicy, j.Status.Terminating = new(batchv1.Failed), new(int32(3))
		}), task}, 4, 1},
		"a Job that replaces pods at once": {task, []runtime.Object{job(8, 100, func(j *batchv1.Job) {
			j.Spec.PodReplacementPolicy, j.Status.Terminating = new(batchv1.TerminatingOrFailed), new(int32(3))
		}), task}, 7, 1},
		"another kind with a scale":       {owned("argoproj.io/v1alpha1", "Rollout", "rollout", "r"), []runtime.Object{owned("argoproj.io/v1alpha1", "Rollout", "rollout", "r")}, 6, 1},
		"another kind without one":        {owned("example.com/v1", "Thing", "thing", "t"), nil, 0, 0},
		"the quota has room for three":    {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "500m")}, 3, 1},
		"the quota is used up":            {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "2")}, 0, 1},
		"the quota was lowered below use": {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "3")}, 0, 1},
		"the quota is not counted yet":    {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "0", func(q *corev1.ResourceQuota) { q.Status.Used = nil })}, 0, 1},
		"the quota is for other pods": {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "2", func(q *corev1.ResourceQuota) {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeTerminating}
		})}, 9, 1},
		"the quota is for such pods": {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "2", func(q *corev1.ResourceQuota) {
			q.Spec.Scopes = []corev1.ResourceQuotaScope{corev1.ResourceQuotaScopeNotTerminating}
		})}, 0, 1},
		"the quota is for a priority class": {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "2", priority(corev1.ScopeSelectorOpIn, "high"))}, 9, 1},
		"the quota is for all but it":       {web("p"), []runtime.Object{rs(10), web("p"), quota("2", "2", priority(corev1.ScopeSelectorOpNotIn, "high"))}, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got, pending := owners(t, tt.objects...).Coming(t.Context(), tt.pod)
			if got != tt.want || len(pending) != tt.pending {
				t.Errorf("Coming = %d, %v; want %d and %d pending", got, pending, tt.want, tt.pending)
			}
		})
	}
}

// failedAt has indexes of a Job fail for good.
func failedAt(indexes string) func(*batchv1.Job) {
	return func(j *batchv1.Job) {
		j.Spec.CompletionMode, j.Spec.BackoffLimitPerIndex = new(batchv1.IndexedCompletion), new(int32(0))
		j.Status.FailedIndexes = &indexes
	}
}

func priority(op corev1.ScopeSelectorOperator, class string) func(*corev1.ResourceQuota) {
	return func(q *corev1.ResourceQuota) {
		q.Spec.ScopeSelector = &corev1.ScopeSelector{MatchExpressions: []corev1.ScopedResourceSelectorRequirement{
			{ScopeName: corev1.ResourceQuotaScopePriorityClass, Operator: op, Values: []string{class}},
		}}
	}
}

func TestHeadroomWithoutQuota(t *testing.T) {
	if got := owners(t).headroom(builder.Pod("p").Obj()); got != math.MaxInt {
		t.Errorf("headroom = %d", got)
	}
}
