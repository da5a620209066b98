// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook_test

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"testing"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/fake"
	clocktesting "k8s.io/utils/clock/testing"

	"github.com/slipway-sh/slipway/webhook"
)

// Two replicas rotate their certificates and the authority for three years, one always later than the other: whoever trusts the
// bundle that is published can connect to both at any time, and a replica that slept for a month replaces what has expired.
func TestNoHandshakeFailsWhileRotating(t *testing.T) {
	hook := admissionregistrationv1.MutatingWebhook{Name: "pods.slipway.sh", SideEffects: new(admissionregistrationv1.SideEffectClassNone), AdmissionReviewVersions: []string{"v1"}}
	kube := fake.NewClientset(&admissionregistrationv1.MutatingWebhookConfiguration{ObjectMeta: metav1.ObjectMeta{Name: "slipway"}, Webhooks: []admissionregistrationv1.MutatingWebhook{hook}})
	clock := clocktesting.NewFakeClock(time.Date(2026, 6, 1, 12, 0, 0, 0, time.UTC))
	var replicas []*webhook.Keeper
	for range 2 {
		replicas = append(replicas, &webhook.Keeper{
			Kube: kube, Namespace: "slipway-system", Secret: "ca", Configuration: "slipway", Names: []string{"localhost"},
			Clock: clock, Metrics: webhook.NewMetrics(), Log: logr.Discard(),
		})
	}
	look := func(k *webhook.Keeper) {
		t.Helper()
		if err := k.Look(t.Context()); err != nil {
			t.Fatalf("%s: %v", clock.Now(), err)
		}
	}
	connect := func() {
		t.Helper()
		c, err := kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(t.Context(), "slipway", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		trusted := x509.NewCertPool()
		if !trusted.AppendCertsFromPEM(c.Webhooks[0].ClientConfig.CABundle) {
			t.Fatal("the published bundle has no certificate")
		}
		for i, k := range replicas {
			if err := handshake(t, k, trusted, clock.Now()); err != nil {
				t.Fatalf("%s: replica %d: %v", clock.Now(), i, err)
			}
		}
	}
	look(replicas[0])
	look(replicas[1])
	authorities := map[string]bool{}
	for i := range 3 * 365 {
		clock.Step(24 * time.Hour)
		look(replicas[i%2])
		connect() // the other one has not looked
		look(replicas[(i+1)%2])
		connect()
		secret, err := kube.CoreV1().Secrets("slipway-system").Get(t.Context(), "ca", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		authorities[string(secret.Data["ca.key"])] = true
	}
	if len(authorities) < 2 {
		t.Errorf("in three years there was %d authority; the test shows nothing", len(authorities))
	}
	clock.Step(30 * 24 * time.Hour)
	look(replicas[0])
	look(replicas[1])
	connect()
}

// handshake connects to the replica as the API server does.
func handshake(t *testing.T, k *webhook.Keeper, trusted *x509.CertPool, now time.Time) error {
	t.Helper()
	in, out := net.Pipe()
	defer func() { _, _ = in.Close(), out.Close() }()
	served := make(chan error, 1)
	go func() {
		served <- tls.Server(out, &tls.Config{GetCertificate: k.Certificate, MinVersion: tls.VersionTLS13, SessionTicketsDisabled: true}).HandshakeContext(t.Context())
	}()
	err := tls.Client(in, &tls.Config{RootCAs: trusted, ServerName: "localhost", Time: func() time.Time { return now }, MinVersion: tls.VersionTLS13}).HandshakeContext(t.Context())
	if err != nil {
		return err
	}
	return <-served
}
