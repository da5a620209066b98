// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"slices"

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

// Histogram is a metric without labels, or several such of equal buckets added up. The zero value has no samples.
type Histogram struct {
	bounds []float64
	counts []uint64 // cumulative
	total  uint64
}

// Histogram reads a histogram without labels; an error if it has no samples.
func (b *Bed) Histogram(ctx context.Context, process, name string) (Histogram, error) {
	families, err := b.Metrics(ctx, process)
	if err != nil {
		return Histogram{}, err
	}
	f := families[name]
	if f == nil || len(f.GetMetric()) == 0 || f.GetMetric()[0].GetHistogram().GetSampleCount() == 0 {
		return Histogram{}, fmt.Errorf("%s has no samples of %s", process, name)
	}
	return HistogramOf(f.GetMetric()[0].GetHistogram()), nil
}

// HistogramOf takes a histogram as Prometheus' clients have it.
func HistogramOf(h *dto.Histogram) Histogram {
	out := Histogram{total: h.GetSampleCount()}
	for _, bucket := range h.GetBucket() {
		if !math.IsInf(bucket.GetUpperBound(), 1) {
			out.bounds, out.counts = append(out.bounds, bucket.GetUpperBound()), append(out.counts, bucket.GetCumulativeCount())
		}
	}
	return out
}

// Add adds the samples of another histogram, which must have the same buckets unless there are none yet.
func (h *Histogram) Add(o Histogram) error {
	if h.total == 0 {
		h.bounds, h.counts = slices.Clone(o.bounds), make([]uint64, len(o.counts))
	}
	if !slices.Equal(h.bounds, o.bounds) {
		return fmt.Errorf("adding histograms: buckets %v and %v differ", h.bounds, o.bounds)
	}
	for i, n := range o.counts {
		h.counts[i] += n
	}
	h.total += o.total
	return nil
}

// Count is the number of samples.
func (h Histogram) Count() uint64 { return h.total }

// Quantile estimates the q-quantile, linearly within its bucket as PromQL's histogram_quantile does; the largest finite
// bound stands for what is beyond it.
func (h Histogram) Quantile(q float64) float64 {
	rank := q * float64(h.total)
	lower, below := 0.0, 0.0
	for i, bound := range h.bounds {
		n := float64(h.counts[i])
		if n >= rank && n > below {
			return lower + (bound-lower)*(rank-below)/(n-below)
		}
		lower, below = bound, n
	}
	return lower
}
