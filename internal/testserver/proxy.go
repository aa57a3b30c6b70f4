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
// faults. It understands RESP, versions 2 and 3, and the protocol of PostgreSQL: what it
// forwards, matches and counts are whole commands and whole replies, also where a
// pipeline carries several in one packet. Anything else passes as it comes, each packet
// being one command or reply.
//
// A command of PostgreSQL is all that a client sends before it waits. Matched is the SQL
// that it executes; commands that execute none are not matched.
//
// A connection that has subscribed to a channel of Redis carries messages from then on:
// nothing on it is counted, and a cut of a matched command comes at whatever the
// server sends next. MONITOR and CLIENT REPLY are not understood.
//
// The methods may be called from several goroutines. They concern current and new
// connections alike; where several faults match a command, the oldest applies.
type Proxy struct {
	target string
	addr   string
	speaks func() wire // of a new connection

	mu     sync.Mutex
	stop   func() // ends the listening and all connections; nil while refusing
	gate   chan struct{}
	delay  time.Duration
	faults []*Fault
}

// NewProxy starts a proxy in front of the target, such as Server.Addr, and closes
// it when the test ends. A target that is a path, such as PostgresServer.Addr, is the
// socket of a PostgreSQL.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	proxy, err := StartProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(proxy.Close)
	return proxy
}

// StartProxy starts a proxy in front of the target. The caller closes it.
func StartProxy(target string) (*Proxy, error) {
	for range portTries {
		port, err := freePort()
		if err != nil {
			return nil, err
		}
		p := &Proxy{target: target, addr: fmt.Sprintf("127.0.0.1:%d", port), gate: make(chan struct{})}
		p.speaks = func() wire { return &resp{} }
		if isSocket(target) {
			p.speaks = func() wire { return &postgres{} }
		}
		close(p.gate)
		if p.Accept() == nil {
			return p, nil
		}
	}
	return nil, errors.New("testserver: no port for a proxy")
}

func isSocket(target string) bool { return filepath.IsAbs(target) }

// Addr is where the proxy listens. It stays the same over Refuse and Accept.
func (p *Proxy) Addr() string { return p.addr }

// Accept ends a Refuse: the proxy listens again. On a proxy that listens it does
// nothing.
func (p *Proxy) Accept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.stop != nil {
		return nil
	}
	listener, err := net.Listen("tcp", p.addr)
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

// Refuse closes all connections and refuses new ones until Accept, as a server
// that is not there. It returns when every goroutine of the proxy has ended.
func (p *Proxy) Refuse() {
	p.mu.Lock()
	stop := p.stop
	p.stop = nil
	p.mu.Unlock()
	if stop != nil {
		stop()
	}
}

// Close ends the proxy, its connections and its goroutines. Closing again is
// harmless.
func (p *Proxy) Close() { p.Refuse() }

// Blackhole stops forwarding without closing anything, as a network that was cut:
// bytes and new connections are taken and go nowhere until Heal, which delivers
// them. A packet under way when it is called may still pass.
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

// Delay makes a round trip longer by d, half of it in each direction, for what
// arrives from now on; 0 ends it. Packets that arrive while one is delayed go on
// together behind it.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// serve accepts connections until the listener is closed, and ends when the last
// of them has.
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

// forward connects a client to the target until either closes, a fault cuts them
// or ctx ends.
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

// passage gives what applies to a packet that arrives now: the gate, closed once
// it is open, and the delay of one direction.
func (p *Proxy) passage() (gate <-chan struct{}, delay time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.gate, p.delay / 2
}
