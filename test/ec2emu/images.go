// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const (
	// Accounts that publish EKS images in the standard regions.
	eksOwner        = "602401143452"
	bottlerocketOwn = "092701018921"
	// olderVersions of Kubernetes than the cluster's have images, too; newerVersions as well.
	olderVersions, newerVersions = 8, 1
	// supportFor is how long after its release an image is deprecated.
	supportFor = 2 * 365 * 24 * time.Hour
)

// release is one publication of the EKS images: two of them, so that an upgrade
// from the older to the recommended one can be played.
type release struct {
	date         time.Time
	bottlerocket string
}

func releases() []release {
	return []release{
		{time.Date(2026, time.September, 10, 0, 0, 0, 0, time.UTC), "1.50.0"},
		{time.Date(2026, time.October, 8, 0, 0, 0, 0, time.UTC), "1.51.0"},
	}
}

// publicImages are the EKS-optimised images around a Kubernetes version, with
// the SSM parameters that name them.
func publicImages(r seeded, version string) []Image {
	major, minorText, _ := strings.Cut(version, ".")
	minor, err := strconv.Atoi(minorText)
	if err != nil {
		return nil
	}
	var images []Image
	for m := max(minor-olderVersions, 0); m <= minor+newerVersions; m++ {
		version := fmt.Sprintf("%s.%d", major, m)
		for i, rel := range releases() {
			latest := i == len(releases())-1
			for _, variant := range []struct{ arch, name string }{
				{"x86_64", "standard"}, {"arm64", "standard"}, {"x86_64", "nvidia"}, {"arm64", "nvidia"}, {"x86_64", "neuron"},
			} {
				images = append(images, al2023Image(version, variant.arch, variant.name, rel, latest))
			}
			for _, arch := range []string{"x86_64", "arm64"} {
				images = append(images, bottlerocketImage(version, arch, "", rel, latest), bottlerocketImage(version, arch, "-nvidia", rel, latest))
			}
		}
	}
	for i := range images {
		images[i].ID = fmt.Sprintf("ami-0%016x", r.draw("ami", images[i].Name).Uint64())
	}
	return images
}

func al2023Image(version, arch, variant string, rel release, latest bool) Image {
	name := fmt.Sprintf("amazon-eks-node-al2023-%s-%s-%s-v%s", arch, variant, version, rel.date.Format("20060102"))
	path := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2023/%s/%s/", version, arch, variant)
	image := Image{
		Name: name, Arch: arch, Family: AL2023, OwnerID: eksOwner, OwnerAlias: "amazon",
		Created: rel.date, Deprecated: rel.date.Add(supportFor), Parameters: []string{path + name + "/image_id"},
	}
	if latest {
		image.Parameters = append(image.Parameters, path+"recommended/image_id")
	}
	return image
}

func bottlerocketImage(version, arch, variant string, rel release, latest bool) Image {
	path := fmt.Sprintf("/aws/service/bottlerocket/aws-k8s-%s%s/%s/", version, variant, arch)
	image := Image{
		Name: fmt.Sprintf("bottlerocket-aws-k8s-%s%s-%s-v%s-emulated", version, variant, arch, rel.bottlerocket),
		Arch: arch, Family: Bottlerocket, OwnerID: bottlerocketOwn, OwnerAlias: "amazon",
		Created: rel.date, Deprecated: rel.date.Add(supportFor), Parameters: []string{path + rel.bottlerocket + "/image_id"},
	}
	if latest {
		image.Parameters = append(image.Parameters, path+"latest/image_id")
	}
	return image
}

// devices are the volumes the family's images come with, and their GiB.
func (f Family) devices() map[string]int32 {
	if f == Bottlerocket {
		return map[string]int32{"/dev/xvda": 4, "/dev/xvdb": 20}
	}
	return map[string]int32{"/dev/xvda": 20}
}

// dataDevice is the device whose size is the node's ephemeral storage.
func (f Family) dataDevice() string {
	if f == Bottlerocket {
		return "/dev/xvdb"
	}
	return "/dev/xvda"
}

