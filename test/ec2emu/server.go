// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"
)

// Stock clients close a request's body as soon as the answer's head arrives; if
// their transport has not finished looking for the body's end by then, it takes
// that for a failed write and closes the connection (smithy-go 1.28: WriteTo of a
// closed body returns io.EOF). No network is quick enough for that, but loopback
// is. Answers that don't come with their head in one piece therefore start no
// earlier than settleTime after the request, in real time.
const (
	settleTime = 10 * time.Millisecond
	onePiece   = 3 << 10
)

// settled is a ResponseWriter that holds long answers back for settleTime.
type settled struct {
	http.ResponseWriter
	received time.Time
}

// announce says how long the answer will be, before its head is written.
func (s *settled) announce(length int) {
	if length > onePiece {
		time.Sleep(time.Until(s.received.Add(settleTime)))
	}
}

// maxBody is more than any request of the emulated actions has.
const maxBody = 8 << 20

// call is a request on its way through a handler.
type call struct {
	id      string
	service string
	action  string
	at      time.Time
	form    url.Values // query protocols
	body    []byte     // JSON protocols
	path    []string   // REST protocols: what the pattern's groups matched

	instances []string // launched or terminated by the handler
	latency   time.Duration
	wait      *waiting // the handler has no answer yet
}

// waiting is what a handler without an answer waits for before it is run again,
// without the lock.
type waiting struct {
	changed <-chan struct{}
	until   time.Time
}

// handler answers a call with the body of a success. It runs with e.mu held and
// returns a fresh value that render can encode without the lock, or an error.
type handler func(*call) (any, error)

// protocol renders answers of a service.
type protocol interface {
	render(w http.ResponseWriter, c *call, out any) error
	fail(w http.ResponseWriter, c *call, err *apiError)
}

// ServeHTTP answers every service and the controls; it implements http.Handler.
func (e *Emulator) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.URL.Path, AdminPath) {
		e.admin.ServeHTTP(w, r)
		return
	}
	at := e.clock.Now()
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	if err != nil {
		http.Error(w, err.Error(), http.StatusRequestEntityTooLarge)
		return
	}
	received := time.Now()
	c, p := e.identify(r, body, at)
	req := &Request{ID: c.id, Service: c.service, Action: c.action, At: at, Form: c.form, Body: string(c.body)}
	e.rec.begin(req)

	out, fault, callErr := e.perform(r.Context(), c)
	if fault != nil && fault.Delay > 0 {
		c.latency += fault.Delay
	}
	e.wait(r.Context(), c.latency)
	apiErr := asAPIError(callErr)
	e.rec.update(func() {
		req.Took, req.Status, req.Instances = e.clock.Since(at), http.StatusOK, c.instances
		if apiErr != nil {
			req.Code, req.Status = apiErr.code, apiErr.status
		}
	})
	if e.cut(req, fault) {
		e.rec.update(func() { req.Code, req.Status = "Cut", 0 })
		panic(http.ErrAbortHandler)
	}
	e.log.V(1).Info("Request answered", "service", c.service, "action", c.action, "status", req.Status, "code", req.Code)
	if apiErr != nil {
		p.fail(w, c, apiErr)
		return
	}
	if err := p.render(&settled{ResponseWriter: w, received: received}, c, out); err != nil {
		e.log.Error(err, "Encoding an answer failed", "service", c.service, "action", c.action)
		p.fail(w, c, &apiError{code: "InternalError", message: err.Error(), status: http.StatusInternalServerError})
	}
}

// perform runs the handler, unless throttling or a fault comes first.
func (e *Emulator) perform(ctx context.Context, c *call) (any, *Fault, error) {
	out, fault, err := e.try(c)
	for c.wait != nil && e.pause(ctx, c.wait) {
		c.wait = nil
		out, err = e.again(c)
	}
	return out, fault, err
}

// again runs a handler that had no answer; throttling and faults had their turn.
func (e *Emulator) again(c *call) (any, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.actions[c.service][c.action](c)
}

