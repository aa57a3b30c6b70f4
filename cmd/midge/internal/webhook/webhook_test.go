package webhook

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"testing"
	"time"
)

// TestOnlyHTTPSIsPosted refuses every other URL, and shows no part of it.
func TestOnlyHTTPSIsPosted(t *testing.T) {
	for _, text := range []string{
		"", "x", "http://hooks.example/s3cret", "https:///s3cret", "https:s3cret", "ftp://hooks.example/s3cret",
		"HTTP://hooks.example/s3cret", "//hooks.example/s3cret", "https://%zz/s3cret", "file:///s3cret",
	} {
		if _, err := New(text); err == nil || strings.Contains(err.Error(), "s3cret") {
			t.Errorf("%q: got %v, want an error that hides it", text, err)
		}
	}
	h, err := New(" https://user:s3cret@hooks.example:8443/services/s3cret?key=s3cret\n")
	if err != nil || h.String() != "https://hooks.example:8443/***" {
		t.Errorf("got %v, %v; want the host alone", h, err)
	}
}

// TestAddressesOfThisMachineAreRefused checks addresses as they are after the name of a host was looked up.
func TestAddressesOfThisMachineAreRefused(t *testing.T) {
	for address, want := range map[string]bool{
		"127.0.0.1": false, "::1": false, "0.0.0.0": false, "169.254.169.254": false, "fe80::1%eth0": false,
		"224.0.0.1": false, "::ffff:127.0.0.1": false, "64:ff9b::a9fe:a9fe": false, "fd00:ec2::254": false,
		"100.100.100.200": false, "255.255.255.255": false,
		"203.0.113.7": true, "10.0.0.7": true, "fd12::7": true, "2001:db8::7": true, "64:ff9b::cb00:7107": true,
	} {
		if err := permitted(netip.MustParseAddr(address)); (err == nil) != want {
			t.Errorf("%s: got %v, want permitted %t", address, err, want)
		}
	}
}

// TestAHostOfThisMachineGetsNothing posts by a name that means this machine, as a name does after a rebinding.
func TestAHostOfThisMachineGetsNothing(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("it was posted") }))
	defer s.Close()
	_, port, err := net.SplitHostPort(s.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	for _, host := range []string{"localhost", "127.0.0.1"} {
		h := hookTo(t, "https://"+host+":"+port+"/s3cret", s)
		err := h.Post(t.Context(), []byte("{}"))
		if err == nil || strings.Contains(err.Error(), "s3cret") || !strings.Contains(err.Error(), "of this machine") {
			t.Errorf("%s: got %v, want a refusal that hides the path", host, err)
		}
	}
}

// TestAPostIsAnsweredByItsStatus posts to a server of this machine, which the test permits.
func TestAPostIsAnsweredByItsStatus(t *testing.T) {
	status, got := http.StatusNoContent, ""
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body := make([]byte, 100)
		n, _ := r.Body.Read(body)
		got = r.Method + " " + r.URL.Path + " " + r.Header.Get("Content-Type") + " " + string(body[:n])
		w.Header().Set("Location", "/elsewhere")
		w.WriteHeader(status)
	}))
	defer s.Close()
	h := hookTo(t, s.URL+"/s3cret", s)
	transport, ok := h.client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the transport is another one")
	}
	transport.DialContext = new(net.Dialer).DialContext
	for status = range map[int]bool{200: true, 204: true, 302: false, 404: false, 500: false} {
		err := h.Post(t.Context(), []byte(`{"a":1}`))
		if (err == nil) != (status < 300) || err != nil && strings.Contains(err.Error(), "s3cret") {
			t.Errorf("status %d: got %v", status, err)
		}
		if want := `POST /s3cret application/json {"a":1}`; got != want {
			t.Errorf("status %d: posted %q, want %q", status, got, want)
		}
	}
	ended, stop := context.WithCancel(t.Context())
	stop()
	if err := h.Post(ended, nil); err == nil || strings.Contains(err.Error(), "s3cret") {
		t.Errorf("after the end: got %v, want an error that hides the path", err)
	}
}

// hookTo returns a hook that trusts the certificate of a server.
func hookTo(t *testing.T, text string, s *httptest.Server) *Hook {
	t.Helper()
	h, err := New(text)
	if err != nil {
		t.Fatal(err)
	}
	transport, ok := h.client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the transport is another one")
	}
	roots := x509.NewCertPool()
	roots.AddCert(s.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	return h
}

// TestAHostThatSwitchesProtocolsIsLeft answers with 101 and keeps the connection, which no time ends any more.
func TestAHostThatSwitchesProtocolsIsLeft(t *testing.T) {
	s := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
		_, _ = io.Copy(io.Discard, conn)
	}))
	defer s.Close()
	h := hookTo(t, "https://example.com/s3cret", s)
	transport, ok := h.client.Transport.(*http.Transport)
	if !ok {
		t.Fatal("the transport is another one")
	}
	transport.DialContext = func(ctx context.Context, _, _ string) (net.Conn, error) {
		return new(net.Dialer).DialContext(ctx, "tcp", s.Listener.Addr().String())
	}
	h.client.Timeout = 30 * time.Second
	ended := make(chan error, 1)
	go func() { ended <- h.Post(context.Background(), []byte("{}")) }()
	select {
	case err := <-ended:
		if err == nil || !strings.Contains(err.Error(), "answered 101") {
			t.Errorf("got %v, want the status", err)
		}
	case <-time.After(90 * time.Second):
		t.Error("the post waits although its time is over")
		s.CloseClientConnections()
	}
}
