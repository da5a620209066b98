// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"
)

// validity of every certificate. A cluster lives for minutes to days.
const validity = 30 * 24 * time.Hour

// keyPair is a PEM certificate and its PEM private key.
type keyPair struct {
	cert, key []byte
}

// authority signs a cluster's serving and client certificates.
type authority struct {
	keyPair
	parsed *x509.Certificate
	signer *ecdsa.PrivateKey
}

func newAuthority() (*authority, error) {
	template := &x509.Certificate{
		Subject:               pkix.Name{CommonName: "slipway-test-ca"},
		IsCA:                  true,
		BasicConstraintsValid: true,
		KeyUsage:              x509.KeyUsageCertSign | x509.KeyUsageDigitalSignature,
	}
	pair, key, err := certify(template, nil, nil)
	if err != nil {
		return nil, fmt.Errorf("creating certificate authority: %w", err)
	}
	block, _ := pem.Decode(pair.cert)
	parsed, err := x509.ParseCertificate(block.Bytes)
	if err != nil {
		return nil, fmt.Errorf("creating certificate authority: %w", err)
	}
	return &authority{keyPair: pair, parsed: parsed, signer: key}, nil
}

// serving issues a certificate for the components' loopback listeners. It serves as a client certificate too, for
// the connection between etcd's own parts and from the API server to etcd.
func (a *authority) serving() (keyPair, error) {
	pair, _, err := certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: "slipway-test-control-plane"},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
		IPAddresses: []net.IP{net.ParseIP(loopback), net.ParseIP(serviceIP)},
		DNSNames:    []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
	}, a.parsed, a.signer)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing serving certificate: %w", err)
	}
	return pair, nil
}

// client issues a certificate that Kubernetes reads as this user in these groups.
func (a *authority) client(user string, groups []string) (keyPair, error) {
	pair, _, err := certify(&x509.Certificate{
		Subject:     pkix.Name{CommonName: user, Organization: groups},
		KeyUsage:    x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	}, a.parsed, a.signer)
	if err != nil {
		return keyPair{}, fmt.Errorf("issuing certificate of user %q: %w", user, err)
	}
	return pair, nil
}

// certify makes a key and a certificate for it, self-signed if there is no parent.
func certify(template, parent *x509.Certificate, signer *ecdsa.PrivateKey) (keyPair, *ecdsa.PrivateKey, error) {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return keyPair{}, nil, err
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return keyPair{}, nil, err
	}
	template.SerialNumber = serial
	template.NotBefore = time.Now().Add(-time.Minute) // clocks of the same machine, read at different moments
	template.NotAfter = template.NotBefore.Add(validity)
	if parent == nil {
		parent, signer = template, key
	}
	der, err := x509.CreateCertificate(rand.Reader, template, parent, &key.PublicKey, signer)
	if err != nil {
		return keyPair{}, nil, err
	}
	keyDER, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return keyPair{}, nil, err
	}
	return keyPair{
		cert: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		key:  pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: keyDER}),
	}, key, nil
}

// files of a cluster's folder that the components read.
type pkiFiles struct {
	ca, cert, key          string // serving and etcd traffic
	proxyCA                string // authenticating proxies, of which there are none
	accountKey, accountPub string // signing and checking service account tokens
}

// writePKI writes the serving certificate and the service account keys below dir.
func writePKI(dir string, a *authority) (pkiFiles, error) {
	serving, err := a.serving()
	if err != nil {
		return pkiFiles{}, err
	}
	account, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return pkiFiles{}, fmt.Errorf("creating service account key: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(account)
	if err != nil {
		return pkiFiles{}, fmt.Errorf("creating service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(&account.PublicKey)
	if err != nil {
		return pkiFiles{}, fmt.Errorf("creating service account key: %w", err)
	}
	proxy, err := newAuthority()
	if err != nil {
		return pkiFiles{}, err
	}
	at := func(name string) string { return filepath.Join(dir, name) }
	f := pkiFiles{
		ca: at("ca.crt"), cert: at("serving.crt"), key: at("serving.key"), proxyCA: at("front-proxy-ca.crt"),
		accountKey: at("sa.key"), accountPub: at("sa.pub"),
	}
	for path, content := range map[string][]byte{
		f.ca: a.cert, f.cert: serving.cert, f.key: serving.key, f.proxyCA: proxy.cert,
		f.accountKey: pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: private}),
		f.accountPub: pem.EncodeToMemory(&pem.Block{Type: "PUBLIC KEY", Bytes: public}),
	} {
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return pkiFiles{}, fmt.Errorf("writing certificates: %w", err)
		}
	}
	return f, nil
}
