package cli

import (
	"bufio"
	"context"
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
		time.Sleep(time.Second) // the server closes a connection some time after its answer
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
		time.Sleep(time.Second)
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
				time.Sleep(time.Second)
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
