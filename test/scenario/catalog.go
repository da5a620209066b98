// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package scenario

import (
	"bufio"
	"fmt"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	karpv1 "sigs.k8s.io/karpenter/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
	"github.com/slipway-sh/slipway/test/builder"
)

// parseCatalog reads a table of instance types, one a line; # starts a comment:
//
//	type  cores  memory  on-demand price  spot price or -  [zones=a,b] [arch=arm64] [gpu=1] [pods=29] [volumes=26] [reserved=cr-1@a:2]
//
// Prices are US dollars an hour; the zones are a, b and c unless the line says otherwise. A reservation has its ID, zone and
// how many more instances it takes; those are returned beside the catalogue.
func parseCatalog(text string) (*capacity.Catalog, map[string]int, error) {
	var types []*capacity.InstanceType
	slots := map[string]int{}
	lines := bufio.NewScanner(strings.NewReader(text))
	for lines.Scan() {
		line, _, _ := strings.Cut(lines.Text(), "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		t, err := parseType(fields, slots)
		if err != nil {
			return nil, nil, fmt.Errorf("catalog: %q: %w", line, err)
		}
		types = append(types, t)
	}
	return capacity.NewCatalog(types), slots, lines.Err()
}

func parseType(fields []string, slots map[string]int) (*capacity.InstanceType, error) {
	if len(fields) < 5 {
		return nil, fmt.Errorf("want type, cores, memory, on-demand price and spot price")
	}
	options := map[string]string{"zones": "a,b,c", "arch": "amd64"}
	for _, f := range fields[5:] {
		key, value, ok := strings.Cut(f, "=")
		if !ok {
			return nil, fmt.Errorf("%q is not key=value", f)
		}
		options[key] = value
	}
	zones := strings.Split(options["zones"], ",")
	t := builder.InstanceType(fields[0]).CPU(fields[1]).Memory(fields[2]).Arch(options["arch"]).
		Resource(corev1.ResourceEphemeralStorage, "20Gi").Absent("karpenter.k8s.aws/instance-gpu-name")
	volumes := int64(-1)
	for key, value := range options {
		switch key {
		case "zones", "arch", "reserved":
		case "gpu":
			t.Resource("nvidia.com/gpu", value).Label("karpenter.k8s.aws/instance-gpu-count", value)
		case "volumes": // that the EBS driver can attach
			n, err := strconv.ParseInt(value, 10, 64)
			if err != nil {
				return nil, fmt.Errorf("volumes: %w", err)
			}
			volumes = n
		case "pods":
			t.Resource(corev1.ResourcePods, value)
		default:
			return nil, fmt.Errorf("option %q is none of zones, arch, gpu, pods, volumes, reserved", key)
		}
	}
	onDemand, err := strconv.ParseFloat(fields[3], 64)
	if err != nil {
		return nil, fmt.Errorf("on-demand price: %w", err)
	}
	t.OnDemand(onDemand, zones...)
	if fields[4] != "-" {
		spot, err := strconv.ParseFloat(fields[4], 64)
		if err != nil {
			return nil, fmt.Errorf("spot price: %w", err)
		}
		t.Spot(spot, zones...)
	}
	if r, ok := options["reserved"]; ok {
		id, at, _ := strings.Cut(r, "@")
		zone, count, _ := strings.Cut(at, ":")
		if slots[id], err = strconv.Atoi(count); err != nil {
			return nil, fmt.Errorf("reserved: %q is not ID@zone:instances: %w", r, err)
		}
		t.Offering(capacity.Offering{Zone: zone, CapacityType: karpv1.CapacityTypeReserved, ReservationID: id, Price: onDemand / 1e7})
	}
	out := t.Obj()
	if volumes >= 0 {
		out.Allocatable = out.Allocatable.WithVolumes(ebsDriver, volumes)
	}
	return out, nil
}

const ebsDriver = "ebs.csi.aws.com"

// parseUnavailable reads lines of type, zone and capacity type.
func parseUnavailable(text string) (func(capacity.OfferingKey) bool, error) {
	var out []capacity.OfferingKey
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		fields := strings.Fields(line)
		if len(fields) == 0 {
			continue
		}
		if len(fields) != 3 {
			return nil, fmt.Errorf("unavailable: %q: want type, zone and capacity type", line)
		}
		out = append(out, capacity.OfferingKey{InstanceType: fields[0], Zone: fields[1], CapacityType: fields[2]})
	}
	is := func(pattern, value string) bool { return pattern == "*" || pattern == value }
	return func(k capacity.OfferingKey) bool {
		for _, o := range out {
			if is(o.InstanceType, k.InstanceType) && is(o.Zone, k.Zone) && is(o.CapacityType, k.CapacityType) {
				return true
			}
		}
		return false
	}, nil
}
