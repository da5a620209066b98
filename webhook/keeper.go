// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/go-logr/logr"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	applyadmission "k8s.io/client-go/applyconfigurations/admissionregistration/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/utils/clock"
)

const (
	// bundleOwner is the field manager of caBundle, the only field it owns: whoever applies the rest sees no difference.
	bundleOwner = "slipway-webhook-ca"
	// lookEvery is how often certificates are looked after, lookAgain how soon after a failure.
	lookEvery = time.Minute
	lookAgain = 5 * time.Second
)

// Keeper keeps the certificates: an authority in a Secret all replicas share, its bundle in the webhook configurations,
// and a serving certificate in memory that is signed only by an authority the bundle already holds.
type Keeper struct {
	Kube kubernetes.Interface
	// Namespace and Secret are where the authority is, Configuration the name of both webhook configurations.
	Namespace, Secret, Configuration string
	// Names are the host names served.
	Names   []string
	Clock   clock.WithTicker
	Metrics *Metrics
	Log     logr.Logger

	leaf   atomic.Pointer[tls.Certificate]
	signer []byte // raw certificate of the authority that signed the leaf
}

// Certificate is the serving certificate, for tls.Config.GetCertificate. Before the first there is none.
func (k *Keeper) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	if c := k.leaf.Load(); c != nil {
		return c, nil
	}
	return nil, errors.New("there is no serving certificate yet")
}

// Ready reports whether there is a serving certificate that has not expired.
func (k *Keeper) Ready() bool {
	c := k.leaf.Load()
	return c != nil && k.Clock.Now().Before(c.Leaf.NotAfter)
}

// Run looks after the certificates until ctx ends.
func (k *Keeper) Run(ctx context.Context) {
	for {
		wait := lookEvery
		if err := k.Look(ctx); err != nil {
			if ctx.Err() != nil {
				return
			}
			k.Log.Error(err, "looking after certificates")
			wait = lookAgain
		}
		select {
		case <-ctx.Done():
			return
		case <-k.Clock.After(wait):
		}
	}
}

// Look brings authority, bundles and serving certificate up to date, in this order.
func (k *Keeper) Look(ctx context.Context) error {
	now := k.Clock.Now()
	a, err := k.authority(ctx, now)
	if err != nil {
		return err
	}
	if err := k.publish(ctx, a); err != nil {
		return err
	}
	leaf := k.leaf.Load()
	if leaf == nil || due(leaf.Leaf, now) || !bytes.Equal(k.signer, a.Cert.Raw) {
		if leaf, err = a.Leaf(k.Names, now); err != nil {
			return err
		}
		k.signer = a.Cert.Raw
		k.leaf.Store(leaf)
		k.Log.Info("A serving certificate was made", "expires", leaf.Leaf.NotAfter, "authority", a.Cert.SerialNumber.Text(16))
	}
	k.Metrics.CertExpiry.Set(leaf.Leaf.NotAfter.Sub(now).Seconds())
	return nil
}

// authority reads the authority, making it or its successor when that is due. Replicas that do so at once are told apart by
// the resource version; the loser looks again.
func (k *Keeper) authority(ctx context.Context, now time.Time) (*Authority, error) {
	secrets := k.Kube.CoreV1().Secrets(k.Namespace)
	secret, err := secrets.Get(ctx, k.Secret, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		a, err := NewAuthority(nil, now)
		if err != nil {
			return nil, err
		}
		data, err := a.Marshal()
		if err != nil {
			return nil, err
		}
		secret = &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: k.Secret, Namespace: k.Namespace}, Data: data}
		if _, err = secrets.Create(ctx, secret, metav1.CreateOptions{}); err != nil {
			return nil, fmt.Errorf("creating secret %q: %w", k.Secret, err)
		}
		return a, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading secret %q: %w", k.Secret, err)
	}
	a, err := ReadAuthority(secret.Data)
	if err != nil {
		k.Log.Error(err, "the authority cannot be read and is made anew", "secret", k.Secret)
	} else if !a.Due(now) {
		return a, nil
	}
	next, err := NewAuthority(a, now)
	if err != nil {
		return nil, err
	}
	secret = secret.DeepCopy()
	if secret.Data, err = next.Marshal(); err != nil {
		return nil, err
	}
	if _, err := secrets.Update(ctx, secret, metav1.UpdateOptions{}); err != nil {
		return nil, fmt.Errorf("updating secret %q: %w", k.Secret, err)
	}
	return next, nil
}

// publish puts the bundle into the webhook configurations. One that does not exist is not made: whoever installs them
// may not have got there, or wants none.
func (k *Keeper) publish(ctx context.Context, a *Authority) error {
	bundle := a.Bundle()
	hooks := k.Kube.AdmissionregistrationV1()
	mutating, err := hooks.MutatingWebhookConfigurations().Get(ctx, k.Configuration, metav1.GetOptions{})
	if err == nil {
		same := func(w admissionregistrationv1.MutatingWebhook) bool {
			return bytes.Equal(w.ClientConfig.CABundle, bundle)
		}
		if slices.IndexFunc(mutating.Webhooks, func(w admissionregistrationv1.MutatingWebhook) bool { return !same(w) }) >= 0 {
			c := applyadmission.MutatingWebhookConfiguration(k.Configuration)
			for _, w := range mutating.Webhooks {
				c.WithWebhooks(applyadmission.MutatingWebhook().WithName(w.Name).WithClientConfig(applyadmission.WebhookClientConfig().WithCABundle(bundle...)))
			}
			_, err = hooks.MutatingWebhookConfigurations().Apply(ctx, c, metav1.ApplyOptions{FieldManager: bundleOwner, Force: true})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("mutating webhook configuration %q: %w", k.Configuration, err)
	}
	validating, err := hooks.ValidatingWebhookConfigurations().Get(ctx, k.Configuration, metav1.GetOptions{})
	if err == nil {
		same := func(w admissionregistrationv1.ValidatingWebhook) bool {
			return bytes.Equal(w.ClientConfig.CABundle, bundle)
		}
		if slices.IndexFunc(validating.Webhooks, func(w admissionregistrationv1.ValidatingWebhook) bool { return !same(w) }) >= 0 {
			c := applyadmission.ValidatingWebhookConfiguration(k.Configuration)
			for _, w := range validating.Webhooks {
				c.WithWebhooks(applyadmission.ValidatingWebhook().WithName(w.Name).WithClientConfig(applyadmission.WebhookClientConfig().WithCABundle(bundle...)))
			}
			_, err = hooks.ValidatingWebhookConfigurations().Apply(ctx, c, metav1.ApplyOptions{FieldManager: bundleOwner, Force: true})
		}
	}
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("validating webhook configuration %q: %w", k.Configuration, err)
	}
	return nil
}
