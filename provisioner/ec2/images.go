// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	"github.com/aws/aws-sdk-go-v2/service/ssm"
	v1 "github.com/aws/karpenter-provider-aws/pkg/apis/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/slipway-sh/slipway/provisioner/capacity"
)

const latestAlias = "latest"

// imageQuery is one DescribeImages call.
type imageQuery struct {
	owners  []string
	filters []ec2types.Filter
	// variants are, by image id, the sets of requirements EC2 does not report: which accelerators the image has drivers for.
	variants map[string][][]corev1.NodeSelectorRequirement
}

// Images returns the images the class's terms select: for each set of instance
// types (architecture, accelerators) the newest, a deprecated one only where there
// is no other. The newest comes first. None is not an error.
func (c *Client) Images(ctx context.Context, class *v1.EC2NodeClass) ([]Image, error) {
	queries, err := c.imageQueries(ctx, class)
	if err != nil {
		return nil, err
	}
	best := map[string]Image{}
	for _, q := range queries {
		images, err := c.describeImages(ctx, q)
		if err != nil {
			return nil, err
		}
		for _, i := range images {
			key := requirementsKey(i.Requirements)
			if old, ok := best[key]; !ok || betterImage(i, old) < 0 {
				best[key] = i
			}
		}
	}
	return slices.SortedFunc(maps.Values(best), func(a, b Image) int {
		return cmp.Or(b.Created.Compare(a.Created), strings.Compare(a.ID, b.ID), strings.Compare(requirementsKey(a.Requirements), requirementsKey(b.Requirements)))
	}), nil
}

func requirementsKey(reqs []corev1.NodeSelectorRequirement) string {
	b, err := json.Marshal(reqs)
	if err != nil {
		return fmt.Sprint(reqs)
	}
	return string(b)
}

// betterImage orders images: not deprecated, then newest, then greatest name.
func betterImage(a, b Image) int {
	if a.Deprecated != b.Deprecated {
		if b.Deprecated {
			return -1
		}
		return 1
	}
	return cmp.Or(b.Created.Compare(a.Created), strings.Compare(b.Name, a.Name))
}

func (c *Client) imageQueries(ctx context.Context, class *v1.EC2NodeClass) ([]imageQuery, error) {
	family, version, ok, err := alias(class)
	if err != nil {
		return nil, err
	}
	if ok {
		q, err := c.aliasQuery(ctx, family, version)
		return []imageQuery{q}, err
	}
	var ids []string
	var queries []imageQuery
	for _, t := range class.Spec.AMISelectorTerms {
		switch {
		case t.ID != "":
			ids = append(ids, t.ID)
		case t.SSMParameter != "":
			id, err := c.parameter(ctx, t.SSMParameter)
			if err != nil && capacity.KindOf(err) != capacity.NotFound {
				return nil, err
			}
			if strings.HasPrefix(id, "ami-") {
				ids = append(ids, id)
			}
		default:
			queries = append(queries, termQuery(t))
		}
	}
	if len(ids) > 0 {
		queries = append(queries, imageQuery{filters: []ec2types.Filter{filter("image-id", ids...)}})
	}
	return queries, nil
}

// termQuery is the query of a term by name, owner and tags. Names are looked for only among the account's own and
// Amazon's images unless the term says otherwise: anybody can publish an image under any name.
func termQuery(t v1.AMISelectorTerm) imageQuery {
	q := imageQuery{filters: tagFilters(t.Tags)}
	if t.Name != "" {
		q.owners = []string{"self", "amazon"}
		q.filters = append(q.filters, filter("name", t.Name))
	}
	if t.Owner != "" {
		q.owners = []string{t.Owner}
	}
	return q
}

// aliasQuery asks Systems Manager which images AWS recommends, or published as a version, for the cluster's Kubernetes minor.
func (c *Client) aliasQuery(ctx context.Context, family, version string) (imageQuery, error) {
	cluster, err := c.Cluster(ctx)
	if err != nil {
		return imageQuery{}, err
	}
	if err := checkAlias(family, version, cluster.Version); err != nil {
		return imageQuery{}, err
	}
	paths, err := aliasPaths(family, version, cluster.Version)
	if err != nil {
		return imageQuery{}, err
	}
	q := imageQuery{variants: map[string][][]corev1.NodeSelectorRequirement{}}
	for _, p := range paths {
		id, err := c.parameter(ctx, p.path)
		if capacity.KindOf(err) == capacity.NotFound {
			continue // not every variant exists for every version
		}
		if err != nil {
			return imageQuery{}, err
		}
		q.variants[id] = append(q.variants[id], p.variants...)
	}
	if len(q.variants) == 0 {
		return imageQuery{}, &capacity.Error{Kind: capacity.NotFound, Err: fmt.Errorf(
			"resolving alias %q: no parameter for Kubernetes %s, for instance %q", strings.ToLower(family)+"@"+version, cluster.Version, paths[0].path)}
	}
	q.filters = []ec2types.Filter{filter("image-id", slices.Sorted(maps.Keys(q.variants))...)}
	return q, nil
}

// parameter reads one SSM parameter by name or ARN.
func (c *Client) parameter(ctx context.Context, name string) (string, error) {
	out, err := c.ssm.GetParameter(ctx, &ssm.GetParameterInput{Name: aws.String(name)})
	if err != nil {
		return "", wrap(err, "reading parameter %q", name)
	}
	if out.Parameter == nil {
		return "", nothing("reading a parameter")
	}
	return aws.ToString(out.Parameter.Value), nil
}

func (c *Client) describeImages(ctx context.Context, q imageQuery) ([]Image, error) {
	var out []Image
	pages := ec2.NewDescribeImagesPaginator(c.ec2, &ec2.DescribeImagesInput{
		Owners:            q.owners,
		Filters:           append(slices.Clone(q.filters), filter("state", "available")),
		IncludeDeprecated: aws.Bool(true),
		MaxResults:        aws.Int32(1000),
	})
	for pages.HasMorePages() {
		page, err := pages.NextPage(ctx)
		if err != nil {
			return nil, wrap(err, "describing images")
		}
		for _, i := range page.Images {
			out = append(out, c.newImages(i, q.variants)...)
		}
	}
	return out, nil
}

// newImages is one Image for each set of instance types the image serves.
func (c *Client) newImages(i ec2types.Image, variants map[string][][]corev1.NodeSelectorRequirement) []Image {
	arch, ok := v1.AWSToKubeArchitectures[string(i.Architecture)]
	if !ok {
		return nil
	}
	created, err := time.Parse(time.RFC3339, aws.ToString(i.CreationDate))
	if err != nil {
		created = time.Time{} // as old as can be: any dated image is preferred
	}
	deprecated, err := time.Parse(time.RFC3339, aws.ToString(i.DeprecationTime))
	image := Image{
		ID:         aws.ToString(i.ImageId),
		Name:       aws.ToString(i.Name),
		Created:    created,
		Deprecated: err == nil && !deprecated.After(c.opts.Clock.Now()),
	}
	sets := variants[image.ID]
	if len(sets) == 0 {
		sets = [][]corev1.NodeSelectorRequirement{nil}
	}
	out := make([]Image, 0, len(sets))
	for _, reqs := range sets {
		image.Requirements = append([]corev1.NodeSelectorRequirement{{
			Key: corev1.LabelArchStable, Operator: corev1.NodeSelectorOpIn, Values: []string{arch},
		}}, reqs...)
		out = append(out, image)
	}
	return out
}
