// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"sync"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/utils/clock"

	"github.com/slipway-sh/slipway/webhook"
)

const ms = float64(time.Millisecond)

func hookOf(i int) (hook, path string) {
	if i%3 == 0 { // one of three calls of a pod mutates
		return "mutate", webhook.MutatePath
	}
	return "validate", webhook.ValidatePath
}

// feasibility is the 99th percentile of the time for pods the oracle has not seen, in milliseconds.
func (w *world) feasibility() float64 {
	var took []time.Duration
	wall := clock.RealClock{}
	for i := range 1000 {
		t := &corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"team": fmt.Sprint(i % 12)}, // some are nobody's
			Containers: []corev1.Container{{Name: "a", Resources: corev1.ResourceRequirements{Requests: corev1.ResourceList{
				corev1.ResourceCPU: *resource.NewMilliQuantity(int64(100*i+1), resource.DecimalSI), corev1.ResourceMemory: *resource.NewQuantity(int64(i+1)<<29, resource.BinarySI),
			}}}},
		}}
		start := wall.Now()
		w.oracle.Feasible("", t)
		took = append(took, wall.Since(start))
	}
	slices.Sort(took)
	return float64(took[len(took)*99/100]) / ms
}

// oneCore is how many reviews a second one core decides, without a network.
func (w *world) oneCore(ctx context.Context) (float64, error) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	const n = 10000
	wall := clock.RealClock{}
	start := wall.Now()
	for i := range n {
		hook, _ := hookOf(i)
		if _, ok := w.handler.Review(ctx, hook, w.bodies[i%len(w.bodies)], time.Minute); !ok {
			return 0, fmt.Errorf("review %d was not answered", i)
		}
	}
	return n / wall.Since(start).Seconds(), nil
}

type steadyResult struct {
	p50, p99, client99 float64
	failures           int
}

// served is what a serving process says on its standard output: where it is, then how long its handler took.
type served struct {
	URL      string
	P50, P99 float64 // ms
}

// serve answers reviews over HTTPS in this process until standard input ends.
func (w *world) serve() error {
	wall := clock.RealClock{}
	var mu sync.Mutex
	var inside []time.Duration
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start := wall.Now()
		w.handler.ServeHTTP(rw, r)
		took := wall.Since(start)
		mu.Lock()
		inside = append(inside, took)
		mu.Unlock()
	}))
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // of handshakes that clients gave up
	server.StartTLS()
	defer server.Close()
	out := json.NewEncoder(os.Stdout)
	if err := out.Encode(served{URL: server.URL}); err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, os.Stdin); err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	if len(inside) == 0 {
		return errors.New("nothing was asked")
	}
	slices.Sort(inside)
	return out.Encode(served{P50: float64(inside[len(inside)/2]) / ms, P99: float64(inside[len(inside)*99/100]) / ms})
}

// steady holds a rate over HTTPS against a process of its own. p50 and p99 are the handler's own time; the client's has the network
// and the wait for a core in it, which client and server share.
func steady(ctx context.Context, o options) (out steadyResult, err error) {
	self, err := os.Executable()
	if err != nil {
		return out, err
	}
	cmd := exec.CommandContext(ctx, self, "-serve")
	cmd.Stderr = os.Stderr
	input, err := cmd.StdinPipe()
	if err != nil {
		return out, err
	}
	output, err := cmd.StdoutPipe()
	if err != nil {
		return out, err
	}
	if err := cmd.Start(); err != nil {
		return out, fmt.Errorf("starting a process that serves: %w", err)
	}
	closed := false
	defer func() {
		if !closed {
			_ = input.Close() // then it ends
		}
		err = errors.Join(err, cmd.Wait())
	}()
	said := json.NewDecoder(output)
	var at served
	if err := said.Decode(&at); err != nil {
		return out, fmt.Errorf("waiting for a process that serves: %w", err)
	}
	if out.client99, out.failures, err = hold(ctx, o, at.URL); err != nil {
		return out, err
	}
	closed = true
	if err := input.Close(); err != nil {
		return out, err
	}
	if err := said.Decode(&at); err != nil {
		return out, fmt.Errorf("reading how long the handler took: %w", err)
	}
	out.p50, out.p99 = at.P50, at.P99
	return out, nil
}

// hold sends reviews at the rate and returns the 99th percentile of the answers' time in milliseconds.
func hold(ctx context.Context, o options, url string) (p99 float64, failures int, err error) {
	var bodies [][]byte
	for i := range 200 {
		body, err := review(i)
		if err != nil {
			return 0, 0, err
		}
		bodies = append(bodies, body)
	}
	client := &http.Client{Transport: &http.Transport{
		MaxIdleConnsPerHost: 64,
		TLSClientConfig:     &tls.Config{MinVersion: tls.VersionTLS13, InsecureSkipVerify: true}, //nolint:gosec // our own process on this machine
	}}
	wall := clock.RealClock{}
	var mu sync.Mutex
	var outside []time.Duration
	var wg sync.WaitGroup
	total := int(o.length.Seconds() * float64(o.rate))
	start := wall.Now()
	for i := range total {
		if ctx.Err() != nil {
			return 0, 0, ctx.Err()
		}
		if wait := start.Add(time.Duration(i) * time.Second / time.Duration(o.rate)).Sub(wall.Now()); wait > 0 {
			wall.Sleep(wait)
		}
		wg.Go(func() {
			begin := wall.Now()
			err := call(ctx, client, url, i, bodies[i%len(bodies)])
			took := wall.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			outside = append(outside, took)
			if err != nil {
				failures++
			}
		})
	}
	wg.Wait()
	slices.Sort(outside)
	return float64(outside[len(outside)*99/100]) / ms, failures, nil
}

// call sends one review; an answer that does not allow is a failure, because nothing here is to be refused.
func call(ctx context.Context, client *http.Client, url string, i int, body []byte) error {
	_, path := hookOf(i)
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+path+"?timeout=2s", bytes.NewReader(body))
	if err != nil {
		return err
	}
	resp, err := client.Do(req)
	if err != nil {
		return err
	}
	defer func() { _ = resp.Body.Close() }()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	var review admissionv1.AdmissionReview
	if err := json.Unmarshal(text, &review); err != nil {
		return err
	}
	if review.Response == nil || !review.Response.Allowed {
		return fmt.Errorf("refused: %s", text)
	}
	return nil
}
