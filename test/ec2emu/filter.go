// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/aws/aws-sdk-go-v2/aws"
	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// timeFormat is that of times in filters and in members that are text.
const timeFormat = "2006-01-02T15:04:05.000Z"

// lookup returns the values a resource has under a filter's name, and whether
// the action knows the filter at all.
type lookup func(name string) (values []string, known bool)

// matches says whether a resource passes all filters: a filter passes if one of
// its patterns matches one of the resource's values.
func matches(filters []ec2types.Filter, tags []ec2types.Tag, look lookup) (bool, error) {
	all := true
	for i, f := range filters {
		name := aws.ToString(f.Name)
		if name == "" {
			return false, missing(fmt.Sprintf("Filter.%d.Name", i+1))
		}
		if len(f.Values) == 0 {
			return false, missing(fmt.Sprintf("Filter.%d.Value", i+1))
		}
		values, known := tagLookup(tags, name)
		if !known && look != nil {
			values, known = look(name)
		}
		if !known {
			return false, invalid("InvalidParameterValue", "The filter '%s' is invalid", name)
		}
		// Unknown filters are errors whatever the others say, so go on.
		all = all && anyMatch(f.Values, values)
	}
	return all, nil
}

func anyMatch(patterns, values []string) bool {
	for _, p := range patterns {
		for _, v := range values {
			if matchPattern(p, v) {
				return true
			}
		}
	}
	return false
}

func tagLookup(tags []ec2types.Tag, name string) ([]string, bool) {
	key, isTag := strings.CutPrefix(name, "tag:")
	if !isTag && name != "tag-key" && name != "tag-value" {
		return nil, false
	}
	var values []string
	for _, t := range tags {
		switch {
		case name == "tag-key":
			values = append(values, aws.ToString(t.Key))
		case name == "tag-value" || aws.ToString(t.Key) == key:
			values = append(values, aws.ToString(t.Value))
		}
	}
	return values, true
}

// matchPattern is EC2's: * is any text, ? any one character, \ takes the next
// one literally, everything else is compared with its case.
func matchPattern(pattern, value string) bool {
	// Where to go on after a mismatch: the last * and what it has swallowed.
	star, swallowed := -1, 0
	p, v := 0, 0
	for v < len(value) {
		width := 1
		switch {
		case p < len(pattern) && pattern[p] == '*':
			star, swallowed = p, v
			p++
			continue
		case p < len(pattern) && pattern[p] == '?':
			p, v = p+1, v+1
			continue
		case p+1 < len(pattern) && pattern[p] == '\\':
			width = 2
		}
		if p+width <= len(pattern) && pattern[p+width-1] == value[v] {
			p, v = p+width, v+1
			continue
		}
		if star < 0 {
			return false
		}
		swallowed++
		p, v = star+1, swallowed
	}
	return strings.Trim(pattern[p:], "*") == ""
}

// pageLimits are the bounds of MaxResults, and what is used without it.
type pageLimits struct{ least, most, usual int }

// page cuts one page out of items. Tokens are opaque to clients; here they hold
// the offset, and items only grow at their end.
func page[T any](items []T, maxResults *int32, token *string, limits pageLimits) ([]T, *string, error) {
	size := limits.usual
	if maxResults != nil {
		size = int(*maxResults)
		if size < limits.least || size > limits.most {
			return nil, nil, invalid("InvalidParameterValue", "Value ( %d ) for parameter maxResults is invalid. Expecting a value between %d and %d.", size, limits.least, limits.most)
		}
	}
	offset := 0
	if aws.ToString(token) != "" {
		raw, err := base64.URLEncoding.DecodeString(*token)
		if err == nil {
			offset, err = strconv.Atoi(strings.TrimPrefix(string(raw), "offset:"))
		}
		if err != nil || offset < 0 {
			return nil, nil, invalid("InvalidNextToken", "The token '%s' is invalid", *token)
		}
	}
	offset = min(offset, len(items))
	end := min(offset+size, len(items))
	if end < len(items) {
		return items[offset:end], aws.String(base64.URLEncoding.EncodeToString(fmt.Appendf(nil, "offset:%d", end))), nil
	}
	return items[offset:end], nil, nil
}

// unknownIDs returns those ids that are not in known, in their order.
func unknownIDs[T any](ids []string, known map[string]T) []string {
	var out []string
	for _, id := range ids {
		if _, ok := known[id]; !ok {
			out = append(out, id)
		}
	}
	return out
}

// one is a lookup's answer for a member with one value.
func one(value string) ([]string, bool) { return []string{value}, true }

func boolValue(b *bool) ([]string, bool) { return one(strconv.FormatBool(aws.ToBool(b))) }

func listed(ids []string, id string) bool { return len(ids) == 0 || slices.Contains(ids, id) }
