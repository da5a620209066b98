// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"fmt"
	"os"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1" // its init makes the AWS labels well known
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// file is what test/sidebyside/plans writes; the field's names are the format.
type file struct {
	Pools   []*karpv1.NodePool `json:"pools"`
	Daemons []*corev1.Pod      `json:"daemons"`
	// Pods are alike within a group.
	Pods []struct {
		Pod   *corev1.Pod `json:"pod"`
		Count int         `json:"count"`
	} `json:"pods"`
	Types []instanceType `json:"types"`
}

// instanceType is a type with the ways to buy it. Absent are labels its nodes never have.
type instanceType struct {
	Name        string              `json:"name"`
	Labels      map[string]string   `json:"labels"`
	Absent      []string            `json:"absent"`
	Capacity    corev1.ResourceList `json:"capacity"`
	Allocatable corev1.ResourceList `json:"allocatable"`
	Offerings   []struct {
		Zone         string  `json:"zone"`
		ZoneID       string  `json:"zoneID"`
		CapacityType string  `json:"capacityType"`
		Price        float64 `json:"price"`
	} `json:"offerings"`
}

func read(path string) (*problem, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	var f file
	if err := json.Unmarshal(raw, &f); err != nil {
		return nil, fmt.Errorf("reading the input: %w", err)
	}
	out := &problem{pools: f.Pools, daemons: f.Daemons}
	for i, g := range f.Pods {
		for n := range g.Count {
			p := g.Pod.DeepCopy()
			p.Name = fmt.Sprintf("%s-%d", g.Pod.Name, n)
			p.UID = types.UID(fmt.Sprintf("pod-%d-%d", i, n))
			p.Status.Phase = corev1.PodPending
			out.pods = append(out.pods, p)
		}
	}
	for i := range f.Types {
		out.types = append(out.types, f.Types[i].karpenters())
	}
	return out, nil
}

// karpenters is the type as Karpenter's AWS provider would describe it.
func (t *instanceType) karpenters() *cloudprovider.InstanceType {
	out := &cloudprovider.InstanceType{Name: t.Name, Capacity: t.Capacity, Requirements: scheduling.NewRequirements()}
	values := map[string][]string{}
	for _, o := range t.Offerings {
		of := &cloudprovider.Offering{Price: o.Price, Available: true, Requirements: scheduling.NewRequirements(
			scheduling.NewRequirement(karpv1.CapacityTypeLabelKey, corev1.NodeSelectorOpIn, o.CapacityType),
			scheduling.NewRequirement(corev1.LabelTopologyZone, corev1.NodeSelectorOpIn, o.Zone),
		)}
		values[karpv1.CapacityTypeLabelKey] = append(values[karpv1.CapacityTypeLabelKey], o.CapacityType)
		values[corev1.LabelTopologyZone] = append(values[corev1.LabelTopologyZone], o.Zone)
		if o.ZoneID != "" {
			of.Requirements.Add(scheduling.NewRequirement(awsv1.LabelTopologyZoneID, corev1.NodeSelectorOpIn, o.ZoneID))
			values[awsv1.LabelTopologyZoneID] = append(values[awsv1.LabelTopologyZoneID], o.ZoneID)
		}
		out.Offerings = append(out.Offerings, of)
	}
	for key, value := range t.Labels {
		values[key] = []string{value}
	}
	for key, list := range values {
		out.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpIn, list...))
	}
	absent := append(karpv1.WellKnownLabels.UnsortedList(), t.Absent...)
	for _, key := range absent {
		if key != karpv1.NodePoolLabelKey && !out.Requirements.Has(key) { // that label is the pool's, not the type's
			out.Requirements.Add(scheduling.NewRequirement(key, corev1.NodeSelectorOpDoesNotExist))
		}
	}
	reserved := corev1.ResourceList{}
	for name, q := range t.Capacity {
		q.Sub(t.Allocatable[name])
		reserved[name] = q
	}
	out.Overhead = &cloudprovider.InstanceTypeOverhead{KubeReserved: reserved}
	return out
}
