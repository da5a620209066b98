// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

// StoredTemplate is a launch template as EC2 lists it.
type StoredTemplate struct {
	Name    string
	ID      string
	Created time.Time
	Tags    map[string]string
}

// ClassTemplate returns the parts of a launch template that the class's spec and status decide; image, user data and
// tags are the caller's. The error is of kind Invalid and names the field.
func ClassTemplate(class *v1.EC2NodeClass) (Template, error) {
	devices, err := BlockDevices(class)
	if err != nil {
		return Template{}, err
	}
	t := Template{
		InstanceProfile: class.Status.InstanceProfile,
		BlockDevices:    devices,
		Metadata: MetadataOptions{ // the CRD's defaults
			HTTPEndpoint: "enabled", HTTPProtocolIPv6: "disabled", HTTPPutResponseHopLimit: 1, HTTPTokens: "required",
		},
		Monitoring: deref(class.Spec.DetailedMonitoring),
		PublicIP:   class.Spec.AssociatePublicIPAddress,
		IPPrefixes: deref(class.Spec.IPPrefixCount),
	}
	for _, g := range class.Status.SecurityGroups {
		t.SecurityGroups = append(t.SecurityGroups, g.ID)
	}
	if m := class.Spec.MetadataOptions; m != nil {
		t.Metadata = MetadataOptions{
			HTTPEndpoint: deref(m.HTTPEndpoint), HTTPProtocolIPv6: deref(m.HTTPProtocolIPv6),
			HTTPPutResponseHopLimit: saturated(deref(m.HTTPPutResponseHopLimit)), HTTPTokens: deref(m.HTTPTokens),
		}
	}
	for _, n := range class.Spec.NetworkInterfaces {
		if n != nil {
			t.NetworkInterfaces = append(t.NetworkInterfaces, NetworkInterface{
				Card: n.NetworkCardIndex, Device: n.DeviceIndex, EFAOnly: n.InterfaceType == v1.InterfaceTypeEFAOnly,
			})
		}
	}
	if c := class.Spec.ConnectionTracking; c != nil {
		t.ConnectionTracking = &ConnectionTracking{
			TCPEstablished: deref(c.TCPEstablishedTimeout), UDPStream: deref(c.UDPStreamTimeout), UDP: deref(c.UDPTimeout),
		}
	}
	if class.Spec.CPUOptions != nil {
		t.NestedVirtualization = deref(class.Spec.CPUOptions.NestedVirtualization)
	}
	return t, nil
}

// TemplateName returns the name of the template with these contents: Karpenter's
// prefix, which its IAM policy and collection of templates go by, and a digest of
// everything but the name.
func TemplateName(t Template) string {
	t.Name = ""
	// A struct of strings, numbers and maps of strings always marshals, maps in the order of their keys.
	b, err := json.Marshal(t)
	if err != nil {
		b = []byte(fmt.Sprintf("%#v", t))
	}
	sum := sha256.Sum256(b)
	return v1.LaunchTemplateNamePrefix + "/" + hex.EncodeToString(sum[:16])
}

// EnsureTemplate makes the launch template unless one of its name, and so with its contents, exists.
func (c *Client) EnsureTemplate(ctx context.Context, t Template) error {
	if t.Name == "" {
		t.Name = TemplateName(t)
	}
	_, err := c.ec2.CreateLaunchTemplate(ctx, &ec2.CreateLaunchTemplateInput{
		LaunchTemplateName: aws.String(t.Name),
		LaunchTemplateData: templateData(t),
		TagSpecifications:  tagSpecs(t.Tags, ec2types.ResourceTypeLaunchTemplate),
	})
	if err = wrap(err, "creating launch template %q", t.Name); codeOf(err) == codeTemplateExists {
		return nil
	}
	return err
}

// DeleteTemplate deletes the launch template of that name; one that does not exist is no error.
func (c *Client) DeleteTemplate(ctx context.Context, name string) error {
	_, err := c.ec2.DeleteLaunchTemplate(ctx, &ec2.DeleteLaunchTemplateInput{LaunchTemplateName: aws.String(name)})
	if err = wrap(err, "deleting launch template %q", name); capacity.KindOf(err) == capacity.NotReady {
		return nil
	}
	return err
}

// Templates lists the launch templates of this cluster, by their tags.
func (c *Client) Templates(ctx context.Context) ([]StoredTemplate, error) {
	var out []StoredTemplate
	pages := ec2.NewDescribeLaunchTemplatesPaginator(c.ec2, &ec2.DescribeLaunchTemplatesInput{
		Filters: []ec2types.Filter{filter("tag:"+TagClusterPrefix+c.opts.ClusterName, "owned")},
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "describing launch templates")
		}
		for _, t := range page.LaunchTemplates {
			name := aws.ToString(t.LaunchTemplateName)
			if !strings.HasPrefix(name, v1.LaunchTemplateNamePrefix+"/") {
				continue // somebody else's, of the same cluster
			}
			out = append(out, StoredTemplate{
				Name: name, ID: aws.ToString(t.LaunchTemplateId), Created: aws.ToTime(t.CreateTime), Tags: tagMap(t.Tags),
			})
		}
	}
	return out, nil
}

// optional is nil for a zero value: an absent parameter.
func optional[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

func tags(m map[string]string) []ec2types.Tag {
	out := make([]ec2types.Tag, 0, len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		out = append(out, ec2types.Tag{Key: aws.String(k), Value: aws.String(m[k])})
	}
	return out
}

func tagSpecs(m map[string]string, kinds ...ec2types.ResourceType) []ec2types.TagSpecification {
	if len(m) == 0 {
		return nil
	}
	out := make([]ec2types.TagSpecification, 0, len(kinds))
	for _, k := range kinds {
		out = append(out, ec2types.TagSpecification{ResourceType: k, Tags: tags(m)})
	}
	return out
}

func tagMap(list []ec2types.Tag) map[string]string {
	out := make(map[string]string, len(list))
	for _, t := range list {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}
