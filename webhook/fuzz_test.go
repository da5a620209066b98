// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"encoding/json"
	"testing"
	"time"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/slipway-sh/slipway/webhook"
)

// Whatever comes as a pod: the answer allows it, the patch applies, a second pass has nothing to do, and no request is
// above its limit that was not before.
func FuzzMutatePod(f *testing.F) {
	f.Add(`{"spec":{"containers":[{"name":"a"}]}}`)
	f.Add(`{"metadata":{"annotations":{"slipway.sh/defaulted":"a/cpu=1:x,"}},"spec":{"containers":[{"name":"a","resources":{"limits":{"cpu":"1m"}}},{"name":"b/c","resources":{"requests":null}}],"initContainers":[{"name":"~","restartPolicy":"Always"}]}}`)
	f.Add(`{"metadata":null,"spec":{"containers":[{"name":"a","resources":null}],"resources":{"requests":{"cpu":"1"}}}}`)
	f.Add(`{"metadata":{"annotations":{"karpenter.sh/do-not-disrupt":"true","slipway.sh/except":"R001=a;until=2026-07-02"},"ownerReferences":[{"kind":"Job","name":"x-1","controller":true}]},"spec":{"containers":[{"name":"a"}],"nodeSelector":{}}}`)
	f.Fuzz(func(t *testing.T, object string) {
		b := newBench(t, managed(nil), func(o *webhook.Options) { o.InjectScheduler, o.Native = true, false })
		if !json.Valid([]byte(object)) {
			return
		}
		resp := b.ask(t, "mutate", request{object: object})
		if !resp.Allowed {
			t.Fatalf("refused: %+v", resp.Result)
		}
		got := apply(t, []byte(object), resp)
		if again := b.ask(t, "mutate", request{object: string(got)}); again.Patch != nil {
			t.Fatalf("a second pass changes more: %s\nafter %s", again.Patch, resp.Patch)
		}
		b.ask(t, "validate", request{object: string(got)})
		withinLimits(t, []byte(object), got)
	})
}

func withinLimits(t *testing.T, before, after []byte) {
	t.Helper()
	var old, now corev1.Pod
	if utiljson.Unmarshal(before, &old) != nil || utiljson.Unmarshal(after, &now) != nil { // as the API server reads them
		return
	}
	for i, c := range now.Spec.Containers {
		for name, q := range c.Resources.Requests {
			_, had := old.Spec.Containers[i].Resources.Requests[name]
			if limit, ok := c.Resources.Limits[name]; ok && !had && q.Cmp(limit) > 0 {
				t.Errorf("container %q: request %s of %s is above its limit %s", c.Name, q.String(), name, limit.String())
			}
		}
	}
}

// No bytes make the handler panic, and what is answered is a review.
func FuzzReview(f *testing.F) {
	f.Add([]byte(`{"request":null}`))
	f.Add([]byte(`{"request":{"uid":"u","kind":{"kind":"Pod"},"operation":"CREATE","object":{}}}`))
	f.Add([]byte(`{"request":{"uid":"u","kind":{"kind":"NodePool"},"operation":"UPDATE","object":{"spec":{"disruption":{"budgets":[{"nodes":"0","schedule":"TZ= * * * * *","duration":"1h"}]}}},"oldObject":{"spec":1}}}`))
	f.Add([]byte(`{"request":{"uid":"u","kind":{"kind":"EC2NodeClass"},"operation":"DELETE","oldObject":{"spec":{"kubelet":[]}}}}`))
	f.Add([]byte(`{"request":{"uid":"u","kind":{"kind":"PodDisruptionBudget"},"namespace":"team","operation":"CREATE","object":{"spec":{"minAvailable":"x%","selector":{}}}}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		b := newBench(t, managed(nil), func(o *webhook.Options) { o.Native = false })
		for _, hook := range []string{"mutate", "validate"} {
			out, ok := b.Review(t.Context(), hook, body, time.Minute)
			if !ok {
				continue
			}
			var review admissionv1.AdmissionReview
			if err := json.Unmarshal(out, &review); err != nil || review.Response == nil {
				t.Fatalf("%s: answer is no review: %v\n%s", hook, err, out)
			}
		}
	})
}
