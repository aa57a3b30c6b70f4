package cli

import (
	"context"
	"io"
	"log/slog"
	"net"
	"net/http"
	"time"
)

// The bounds on the time and memory that an unknown client of the dashboard can take; conns bounds the
// connections. The answer of a live page lasts for hours, so no bound covers a whole request and its answer.
const (
	headerTime = 5 * time.Second
	idleTime   = time.Minute
	maxHeader  = 16 << 10
	// bodyTime is the time for the body of a request. Each bodyRate bytes add a second.
	bodyTime = 8 * time.Second
	bodyRate = 32 << 10
	// answerTime is the time in which a client has to read each answerPart bytes of an answer.
	answerTime = 30 * time.Second
	answerPart = 16 << 10
)

// httpServer makes the server of the dashboard. Requests that only read end with looked, and all requests
// end with acting. The caller sets TLSConfig.
func httpServer(looked, acting context.Context, next http.Handler, c *conns) *http.Server {
	return &http.Server{
		Handler: looking(looked, inTime(next)), ConnState: c.changed,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		HTTP2:       &http.HTTP2Config{WriteByteTimeout: answerTime},
		BaseContext: func(net.Listener) context.Context { return acting },
		// A faulty handshake of an unknown client does not concern the reader of this log.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
	}
}

// looking ends requests that only read, by the method GET, as soon as ctx ends.
func looking(ctx context.Context, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			here, end := context.WithCancel(r.Context())
			defer end()
			defer context.AfterFunc(ctx, end)()
			r = r.WithContext(here) //nolint:contextcheck // a request's context ends with the request, too
		}
		next.ServeHTTP(w, r)
	})
}

// inTime bounds the time of the body of a request, and the time of each write of the answer. The bound of the
// body ends with the body, because the answer may take longer: a server treats a read that is out of time as
// the end of the connection, and ends the request.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		a := &timedAnswer{ResponseWriter: w, conn: http.NewResponseController(w)}
		defer a.bound() // of what the server writes after the handler has returned; it then removes the deadline
		w = a
		if r.Body != nil && r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w), begun: time.Now()}
			b.bound()
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a request body with a bounded time.
type timedBody struct {
	io.ReadCloser

	conn  *http.ResponseController
	begun time.Time
	bytes int64 // read so far
}

// bound sets the deadline for the next bytes.
func (b *timedBody) bound() {
	left := bodyTime + time.Duration(b.bytes)*time.Second/bodyRate
	_ = b.conn.SetReadDeadline(b.begun.Add(left)) // connections of a server support deadlines
}

// Read reads from the body and extends the deadline. It removes the deadline at the end of the body.
func (b *timedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if b.bytes += int64(n); err == nil {
		b.bound()
		return n, nil
	}
	if err == io.EOF {
		_ = b.conn.SetReadDeadline(time.Time{})
	}
	return n, err
}

// timedAnswer is an answer with a bounded time for each write, so that a client who does not read does not
// keep its connection. Between writes there is no deadline: HTTP/2 ends an answer as soon as one has passed.
type timedAnswer struct {
	http.ResponseWriter

	conn *http.ResponseController
}

// Unwrap returns the wrapped writer, for [http.ResponseController].
func (a *timedAnswer) Unwrap() http.ResponseWriter { return a.ResponseWriter }

func (a *timedAnswer) bound() { _ = a.conn.SetWriteDeadline(time.Now().Add(answerTime)) }

func (a *timedAnswer) unbound() { _ = a.conn.SetWriteDeadline(time.Time{}) }

// Write writes in parts, so that a slow client has its time for each.
func (a *timedAnswer) Write(p []byte) (n int, err error) {
	defer a.unbound()
	for more := true; more && err == nil; more = n < len(p) {
		a.bound()
		var part int
		part, err = a.ResponseWriter.Write(p[n:min(n+answerPart, len(p))])
		n += part
	}
	return n, err
}

// FlushError flushes the answer. [http.ResponseController] calls it.
func (a *timedAnswer) FlushError() error {
	defer a.unbound()
	a.bound()
	return a.conn.Flush()
}
