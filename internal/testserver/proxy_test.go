package testserver

import (
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// echo is a server that sends every command back as its reply and records the commands that it received.
type echo struct {
	listener net.Listener
	serving  sync.WaitGroup

	mu  sync.Mutex
	got []byte
}

func newEcho(t *testing.T) *echo {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	e := &echo{listener: listener}
	e.serving.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			e.serving.Go(func() {
				defer func() { _ = conn.Close() }()
				_, _ = io.Copy(io.MultiWriter(e, conn), conn)
			})
		}
	})
	t.Cleanup(func() { _ = listener.Close(); e.serving.Wait() })
	return e
}

func (e *echo) addr() string { return e.listener.Addr().String() }

func (e *echo) Write(b []byte) (int, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.got = append(e.got, b...)
	return len(b), nil
}

func (e *echo) received() string {
	e.mu.Lock()
	defer e.mu.Unlock()
	return string(e.got)
}

// caller is a client's connection.
type caller struct {
	t *testing.T
	net.Conn
}

func dial(t *testing.T, addr string) caller {
	t.Helper()
	conn, err := net.DialTimeout("tcp", addr, dialLimit)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(awaitLimit)); err != nil {
		t.Fatal(err)
	}
	return caller{t, conn}
}

func (c caller) send(b ...[]byte) {
	c.t.Helper()
	if _, err := c.Write(slices.Concat(b...)); err != nil {
		c.t.Fatalf("send: %v", err)
	}
}

func (c caller) want(reply ...[]byte) {
	c.t.Helper()
	want := slices.Concat(reply...)
	got := make([]byte, len(want))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != string(want) {
		c.t.Fatalf("got %q, %v, want %q", got, err, want)
	}
}

// wantClosed fails unless the connection is closed with no further byte.
func (c caller) wantClosed() {
	c.t.Helper()
	n, err := c.Read(make([]byte, 1))
	if n > 0 || err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v, want a closed connection", n, err)
	}
}

// wantSilence fails the test if a byte arrives within 20 ms.
func (c caller) wantSilence() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(20 * time.Millisecond))
	if n, err := c.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("read %d bytes, %v, want silence", n, err)
	}
	_ = c.SetReadDeadline(time.Now().Add(awaitLimit))
}

func awaitClosed(t *testing.T, what string, closed <-chan struct{}) {
	t.Helper()
	select {
	case <-closed:
	case <-time.After(awaitLimit):
		t.Fatalf("waited %v, and still not: %s", awaitLimit, what)
	}
}

var (
	get  = request("GET", "a")
	set  = request("SET", "a", "1")
	incr = request("INCR", "n")
)

func TestProxyForwards(t *testing.T) {
	server := newEcho(t)
	client := dial(t, NewProxy(t, server.addr()).Addr())
	client.send(get, set, get)
	client.want(get, set, get)
	big := request("SET", "big", strings.Repeat("x", 5<<20))
	sent := make(chan error, 1)
	go func() { _, err := client.Write(big); sent <- err }()
	client.want(big)
	if err := <-sent; err != nil {
		t.Fatal(err)
	}
}

func TestProxyForwardsWhatIsNotRESP(t *testing.T) {
	client := dial(t, NewProxy(t, newEcho(t).addr()).Addr())
	client.send([]byte("hello, "))
	client.want([]byte("hello, "))
	client.send([]byte("world"))
	client.want([]byte("world"))
}

func TestProxyMatchesCommandsSplitOverPackets(t *testing.T) {
	server := newEcho(t)
	proxy := NewProxy(t, server.addr())
	held := proxy.Hold(Command("INCR"))
	client := dial(t, proxy.Addr())
	for i := range incr {
		client.send(incr[i : i+1])
	}
	awaitClosed(t, "INCR is held", held.Struck())
	if got := server.received(); got != "" {
		t.Errorf("the server got %q, want nothing of a held command", got)
	}
	held.Release()
	client.want(incr)
}