func (e *Emulator) describeImages(_ *call, in *ec2.DescribeImagesInput) (*ec2.DescribeImagesOutput, error) {
	if unknown := unknownIDs(in.ImageIds, e.world.images); len(unknown) > 0 {
		return nil, invalid("InvalidAMIID.NotFound", "The image id '[%s]' does not exist", strings.Join(unknown, ", "))
	}
	var found []ec2types.Image
	for _, image := range e.world.imageList {
		deprecated := !image.Deprecated.IsZero() && e.clock.Now().After(image.Deprecated)
		if !listed(in.ImageIds, image.ID) || !e.owned(image, in.Owners) {
			continue
		}
		// Deprecated images are hidden, but for their owner and those who name them.
		if deprecated && !aws.ToBool(in.IncludeDeprecated) && len(in.ImageIds) == 0 && image.OwnerID != e.opts.AccountID {
			continue
		}
		tags := e.world.tags[image.ID]
		ok, err := matches(in.Filters, tags, func(name string) ([]string, bool) { return imageFilter(image, name) })
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, e.sdkImage(image, tags))
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 1000, 1000})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeImagesOutput{Images: items, NextToken: next}, nil
}

func (e *Emulator) owned(image *Image, owners []string) bool {
	if len(owners) == 0 || slices.Contains(owners, image.OwnerID) {
		return true
	}
	return slices.Contains(owners, "self") && image.OwnerID == e.opts.AccountID ||
		image.OwnerAlias != "" && slices.Contains(owners, image.OwnerAlias)
}

// bootMode is that of the EKS images: arm64 knows no other than UEFI.
func (i *Image) bootMode() ec2types.BootModeValues {
	if i.Arch == string(ec2types.ArchitectureTypeArm64) {
		return ec2types.BootModeValuesUefi
	}
	return ec2types.BootModeValuesUefiPreferred
}

func imageFilter(image *Image, name string) ([]string, bool) {
	switch name {
	case "image-id":
		return one(image.ID)
	case "name":
		return one(image.Name)
	case "architecture":
		return one(image.Arch)
	case "owner-id":
		return one(image.OwnerID)
	case "owner-alias":
		return one(image.OwnerAlias)
	case "state":
		return one("available")
	case "creation-date":
		return one(image.Created.UTC().Format(timeFormat))
	case "virtualization-type":
		return one("hvm")
	case "root-device-type":
		return one("ebs")
	case "image-type":
		return one("machine")
	case "is-public":
		return one(strconv.FormatBool(image.OwnerAlias != ""))
	default:
		return nil, false
	}
}

func (e *Emulator) sdkImage(image *Image, tags []ec2types.Tag) ec2types.Image {
	out := ec2types.Image{
		ImageId: aws.String(image.ID), Name: aws.String(image.Name), Description: aws.String(image.Name),
		Architecture: ec2types.ArchitectureValues(image.Arch), OwnerId: aws.String(image.OwnerID),
		State: ec2types.ImageStateAvailable, ImageType: ec2types.ImageTypeValuesMachine,
		CreationDate: aws.String(image.Created.UTC().Format(timeFormat)), Public: aws.Bool(image.OwnerAlias != ""),
		RootDeviceName: aws.String("/dev/xvda"), RootDeviceType: ec2types.DeviceTypeEbs, EnaSupport: aws.Bool(true),
		VirtualizationType: ec2types.VirtualizationTypeHvm, Hypervisor: ec2types.HypervisorTypeXen, Tags: tags,
		ImageLocation: aws.String(image.OwnerID + "/" + image.Name), BootMode: image.bootMode(),
		PlatformDetails: aws.String("Linux/UNIX"), UsageOperation: aws.String("RunInstances"),
	}
	if image.OwnerAlias != "" {
		out.ImageOwnerAlias = aws.String(image.OwnerAlias)
	}
	if !image.Deprecated.IsZero() {
		out.DeprecationTime = aws.String(image.Deprecated.UTC().Format(timeFormat))
	}
	for _, device := range []string{"/dev/xvda", "/dev/xvdb"} {
		if size, ok := image.Family.devices()[device]; ok {
			out.BlockDeviceMappings = append(out.BlockDeviceMappings, ec2types.BlockDeviceMapping{
				DeviceName: aws.String(device),
				Ebs: &ec2types.EbsBlockDevice{
					SnapshotId: aws.String(fmt.Sprintf("snap-0%016x", e.rand.draw("snapshot", image.ID, device).Uint64())),
					VolumeSize: aws.Int32(size), VolumeType: ec2types.VolumeTypeGp3, DeleteOnTermination: aws.Bool(true), Encrypted: aws.Bool(false),
				},
			})
		}
	}
	return out
}
