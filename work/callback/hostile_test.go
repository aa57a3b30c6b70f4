package callback

import (
	"context"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/midgehq/midge"
	"github.com/midgehq/midge/storage"
)

// speaks returns a receiver that writes bytes of its own instead of an answer of HTTP, and then waits until the other
// side closes the connection.
func speaks(t *testing.T, write func(conn net.Conn)) http.HandlerFunc {
	t.Helper()
	return func(w http.ResponseWriter, _ *http.Request) {
		conn, _, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = conn.Close() }()
		write(conn)
		_, _ = io.Copy(io.Discard, conn)
	}
}

// TestAReceiverThatSwitchesProtocolsIsLeft answers with 101 and keeps the connection, which no context ends any more.
func TestAReceiverThatSwitchesProtocolsIsLeft(t *testing.T) {
	r := newRig(t, speaks(t, func(conn net.Conn) {
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: x\r\n\r\n")
	}), func(c *Config, _ *midge.RunnerConfig) { c.Timeout = time.Second })
	r.enqueue(midge.Retries(midge.None))
	select {
	case end := <-r.ends:
		r.wants(end, midge.OutcomeFailed, "answered 101 Switching Protocols")
	case <-time.After(30 * time.Second):
		t.Error("the attempt waits although its time is over")
		r.site.CloseClientConnections()
	}
}

// deaf is a storage that loses the extensions of leases while it is cut.
type deaf struct {
	storage.Storage

	cut *atomic.Bool
}

func (d deaf) Extend(ctx context.Context, request storage.ExtendRequest) (storage.Extended, error) {
	if d.cut.Load() {
		return storage.Extended{}, storage.ErrUnavailable
	}
	return d.Storage.Extend(ctx, request)
}

