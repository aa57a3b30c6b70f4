package cli

import (
	"context"
	"crypto/tls"
	"fmt"
	"os"
	"os/signal"
	"sync/atomic"
	"syscall"

	"github.com/midgehq/midge/storage"
)

// keyPair is the certificate of a server, in two files that another program may replace.
type keyPair struct {
	cert, key string
	current   atomic.Pointer[tls.Certificate]
}

// loadKeyPair reads a certificate and its key. The error is a *storage.InvalidError.
func loadKeyPair(cert, key string) (*keyPair, error) {
	c := &keyPair{cert: cert, key: key}
	if err := c.load(); err != nil {
		return nil, storage.Invalid("flags", "--tls-cert "+cert+" --tls-key "+key,
			"a certificate and its key in PEM, and got: %v", err)
	}
	return c, nil
}

func (c *keyPair) load() error {
	pair, err := tls.LoadX509KeyPair(c.cert, c.key)
	if err != nil {
		return err
	}
	c.current.Store(&pair)
	return nil
}

// config returns a configuration by which each new connection gets the current certificate.
func (c *keyPair) config() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return c.current.Load(), nil },
	}
}

// reloads returns a function that reads the files again at each SIGHUP, until ctx ends. If that fails, it
// reports the error, and the last certificate stays. A SIGHUP does not end the process any more when reloads
// returns.
func (c *keyPair) reloads(ctx context.Context, failed func(error)) func() {
	hangups := make(chan os.Signal, 1)
	signal.Notify(hangups, syscall.SIGHUP)
	return func() {
		defer signal.Stop(hangups)
		for {
			select {
			case <-ctx.Done():
				return
			case <-hangups:
			}
			if err := c.load(); err != nil {
				failed(fmt.Errorf("the certificate stays as it is: %w", err))
			}
		}
	}
}
