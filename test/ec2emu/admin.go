// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package ec2emu

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	ec2types "github.com/aws/aws-sdk-go-v2/service/ec2/types"
)

// AdminPath is where the controls are served over HTTP, beside the services.
const AdminPath = "/_emulator/"

// AdminHelp describes the controls; GET AdminPath answers it.
//
//go:embed admin.txt
var AdminHelp string

// duration is a time.Duration that JSON writes as "1.5s".
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	*d = duration(parsed)
	return err
}

// adminRoutes are the controls by method and path.
func (e *Emulator) adminRoutes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern string, h func(*http.Request) (any, error)) {
		method, path, _ := strings.Cut(pattern, " ")
		mux.HandleFunc(method+" "+AdminPath+path, func(w http.ResponseWriter, r *http.Request) { answerAdmin(w, r, h) })
	}
	mux.HandleFunc("GET "+AdminPath, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, AdminHelp) })
	handle("GET requests", e.adminRequests)
	handle("GET events", e.adminEvents)
	handle("GET instances", func(*http.Request) (any, error) { return e.Instances(), nil })
	handle("GET queue", e.adminQueue)
	handle("POST queue", e.adminSend)
	handle("PUT stock", e.adminStock)
	handle("PUT partial-fleets", e.adminPartialFleets)
	handle("POST faults", e.adminFault)
	handle("DELETE faults", func(*http.Request) (any, error) { e.ClearFaults(); return nil, nil })
	handle("PUT rates", e.adminRates)
	handle("DELETE rates", func(*http.Request) (any, error) { e.SetRates(nil); return nil, nil })
	handle("PUT latency", e.adminLatency)
	handle("PUT consistency", e.adminConsistency)
	handle("PUT parameters", e.adminParameter)
	handle("POST reservations", e.adminReservation)
	handle("PUT reservations/{id}", e.adminReservationCount)
	handle("DELETE reservations/{id}", e.adminCancel)
	handle("POST placement-groups", e.adminPlacementGroup)
	handle("POST instances/{id}/{what}", e.adminInstance)
	return mux
}

