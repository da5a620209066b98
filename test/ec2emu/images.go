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
	windowsOwner    = "801119661308"
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
			if m <= lastAL2 {
				images = append(images, al2Image(version, "x86_64", "", rel, latest), al2Image(version, "arm64", "-arm64", rel, latest), al2Image(version, "x86_64", "-gpu", rel, latest))
			}
			for _, year := range windowsReleases(m) {
				images = append(images, windowsImage(version, year, rel, latest))
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

const (
	// lastAL2 is the last minor version of Kubernetes with Amazon Linux 2 images.
	lastAL2 = 32
	// firstWindows2025 is the first one with images of Windows Server 2025.
	firstWindows2025 = 35
)

func al2Image(version, arch, variant string, rel release, latest bool) Image {
	name := fmt.Sprintf("amazon-eks%s-node-%s-v%s", variant, version, rel.date.Format("20060102"))
	path := fmt.Sprintf("/aws/service/eks/optimized-ami/%s/amazon-linux-2%s/", version, variant)
	image := Image{
		Name: name, Arch: arch, Family: AL2, OwnerID: eksOwner, OwnerAlias: "amazon",
		Created: rel.date, Deprecated: rel.date.Add(supportFor), Parameters: []string{path + name + "/image_id"},
	}
	if latest {
		image.Parameters = append(image.Parameters, path+"recommended/image_id")
	}
	return image
}

// windowsReleases are the Windows Servers that a minor version of EKS has images of.
func windowsReleases(minor int) []string {
	if minor < firstWindows2025 {
		return []string{"2019", "2022"}
	}
	return []string{"2019", "2022", "2025"}
}

// windowsImage has no parameter of its own: only the latest one of a release does.
func windowsImage(version, year string, rel release, latest bool) Image {
	name := fmt.Sprintf("Windows_Server-%s-English-Core-EKS_Optimized-%s", year, version)
	image := Image{
		Name: name + "-" + rel.date.Format("2006.01.02"), Arch: "x86_64", Family: Windows, OwnerID: windowsOwner, OwnerAlias: "amazon",
		Created: rel.date, Deprecated: rel.date.Add(supportFor),
	}
	if latest {
		image.Parameters = []string{"/aws/service/ami-windows-latest/" + name + "/image_id"}
	}
	return image
}

// windowsBuild is the build of an image's Windows, which its kubelet reports.
func (i *Image) windowsBuild() string {
	switch {
	case strings.Contains(i.Name, "-2019-"):
		return "10.0.17763"
	case strings.Contains(i.Name, "-2025-"):
		return "10.0.26100"
	default:
		return "10.0.20348"
	}
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
	switch f {
	case Bottlerocket:
		return map[string]int32{"/dev/xvda": 4, "/dev/xvdb": 20}
	case Windows:
		return map[string]int32{"/dev/sda1": 50}
	default:
		return map[string]int32{"/dev/xvda": 20}
	}
}

// rootDevice is the device an image boots from.
func (f Family) rootDevice() string {
	if f == Windows {
		return "/dev/sda1"
	}
	return "/dev/xvda"
}

// platform is what EC2 calls the operating system in prices and descriptions.
func (f Family) platform() string {
	if f == Windows {
		return "Windows"
	}
	return "Linux/UNIX"
}

// dataDevice is the device whose size is the node's ephemeral storage.
func (f Family) dataDevice() string {
	if f == Bottlerocket {
		return "/dev/xvdb"
	}
	return f.rootDevice()
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
		RootDeviceName: aws.String(image.Family.rootDevice()), RootDeviceType: ec2types.DeviceTypeEbs, EnaSupport: aws.Bool(true),
		VirtualizationType: ec2types.VirtualizationTypeHvm, Hypervisor: ec2types.HypervisorTypeXen, Tags: tags,
		ImageLocation: aws.String(image.OwnerID + "/" + image.Name), BootMode: image.bootMode(),
		PlatformDetails: aws.String(image.Family.platform()), UsageOperation: aws.String("RunInstances"),
	}
	if image.OwnerAlias != "" {
		out.ImageOwnerAlias = aws.String(image.OwnerAlias)
	}
	if !image.Deprecated.IsZero() {
		out.DeprecationTime = aws.String(image.Deprecated.UTC().Format(timeFormat))
	}
	if image.Family == Windows {
		out.Platform = ec2types.PlatformValuesWindows
	}
	for _, device := range []string{"/dev/sda1", "/dev/xvda", "/dev/xvdb"} {
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
