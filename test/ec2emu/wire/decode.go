// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"encoding/base64"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Dialect is one of the two query protocols.
type Dialect int

const (
	// EC2 is the ec2query protocol: lists are flat (Filter.1.Value.1), elements
	// lower camel case, list elements "item".
	EC2 Dialect = iota
	// Query is the awsQuery protocol of IAM and STS: lists are wrapped
	// (Tags.member.1.Key), elements as the Go fields, list elements "member".
	Query
)

// ParameterError is a request parameter that the action does not have or whose
// value is of the wrong type.
type ParameterError struct {
	// Name is the full parameter, such as Filter.1.Value.
	Name string
	// Value is the text that could not be read, empty for an unknown parameter.
	Value string
	// Unknown says that the action has no such parameter.
	Unknown bool
}

// Error implements error in EC2's words.
func (e *ParameterError) Error() string {
	if e.Unknown {
		return fmt.Sprintf("The parameter %s is not recognized", e.Name)
	}
	return fmt.Sprintf("Invalid value '%s' for %s", e.Value, e.Name)
}

// node is one level of a parameter name: a value, children, or both.
type node struct {
	value    string
	set      bool
	children map[string]*node
}

func (n *node) child(key string) *node {
	c := n.children[key]
	if c == nil {
		c = &node{}
		if n.children == nil {
			n.children = map[string]*node{}
		}
		n.children[key] = c
	}
	return c
}

// Decode fills into, a pointer to an SDK input struct, from form. Action and
// Version are left out. The error is a *ParameterError.
func Decode(d Dialect, form url.Values, into any) error {
	root := &node{}
	for key, values := range form {
		if key == "Action" || key == "Version" || len(values) == 0 {
			continue
		}
		n := root
		for part := range strings.SplitSeq(key, ".") {
			n = n.child(part)
		}
		n.value, n.set = values[0], true
	}
	return decodeStruct(d, root, "", reflect.ValueOf(into).Elem())
}

func decodeStruct(d Dialect, n *node, path string, v reflect.Value) error {
	t := v.Type()
	known := make(map[string]int, t.NumField())
	for i := range t.NumField() {
		if f := t.Field(i); f.IsExported() {
			known[inputName(d, t.Name(), f.Name)] = i
		}
	}
	for _, key := range slices.Sorted(maps.Keys(n.children)) {
		name := key
		if path != "" {
			name = path + "." + key
		}
		i, ok := known[key]
		if !ok {
			return &ParameterError{Name: name, Unknown: true}
		}
		if err := decodeValue(d, n.children[key], name, v.Field(i)); err != nil {
			return err
		}
	}
	return nil
}

func inputName(d Dialect, owner, field string) string {
	if d == EC2 {
		if name := ec2InputName(owner + "." + field); name != "" {
			return name
		}
	}
	return field
}

func decodeValue(d Dialect, n *node, name string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return decodeValue(d, n, name, v.Elem())
	case reflect.Struct:
		if v.Type() == reflect.TypeFor[time.Time]() {
			return decodeScalar(n, name, v)
		}
		return decodeStruct(d, n, name, v)
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return decodeScalar(n, name, v)
		}
		return decodeList(d, n, name, v)
	default:
		return decodeScalar(n, name, v)
	}
}

func decodeList(d Dialect, n *node, name string, v reflect.Value) error {
	if d == Query {
		if n.children["member"] == nil {
			v.Set(reflect.MakeSlice(v.Type(), 0, 0))
			return nil
		}
		n, name = n.children["member"], name+".member"
	}
	indexes := make([]int, 0, len(n.children))
	for key := range n.children {
		i, err := strconv.Atoi(key)
		if err != nil || i < 1 {
			return &ParameterError{Name: name + "." + key, Unknown: true}
		}
		indexes = append(indexes, i)
	}
	slices.Sort(indexes)
	v.Set(reflect.MakeSlice(v.Type(), len(indexes), len(indexes)))
	for at, i := range indexes {
		key := strconv.Itoa(i)
		if err := decodeValue(d, n.children[key], name+"."+key, v.Index(at)); err != nil {
			return err
		}
	}
	return nil
}

func decodeScalar(n *node, name string, v reflect.Value) error {
	if !n.set {
		return &ParameterError{Name: name, Unknown: true}
	}
	if err := setScalar(n.value, v); err != nil {
		return &ParameterError{Name: name, Value: n.value}
	}
	return nil
}

func setScalar(text string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.String:
		v.SetString(text)
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		if err != nil {
			return err
		}
		v.SetBool(b)
	case reflect.Int32, reflect.Int64, reflect.Int:
		i, err := strconv.ParseInt(text, 10, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetInt(i)
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(text, v.Type().Bits())
		if err != nil {
			return err
		}
		v.SetFloat(f)
	case reflect.Struct:
		t, err := time.Parse(time.RFC3339, text)
		if err != nil {
			return err
		}
		v.Set(reflect.ValueOf(t))
	case reflect.Slice:
		raw, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			return err
		}
		v.SetBytes(raw)
	default:
		return errors.New("no such scalar in the protocol")
	}
	return nil
}
