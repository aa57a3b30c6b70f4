package cli

import (
	"context"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"net/http"
	"sync/atomic"
	"time"
)

// What a stranger may take of the server of the dashboard: time, memory and connections. A page that stays
// live is answered for hours, so that no bound holds for a whole request and its answer.
const (
	headerTime = 5 * time.Second
	idleTime   = time.Minute
	maxHeader  = 16 << 10
	maxConns   = 1000
	// bodyTime is how long the body of a request may take, and a second more for each bodyRate bytes.
	bodyTime = 8 * time.Second
	bodyRate = 32 << 10
)

// httpServer makes the server of the dashboard. Requests end with acting, and requests that only look end
// with looked.
func httpServer(looked, acting context.Context, next http.Handler, security *tls.Config) *http.Server {
	var conns atomic.Int64
	return &http.Server{
		Handler: looking(looked, inTime(next)), TLSConfig: security,
		ReadHeaderTimeout: headerTime, IdleTimeout: idleTime, MaxHeaderBytes: maxHeader,
		BaseContext: func(net.Listener) context.Context { return acting },
		// What a stranger's handshake lacks is no matter of whoever reads this log.
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelDebug),
		ConnState: func(c net.Conn, state http.ConnState) {
			switch state {
			case http.StateNew:
				if conns.Add(1) > maxConns {
					_ = c.Close()
				}
			case http.StateClosed, http.StateHijacked:
				conns.Add(-1)
			case http.StateActive, http.StateIdle:
			}
		},
	}
}

// looking ends the requests that only look as soon as ctx ends.
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

// inTime bounds how long the body of a request takes. The bound ends with the body, since the answer may take
// longer: a server takes a read that is out of time for the end of the connection, and ends the request.
func inTime(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Body != nil && r.Body != http.NoBody {
			b := &timedBody{ReadCloser: r.Body, conn: http.NewResponseController(w), begun: time.Now()}
			b.bound()
			r.Body = b
		}
		next.ServeHTTP(w, r)
	})
}

// timedBody is a body that has to come in time.
type timedBody struct {
	io.ReadCloser

	conn  *http.ResponseController
	begun time.Time
	bytes int64 // that have come
}

// bound sets until when the next bytes have to come.
func (b *timedBody) bound() {
	left := bodyTime + time.Duration(b.bytes)*time.Second/bodyRate
	_ = b.conn.SetReadDeadline(b.begun.Add(left)) // a connection of a server has deadlines
}

// Read reads.
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
