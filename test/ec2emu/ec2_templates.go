// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"regexp"
	"slices"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/ec2"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

const (
	maxUserData       = 16384
	templateVersion   = "1"
	templateNotFound  = "InvalidLaunchTemplateName.NotFoundException"
	templateIDMissing = "InvalidLaunchTemplateId.NotFound"
)

// templateName is EC2's rule for names of launch templates.
var templateName = regexp.MustCompile(`^[a-zA-Z0-9().\-/_]{3,128}$`)

// template is a launch template. It has one version: no action makes another.
type template struct {
	id, name string
	created  time.Time
	note     *string
	data     *ec2types.ResponseLaunchTemplateData
}

func (e *Emulator) createLaunchTemplate(c *call, in *ec2.CreateLaunchTemplateInput) (*ec2.CreateLaunchTemplateOutput, error) {
	if err := checkTemplate(in); err != nil {
		return nil, err
	}
	if aws.ToBool(in.DryRun) {
		return nil, dryRun()
	}
	return once(&e.world, c, aws.ToString(in.ClientToken), in, func() (*ec2.CreateLaunchTemplateOutput, error) {
		if e.templateNamed(*in.LaunchTemplateName) != nil {
			return nil, invalid("InvalidLaunchTemplateName.AlreadyExistsException", "Launch template name already in use.")
		}
		data, err := convert[*ec2types.ResponseLaunchTemplateData](in.LaunchTemplateData)
		if err != nil {
			return nil, err
		}
		t := &template{id: e.world.newID("lt"), name: *in.LaunchTemplateName, created: c.at, note: in.VersionDescription, data: data}
		e.world.templates[t.id] = t
		e.world.templateList = append(e.world.templateList, t)
		e.world.hide(t.id)
		e.world.tags[t.id] = specifiedTags(in.TagSpecifications, ec2types.ResourceTypeLaunchTemplate)
		return &ec2.CreateLaunchTemplateOutput{LaunchTemplate: e.sdkTemplate(t)}, nil
	})
}

func checkTemplate(in *ec2.CreateLaunchTemplateInput) error {
	if !templateName.MatchString(aws.ToString(in.LaunchTemplateName)) {
		return invalid("InvalidLaunchTemplateName.MalformedException", "A launch template name must be between 3 and 128 characters, and may contain letters, numbers, and the following characters: - ( ) . / _.")
	}
	if in.LaunchTemplateData == nil {
		return missing("LaunchTemplateData")
	}
	for _, s := range in.TagSpecifications {
		if s.ResourceType != ec2types.ResourceTypeLaunchTemplate {
			return invalid("InvalidParameterValue", "'%s' is not a valid taggable resource type for this operation.", s.ResourceType)
		}
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	for _, s := range in.LaunchTemplateData.TagSpecifications {
		if err := checkTags(s.Tags); err != nil {
			return err
		}
	}
	_, err := decodeUserData(in.LaunchTemplateData.UserData)
	return err
}

func decodeUserData(text *string) ([]byte, error) {
	raw, err := base64.StdEncoding.DecodeString(aws.ToString(text))
	if err != nil {
		return nil, invalid("InvalidUserData.Malformed", "Invalid BASE64 encoding of user data.")
	}
	if len(raw) > maxUserData {
		return nil, invalid("InvalidUserData.Malformed", "User data is limited to %d bytes", maxUserData)
	}
	return raw, nil
}

func (e *Emulator) templateNamed(name string) *template {
	for _, t := range e.world.templateList {
		if t.name == name {
			return t
		}
	}
	return nil
}

// findTemplate looks a template up as a launch or a deletion names it.
func (e *Emulator) findTemplate(id, name, version *string) (*template, error) {
	var t *template
	switch {
	case aws.ToString(id) != "" && aws.ToString(name) != "":
		return nil, invalid("InvalidParameterCombination", "Specify either the launch template ID or the launch template name, not both.")
	case aws.ToString(id) != "":
		if t = e.world.templates[*id]; t == nil || !e.world.seen(t.id) {
			return nil, invalid(templateIDMissing, "The specified launch template, with template ID %s, does not exist.", *id)
		}
	case aws.ToString(name) != "":
		if t = e.templateNamed(*name); t == nil || !e.world.seen(t.id) {
			return nil, invalid(templateNotFound, "The specified launch template, with template name %s, does not exist.", *name)
		}
	default:
		return nil, missing("LaunchTemplateId or LaunchTemplateName")
	}
	if !slices.Contains([]string{"", templateVersion, "$Latest", "$Default"}, aws.ToString(version)) {
		return nil, invalid("InvalidLaunchTemplateId.VersionNotFound", "Could not find launch template version %s for launch template %s.", *version, t.id)
	}
	return t, nil
}

func (e *Emulator) sdkTemplate(t *template) *ec2types.LaunchTemplate {
	return &ec2types.LaunchTemplate{
		LaunchTemplateId: aws.String(t.id), LaunchTemplateName: aws.String(t.name), CreateTime: aws.Time(t.created),
		CreatedBy: aws.String(e.callerARN()), DefaultVersionNumber: aws.Int64(1), LatestVersionNumber: aws.Int64(1), Tags: e.world.tags[t.id],
	}
}

func (e *Emulator) describeLaunchTemplates(_ *call, in *ec2.DescribeLaunchTemplatesInput) (*ec2.DescribeLaunchTemplatesOutput, error) {
	for _, id := range in.LaunchTemplateIds {
		if _, err := e.findTemplate(&id, nil, nil); err != nil {
			return nil, err
		}
	}
	for _, name := range in.LaunchTemplateNames {
		if _, err := e.findTemplate(nil, &name, nil); err != nil {
			return nil, err
		}
	}
	var found []ec2types.LaunchTemplate
	for _, t := range e.world.templateList {
		if !e.world.seen(t.id) || !listed(in.LaunchTemplateIds, t.id) || !listed(in.LaunchTemplateNames, t.name) {
			continue
		}
		ok, err := matches(in.Filters, e.world.tags[t.id], func(name string) ([]string, bool) {
			switch name {
			case "launch-template-name":
				return one(t.name)
			case "create-time":
				return one(t.created.UTC().Format(time.RFC3339))
			}
			return nil, false
		})
		if err != nil {
			return nil, err
		}
		if ok {
			found = append(found, *e.sdkTemplate(t))
		}
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 200, 200})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeLaunchTemplatesOutput{LaunchTemplates: items, NextToken: next}, nil
}

