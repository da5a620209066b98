// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"strings"
)

type parameter struct {
	Name             string
	Type             string
	Value            string
	Version          int64
	LastModifiedDate float64 // seconds of the epoch
	ARN              string
	DataType         string
}

// parameter finds a parameter by name or ARN.
func (e *Emulator) parameter(nameOrARN string) (*parameter, bool) {
	name := nameOrARN
	if i := strings.Index(name, ":parameter/"); strings.HasPrefix(name, "arn:") && i > 0 {
		name = name[i+len(":parameter"):]
	}
	value, ok := e.world.parameters[name]
	if !ok {
		return nil, false
	}
	account := e.opts.AccountID
	if strings.HasPrefix(name, "/aws/") {
		account = "" // public parameters belong to nobody
	}
	return &parameter{
		Name: name, Type: "String", Value: value, Version: 1, LastModifiedDate: float64(e.start.Unix()), DataType: "text",
		ARN: "arn:aws:ssm:" + e.opts.Region + ":" + account + ":parameter" + name,
	}, true
}

// SetParameter sets an SSM parameter, for an image that is published or withdrawn
// while the emulator runs; an empty value removes it.
func (e *Emulator) SetParameter(name, value string) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if value == "" {
		delete(e.world.parameters, name)
		return
	}
	e.world.parameters[name] = value
}

func (e *Emulator) getParameter(c *call) (any, error) {
	var in struct{ Name string }
	if err := jsonInto(c, &in); err != nil {
		return nil, err
	}
	p, ok := e.parameter(in.Name)
	if !ok {
		return nil, invalid("ParameterNotFound", "Parameter %s not found.", in.Name)
	}
	return struct{ Parameter *parameter }{p}, nil
}

func (e *Emulator) getParameters(c *call) (any, error) {
	var in struct{ Names []string }
	if err := jsonInto(c, &in); err != nil {
		return nil, err
	}
	if len(in.Names) == 0 || len(in.Names) > 10 {
		return nil, invalid("ValidationException", "Member must have length less than or equal to 10, and greater than or equal to 1")
	}
	out := struct {
		Parameters        []*parameter
		InvalidParameters []string
	}{[]*parameter{}, []string{}}
	for _, name := range in.Names {
		if p, ok := e.parameter(name); ok {
			out.Parameters = append(out.Parameters, p)
		} else {
			out.InvalidParameters = append(out.InvalidParameters, name)
		}
	}
	return out, nil
}
