// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package wire

import (
	"bytes"
	"encoding/base64"
	"encoding/xml"
	"fmt"
	"reflect"
	"strconv"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/aws/smithy-go/middleware"
)

// timeFormat is what EC2 and IAM answer: UTC with milliseconds.
const timeFormat = "2006-01-02T15:04:05.000Z"

// Encode writes the members of out, an SDK output struct or a pointer to one,
// as XML elements without an enclosing element. Nil members are left out.
func Encode(d Dialect, b *bytes.Buffer, out any) error {
	v := reflect.ValueOf(out)
	if v.Kind() == reflect.Pointer {
		if v.IsNil() {
			return nil
		}
		v = v.Elem()
	}
	return encodeStruct(d, b, v)
}

func encodeStruct(d Dialect, b *bytes.Buffer, v reflect.Value) error {
	t := v.Type()
	for i := range t.NumField() {
		f := t.Field(i)
		if !f.IsExported() || f.Type == reflect.TypeFor[middleware.Metadata]() || absent(v.Field(i)) {
			continue
		}
		name, item := outputName(d, t.Name(), f.Name)
		if err := encodeElement(d, b, name, item, v.Field(i)); err != nil {
			return fmt.Errorf("encoding %s.%s: %w", t.Name(), f.Name, err)
		}
	}
	return nil
}

// absent says that a member is not set: nil, or the empty value of an enum.
func absent(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Map:
		return v.IsNil()
	case reflect.String:
		return v.Len() == 0
	default:
		return false
	}
}

func outputName(d Dialect, owner, field string) (name, item string) {
	if d == Query {
		return field, "member"
	}
	name, item = ec2OutputName(owner+"."+field), ec2OutputName(owner+"."+field+"[]")
	if name == "" {
		name = lowerFirst(field)
	}
	if item == "" {
		item = "item"
	}
	return name, item
}

func lowerFirst(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	return string(unicode.ToLower(r)) + s[size:]
}

func encodeElement(d Dialect, b *bytes.Buffer, name, item string, v reflect.Value) error {
	b.WriteString("<" + name + ">")
	if err := encodeValue(d, b, item, v); err != nil {
		return err
	}
	b.WriteString("</" + name + ">")
	return nil
}

func encodeValue(d Dialect, b *bytes.Buffer, item string, v reflect.Value) error {
	switch v.Kind() {
	case reflect.Pointer:
		return encodeValue(d, b, item, v.Elem())
	case reflect.Struct:
		if t, ok := reflect.TypeAssert[time.Time](v); ok {
			b.WriteString(t.UTC().Format(timeFormat))
			return nil
		}
		return encodeStruct(d, b, v)
	case reflect.Slice:
		if raw, ok := reflect.TypeAssert[[]byte](v); ok {
			b.WriteString(base64.StdEncoding.EncodeToString(raw))
			return nil
		}
		for i := range v.Len() {
			if err := encodeElement(d, b, item, item, v.Index(i)); err != nil {
				return err
			}
		}
		return nil
	case reflect.String:
		return xml.EscapeText(b, []byte(v.String()))
	case reflect.Bool:
		b.WriteString(strconv.FormatBool(v.Bool()))
	case reflect.Int, reflect.Int32, reflect.Int64:
		b.WriteString(strconv.FormatInt(v.Int(), 10))
	case reflect.Float32, reflect.Float64:
		b.WriteString(strconv.FormatFloat(v.Float(), 'f', -1, v.Type().Bits()))
	default:
		return fmt.Errorf("the protocol has no %s", v.Type())
	}
	return nil
}