// answerAdmin writes what a control answers as JSON, its error as text with 400.
func answerAdmin(w http.ResponseWriter, r *http.Request, h func(*http.Request) (any, error)) {
	out, err := h(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if out == nil {
		w.WriteHeader(http.StatusNoContent)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	encoder := json.NewEncoder(w)
	encoder.SetIndent("", "  ")
	_ = encoder.Encode(out) // a client that has gone is no error
}

// body decodes a control's JSON; members it doesn't have are errors.
func body(r *http.Request, into any) error {
	decoder := json.NewDecoder(http.MaxBytesReader(nil, r.Body, maxBody))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(into); err != nil {
		return fmt.Errorf("reading %s: %w", r.URL.Path, err)
	}
	return nil
}

// from reads the query parameter after: the index to begin at.
func from(r *http.Request, length int) (int, error) {
	text := r.URL.Query().Get("after")
	if text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return 0, fmt.Errorf("reading %s: after=%q is no count", r.URL.Path, text)
	}
	return min(n, length), nil
}

func (e *Emulator) adminRequests(r *http.Request) (any, error) {
	all, q := e.Requests(), r.URL.Query()
	n, err := from(r, len(all))
	if err != nil {
		return nil, err
	}
	out := []Request{}
	for _, req := range all[n:] {
		if wild(q.Get("service"), req.Service) && wild(q.Get("action"), req.Action) && wild(q.Get("code"), req.Code) {
			out = append(out, req)
		}
	}
	return out, nil
}

func (e *Emulator) adminEvents(r *http.Request) (any, error) {
	all, q := e.Events(), r.URL.Query()
	n, err := from(r, len(all))
	if err != nil {
		return nil, err
	}
	out := []Event{}
	for _, event := range all[n:] {
		if wild(q.Get("type"), string(event.Type)) && wild(q.Get("instance"), event.InstanceID) {
			out = append(out, event)
		}
	}
	return out, nil
}

func (e *Emulator) adminQueue(*http.Request) (any, error) {
	visible, inFlight := e.QueueDepth()
	return map[string]any{"url": e.QueueURL(), "visible": visible, "inFlight": inFlight}, nil
}

func (e *Emulator) adminSend(r *http.Request) (any, error) {
	text, err := io.ReadAll(http.MaxBytesReader(nil, r.Body, maxMessageBytes))
	if err != nil {
		return nil, fmt.Errorf("reading the message: %w", err)
	}
	return map[string]string{"messageId": e.SendMessage(string(text))}, nil
}

func (e *Emulator) adminStock(r *http.Request) (any, error) {
	var in struct {
		Pool
		Left *int
	}
	if err := body(r, &in); err != nil {
		return nil, err
	}
	if in.Left == nil {
		return nil, fmt.Errorf("setting stock: left is missing")
	}
	e.SetStock(in.Pool, *in.Left)
	return nil, nil
}

func (e *Emulator) adminPartialFleets(r *http.Request) (any, error) {
	var in struct{ Share float64 }
	if err := body(r, &in); err != nil {
		return nil, err
	}
	e.SetPartialFleets(in.Share)
	return nil, nil
}

func (e *Emulator) adminFault(r *http.Request) (any, error) {
	var in struct {
		Fault
		Delay duration
	}
	if err := body(r, &in); err != nil {
		return nil, err
	}
	if in.Action == "" {
		return nil, fmt.Errorf("adding fault: action is missing")
	}
	in.Fault.Delay = time.Duration(in.Delay)
	e.Inject(in.Fault)
	return nil, nil
}

func (e *Emulator) adminRates(r *http.Request) (any, error) {
	rates := map[string]Rate{}
	if err := body(r, &rates); err != nil {
		return nil, err
	}
	if len(rates) == 0 {
		rates = PublishedRates()
	}
	e.SetRates(rates)
	return rates, nil
}

func (e *Emulator) adminLatency(r *http.Request) (any, error) {
	var in struct {
		Action             string
		P10, P50, P90, P99 duration
	}
	if err := body(r, &in); err != nil {
		return nil, err
	}
	return nil, e.SetLatency(in.Action, Latency{
		P10: time.Duration(in.P10), P50: time.Duration(in.P50), P90: time.Duration(in.P90), P99: time.Duration(in.P99),
	})
}

func (e *Emulator) adminConsistency(r *http.Request) (any, error) {
	var in struct{ Lag duration }
	if err := body(r, &in); err != nil {
		return nil, err
	}
	e.SetConsistencyLag(time.Duration(in.Lag))
	return nil, nil
}

func (e *Emulator) adminParameter(r *http.Request) (any, error) {
	var in struct{ Name, Value string }
	if err := body(r, &in); err != nil {
		return nil, err
	}
	e.SetParameter(in.Name, in.Value)
	return nil, nil
}

func (e *Emulator) adminReservation(r *http.Request) (any, error) {
	var in Reservation
	if err := body(r, &in); err != nil {
		return nil, err
	}
	id, err := e.AddReservation(in)
	return map[string]string{"id": id}, err
}

func (e *Emulator) adminReservationCount(r *http.Request) (any, error) {
	var in struct{ Count int }
	if err := body(r, &in); err != nil {
		return nil, err
	}
	if id := r.PathValue("id"); !e.SetReservationCount(id, in.Count) {
		return nil, fmt.Errorf("finding reservation %q: there is none", id)
	}
	return nil, nil
}

func (e *Emulator) adminCancel(r *http.Request) (any, error) {
	if id := r.PathValue("id"); !e.CancelReservation(id) {
		return nil, fmt.Errorf("finding reservation %q: there is no active one", id)
	}
	return nil, nil
}

func (e *Emulator) adminPlacementGroup(r *http.Request) (any, error) {
	var in PlacementGroup
	if err := body(r, &in); err != nil {
		return nil, err
	}
	switch in.Strategy {
	case ec2types.PlacementStrategyCluster, ec2types.PlacementStrategySpread, ec2types.PlacementStrategyPartition:
		return map[string]string{"id": e.AddPlacementGroup(in)}, nil
	}
	return nil, fmt.Errorf("adding placement group %q: strategy %q is not cluster, spread or partition", in.Name, in.Strategy)
}

// adminInstance does something to an instance.
func (e *Emulator) adminInstance(r *http.Request) (any, error) {
	id, q := r.PathValue("id"), r.URL.Query()
	switch what := r.PathValue("what"); what {
	case "interrupt":
		return nil, e.InterruptSpot(id)
	case "interrupt-reserved":
		return nil, e.InterruptReserved(id)
	case "rebalance":
		return nil, e.RecommendRebalance(id)
	case "impair":
		return nil, e.Impair(id, q.Get("scope"))
	case "schedule":
		now := e.clock.Now()
		return nil, e.ScheduleEvent(id, q.Get("code"), now.Add(24*time.Hour), now.Add(26*time.Hour))
	case "stop":
		return nil, e.Stop(id)
	case "terminate":
		if !e.Terminate(id) {
			return nil, fmt.Errorf("finding instance %q: there is none", id)
		}
		return nil, nil
	default:
		return nil, fmt.Errorf("instance %q: %q is no control; GET %s lists them", id, what, AdminPath)
	}
}