func (e *Emulator) describeLaunchTemplateVersions(_ *call, in *ec2.DescribeLaunchTemplateVersionsInput) (*ec2.DescribeLaunchTemplateVersionsOutput, error) {
	if len(in.Filters) > 0 {
		return nil, invalid("InvalidParameterValue", "The filter '%s' is invalid", aws.ToString(in.Filters[0].Name))
	}
	var list []*template
	if in.LaunchTemplateId == nil && in.LaunchTemplateName == nil {
		// Without a template EC2 wants to be asked for the latest or default of all.
		if len(in.Versions) == 0 {
			return nil, missing("LaunchTemplateVersion")
		}
		list = e.world.templateList
	} else {
		versions := in.Versions
		if len(versions) == 0 {
			versions = []string{templateVersion}
		}
		for _, v := range versions {
			t, err := e.findTemplate(in.LaunchTemplateId, in.LaunchTemplateName, &v)
			if err != nil {
				return nil, err
			}
			list = []*template{t}
		}
	}
	found := make([]ec2types.LaunchTemplateVersion, 0, len(list))
	for _, t := range list {
		found = append(found, ec2types.LaunchTemplateVersion{
			LaunchTemplateId: aws.String(t.id), LaunchTemplateName: aws.String(t.name), CreateTime: aws.Time(t.created),
			CreatedBy: aws.String(e.callerARN()), DefaultVersion: aws.Bool(true), VersionNumber: aws.Int64(1),
			VersionDescription: t.note, LaunchTemplateData: t.data,
		})
	}
	items, next, err := page(found, in.MaxResults, in.NextToken, pageLimits{1, 200, 200})
	if err != nil {
		return nil, err
	}
	return &ec2.DescribeLaunchTemplateVersionsOutput{LaunchTemplateVersions: items, NextToken: next}, nil
}

func (e *Emulator) deleteLaunchTemplate(_ *call, in *ec2.DeleteLaunchTemplateInput) (*ec2.DeleteLaunchTemplateOutput, error) {
	t, err := e.findTemplate(in.LaunchTemplateId, in.LaunchTemplateName, nil)
	if err != nil {
		return nil, err
	}
	out := &ec2.DeleteLaunchTemplateOutput{LaunchTemplate: e.sdkTemplate(t)}
	delete(e.world.templates, t.id)
	delete(e.world.tags, t.id)
	e.world.templateList = slices.DeleteFunc(e.world.templateList, func(o *template) bool { return o == t })
	return out, nil
}
