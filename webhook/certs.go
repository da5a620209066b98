// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"bytes"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"time"
)

// Lives of certificates. An authority signs for two thirds of its life and stays trusted for the rest, which is much longer
// than a leaf lives: whoever trusts the bundle trusts every leaf that is served.
const (
	authorityLife = 2 * 365 * 24 * time.Hour
	leafLife      = 7 * 24 * time.Hour
	// backdate allows for clocks that are behind ours.
	backdate = 10 * time.Minute
)

// Authority is a certificate authority of our own with its key, and older ones that are still trusted.
type Authority struct {
	Cert *x509.Certificate
	Key  *ecdsa.PrivateKey
	// Trusted are all certificates clients have to trust, Cert among them.
	Trusted []*x509.Certificate
}

// NewAuthority makes an authority. What before trusts and has not expired stays trusted; before may be nil.
func NewAuthority(before *Authority, now time.Time) (*Authority, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "slipway-webhook-ca", SerialNumber: serial.Text(16)},
		NotBefore: now.Add(-backdate), NotAfter: now.Add(authorityLife),
		IsCA: true, BasicConstraintsValid: true, MaxPathLenZero: true, KeyUsage: x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return nil, fmt.Errorf("signing the authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the authority: %w", err)
	}
	out := &Authority{Cert: cert, Key: key, Trusted: []*x509.Certificate{cert}}
	if before != nil {
		out.Trusted = append(out.Trusted, slices.DeleteFunc(slices.Clone(before.Trusted), func(c *x509.Certificate) bool { return now.After(c.NotAfter) })...)
	}
	return out, nil
}

// Due reports whether it is time for the next authority: two thirds of this one's life are over.
func (a *Authority) Due(now time.Time) bool { return due(a.Cert, now) }

func due(c *x509.Certificate, now time.Time) bool {
	return now.After(c.NotBefore.Add(c.NotAfter.Sub(c.NotBefore) / 3 * 2))
}

// Leaf makes a serving certificate for the names.
func (a *Authority) Leaf(names []string, now time.Time) (*tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("making a key: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 127))
	if err != nil {
		return nil, fmt.Errorf("making a serial number: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial, Subject: pkix.Name{CommonName: "slipway-webhook"}, DNSNames: names,
		NotBefore: now.Add(-backdate), NotAfter: now.Add(leafLife),
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, a.Cert, key.Public(), a.Key)
	if err != nil {
		return nil, fmt.Errorf("signing the serving certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("reading the serving certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key, Leaf: leaf}, nil
}

// Bundle is what clients have to trust, as PEM, in a stable order.
func (a *Authority) Bundle() []byte {
	var b bytes.Buffer
	for _, c := range a.Trusted {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}) // a buffer takes everything
	}
	return b.Bytes()
}

// Entries of the Secret an authority is kept in. The bundle begins with the authority's own certificate.
const (
	secretKey    = "ca.key"
	secretBundle = "bundle.crt"
)

// Marshal is the authority as the data of a Secret.
func (a *Authority) Marshal() (map[string][]byte, error) {
	der, err := x509.MarshalECPrivateKey(a.Key)
	if err != nil {
		return nil, fmt.Errorf("writing the authority's key: %w", err)
	}
	return map[string][]byte{
		secretKey:    pem.EncodeToMemory(&pem.Block{Type: "EC PRIVATE KEY", Bytes: der}),
		secretBundle: a.Bundle(),
	}, nil
}

// ReadAuthority reads the data of a Secret that Marshal made.
func ReadAuthority(data map[string][]byte) (*Authority, error) {
	block, _ := pem.Decode(data[secretKey])
	if block == nil {
		return nil, fmt.Errorf("data[%s] holds no PEM", secretKey)
	}
	key, err := x509.ParseECPrivateKey(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("data[%s]: %w", secretKey, err)
	}
	trusted, err := parseBundle(data[secretBundle])
	if err != nil {
		return nil, fmt.Errorf("data[%s]: %w", secretBundle, err)
	}
	if public, ok := trusted[0].PublicKey.(*ecdsa.PublicKey); !ok || !public.Equal(key.Public()) {
		return nil, errors.New("the key is not that of the first certificate of the bundle")
	}
	return &Authority{Cert: trusted[0], Key: key, Trusted: trusted}, nil
}

func parseBundle(text []byte) ([]*x509.Certificate, error) {
	var out []*x509.Certificate
	for {
		var block *pem.Block
		if block, text = pem.Decode(text); block == nil {
			break
		}
		c, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, err
		}
		out = append(out, c)
	}
	if len(out) == 0 {
		return nil, errors.New("holds no certificate")
	}
	return out, nil
}
