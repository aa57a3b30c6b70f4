package testserver

import (
	"context"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP proxy on a loopback port that forwards to one target and injects
// faults. It understands RESP, versions 2 and 3, and the protocol of PostgreSQL: it
// forwards, matches and counts whole commands and whole replies, even if a pipeline
// carries several in one packet. Bytes of any other protocol pass as they come, and each
// packet counts as one command or reply.
//
// A command of PostgreSQL consists of all messages that a client sends before it waits
// for the server. Faults are matched against the SQL that the command executes. A
// command that executes no SQL matches no fault.
//
// After a connection has subscribed to a channel of Redis, the server sends messages on
// it that answer no command. The proxy then no longer counts replies: a cut of a matched
// command strikes the next thing that the server sends. The proxy does not understand
// MONITOR and CLIENT REPLY.
//
// The methods may be called from several goroutines. They concern current and new
// connections alike. If several faults match a command, the oldest one applies.
type Proxy struct {
	target string
	port   *reservation
	speaks func() wire // the protocol state of a new connection

	mu     sync.Mutex
	stop   func() // closes the listener and all connections; nil while the proxy refuses connections
	gate   chan struct{}
	delay  time.Duration
	faults []*Fault
}

// NewProxy starts a proxy in front of the target, such as Server.Addr, and closes it
// when the test ends. If the target is a path, such as PostgresServer.Addr, it is the
// unix socket of a PostgreSQL server.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	proxy, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// StartProxy starts a proxy in front of the target, see [NewProxy]. The caller closes
// it.
func StartProxy(target string) (*Proxy, error) {
	for range portTries {
		port, err := reservePort()
		if err != nil {
			return nil, err
		}
		p := &Proxy{target: target, port: port, gate: make(chan struct{})}
		p.speaks = func() wire { return &resp{} }
		if isSocket(target) {
			p.speaks = func() wire { return &postgres{} }
		}
		close(p.gate)
		if p.Accept() == nil {
			return p, nil
		}
		port.release()
	}
	return nil, errors.New("testserver: no port for a proxy")
}

func isSocket(target string) bool { return filepath.IsAbs(target) }

// Addr returns the address that the proxy listens on. It stays the same over Refuse and
// Accept.
func (p *Proxy) Addr() string { return p.port.addr() }

// Accept ends a Refuse: the proxy listens again. If the proxy already listens, Accept
// does nothing.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.Addr())
	if err != nil {
		return fmt.Errorf("testserver: proxy: %w", err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var serving sync.WaitGroup
	serving.Go(func() { p.serve(ctx, listener) })
	p.stop = func() {
		cancel()
		_ = listener.Close()
		serving.Wait()
	}
	return nil
}

// Refuse closes all connections and refuses new ones until Accept, as if there were no
// server. It returns when every goroutine of the proxy has ended.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	stop := p.stop
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Close ends the proxy, its connections and its goroutines, and leaves its port to others. Closing
// again is harmless.
func (p *Proxy) Close() {
	p.Refuse()
	p.port.release()
}

// Blackhole stops forwarding without closing anything, like a network that was cut. The
// proxy still accepts bytes and new connections, but forwards nothing until Heal, which
// delivers everything. A packet that is being forwarded at the time of the call may
// still pass.
func (p *Proxy) Blackhole() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
		p.gate = make(chan struct{})
	default:
	}
}

// Heal ends a Blackhole.
func (p *Proxy) Heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// Delay makes a round trip longer by d, half of it in each direction, for packets that
// arrive from now on. 0 ends the delay. Packets that arrive while an earlier one is
// delayed are forwarded together after it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// serve accepts connections until the listener is closed, and returns when the last
// connection has ended.
func (p *Proxy) serve(ctx context.Context, listener net.Listener) {
	var links sync.WaitGroup
	defer links.Wait()
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		links.Go(func() { p.forward(ctx, client) })
	}
}

// forward connects a client to the target until either side closes, a fault cuts the
// connection, or ctx ends.
func (p *Proxy) forward(ctx context.Context, client net.Conn) {
	defer func() { _ = client.Close() }()
	dialer, network := net.Dialer{Timeout: dialLimit}, "tcp"
	if isSocket(p.target) {
		network = "unix"
	}
	server, err := dialer.DialContext(ctx, network, p.target)
	if err != nil {
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	l := &link{proxy: p, client: client, server: server, wire: p.speaks()}
	var pumps sync.WaitGroup
	pumps.Go(func() { defer cancel(); l.pump(ctx, client, server, way{l.wire.request, l.admitRequest}) })
	pumps.Go(func() { defer cancel(); l.pump(ctx, server, client, way{l.wire.reply, l.admitReply}) })
	<-ctx.Done()
	_ = client.Close()
	_ = server.Close()
	pumps.Wait()
	l.lost()
}

// passage returns the rules for a packet that arrives now: the gate, which is closed
// while packets may pass, and the delay of one direction.
func (p *Proxy) passage() (gate <-chan struct{}, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate, p.delay / 2
}