// pause waits for what a handler waits for; false means that nobody is left to
// be answered.
func (e *Emulator) pause(ctx context.Context, w *waiting) bool {
	timer := e.clock.NewTimer(w.until.Sub(e.clock.Now()))
	defer timer.Stop()
	// A fake clock may have stepped before the timer was made; it then counts from
	// the later time.
	if !e.clock.Now().Before(w.until) {
		return true
	}
	select {
	case <-w.changed:
	case <-timer.C():
	case <-ctx.Done():
		return false
	case <-e.ctx.Done():
		return false
	}
	return true
}

func (e *Emulator) try(c *call) (any, *Fault, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if c.service == "ec2" && e.throttled(c) {
		return nil, nil, &apiError{code: "RequestLimitExceeded", message: "Request limit exceeded.", status: http.StatusServiceUnavailable}
	}
	fault := e.takeFault(c)
	if fault != nil && !fault.AfterEffect && (fault.Code != "" || fault.Cut) {
		return nil, fault, fault.err()
	}
	h := e.actions[c.service][c.action]
	if h == nil {
		return nil, nil, invalid(unknownAction(c.service), "The action %s is not valid for this web service.", c.action)
	}
	out, err := h(c)
	e.slow(c)
	if fault != nil && fault.Code != "" {
		err = fault.err()
	}
	return out, fault, err
}

func unknownAction(service string) string {
	switch service {
	case "ssm", "pricing", "sqs":
		return "UnknownOperationException"
	default:
		return "InvalidAction"
	}
}

// cut says whether the hook or the fault wants the connection closed.
func (e *Emulator) cut(req *Request, fault *Fault) bool {
	e.mu.Lock()
	hook := e.hook
	e.mu.Unlock()
	if hook != nil && hook(*req) == Cut {
		return true
	}
	return fault != nil && fault.Cut
}

func (e *Emulator) wait(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	timer := e.clock.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C():
	case <-ctx.Done():
	case <-e.ctx.Done():
	}
}

func asAPIError(err error) *apiError {
	if err == nil {
		return nil
	}
	if api, ok := errors.AsType[*apiError](err); ok {
		return api
	}
	return &apiError{code: "InternalError", message: err.Error(), status: http.StatusInternalServerError}
}

// scope finds the service in Credential=<key>/<date>/<region>/<service>/aws4_request.
var scope = regexp.MustCompile(`Credential=[^/]*/\d{8}/[^/]*/([^/]*)/aws4_request`)

// identify finds service, action and protocol of a request. Signatures are not
// checked; a request without one is taken for EC2.
func (e *Emulator) identify(r *http.Request, body []byte, at time.Time) (*call, protocol) {
	c := &call{service: "ec2", at: at}
	if m := scope.FindStringSubmatch(r.Header.Get("Authorization")); m != nil {
		c.service = m[1]
	}
	e.mu.Lock()
	e.requests++
	c.id = e.rand.uuid("request", e.requests)
	e.mu.Unlock()
	switch c.service {
	case "ssm", "pricing", "sqs":
		_, c.action, _ = strings.Cut(r.Header.Get("X-Amz-Target"), ".")
		c.body = body
		if c.service == "sqs" {
			return c, jsonProtocol{version: "1.0"}
		}
		return c, jsonProtocol{version: "1.1"}
	case "eks":
		c.action, c.path = eksAction(r.Method, r.URL.Path)
		c.body = body
		return c, restProtocol{}
	}
	c.form = r.URL.Query()
	if form, err := url.ParseQuery(string(bytes.TrimSpace(body))); err == nil {
		maps.Copy(c.form, form)
	}
	c.action = c.form.Get("Action")
	if c.service == "iam" || c.service == "sts" {
		return c, queryProtocol{}
	}
	return c, ec2Protocol{}
}

// jsonInto decodes a JSON body; an empty one is an empty object.
func jsonInto(c *call, into any) error {
	if len(c.body) == 0 {
		return nil
	}
	if err := json.Unmarshal(c.body, into); err != nil {
		return invalid("SerializationException", "%v", err)
	}
	return nil
}
