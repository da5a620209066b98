// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/go-logr/logr"
	admissionv1 "k8s.io/api/admission/v1"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/webhook/rules"
)

// Paths of the two hooks.
const (
	MutatePath   = "/mutate"
	ValidatePath = "/validate"
)

const (
	// maxBody is how much of a review is read, in bytes: the API server's own limit on objects, twice for updates.
	maxBody = 6 << 20
	// maxObject is the largest object that is looked at, in bytes.
	maxObject = 1 << 20
	// maxInFlight bounds reviews that are being decided; further ones are allowed at once.
	maxInFlight = 512
	// patience is the part of the API server's time-out in which an answer is given, timeout what is assumed without one.
	patience = 0.6
	timeout  = time.Second
)

// Options are what a handler needs.
type Options struct {
	// State is what is known of the cluster, nil while the caches are cold. Called once a review.
	State func() *State
	// Index follows pods and their owners.
	Index   *Index
	Metrics *Metrics
	Clock   clock.PassiveClock
	Log     logr.Logger
	// Native says that the policies of manifests/policies are installed: their rules are left to them.
	Native bool
	// InjectScheduler sets schedulerName here, for API servers without MutatingAdmissionPolicy.
	InjectScheduler bool
}

// Handler answers admission reviews. It allows whatever it cannot decide.
type Handler struct {
	Options

	registry *rules.Registry
	slots    chan struct{}
	mux      *http.ServeMux
}

// NewHandler returns a handler that serves MutatePath and ValidatePath.
func NewHandler(o Options) *Handler {
	h := &Handler{Options: o, registry: rules.NewRegistry(), slots: make(chan struct{}, maxInFlight), mux: http.NewServeMux()}
	h.mux.HandleFunc("POST "+MutatePath, h.hook("mutate"))
	h.mux.HandleFunc("POST "+ValidatePath, h.hook("validate"))
	return h
}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) { h.mux.ServeHTTP(w, r) }

// decision decides one review. state is never nil.
type decision func(req *admissionv1.AdmissionRequest, state *State) (*admissionv1.AdmissionResponse, error)

// errUnreadable is the kind of error of an object that cannot be decoded.
var errUnreadable = errors.New("the object cannot be read")

func (h *Handler) hook(name string) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			// Without the review's id there is no valid answer. An error of the call is what failurePolicy Ignore is for.
			h.Metrics.FailedOpen.WithLabelValues(failedLarge).Inc()
			http.Error(w, "the review cannot be read", http.StatusRequestEntityTooLarge)
			return
		}
		start := h.Clock.Now()
		out, ok := h.Review(r.Context(), name, body, limit(r))
		h.Metrics.Duration.WithLabelValues(name).Observe(h.Clock.Since(start).Seconds())
		if !ok {
			http.Error(w, "this is no admission review", http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write(out) // an API server that has gone away is nobody to tell
	}
}

// limit is the time for the answer: a part of what the API server waits, which it says in the query.
func limit(r *http.Request) time.Duration {
	d, err := time.ParseDuration(r.URL.Query().Get("timeout"))
	if err != nil || d <= 0 {
		d = timeout
	}
	return time.Duration(float64(d) * patience)
}

// Review answers one review within the limit; hook is "mutate" or "validate". ok is false if body is no review.
func (h *Handler) Review(ctx context.Context, hook string, body []byte, limit time.Duration) (out []byte, ok bool) {
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(body, &review); err != nil || review.Request == nil || review.Request.UID == "" {
		h.Metrics.FailedOpen.WithLabelValues(failedRead).Inc()
		return nil, false
	}
	decide := h.validate
	if hook == "mutate" {
		decide = h.mutate
	}
	req := review.Request
	resp, reason := h.decide(ctx, req, decide, limit)
	if reason != "" {
		h.Metrics.FailedOpen.WithLabelValues(reason).Inc()
		resp = &admissionv1.AdmissionResponse{Allowed: true, Warnings: failedWarning(req, reason)}
	}
	h.Metrics.Requests.WithLabelValues(hook, string(req.Operation), outcome(resp, reason)).Inc()
	resp.UID = req.UID
	review.Request, review.Response = nil, resp
	out, err := json.Marshal(review)
	if err != nil {
		h.Log.Error(err, "writing an answer", "hook", hook)
		return nil, false
	}
	return out, true
}

// failedWarning tells the user of an object that is too large; of what is wrong with us, metrics and the log tell.
func failedWarning(req *admissionv1.AdmissionRequest, reason string) []string {
	if reason != failedLarge {
		return nil
	}
	return []string{fmt.Sprintf("slipway: this %s has more than %d KiB and was not checked.", strings.ToLower(req.Kind.Kind), maxObject>>10)}
}

func outcome(resp *admissionv1.AdmissionResponse, reason string) string {
	switch {
	case reason != "":
		return "failed_open"
	case !resp.Allowed:
		return "denied"
	case resp.Patch != nil:
		return "patched"
	}
	return "allowed"
}

// decide runs a decision on its own goroutine, so that neither a panic nor slowness of it is the answer; reason says why
// there is none.
func (h *Handler) decide(ctx context.Context, req *admissionv1.AdmissionRequest, fn decision, limit time.Duration) (resp *admissionv1.AdmissionResponse, reason string) {
	if len(req.Object.Raw) > maxObject || len(req.OldObject.Raw) > maxObject {
		return nil, failedLarge
	}
	state := h.State()
	if state == nil {
		return nil, failedCold
	}
	select {
	case h.slots <- struct{}{}:
	default:
		return nil, failedOverload
	}
	type answer struct {
		resp   *admissionv1.AdmissionResponse
		reason string
	}
	done := make(chan answer, 1)
	go func() {
		defer func() { <-h.slots }()
		defer func() {
			if p := recover(); p != nil {
				h.Log.Error(fmt.Errorf("panic: %v", p), "deciding a review", "kind", req.Kind.Kind, "namespace", req.Namespace, "name", req.Name, "stack", string(debug.Stack()))
				done <- answer{nil, failedPanic}
			}
		}()
		resp, err := fn(req, state)
		if err != nil {
			h.Log.V(1).Info("A review was allowed without having been looked at", "kind", req.Kind.Kind, "namespace", req.Namespace, "name", req.Name, "reason", err.Error())
			done <- answer{nil, failedRead}
			return
		}
		done <- answer{resp, ""}
	}()
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	select {
	case a := <-done:
		return a.resp, a.reason
	case <-ctx.Done():
		return nil, failedDeadline
	}
}
