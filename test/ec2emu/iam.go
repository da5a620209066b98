// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"cmp"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/iam"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"github.com/aws/aws-sdk-go-v2/service/sts"
)

// trustPolicy is that of node roles.
const trustPolicy = `{"Version":"2012-10-17","Statement":[{"Effect":"Allow","Principal":{"Service":"ec2.amazonaws.com"},"Action":"sts:AssumeRole"}]}`

func newRole(r seeded, account, name string, now time.Time) iamtypes.Role {
	return iamtypes.Role{
		RoleName: aws.String(name), RoleId: aws.String("AROA" + iamID(r, name)), Path: aws.String("/"), CreateDate: aws.Time(now),
		Arn: aws.String("arn:aws:iam::" + account + ":role/" + name), MaxSessionDuration: aws.Int32(3600),
		AssumeRolePolicyDocument: aws.String(url.QueryEscape(trustPolicy)),
	}
}

// iamID is the random part of an IAM identifier.
func iamID(r seeded, name string) string {
	return fmt.Sprintf("%016X", r.draw("iam", name).Uint64())
}

func noSuchEntity(format string, args ...any) *apiError {
	err := invalid("NoSuchEntity", format, args...)
	err.status = http.StatusNotFound
	return err
}

func conflict(code, format string, args ...any) *apiError {
	err := invalid(code, format, args...)
	err.status = http.StatusConflict
	return err
}

func (e *Emulator) findProfile(name *string) (*iamtypes.InstanceProfile, error) {
	p := e.world.profiles[aws.ToString(name)]
	if p == nil {
		return nil, noSuchEntity("Instance Profile %s cannot be found.", aws.ToString(name))
	}
	return p, nil
}

// copyProfile makes an answer that later changes don't reach.
func copyProfile(p *iamtypes.InstanceProfile) *iamtypes.InstanceProfile {
	out := *p
	out.Roles, out.Tags = append([]iamtypes.Role{}, p.Roles...), slices.Clone(p.Tags)
	return &out
}

func (e *Emulator) createInstanceProfile(c *call, in *iam.CreateInstanceProfileInput) (*iam.CreateInstanceProfileOutput, error) {
	name, path := aws.ToString(in.InstanceProfileName), cmp.Or(aws.ToString(in.Path), "/")
	if name == "" || len(name) > 128 {
		return nil, invalid("ValidationError", "1 validation error detected: Value '%s' at 'instanceProfileName' failed to satisfy constraint: Member must have length between 1 and 128", name)
	}
	if !strings.HasPrefix(path, "/") || !strings.HasSuffix(path, "/") {
		return nil, invalid("ValidationError", "The specified value for path is invalid. It must begin and end with / and contain only alphanumeric characters and/or / characters.")
	}
	if e.world.profiles[name] != nil {
		return nil, conflict("EntityAlreadyExists", "Instance Profile %s already exists.", name)
	}
	p := &iamtypes.InstanceProfile{
		InstanceProfileName: aws.String(name), InstanceProfileId: aws.String("AIPA" + iamID(e.rand, name)), Path: aws.String(path),
		Arn: aws.String("arn:aws:iam::" + e.opts.AccountID + ":instance-profile" + path + name), CreateDate: aws.Time(c.at),
		Roles: []iamtypes.Role{}, Tags: in.Tags,
	}
	e.world.profiles[name] = p
	e.world.hide("profile/" + name)
	return &iam.CreateInstanceProfileOutput{InstanceProfile: copyProfile(p)}, nil
}

func (e *Emulator) getInstanceProfile(_ *call, in *iam.GetInstanceProfileInput) (*iam.GetInstanceProfileOutput, error) {
	p, err := e.findProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	return &iam.GetInstanceProfileOutput{InstanceProfile: copyProfile(p)}, nil
}

func (e *Emulator) deleteInstanceProfile(_ *call, in *iam.DeleteInstanceProfileInput) (*iam.DeleteInstanceProfileOutput, error) {
	p, err := e.findProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	if len(p.Roles) > 0 {
		return nil, conflict("DeleteConflict", "Cannot delete entity, must remove roles from instance profile first.")
	}
	delete(e.world.profiles, *p.InstanceProfileName)
	return &iam.DeleteInstanceProfileOutput{}, nil
}

