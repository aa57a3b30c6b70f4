package server

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/midgehq/midge/bench/internal/process"
)

// Relay is a proxy between clients and a Redis. It makes a round trip longer, half of it
// in each direction, without delaying the pieces that follow, as a longer cable would. It
// also counts the commands of clients, which the server itself cannot distinguish from
// the commands of scripts.
type Relay struct {
	target   string
	oneWay   time.Duration
	listener net.Listener
	serving  sync.WaitGroup
	stop     context.CancelFunc

	mu      sync.Mutex
	traffic Traffic
}

// Traffic counts the commands and the round trips of clients.
type Traffic struct {
	Commands int64
	// Trips counts how often a connection that was waiting for nothing began to wait for a
	// reply. Commands that are sent together are one trip.
	Trips int64
}

// Minus returns the traffic since an earlier count.
func (t Traffic) Minus(earlier Traffic) Traffic {
	return Traffic{Commands: t.Commands - earlier.Commands, Trips: t.Trips - earlier.Trips}
}

// StartRelay starts a relay to target whose round trips take longer by delay. The caller
// closes it.
func StartRelay(ctx context.Context, target string, delay time.Duration) (*Relay, error) {
	var config net.ListenConfig
	listener, err := config.Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(ctx)
	r := &Relay{target: target, oneWay: delay / 2, listener: listener, stop: stop}
	r.serving.Go(func() { r.serve(ctx) })
	return r, nil
}

// Addr returns the address that the relay listens on.
func (r *Relay) Addr() string { return r.listener.Addr().String() }

// Traffic returns the traffic so far.
func (r *Relay) Traffic() Traffic {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.traffic
}

// Close ends the relay and its connections.
func (r *Relay) Close() error {
	r.stop()
	err := r.listener.Close()
	r.serving.Wait()
	return err
}

// serve accepts connections until the listener is closed.
func (r *Relay) serve(ctx context.Context) {
	for {
		client, err := r.listener.Accept()
		if err != nil {
			return
		}
		r.serving.Go(func() { r.forward(ctx, client) })
	}
}

// forward connects a client to the target until either closes or ctx ends.
func (r *Relay) forward(ctx context.Context, client net.Conn) {
	var dialer net.Dialer
	server, err := dialer.DialContext(ctx, "tcp", r.target)
	if err != nil {
		_ = client.Close()
		return
	}
	ctx, cancel := context.WithCancel(ctx)
	l := &link{relay: r}
	var pumps sync.WaitGroup
	pumps.Go(func() { defer cancel(); l.pump(client, server, l.sent) })
	pumps.Go(func() { defer cancel(); l.pump(server, client, l.answered) })
	<-ctx.Done()
	_, _ = client.Close(), server.Close()
	pumps.Wait()
}

// link is one connection.
type link struct {
	relay *Relay

	mu       sync.Mutex
	requests requests
	awaiting bool
}

// sent counts a piece from the client.
func (l *link) sent(piece []byte) {
	l.mu.Lock()
	before := l.requests.count
	l.requests.take(piece)
	commands, trip := l.requests.count-before, !l.awaiting
	l.awaiting = true
	l.mu.Unlock()
	l.relay.mu.Lock()
	defer l.relay.mu.Unlock()
	l.relay.traffic.Commands += commands
	if trip {
		l.relay.traffic.Trips++
	}
}

// answered records that a piece came from the server.
func (l *link) answered([]byte) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.awaiting = false
}

// parcel is a piece under way, and the moment when it must arrive.
type parcel struct {
	piece []byte
	due   time.Time
}

// underWay is how many pieces can be under way in one direction.
const underWay = 4096

// pump carries pieces from one connection to the other until either ends. It calls note
// with each piece.
func (l *link) pump(from, to net.Conn, note func([]byte)) {
	parcels := make(chan parcel, underWay)
	var delivery sync.WaitGroup
	delivery.Go(func() { // ends when the channel is closed
		for p := range parcels {
			process.Pause(p.due)
			if _, err := to.Write(p.piece); err != nil {
				_ = from.Close() // ends the reading
			}
		}
	})
	chunk := make([]byte, 64<<10)
	var err error
	for err == nil {
		var n int
		n, err = from.Read(chunk)
		if n > 0 {
			piece := append([]byte(nil), chunk[:n]...)
			note(piece)
			parcels <- parcel{piece, time.Now().Add(l.relay.oneWay)}
		}
	}
	close(parcels)
	delivery.Wait()
	if !errors.Is(err, net.ErrClosed) {
		_ = to.Close()
	}
}
