package postgres

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"log"
	"net"
	"net/http/httptest"
	"strings"
	"testing"
)

// elsewhere is a connection to another machine.
type elsewhere struct{ net.Conn }

func (elsewhere) RemoteAddr() net.Addr { return &net.TCPAddr{IP: net.IPv4(192, 0, 2, 1), Port: 5432} }

func TestInsecureConnectionsAreTold(t *testing.T) {
	server := httptest.NewUnstartedServer(nil)
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // for connections that send nothing
	server.StartTLS()
	defer server.Close()
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	dial := func() net.Conn {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = conn.Close() })
		return conn
	}
	anybody := &tls.Config{InsecureSkipVerify: true}
	byItself := &tls.Config{
		InsecureSkipVerify: true, VerifyPeerCertificate: func([][]byte, [][]*x509.Certificate) error { return nil },
	}
	for name, c := range map[string]struct {
		settings *tls.Config // nil without TLS
		local    bool
		want     string
	}{
		"loopback":           {local: true},
		"loopback, with TLS": {local: true, settings: anybody},
		"plain":              {want: "not encrypted"},
		"not verified":       {settings: anybody, want: "not verified"},
		"verified by itself": {settings: byItself},
		"verified":           {settings: &tls.Config{RootCAs: roots, ServerName: "example.com"}},
	} {
		t.Run(name, func(t *testing.T) {
			conn := dial()
			if !c.local {
				conn = elsewhere{conn}
			}
			if c.settings != nil {
				line := tls.Client(conn, c.settings)
				if err := line.HandshakeContext(t.Context()); err != nil {
					t.Fatal(err)
				}
				conn = line
			}
			got := insecurity(conn, c.settings)
			if (got == "") != (c.want == "") || !strings.Contains(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
		})
	}
	left, right := net.Pipe()
	defer func() { _, _ = left.Close(), right.Close() }()
	if got := insecurity(left, nil); got != "" {
		t.Errorf("a connection of this machine: got %q, want nothing", got)
	}
}
