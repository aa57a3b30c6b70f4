package callback

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"strings"
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

// deaf is a storage that loses the extensions of leases once it is cut.
type deaf struct {
	storage.Storage

	cut chan struct{}
}

func (d deaf) Extend(ctx context.Context, request storage.ExtendRequest) (storage.Extended, error) {
	select {
	case <-d.cut:
		return storage.Extended{}, storage.ErrUnavailable
	default:
		return d.Storage.Extend(ctx, request)
	}
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
	cut := make(chan struct{})
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
	close(cut)
	<-left
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

// TestAnAnswerWithoutAnEndIsLeft has receivers that never stop, and receivers that say more than one answer. Nothing
// is left of their connections.
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
