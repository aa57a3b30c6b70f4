package redis

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// interrupts ends calls of go-redis whose context ends while they wait for an answer,
// for go-redis itself heeds a deadline at best, never a cancel. Its calls can so be made
// in the goroutine of the caller: another one for each call costs more than the call.
//
// Which connections a call uses is learned from the deadlines that go-redis sets on them
// before it writes and reads: the context of a call gives each time one that no other has.
type interrupts struct {
	patience time.Duration // of one write or read

	mu    sync.Mutex // guards what follows, and what calls and conns have
	calls map[int64]*call
}

// slack keeps the deadlines given behind those of a caller's context, whose error says more.
const slack = 10 * time.Millisecond

// margin keeps them before the timeouts of go-redis, which would be taken otherwise: also
// where the goroutine rests between the two.
const margin = time.Second

// newInterrupts are for connections on which reads and writes time out, and gives what
// go-redis has to take for their timeout. Nil where they do not, for then go-redis sets no
// deadlines.
func newInterrupts(timeout time.Duration) (in *interrupts, timeouts time.Duration) {
	if timeout <= 0 {
		return nil, timeout
	}
	return &interrupts{patience: timeout, calls: make(map[int64]*call)}, timeout + margin
}

// call is the context of one call of go-redis.
type call struct {
	context.Context //nolint:containedctx // it is one

	of    *interrupts
	stop  func() bool
	names []int64 // the deadlines given, in nanoseconds
	conns []*conn
	over  bool // its context has ended
	ended bool // it was made
}

// begin gives the context with which go-redis is to be called, and what is to follow.
func (in *interrupts) begin(ctx context.Context) (of context.Context, end func()) {
	if in == nil || ctx.Done() == nil {
		return ctx, func() {}
	}
	c := &call{Context: ctx, of: in, names: make([]int64, 0, 2), conns: make([]*conn, 0, 1)}
	c.stop = context.AfterFunc(ctx, c.interrupt)
	return c, c.end
}

// Deadline gives another moment, by which use knows the call, each time.
func (c *call) Deadline() (time.Time, bool) {
	at := time.Now().Add(c.of.patience)
	if own, some := c.Context.Deadline(); some && own.Before(at) {
		at = own.Add(slack)
	}
	name := at.UnixNano()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for c.of.calls[name] != nil {
		name--
	}
	if !c.ended {
		c.of.calls[name] = c
		c.names = append(c.names, name)
	}
	return time.Unix(0, name), true
}

func (c *call) end() {
	c.stop()
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	for _, name := range c.names {
		delete(c.of.calls, name)
	}
	c.conns, c.ended = nil, true
}

// longAgo as a deadline ends what waits.
var longAgo = time.Unix(1, 0)

// interrupt ends what the call waits for, and all that it will wait for.
func (c *call) interrupt() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.over = true
	for _, used := range c.conns {
		if used.call == c { // and not another one's by now
			_ = used.Conn.SetDeadline(longAgo)
		}
	}
}

// use notes that a call, if it is one, waits for a connection until t next, and gives
// the deadline to set. The mutex is held.
func (in *interrupts) use(used *conn, t time.Time) time.Time {
	c := in.calls[t.UnixNano()]
	used.call = c
	if c == nil {
		return t
	}
	if c.over {
		return longAgo
	}
	if !slices.Contains(c.conns, used) {
		c.conns = append(c.conns, used)
	}
	return t
}

// conn is a connection whose user can be interrupted.
type conn struct {
	net.Conn

	in   *interrupts
	call *call // the last one; guarded by in.mu
}

// SetReadDeadline is what go-redis calls before it reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.Conn.SetReadDeadline(c.in.use(c, t))
}

// SetWriteDeadline is what go-redis calls before it writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.in.use(c, t))
}

// plainConn lets go-redis see whether the server has closed a connection that was idle.
type plainConn struct {
	*conn
	syscall.Conn
}

// Dialer of go-redis's options.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// over wraps what a dialer dials.
func (in *interrupts) over(dial dialer) dialer {
	if in == nil {
		return dial
	}
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		dialed, err := dial(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		c := &conn{Conn: dialed, in: in}
		if raw, some := dialed.(syscall.Conn); some {
			return plainConn{c, raw}, nil
		}
		return c, nil
	}
}
