// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
	iamtypes "github.com/aws/aws-sdk-go-v2/service/iam/types"
	"k8s.io/utils/clock"
)

// world is what the account has; Emulator.mu guards it.
type world struct {
	rand  seeded
	clock clock.PassiveClock
	seqs  map[string]int

	subnets    map[string]*subnet
	subnetList []*subnet
	groups     []SecurityGroup
	images     map[string]*Image
	imageList  []*Image
	parameters map[string]string // SSM

	templates    map[string]*template // by id
	templateList []*template
	instances    map[string]*instance
	instanceList []*instance
	reservations []*reservation
	// placementGroups in the order they were added.
	placementGroups []*placementGroup
	profiles        map[string]*iamtypes.InstanceProfile
	roles           map[string]iamtypes.Role
	tags            map[string][]ec2types.Tag // of every taggable resource by id
	tokens          map[string]replay

	lag     time.Duration        // at most, until reads see what was written
	hidden  map[string]time.Time // when reads will know of a new thing, by its id
	oldTags map[string]oldTags   // what reads still show, by instance id
}

type subnet struct {
	Subnet
	next netip.Addr
	free int
	held int // of free, set aside for a launch under way
	// returned are addresses of terminated instances.
	returned []netip.Addr
}

func newWorld(r seeded, o *Options, now time.Time) world {
	w := world{
		rand: r, clock: o.Clock, hidden: map[string]time.Time{}, oldTags: map[string]oldTags{}, seqs: map[string]int{},
		subnets: map[string]*subnet{}, images: map[string]*Image{}, parameters: map[string]string{},
		templates: map[string]*template{}, instances: map[string]*instance{},
		profiles: map[string]*iamtypes.InstanceProfile{}, roles: map[string]iamtypes.Role{},
		tags: map[string][]ec2types.Tag{}, tokens: map[string]replay{},
		groups: o.SecurityGroups,
	}
	for _, s := range o.Subnets {
		first := netip.MustParsePrefix(s.CIDR).Addr()
		for range reservedAddresses - 1 {
			first = first.Next()
		}
		sub := &subnet{Subnet: s, next: first, free: s.FreeAddresses}
		w.subnets[s.ID] = sub
		w.subnetList = append(w.subnetList, sub)
		w.tags[s.ID] = sdkTags(s.Tags)
	}
	for _, g := range o.SecurityGroups {
		w.tags[g.ID] = sdkTags(g.Tags)
	}
	for _, image := range append(publicImages(r, o.KubernetesVersion), o.Images...) {
		w.addImage(image, o.AccountID, now)
	}
	maps.Copy(w.parameters, o.Parameters)
	for _, name := range o.Roles {
		w.roles[name] = newRole(r, o.AccountID, name, now)
	}
	return w
}

func (w *world) addImage(image Image, account string, now time.Time) {
	orDefault(&image.OwnerID, account)
	orDefault(&image.Arch, string(ec2types.ArchitectureTypeX8664))
	orDefault(&image.Family, Custom)
	if image.Created.IsZero() {
		image.Created = now
	}
	w.images[image.ID] = &image
	w.imageList = append(w.imageList, &image)
	w.tags[image.ID] = sdkTags(image.Tags)
	for _, p := range image.Parameters {
		w.parameters[p] = image.ID
	}
}

// newID returns the next identifier of a kind: i, lt, eni, vol, r …
func (w *world) newID(kind string) string {
	w.seqs[kind]++
	return w.rand.id(kind, w.seqs[kind])
}

func (w *world) newUUID(kind string) string {
	w.seqs[kind]++
	return w.rand.uuid(kind, w.seqs[kind])
}

// takeAddress returns the next address of the subnet, if there is one.
func (s *subnet) takeAddress() (netip.Addr, bool) {
	if s.free <= 0 {
		return netip.Addr{}, false
	}
	s.free--
	// Fresh addresses first: EC2, too, is slow to give one out again.
	if prefix := netip.MustParsePrefix(s.CIDR); prefix.Contains(s.next.Next()) {
		addr := s.next
		s.next = addr.Next()
		return addr, true
	}
	if len(s.returned) == 0 {
		s.free++
		return netip.Addr{}, false
	}
	addr := s.returned[0]
	s.returned = s.returned[1:]
	return addr, true
}

