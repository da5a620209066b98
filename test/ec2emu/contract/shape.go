// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/aws/smithy-go"
	"github.com/aws/smithy-go/middleware"
	smithyhttp "github.com/aws/smithy-go/transport/http"
)

// shape is what is set in an answer: the paths of members and the kind of value
// there. Elements of a list share one path; a member that only some elements have
// counts as set.
type shape map[string]string

// shapeOf reads an SDK output struct.
func shapeOf(out any) shape {
	s := shape{}
	s.add("", reflect.ValueOf(out))
	return s
}

func (s shape) add(path string, v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !v.IsNil() {
			s.add(path, v.Elem())
		}
	case reflect.Struct:
		s.addStruct(path, v)
	case reflect.Slice:
		if raw, ok := reflect.TypeAssert[[]byte](v); ok {
			s.set(path, "bytes", len(raw) > 0)
			return
		}
		for i := range v.Len() {
			s.add(path+"[]", v.Index(i))
		}
	case reflect.Map:
		for _, key := range v.MapKeys() {
			s.add(path+"."+key.String(), v.MapIndex(key))
		}
	case reflect.String:
		s.set(path, kindOf(v.String()), v.Len() > 0)
	case reflect.Bool:
		s.set(path, "bool", true)
	default:
		s.set(path, "number", v.CanInt() || v.CanFloat())
	}
}

func (s shape) addStruct(path string, v reflect.Value) {
	if _, ok := reflect.TypeAssert[time.Time](v); ok {
		s.set(path, "time", true)
		return
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.IsExported() && f.Type != reflect.TypeFor[middleware.Metadata]() {
			s.add(strings.TrimPrefix(path+"."+f.Name, "."), v.Field(i))
		}
	}
}

// set notes a value; the first of a list decides the kind.
func (s shape) set(path, kind string, ok bool) {
	if _, seen := s[path]; ok && !seen {
		s[path] = kind
	}
}

var (
	identifier = regexp.MustCompile(`^([a-z]+)-[0-9a-f]{8,17}$`)
	uuid       = regexp.MustCompile(`^[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}$`)
	instant    = regexp.MustCompile(`^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$`)
	iamID      = regexp.MustCompile(`^(AROA|AIPA|AKIA)[A-Z0-9]{12,}$`)
)

// kindOf tells texts apart by what they are, not by what they say.
func kindOf(text string) string {
	if m := identifier.FindStringSubmatch(text); m != nil {
		return m[1] + "-id"
	}
	switch {
	case strings.HasPrefix(text, "arn:"):
		return "arn"
	case uuid.MatchString(text):
		return "uuid"
	case instant.MatchString(text):
		return "time text"
	case iamID.MatchString(text):
		return "iam id"
	}
	if _, err := strconv.ParseFloat(text, 64); err == nil {
		return "number text"
	}
	if json.Valid([]byte(text)) {
		return "json"
	}
	return "text"
}

// codeOf is AWS's code of an error, "" for none.
func codeOf(err error) string {
	var api smithy.APIError
	switch {
	case err == nil:
		return ""
	case errors.As(err, &api):
		return api.ErrorCode()
	}
	if response, ok := errors.AsType[*smithyhttp.ResponseError](err); ok {
		return fmt.Sprintf("HTTP %d without a code", response.HTTPStatusCode())
	}
	return err.Error()
}

// answer is what one side said to a call.
type answer struct {
	code  string
	shape shape
}

// compare lists how the emulator's answer differs from moto's.
func compare(moto, emulator answer) []string {
	if moto.code != emulator.code {
		return []string{fmt.Sprintf("code: moto %s, emulator %s", orNone(moto.code), orNone(emulator.code))}
	}
	var out []string
	paths := maps.Clone(moto.shape)
	maps.Copy(paths, emulator.shape)
	for _, path := range slices.Sorted(maps.Keys(paths)) {
		m, e := moto.shape[path], emulator.shape[path]
		switch {
		case m == e:
		case m == "":
			out = append(out, path+": only the emulator")
		case e == "":
			out = append(out, path+": only moto")
		default:
			out = append(out, fmt.Sprintf("%s: moto %s, emulator %s", path, m, e))
		}
	}
	return out
}

func orNone(code string) string {
	if code == "" {
		return "success"
	}
	return code
}
