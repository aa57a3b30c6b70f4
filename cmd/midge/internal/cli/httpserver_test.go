package cli

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a listener with connections in this process, so that they follow the time of a bubble.
type pipes struct {
	conns chan net.Conn
	done  chan struct{}
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.conns:
		return c, nil
	case <-p.done:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { close(p.done); return nil }
func (p *pipes) Addr() net.Addr { return &net.TCPAddr{} }

// dial returns a connection to the server.
func (p *pipes) dial() net.Conn { return p.dialFrom("192.0.2.1") }

// dialFrom does the same from an address.
func (p *pipes) dialFrom(address string) net.Conn {
	here, there := net.Pipe()
	p.conns <- from{there, address}
	return here
}

// from is a connection from an address.
type from struct {
	net.Conn

	address string
}

func (f from) RemoteAddr() net.Addr {
	return net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(f.address), 4000))
}

// serveIn runs the server of the dashboard in a bubble until the test ends.
func serveIn(t *testing.T, next http.HandlerFunc) *pipes {
	t.Helper()
	proxies := []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8")}
	server := httpServer(t.Context(), t.Context(), next, newConns(proxies))
	p := &pipes{make(chan net.Conn), make(chan struct{})}
	var served sync.WaitGroup
	served.Go(func() { _ = server.Serve(p) })
	t.Cleanup(func() {
		_ = server.Close()
		served.Wait()
		time.Sleep(time.Second) // virtual: the server closes a connection some time after its answer
	})
	return p
}

// trickle writes a byte per second until the other side closes, and returns how long that took.
func trickle(conn net.Conn) time.Duration {
	begun := time.Now()
	go func() { _, _ = io.Copy(io.Discard, conn) }() // discards the answer
	for {
		if _, err := conn.Write([]byte("a")); err != nil {
			return time.Since(begun)
		}
		time.Sleep(time.Second) // virtual
	}
}

// TestASlowRequestIsClosed sends the header or the body at a byte per second.
func TestASlowRequestIsClosed(t *testing.T) {
	for _, begin := range []string{"GET /", "POST /login HTTP/1.1\r\nHost: x\r\nContent-Length: 100000\r\n\r\n"} {
		synctest.Test(t, func(t *testing.T) {
			var read error
			p := serveIn(t, func(w http.ResponseWriter, r *http.Request) {
				_, read = io.Copy(io.Discard, r.Body)
				http.Error(w, "too slow", http.StatusRequestTimeout)
			})
			conn := p.dial()
			if _, err := io.WriteString(conn, begin); err != nil {
				t.Fatal(err)
			}
			if took := trickle(conn); took > 10*time.Second || strings.HasPrefix(begin, "POST") && read == nil {
				t.Errorf("%.10q: it is read for %v, %v; want at most 10s", begin, took, read)
			}
		})
	}
}

// TestABodyThatIsLargeHasItsTime checks that the bound of the body does not apply to the answer, which may
// take hours.
func TestABodyThatIsLargeHasItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 2 << 20
		p := serveIn(t, func(w http.ResponseWriter, r *http.Request) {
			n, err := io.Copy(io.Discard, r.Body)
			select {
			case <-r.Context().Done():
				err = errors.Join(err, context.Cause(r.Context()))
			case <-time.After(time.Hour):
			}
			_, _ = fmt.Fprintf(w, "read %d, %v", n, err)
		})
		conn := p.dial()
		go func() {
			_, _ = fmt.Fprintf(conn, "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n", size)
			for range size / (64 << 10) {
				_, _ = io.WriteString(conn, strings.Repeat("a", 64<<10))
				time.Sleep(time.Second) // virtual
			}
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = answer.Body.Close() }()
		text, err := io.ReadAll(answer.Body)
		if want := fmt.Sprintf("read %d, <nil>", size); err != nil || string(text) != want {
			t.Errorf("got %q, %v, want %q", text, err, want)
		}
	})
}

