// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

// Package input reads what Slipway's side of a comparison has written: pods, pools and instance types with their prices, as
// Karpenter's API and its provider for AWS would have them.
package input

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"

	awsv1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1" // its init makes the AWS labels well known
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"
	"sigs.k8s.io/karpenter/pkg/cloudprovider"
	provisioning "sigs.k8s.io/karpenter/pkg/controllers/provisioning/scheduling"
	"sigs.k8s.io/karpenter/pkg/operator/injection"
	"sigs.k8s.io/karpenter/pkg/operator/options"
	"sigs.k8s.io/karpenter/pkg/scheduling"
)

// File is what test/sidebyside writes; the names of its fields are the format.
type File struct {
	Pools   []*karpv1.NodePool `json:"pools"`
	Daemons []*corev1.Pod      `json:"daemons"`
	// Pods are alike within a group.
	Pods []struct {
		Pod   *corev1.Pod `json:"pod"`
		Count int         `json:"count"`
	} `json:"pods"`
	Types []InstanceType `json:"types"`
}

// InstanceType is a type with the ways to buy it. Absent are labels its nodes never have.
type InstanceType struct {
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

// Read reads a file of JSON.
func Read(path string, into any) error {
	raw, err := os.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading the input: %w", err)
	}
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("reading the input: %w", err)
	}
	return nil
}

// AllPods are the pods of all groups, pending.
func (f *File) AllPods() []*corev1.Pod {
	var out []*corev1.Pod
	for i, g := range f.Pods {
		for n := range g.Count {
			p := g.Pod.DeepCopy()
			p.Name = fmt.Sprintf("%s-%d", g.Pod.Name, n)
			p.UID = types.UID(fmt.Sprintf("pod-%d-%d", i, n))
			p.Status.Phase = corev1.PodPending
			out = append(out, p)
		}
	}
	return out
}

// InstanceTypes are the types as Karpenter's AWS provider would describe them.
func (f *File) InstanceTypes() []*cloudprovider.InstanceType {
	var out []*cloudprovider.InstanceType
	for i := range f.Types {
		out = append(out, f.Types[i].karpenters())
	}
	return out
}

// karpenters is the type as Karpenter's AWS provider would describe it.
func (t *InstanceType) karpenters() *cloudprovider.InstanceType {
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

// Cheapest is the cheapest of the offerings that Karpenter would ask for with a claim, and its type; nil if there is none.
func Cheapest(c *provisioning.NodeClaim) (*cloudprovider.InstanceType, *cloudprovider.Offering) {
	var (
		best *cloudprovider.Offering
		of   *cloudprovider.InstanceType
	)
	for _, t := range c.InstanceTypeOptions {
		offers := t.Offerings.Available().Compatible(c.Requirements)
		if len(offers) == 0 {
			continue
		}
		if o := offers.Cheapest(); best == nil || o.Price < best.Price {
			best, of = o, t
		}
	}
	return of, best
}

// Settings are Karpenter's defaults.
func Settings() (context.Context, error) {
	o := &options.Options{}
	fs := &options.FlagSet{FlagSet: flag.NewFlagSet("karpenter", flag.ContinueOnError)}
	fs.SetOutput(io.Discard)
	o.AddFlags(fs)
	if err := o.Parse(fs); err != nil {
		return nil, fmt.Errorf("setting Karpenter's defaults: %w", err)
	}
	return options.ToContext(injection.WithControllerName(context.Background(), "provisioner"), o), nil
}
