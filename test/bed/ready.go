// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package bed

import (
	"context"
	"crypto/tls"
	"fmt"
	"net/http"
)

// AwaitReady waits until scheduler and controller answer their readiness probes, as installed.
func (b *Bed) AwaitReady(ctx context.Context) error {
	web := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} //nolint:gosec // its own certificate, on loopback
	return Eventually(ctx, "both processes to be ready", func(ctx context.Context) (bool, error) {
		return answers(ctx, web, fmt.Sprintf("https://127.0.0.1:%d/readyz", b.Port(Scheduler))) &&
			answers(ctx, web, fmt.Sprintf("http://127.0.0.1:%d/readyz", b.Port(Controller+"-health"))), nil
	})
}

func answers(ctx context.Context, web *http.Client, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, http.NoBody)
	if err != nil {
		return false
	}
	resp, err := web.Do(req)
	if err != nil {
		return false
	}
	defer resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}
