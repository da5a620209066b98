// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
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
	p50, p99, client99, memory float64
	failures                   int
}

// steady holds a rate over HTTPS. p50 and p99 are the handler's own time; the client's has the network and the wait for a
// core in it, which client and server share here.
func (w *world) steady(ctx context.Context, o options) (steadyResult, error) {
	wall := clock.RealClock{}
	var mu sync.Mutex
	var inside, outside []time.Duration
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		start := wall.Now()
		w.handler.ServeHTTP(rw, r)
		took := wall.Since(start)
		mu.Lock()
		inside = append(inside, took)
		mu.Unlock()
	}))
	server.StartTLS()
	defer server.Close()
	client := server.Client()
	if t, ok := client.Transport.(*http.Transport); ok {
		t.MaxIdleConnsPerHost = 64
		t.TLSClientConfig.MinVersion = tls.VersionTLS13
	}
	failures := 0
	var wg sync.WaitGroup
	total := int(o.length.Seconds() * float64(o.rate))
	start := wall.Now()
	for i := range total {
		if ctx.Err() != nil {
			return steadyResult{}, ctx.Err()
		}
		if wait := start.Add(time.Duration(i) * time.Second / time.Duration(o.rate)).Sub(wall.Now()); wait > 0 {
			wall.Sleep(wait)
		}
		wg.Go(func() {
			begin := wall.Now()
			err := call(ctx, client, server.URL, i, w.bodies[i%len(w.bodies)])
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
	slices.Sort(inside)
	slices.Sort(outside)
	inside, outside = slices.Clip(inside), slices.Clip(outside)
	at := func(list []time.Duration, percent int) float64 { return float64(list[len(list)*percent/100]) / ms }
	out := steadyResult{p50: at(inside, 50), p99: at(inside, 99), client99: at(outside, 99), failures: failures}
	inside, outside = nil, nil
	var m runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&m)
	out.memory = float64(m.HeapInuse+m.StackInuse) / 1e6
	return out, nil
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