// TestALargeHeaderIsRefused checks that the dashboard does not get the request.
func TestALargeHeaderIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := serveIn(t, func(http.ResponseWriter, *http.Request) { t.Error("it is served") })
		conn := p.dial()
		go func() {
			_, _ = fmt.Fprintf(conn, "GET / HTTP/1.1\r\nHost: x\r\nX: %s\r\n\r\n", strings.Repeat("x", 32<<10))
		}()
		answer, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || answer.StatusCode != http.StatusRequestHeaderFieldsTooLarge {
			t.Fatalf("got %v, %v", answer, err)
		}
		_ = answer.Body.Close()
		_ = conn.Close()
	})
}

// TestAnAnswerThatNobodyReadsIsClosed checks that a client who does not read loses its connection, whether the answer
// is written at once, in parts, flushed, or is short and written at the end, and also if the client sends its requests
// ahead. So the others are served.
func TestAnAnswerThatNobodyReadsIsClosed(t *testing.T) {
	for what, write := range map[string]func(w http.ResponseWriter) error{
		"at once": func(w http.ResponseWriter) error { return pour(w, 1, 4<<20) },
		"parts":   func(w http.ResponseWriter) error { return pour(w, 4<<10, 1<<10) },
		"flushed": func(w http.ResponseWriter) error {
			err := pour(w, 1, 10)
			return errors.Join(err, http.NewResponseController(w).Flush())
		},
		"copied": func(w http.ResponseWriter) error {
			_, err := io.Copy(w, strings.NewReader(strings.Repeat("a", 4<<20)))
			return err
		},
		"at the end": func(w http.ResponseWriter) error { _ = pour(w, 1, 10); return errors.ErrUnsupported },
		"nothing":    func(http.ResponseWriter) error { return errors.ErrUnsupported },
	} {
		synctest.Test(t, func(t *testing.T) {
			var err error
			p := serveIn(t, func(w http.ResponseWriter, _ *http.Request) { err = write(w) })
			conn := p.dial()
			begun := time.Now()
			_ = conn.SetWriteDeadline(begun.Add(time.Hour)) // a test ends
			for closed := error(nil); closed == nil; {      // the server reads a request after an answer
				_, closed = io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n")
			}
			_ = conn.Close()
			synctest.Wait()
			if took := time.Since(begun); took > time.Minute || err == nil {
				t.Errorf("%s: the connection is closed after %v, and the answer was written with %v", what, took, err)
			}
		})
	}
}

// TestAnAnswerOfTheServerThatNobodyReadsIsClosed: net/http answers these requests by itself.
func TestAnAnswerOfTheServerThatNobodyReadsIsClosed(t *testing.T) {
	for _, request := range []string{
		"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n", "GET / HTTP/1.1\r\n\r\n", "GET / HTTP/9.9\r\nHost: x\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nX: " + strings.Repeat("a", 2*maxHeader) + "\r\n\r\n",
		"POST / HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\n",
		"GET / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: a\r\n\r\n",
	} {
		synctest.Test(t, func(t *testing.T) {
			p := serveIn(t, func(_ http.ResponseWriter, r *http.Request) { _, _ = io.Copy(io.Discard, r.Body) })
			conn := p.dial()
			begun := time.Now()
			_ = conn.SetWriteDeadline(begun.Add(time.Hour)) // a test ends
			for closed := error(nil); closed == nil; {
				_, closed = io.WriteString(conn, request)
			}
			if took := time.Since(begun); took > time.Minute {
				t.Errorf("%.40q: the connection is closed after %v, want within a minute", request, took)
			}
			_ = conn.Close()
		})
	}
}

// pour writes n blocks of some bytes.
func pour(w io.Writer, n, size int) (err error) {
	for i := 0; i < n && err == nil; i++ {
		_, err = io.WriteString(w, strings.Repeat("a", size))
	}
	return err
}

