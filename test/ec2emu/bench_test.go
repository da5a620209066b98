// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"net/url"
	"strconv"
	"testing"
)

// The emulator must not be what a latency figure measures: a fleet of 60
// overrides, decoded, placed and launched.
func BenchmarkCreateFleet(b *testing.B) {
	emu, err := Start(b.Context(), Options{})
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(emu.Close)
	var image string
	for _, i := range emu.world.imageList {
		if i.Arch == "x86_64" && i.Family == AL2023 {
			image = i.ID
		}
	}
	perform := func(form url.Values) {
		if _, _, err := emu.perform(b.Context(), &call{service: "ec2", action: form.Get("Action"), at: emu.clock.Now(), form: form}); err != nil {
			b.Fatal(err)
		}
	}
	perform(url.Values{"Action": {"CreateLaunchTemplate"}, "LaunchTemplateName": {"nodes"}, "LaunchTemplateData.ImageId": {image}})
	form := url.Values{
		"Action": {"CreateFleet"}, "Type": {"instant"}, "TargetCapacitySpecification.TotalTargetCapacity": {"1"},
		"LaunchTemplateConfigs.1.LaunchTemplateSpecification.LaunchTemplateName": {"nodes"},
	}
	overrides := 0
	for _, o := range emu.catalog.offers {
		if overrides == 60 {
			break
		}
		if o.arch() == "x86_64" && o.zones[0] {
			overrides++
			prefix := "LaunchTemplateConfigs.1.Overrides." + strconv.Itoa(overrides)
			form.Set(prefix+".InstanceType", o.name)
			form.Set(prefix+".SubnetId", "subnet-0c0ffee0000000001")
		}
	}
	for b.Loop() {
		form.Set("ClientToken", strconv.Itoa(len(emu.world.tokens)))
		perform(form)
	}
}
