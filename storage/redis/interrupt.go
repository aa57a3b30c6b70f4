package redis

import (
	"context"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"
)

// interrupts ends calls of go-redis whose context ends while they wait for an answer: go-redis
// itself ends a call at a deadline, but not at a cancel. So the storage can make calls in the
// goroutine of the caller; a goroutine for each call would cost more than the call.
//
// interrupts recognizes the connections of a call by the deadlines that go-redis sets on them
// before it writes and reads: the context of a call returns a unique deadline each time.
type interrupts struct {
	patience time.Duration // timeout of one write or read

	mu    sync.Mutex // guards calls, and the fields of each call and conn
	calls map[int64]*call
}

// slack keeps the deadlines on connections behind those of a caller's context, so that the call ends
// with the error of the context, which is more precise.
const slack = 10 * time.Millisecond

// margin keeps these deadlines before the timeouts of go-redis, which sets the earlier of the two. It
// allows for a pause of the goroutine between the computations of the two.
const margin = time.Second

// newInterrupts returns the interrupts for connections on which reads and writes have this timeout, and
// the timeout to set in go-redis. in is nil if they have none, because go-redis then sets no deadlines.
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
	names []int64 // the deadlines that it returned, in nanoseconds
	conns []*conn
	over  bool // its context has ended
	ended bool // the call of go-redis has returned
}

// begin returns the context for a call of go-redis, and a function to be called after it.
func (in *interrupts) begin(ctx context.Context) (of context.Context, end func()) {
	if in == nil || ctx.Done() == nil {
		return ctx, func() {}
	}
	c := &call{Context: ctx, of: in, names: make([]int64, 0, 2), conns: make([]*conn, 0, 1)}
	c.stop = context.AfterFunc(ctx, c.interrupt)
	return c, c.end
}

// Deadline returns another moment each time, by which use recognizes the call.
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

// longAgo is a deadline that ends reads and writes at once.
var longAgo = time.Unix(1, 0)

// interrupt ends the reads and writes of the call, and those that it begins later.
func (c *call) interrupt() {
	c.of.mu.Lock()
	defer c.of.mu.Unlock()
	c.over = true
	for _, used := range c.conns {
		if used.call == c { // another call may use the connection by now
			_ = used.Conn.SetDeadline(longAgo)
		}
	}
}

// use notes that the call with the deadline t, if there is one, is about to use a connection. It
// returns the deadline to set. The caller holds mu.
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

// SetReadDeadline sets the deadline of reads. go-redis calls it before it reads.
func (c *conn) SetReadDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.Conn.SetReadDeadline(c.in.use(c, t))
}

// SetWriteDeadline sets the deadline of writes. go-redis calls it before it writes.
func (c *conn) SetWriteDeadline(t time.Time) error {
	c.in.mu.Lock()
	defer c.in.mu.Unlock()
	return c.Conn.SetWriteDeadline(c.in.use(c, t))
}

// plainConn is a conn whose file descriptor go-redis can check, to see whether the server has closed
// an idle connection.
type plainConn struct {
	*conn
	syscall.Conn
}

// dialer is the type of the field Dialer in the options of go-redis.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// over returns a dialer whose connections can be interrupted. It returns dial for nil interrupts.
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
