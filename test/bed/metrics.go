// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"math"
	"net/http"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"k8s.io/client-go/rest"
)

// Metrics reads all metric families of one of Slipway's processes.
func (b *Bed) Metrics(ctx context.Context, process string) (map[string]*dto.MetricFamily, error) {
	url, client := fmt.Sprintf("http://127.0.0.1:%d/metrics", b.Port(process)), http.DefaultClient
	if process == Scheduler { // serves TLS with a certificate of its own and asks who is there
		config := b.Cluster.Config()
		config.TLSClientConfig.CAData, config.TLSClientConfig.Insecure = nil, true
		var err error
		if client, err = rest.HTTPClientFor(config); err != nil {
			return nil, fmt.Errorf("creating a client for the metrics of %s: %w", process, err)
		}
		url = "https" + url[len("http"):]
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return nil, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", process, err)
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("reading the metrics of %s: %s", process, resp.Status)
	}
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(resp.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the metrics of %s: %w", process, err)
	}
	return families, nil
}

// Count is the sum of a counter or gauge over all its labels; 0 if it has never been counted.
func (b *Bed) Count(ctx context.Context, process, name string) (float64, error) {
	families, err := b.Metrics(ctx, process)
	if err != nil {
		return 0, err
	}
	sum := 0.0
	for _, m := range families[name].GetMetric() {
		sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
	}
	return sum, nil
}

// Quantile estimates the q-quantile of a histogram without labels, linearly within its bucket as PromQL's
// histogram_quantile does.
func (b *Bed) Quantile(ctx context.Context, process, name string, q float64) (float64, error) {
	families, err := b.Metrics(ctx, process)
	if err != nil {
		return 0, err
	}
	f := families[name]
	if f == nil || len(f.GetMetric()) == 0 || f.GetMetric()[0].GetHistogram().GetSampleCount() == 0 {
		return 0, fmt.Errorf("%s has no samples of %s", process, name)
	}
	h := f.GetMetric()[0].GetHistogram()
	rank := q * float64(h.GetSampleCount())
	lower, below := 0.0, 0.0
	for _, bucket := range h.GetBucket() {
		if math.IsInf(bucket.GetUpperBound(), 1) {
			break // as histogram_quantile: the largest finite bound stands for what is beyond
		}
		n := float64(bucket.GetCumulativeCount())
		if n >= rank && n > below {
			return lower + (bucket.GetUpperBound()-lower)*(rank-below)/(n-below), nil
		}
		lower, below = bucket.GetUpperBound(), n
	}
	return lower, nil
}