func (e *Emulator) addRole(_ *call, in *iam.AddRoleToInstanceProfileInput) (*iam.AddRoleToInstanceProfileOutput, error) {
	p, err := e.findProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	role, ok := e.world.roles[aws.ToString(in.RoleName)]
	if !ok {
		return nil, noSuchEntity("The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	if len(p.Roles) > 0 {
		return nil, conflict("LimitExceeded", "Cannot exceed quota for InstanceSessionsPerInstanceProfile: 1")
	}
	p.Roles = append(p.Roles, role)
	return &iam.AddRoleToInstanceProfileOutput{}, nil
}

func (e *Emulator) removeRole(_ *call, in *iam.RemoveRoleFromInstanceProfileInput) (*iam.RemoveRoleFromInstanceProfileOutput, error) {
	p, err := e.findProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	left := slices.DeleteFunc(slices.Clone(p.Roles), func(r iamtypes.Role) bool { return *r.RoleName == aws.ToString(in.RoleName) })
	if len(left) == len(p.Roles) {
		return nil, noSuchEntity("The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	p.Roles = left
	return &iam.RemoveRoleFromInstanceProfileOutput{}, nil
}

func (e *Emulator) tagInstanceProfile(_ *call, in *iam.TagInstanceProfileInput) (*iam.TagInstanceProfileOutput, error) {
	p, err := e.findProfile(in.InstanceProfileName)
	if err != nil {
		return nil, err
	}
	for _, tag := range in.Tags {
		p.Tags = slices.DeleteFunc(p.Tags, func(t iamtypes.Tag) bool { return aws.ToString(t.Key) == aws.ToString(tag.Key) })
		p.Tags = append(p.Tags, tag)
	}
	return &iam.TagInstanceProfileOutput{}, nil
}

func (e *Emulator) listInstanceProfiles(_ *call, in *iam.ListInstanceProfilesInput) (*iam.ListInstanceProfilesOutput, error) {
	names := slices.Sorted(maps.Keys(e.world.profiles))
	most, from := int(cmp.Or(aws.ToInt32(in.MaxItems), 100)), 0
	if in.Marker != nil {
		n, err := strconv.Atoi(*in.Marker)
		if err != nil || n < 0 {
			return nil, invalid("ValidationError", "Invalid marker '%s'", *in.Marker)
		}
		from = n
	}
	out := &iam.ListInstanceProfilesOutput{InstanceProfiles: []iamtypes.InstanceProfile{}}
	seen := 0
	for _, name := range names {
		p := e.world.profiles[name]
		if !strings.HasPrefix(*p.Path, aws.ToString(in.PathPrefix)) {
			continue
		}
		if seen++; seen <= from {
			continue
		}
		if len(out.InstanceProfiles) == most {
			out.IsTruncated, out.Marker = true, aws.String(strconv.Itoa(from+most))
			break
		}
		item := copyProfile(p)
		item.Tags = nil // the list leaves them out, as IAM does
		out.InstanceProfiles = append(out.InstanceProfiles, *item)
	}
	return out, nil
}

func (e *Emulator) getRole(_ *call, in *iam.GetRoleInput) (*iam.GetRoleOutput, error) {
	role, ok := e.world.roles[aws.ToString(in.RoleName)]
	if !ok {
		return nil, noSuchEntity("The role with name %s cannot be found.", aws.ToString(in.RoleName))
	}
	return &iam.GetRoleOutput{Role: &role}, nil
}

func (e *Emulator) callerARN() string {
	return "arn:aws:sts::" + e.opts.AccountID + ":assumed-role/emulated/session"
}

func (e *Emulator) getCallerIdentity(_ *call, _ *sts.GetCallerIdentityInput) (*sts.GetCallerIdentityOutput, error) {
	return &sts.GetCallerIdentityOutput{
		Account: aws.String(e.opts.AccountID), Arn: aws.String(e.callerARN()), UserId: aws.String("AROA" + iamID(e.rand, "caller") + ":session"),
	}, nil
}