func (s *subnet) returnAddress(a netip.Addr) {
	s.free++
	s.returned = append(s.returned, a)
}

func sdkTags(tags map[string]string) []ec2types.Tag {
	out := make([]ec2types.Tag, 0, len(tags))
	for _, key := range slices.Sorted(maps.Keys(tags)) {
		out = append(out, ec2types.Tag{Key: aws.String(key), Value: aws.String(tags[key])})
	}
	return out
}

func tagMap(tags []ec2types.Tag) map[string]string {
	out := make(map[string]string, len(tags))
	for _, t := range tags {
		out[aws.ToString(t.Key)] = aws.ToString(t.Value)
	}
	return out
}

// mergeTags puts more over tags and keeps them sorted by key.
func mergeTags(tags, more []ec2types.Tag) []ec2types.Tag {
	all := tagMap(tags)
	maps.Copy(all, tagMap(more))
	return sdkTags(all)
}

// specifiedTags returns the tags of one resource type in a request.
func specifiedTags(specs []ec2types.TagSpecification, kind ec2types.ResourceType) []ec2types.Tag {
	var out []ec2types.Tag
	for _, s := range specs {
		if s.ResourceType == kind {
			out = mergeTags(out, s.Tags)
		}
	}
	return out
}

// checkTags applies EC2's rules for tags that a user sets.
func checkTags(tags []ec2types.Tag) error {
	seen := map[string]bool{}
	for _, t := range tags {
		key := aws.ToString(t.Key)
		switch {
		case key == "" || len(key) > 128:
			return invalid("InvalidParameterValue", "Tag key length must be between 1 and 128: '%s'", key)
		case len(aws.ToString(t.Value)) > 256:
			return invalid("InvalidParameterValue", "Tag value exceeds the maximum length of 256 characters: key '%s'", key)
		case strings.HasPrefix(strings.ToLower(key), "aws:"):
			return invalid("InvalidParameterValue", "Tag keys starting with 'aws:' are reserved for internal use: '%s'", key)
		case seen[key]:
			return invalid("InvalidParameterValue", "Duplicate tag key '%s' specified.", key)
		}
		seen[key] = true
	}
	if len(tags) > 50 {
		return invalid("TagLimitExceeded", "More than 50 tags specified")
	}
	return nil
}

// replay is what a client token stands for.
type replay struct {
	parameters uint64
	out        any
	instances  []string
}

// once answers a request that has a client token from what was answered before,
// or runs it. Only answers are remembered: a request that failed had no effect.
func once[O any](w *world, c *call, token string, in any, run func() (*O, error)) (*O, error) {
	if token == "" {
		return run()
	}
	// The fingerprint is over the decoded parameters in their declared order.
	raw, err := json.Marshal(in)
	if err != nil {
		return nil, fmt.Errorf("comparing parameters: %w", err)
	}
	h := fnv.New64a()
	_, _ = h.Write(raw)
	key := c.action + "/" + token
	if old, ok := w.tokens[key]; ok {
		if old.parameters != h.Sum64() {
			return nil, invalid("IdempotentParameterMismatch", "The client token '%s' has already been used with different parameters.", token)
		}
		c.instances = old.instances
		return old.out.(*O), nil
	}
	out, err := run()
	if err != nil {
		return nil, err
	}
	w.tokens[key] = replay{parameters: h.Sum64(), out: out, instances: c.instances}
	return out, nil
}

// convert copies between SDK types that have the same members, such as a
// template's request and response form.
func convert[T any](from any) (T, error) {
	var to T
	raw, err := json.Marshal(from)
	if err != nil {
		return to, fmt.Errorf("converting %T: %w", from, err)
	}
	if err := json.Unmarshal(raw, &to); err != nil {
		return to, fmt.Errorf("converting %T to %T: %w", from, to, err)
	}
	return to, nil
}