func TestCutAfterRequestLosesTheReply(t *testing.T) {
	server := newEcho(t)
	proxy := NewProxy(t, server.addr())
	cut := proxy.CutAfterRequest(Command("INCR"), 2)
	for range 2 {
		client := dial(t, proxy.Addr())
		client.send(get, set, incr, get)
		client.want(get, set)
		client.wantClosed()
	}
	awaitClosed(t, "both commands are cut", cut.Struck())
	if got := strings.Count(server.received(), string(incr)); got != 2 {
		t.Errorf("the server got INCR %d times, want 2: cut after the request", got)
	}
	client := dial(t, proxy.Addr())
	client.send(incr)
	client.want(incr)
}

func TestCutBeforeRequestLosesTheRequest(t *testing.T) {
	server := newEcho(t)
	proxy := NewProxy(t, server.addr())
	cut := proxy.CutBeforeRequest(Containing("INCR"), 1)
	client := dial(t, proxy.Addr())
	client.send(get)
	client.want(get)
	client.send(set, incr)
	awaitClosed(t, "the command is cut", cut.Struck())
	_, _ = io.Copy(io.Discard, client)
	Await(t, "SET has arrived", func() bool { return strings.Contains(server.received(), string(set)) })
	if got := server.received(); strings.Contains(got, "INCR") {
		t.Errorf("the server got %q, want no INCR", got)
	}
}

func TestHoldReplyKeepsTheReply(t *testing.T) {
	server := newEcho(t)
	proxy := NewProxy(t, server.addr())
	held := proxy.HoldReply(Command("INCR"))
	client := dial(t, proxy.Addr())
	client.send(get, incr, get)
	client.want(get)
	awaitClosed(t, "the reply is held", held.Struck())
	client.wantSilence()
	held.Release()
	client.want(incr, get)
	held.Release()
	client.send(incr)
	client.want(incr)
}

func TestRefuseAndAccept(t *testing.T) {
	proxy := NewProxy(t, newEcho(t).addr())
	client := dial(t, proxy.Addr())
	client.send(get)
	client.want(get)
	proxy.Refuse()
	client.wantClosed()
	if conn, err := net.DialTimeout("tcp", proxy.Addr(), dialLimit); err == nil {
		_ = conn.Close()
		t.Fatal("a refusing proxy accepted a connection")
	}
	proxy.Refuse()
	for range 2 {
		if err := proxy.Accept(); err != nil {
			t.Fatal(err)
		}
	}
	client = dial(t, proxy.Addr())
	client.send(get)
	client.want(get)
}

func TestBlackholeAndHeal(t *testing.T) {
	server := newEcho(t)
	proxy := NewProxy(t, server.addr())
	old := dial(t, proxy.Addr())
	old.send(get)
	old.want(get)
	proxy.Blackhole()
	proxy.Blackhole()
	fresh := dial(t, proxy.Addr())
	old.send(set)
	fresh.send(incr)
	old.wantSilence()
	fresh.wantSilence()
	if got := server.received(); got != string(get) {
		t.Errorf("the server got %q, want nothing through a blackhole", got)
	}
	proxy.Heal()
	proxy.Heal()
	old.want(set)
	fresh.want(incr)
}

func TestCloseEndsABlackholeAHoldAndADelay(t *testing.T) {
	server := newEcho(t)
	for _, hinder := range []func(*Proxy){
		(*Proxy).Blackhole,
		func(p *Proxy) { p.Hold(Command("GET")) },
		func(p *Proxy) { p.HoldReply(Command("GET")) },
		func(p *Proxy) { p.Delay(time.Hour) },
	} {
		proxy := NewProxy(t, server.addr())
		hinder(proxy)
		client := dial(t, proxy.Addr())
		client.send(get)
		client.wantSilence()
		proxy.Close()
		client.wantClosed()
	}
}

func TestDelayLengthensARoundTrip(t *testing.T) {
	const delay = 30 * time.Millisecond
	proxy := NewProxy(t, newEcho(t).addr())
	proxy.Delay(delay)
	client := dial(t, proxy.Addr())
	begin := time.Now()
	client.send(get)
	client.want(get)
	if took := time.Since(begin); took < delay {
		t.Errorf("a round trip took %v, want at least %v", took, delay)
	}
}

func TestProxyClosesWhereThereIsNoServer(t *testing.T) {
	server := newEcho(t)
	_ = server.listener.Close()
	dial(t, NewProxy(t, server.addr()).Addr()).wantClosed()
}