// TestALostLeaseClosesTheRequest loses the extensions of the lease within a request. The task is posted again, under
// the same id.
func TestALostLeaseClosesTheRequest(t *testing.T) {
	begun, left := make(chan struct{}, 1), make(chan struct{}, 1)
	to := &recorder{}
	to.next = func(w http.ResponseWriter, post *http.Request) {
		if len(to.requests()) > 1 {
			answers(http.StatusOK, "7")(w, post)
			return
		}
		begun <- struct{}{}
		<-post.Context().Done()
		left <- struct{}{}
	}
	r := newRig(t, to.ServeHTTP, func(_ *Config, runs *midge.RunnerConfig) { runs.Queues = []string{"other"} })
	cut := new(atomic.Bool)
	runner, err := midge.NewRunner(deaf{r.store, cut}, midge.RunnerConfig{
		Lease: time.Second, Slog: slog.New(slog.DiscardHandler),
		OnEnd: []func(context.Context, midge.Ended){func(_ context.Context, end midge.Ended) { r.ends <- end }},
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := Handle(runner, "paid", Config{URL: r.site.URL, Secrets: []string{secretA}, Allow: loopback}); err != nil {
		t.Fatal(err)
	}
	if err := runner.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	ref := r.enqueue()
	<-begun
	cut.Store(true)
	<-left
	cut.Store(false)
	if end := r.next(); end.Outcome != midge.OutcomeLeaseLost {
		t.Errorf("got %s, %v; want a lost lease", end.Outcome, end.Err)
	}
	var got int
	if err := r.client.Await(t.Context(), ref, &got); err != nil || got != 7 {
		t.Errorf("got %d, %v; want the answer to the second request", got, err)
	}
	if err := runner.Shutdown(context.Background()); err != nil {
		t.Error(err)
	}
	if all := to.requests(); len(all) != 2 || all[0].header.Get("Webhook-Id") != all[1].header.Get("Webhook-Id") {
		t.Errorf("got %d requests, want two of one id", len(all))
	}
}

// TestAnAnswerWithoutAnEndIsLeft has receivers that never stop, and receivers that send more than one answer.
// Nothing is left of their connections.
func TestAnAnswerWithoutAnEndIsLeft(t *testing.T) {
	for name, c := range map[string]struct {
		begin, repeat string
		outcome       midge.Outcome
	}{
		"hints":      {"", "HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n", midge.OutcomeFailed},
		"headers":    {"HTTP/1.1 200 OK\r\n", "X: y\r\n", midge.OutcomeFailed},
		"trailers":   {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", "X: y\r\n", midge.OutcomeFailed},
		"extensions": {"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", "1;x=" + strings.Repeat("y", 4000) + "\r\nz\r\n", midge.OutcomeFailed},
		"answers":    {"", "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}", midge.OutcomeSucceeded},
		"bytes":      {"HTTP/1.1 200 OK\r\n\r\n", "x", midge.OutcomeSucceeded},
		"a refusal":  {"HTTP/1.1 400 Bad Request\r\n\r\n", "x", midge.OutcomeDiscarded},
	} {
		closed := make(chan struct{}, 1)
		r := newRig(t, speaks(t, func(conn net.Conn) {
			_, err := io.WriteString(conn, c.begin)
			for err == nil {
				_, err = io.WriteString(conn, c.repeat)
			}
			closed <- struct{}{}
		}), nil)
		r.enqueue(midge.Retries(midge.None))
		end := r.next()
		<-closed
		if end.Outcome != c.outcome || end.Took > 20*time.Second {
			t.Errorf("%s: got %s after %v, %v; want %s", name, end.Outcome, end.Took, end.Err, c.outcome)
		}
		r.drain()
	}
}

// TestALargeRequestIsSignedAsItIs posts parameters of nearly the largest size, with all kinds of characters.
func TestALargeRequestIsSignedAsItIs(t *testing.T) {
	to := &recorder{next: answers(http.StatusOK, "")}
	r := newRig(t, to.ServeHTTP, nil)
	const part = "a\x00\x1f\"\\\r\n<>&'\u2028\ufeff\U0001f600\u0085é"
	want := paid{Order: -1 << 63, Note: strings.Repeat(part, (1<<20-100)/len(part))}
	if _, err := r.client.Enqueue(t.Context(), want); err != nil {
		t.Fatal(err)
	}
	r.wants(r.next(), midge.OutcomeSucceeded, "")
	all := to.requests()
	if len(all) != 1 {
		t.Fatalf("got %d requests, want 1", len(all))
	}
	if err := verify(secretA, all[0], time.Now()); err != nil {
		t.Error(err)
	}
	var got paid
	if err := json.Unmarshal([]byte(all[0].body), &got); err != nil || got != want {
		t.Errorf("the receiver got other parameters, %v", err)
	}
}

// TestACertificateOfAnotherNameIsRefused posts to a server whose certificate is trusted, under a name that is not in
// the certificate.
func TestACertificateOfAnotherNameIsRefused(t *testing.T) {
	to := &recorder{next: answers(http.StatusOK, "")}
	site := httptest.NewUnstartedServer(to)
	site.Config.ErrorLog = log.New(io.Discard, "", 0)
	site.StartTLS()
	defer site.Close()
	_, port, err := net.SplitHostPort(site.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	n := &names{addresses: []netip.Addr{netip.MustParseAddr("127.0.0.1")}}
	for name, want := range map[string]string{"example.com": "", "shop.example": "not shop.example"} {
		e, err := newEndpoint(Config{
			URL: "https://" + name + ":" + port + "/s3cret", Secrets: []string{secretA}, Allow: loopback, resolver: n.resolver(t),
		})
		if err != nil {
			t.Fatal(err)
		}
		e.places = make(chan struct{}, 1)
		e.client.TLSClientConfig.RootCAs = x509.NewCertPool()
		e.client.TLSClientConfig.RootCAs.AddCert(site.Certificate())
		err = e.run(t.Context(), midge.RawJob{Kind: "paid", Encoding: midge.JSON, Payload: []byte("{}")})
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", name, err, want)
		}
	}
	if got := len(to.requests()); got != 1 {
		t.Errorf("got %d requests, want that to the right name", got)
	}
}
