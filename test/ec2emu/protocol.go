// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"bytes"
	"encoding/json"
	"encoding/xml"
	"errors"
	"net/http"

	"github.com/slipway-sh/slipway/test/ec2emu/wire"
)

const (
	ec2Namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
	iamNamespace = "https://iam.amazonaws.com/doc/2010-05-08/"
	stsNamespace = "https://sts.amazonaws.com/doc/2011-06-15/"
)

// typed turns a function of the SDK's types into a handler of a query protocol.
func typed[I, O any](d wire.Dialect, fn func(*call, *I) (*O, error)) handler {
	return func(c *call) (any, error) {
		in := new(I)
		if err := wire.Decode(d, c.form, in); err != nil {
			return nil, parameterError(err)
		}
		out, err := fn(c, in)
		if err != nil {
			return nil, err
		}
		return out, nil
	}
}

func parameterError(err error) error {
	var p *wire.ParameterError
	if errors.As(err, &p) && p.Unknown {
		return invalid("UnknownParameter", "%s", p.Error())
	}
	return invalid("InvalidParameterValue", "%s", err.Error())
}

// ec2Protocol is ec2query.
type ec2Protocol struct{}

func (ec2Protocol) render(w http.ResponseWriter, c *call, out any) error {
	var b bytes.Buffer
	b.WriteString(xml.Header + "<" + c.action + `Response xmlns="` + ec2Namespace + `"><requestId>` + c.id + "</requestId>")
	if err := wire.Encode(wire.EC2, &b, out); err != nil {
		return err
	}
	b.WriteString("</" + c.action + "Response>")
	send(w, http.StatusOK, "text/xml;charset=UTF-8", b.Bytes())
	return nil
}

func (ec2Protocol) fail(w http.ResponseWriter, c *call, err *apiError) {
	var b bytes.Buffer
	b.WriteString(xml.Header + "<Response><Errors><Error>")
	codeAndMessage(&b, err)
	b.WriteString("</Error></Errors><RequestID>" + c.id + "</RequestID></Response>")
	send(w, err.status, "text/xml;charset=UTF-8", b.Bytes())
}

// queryProtocol is awsQuery, of IAM and STS.
type queryProtocol struct{}

func (queryProtocol) render(w http.ResponseWriter, c *call, out any) error {
	var b bytes.Buffer
	b.WriteString("<" + c.action + `Response xmlns="` + queryNamespace(c.service) + `"><` + c.action + "Result>")
	if err := wire.Encode(wire.Query, &b, out); err != nil {
		return err
	}
	b.WriteString("</" + c.action + "Result><ResponseMetadata><RequestId>" + c.id + "</RequestId></ResponseMetadata></" + c.action + "Response>")
	send(w, http.StatusOK, "text/xml", b.Bytes())
	return nil
}

func (queryProtocol) fail(w http.ResponseWriter, c *call, err *apiError) {
	kind := "Sender"
	if err.status >= http.StatusInternalServerError {
		kind = "Receiver"
	}
	var b bytes.Buffer
	b.WriteString(`<ErrorResponse xmlns="` + queryNamespace(c.service) + `"><Error><Type>` + kind + "</Type>")
	codeAndMessage(&b, err)
	b.WriteString("</Error><RequestId>" + c.id + "</RequestId></ErrorResponse>")
	send(w, err.status, "text/xml", b.Bytes())
}

func queryNamespace(service string) string {
	if service == "sts" {
		return stsNamespace
	}
	return iamNamespace
}

func codeAndMessage(b *bytes.Buffer, err *apiError) {
	b.WriteString("<Code>")
	_ = xml.EscapeText(b, []byte(err.code))
	b.WriteString("</Code><Message>")
	_ = xml.EscapeText(b, []byte(err.message))
	b.WriteString("</Message>")
}

// jsonProtocol is awsJson: version 1.1 of SSM and Pricing, 1.0 of SQS.
type jsonProtocol struct{ version string }

func (p jsonProtocol) render(w http.ResponseWriter, c *call, out any) error {
	return sendJSON(w, c, http.StatusOK, p.contentType(), out)
}

func (p jsonProtocol) fail(w http.ResponseWriter, c *call, err *apiError) {
	if err.queryCode != "" {
		w.Header().Set("X-Amzn-Query-Error", err.queryCode+";Sender")
	}
	_ = sendJSON(w, c, err.status, p.contentType(), map[string]string{"__type": err.code, "message": err.message})
}

func (p jsonProtocol) contentType() string { return "application/x-amz-json-" + p.version }

// restProtocol is restJson, of EKS.
type restProtocol struct{}

func (restProtocol) render(w http.ResponseWriter, c *call, out any) error {
	return sendJSON(w, c, http.StatusOK, "application/json", out)
}

func (restProtocol) fail(w http.ResponseWriter, c *call, err *apiError) {
	w.Header().Set("X-Amzn-Errortype", err.code)
	_ = sendJSON(w, c, err.status, "application/json", map[string]string{"message": err.message})
}

func sendJSON(w http.ResponseWriter, c *call, status int, contentType string, out any) error {
	body, err := json.Marshal(out)
	if err != nil {
		return err
	}
	w.Header().Set("X-Amzn-Requestid", c.id)
	send(w, status, contentType, body)
	return nil
}

// send writes an answer. A client that has gone is no error of the emulator.
func send(w http.ResponseWriter, status int, contentType string, body []byte) {
	if s, ok := w.(*settled); ok {
		s.announce(len(body))
	}
	w.Header().Set("Content-Type", contentType)
	w.WriteHeader(status)
	_, _ = w.Write(body)
}