// TestASlowReaderGetsItsAnswer checks that an answer may take any time for as long as its client reads, and that it may
// pause: between its parts, and before its end.
func TestASlowReaderGetsItsAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size, pause = 1 << 20, time.Hour
		p := serveIn(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", fmt.Sprint(size+2))
			_ = pour(w, 1, 1)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(pause) // virtual
			_ = pour(w, 1, size)
			_ = pour(w, 1, 1)
			time.Sleep(pause) // virtual
		})
		conn := p.dial()
		for range 2 { // the connection is used again
			if _, err := io.WriteString(conn, "GET / HTTP/1.1\r\nHost: x\r\n\r\n"); err != nil {
				t.Fatal(err)
			}
			answer, err := http.ReadResponse(bufio.NewReader(slowReader{conn}), nil)
			if err != nil {
				t.Fatal(err)
			}
			if text, err := io.ReadAll(answer.Body); err != nil || len(text) != size+2 {
				t.Errorf("got %d bytes, %v, want %d", len(text), err, size+2)
			}
			_ = answer.Body.Close()
		}
	})
}

// TestAnAnswerOverHTTP2HasItsBounds checks that an answer may pause, also the one beside it that nobody reads, which
// ends.
func TestAnAnswerOverHTTP2HasItsBounds(t *testing.T) {
	cert, key, pool := certificate(t)
	synctest.Test(t, func(t *testing.T) {
		var unread error
		server := httpServer(t.Context(), t.Context(), http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/unread" {
				unread = pour(w, 1, 64<<20)
				return
			}
			_ = pour(w, 1, 1)
			_ = http.NewResponseController(w).Flush()
			time.Sleep(time.Hour) // virtual
			_ = pour(w, 1, 1<<20)
			time.Sleep(time.Hour) // virtual
		}), newConns(nil))
		p := &pipes{make(chan net.Conn), make(chan struct{})}
		var served sync.WaitGroup
		served.Go(func() { _ = server.ServeTLS(p, cert, key) })
		transport := &http.Transport{
			DialContext:       func(context.Context, string, string) (net.Conn, error) { return p.dial(), nil },
			TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS13},
			ForceAttemptHTTP2: true,
		}
		client := &http.Client{Transport: transport}
		get := func(path string) *http.Response {
			answer, err := client.Get("https://127.0.0.1" + path)
			if err != nil {
				t.Fatal(err)
			}
			return answer
		}
		idle, answer := get("/unread"), get("/")
		text, err := io.ReadAll(answer.Body)
		if err != nil || len(text) != 1+1<<20 || answer.ProtoMajor != 2 {
			t.Errorf("got %d bytes over %s, %v, want all, with a pause", len(text), answer.Proto, err)
		}
		if unread == nil {
			t.Error("an answer that nobody reads is written")
		}
		raw := p.dial()
		deaf := tls.Client(raw, &tls.Config{
			RootCAs: pool, ServerName: "127.0.0.1", MinVersion: tls.VersionTLS13, NextProtos: []string{"h2"},
		})
		begun := time.Now()
		_ = raw.SetDeadline(begun.Add(time.Hour)) // a test ends
		_, err = io.WriteString(deaf, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"+"\x00\x00\x00\x04\x00\x00\x00\x00\x00")
		for err == nil { // with pings, whose answers it does not read
			time.Sleep(time.Second) // virtual
			_, err = io.WriteString(deaf, "\x00\x00\x08\x06\x00\x00\x00\x00\x00"+"midgetest"[:8])
		}
		if took := time.Since(begun); took > time.Minute {
			t.Errorf("a connection from which nobody reads is closed after %v", took)
		}
		_ = errors.Join(idle.Body.Close(), answer.Body.Close(), raw.Close())
		transport.CloseIdleConnections()
		_ = server.Close()
		served.Wait()
		time.Sleep(time.Minute) // virtual: connections end after their answers
	})
}

// slowReader reads a kilobyte a second.
type slowReader struct{ io.Reader }

func (s slowReader) Read(p []byte) (int, error) {
	time.Sleep(time.Second) // virtual
	return s.Reader.Read(p[:min(len(p), 1<<10)])
}
