// Copyright The Slipway Authors.
// SPDX-License-Identifier: Apache-2.0

package webhook

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// Files serves a certificate that somebody else keeps (cert-manager, or by hand): tls.crt and tls.key in a folder. They are
// read again every minute at most, when a client asks; what cannot be read leaves the certificate before in use.
type Files struct {
	Dir     string
	Clock   clock.PassiveClock
	Metrics *Metrics

	read atomic.Pointer[fileCert]
}

type fileCert struct {
	cert *tls.Certificate
	at   time.Time
}

// Load reads the files.
func (f *Files) Load() error {
	pair, err := tls.LoadX509KeyPair(filepath.Join(f.Dir, "tls.crt"), filepath.Join(f.Dir, "tls.key"))
	if err != nil {
		if errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("reading the serving certificate: %w; mount tls.crt and tls.key there", err)
		}
		return fmt.Errorf("reading the serving certificate in %q: %w", f.Dir, err)
	}
	if pair.Leaf == nil {
		if pair.Leaf, err = x509.ParseCertificate(pair.Certificate[0]); err != nil {
			return fmt.Errorf("reading the serving certificate in %q: %w", f.Dir, err)
		}
	}
	now := f.Clock.Now()
	f.read.Store(&fileCert{cert: &pair, at: now})
	f.Metrics.CertExpiry.Set(pair.Leaf.NotAfter.Sub(now).Seconds())
	return nil
}

// Certificate is the serving certificate, for tls.Config.GetCertificate.
func (f *Files) Certificate(*tls.ClientHelloInfo) (*tls.Certificate, error) {
	have := f.read.Load()
	if have == nil || f.Clock.Since(have.at) >= lookEvery {
		if err := f.Load(); err != nil && have == nil {
			return nil, err
		}
		have = f.read.Load()
	}
	return have.cert, nil
}

// Ready reports whether there is a serving certificate that has not expired.
func (f *Files) Ready() bool {
	c, err := f.Certificate(nil)
	return err == nil && f.Clock.Now().Before(c.Leaf.NotAfter)
}
