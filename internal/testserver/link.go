package testserver

import (
	"context"
	"net"
	"sync"
	"time"
)

// chunkSize is how much a connection reads at once.
const chunkSize = 64 << 10

// link is one connection through the proxy. Two goroutines pump its directions and
// end when either connection ends; forward owns and awaits them.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn

	mu   sync.Mutex
	wire wire
	// awaited has the faults of the commands whose replies are to come, in order,
	// nil where there is none.
	awaited []*Fault
}

// verdict says what becomes of a frame.
type verdict struct {
	fault *Fault // the fault that befalls it, nil for none
	cut   bool   // it goes nowhere and its connection ends
}

// way is one direction of a link: how its frames are measured and judged.
type way struct {
	frame func(b []byte) (size int, ok bool)
	admit func(frame []byte) verdict
}

// pump carries frames from one connection to the other.
func (l *link) pump(ctx context.Context, from, to net.Conn, w way) {
	var in []byte
	chunk := make([]byte, chunkSize)
	for {
		n, err := from.Read(chunk)
		in = append(in, chunk[:n]...)
		used, goOn := l.carry(ctx, in, to, w)
		if !goOn || err != nil {
			return
		}
		in = append(in[:0], in[used:]...)
	}
}

// carry sends on the whole frames of in, those that no fault concerns together,
// and says how many bytes that were. It reports whether the connection goes on.
func (l *link) carry(ctx context.Context, in []byte, to net.Conn, w way) (int, bool) {
	sent, seen := 0, 0
	for seen < len(in) {
		size, ok := w.frame(in[seen:])
		if !ok {
			size = len(in) - seen // another protocol: as it comes
		}
		if size == 0 {
			break
		}
		judged := w.admit(in[seen : seen+size])
		if judged.fault != nil {
			if !l.send(ctx, to, in[sent:seen]) {
				return 0, false
			}
			sent = seen
			judged.fault.strike()
			if judged.cut || !wait(ctx, judged.fault.released) {
				return 0, false
			}
		}
		seen += size
	}
	return seen, l.send(ctx, to, in[sent:seen])
}

// send writes what the faults of the proxy let through, and reports whether it could.
func (l *link) send(ctx context.Context, to net.Conn, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_, delay := l.proxy.passage()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	gate, _ := l.proxy.passage()
	if !wait(ctx, gate) {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// admitRequest judges a command and notes what its reply is in for.
func (l *link) admitRequest(request []byte) verdict {
	l.mu.Lock()
	shown, answered := l.wire.sent(request)
	l.mu.Unlock()
	var fault, now, later *Fault
	if shown != nil {
		fault = l.proxy.faultOf(shown)
	}
	if fault != nil {
		switch fault.kind {
		case cutBefore, holdRequest:
			now = fault
		case cutAfter, holdReply:
			later = fault
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if later != nil || answered {
		l.awaited = append(l.awaited, later)
	}
	return verdict{fault: now, cut: now != nil && now.kind == cutBefore}
}

// admitReply judges a reply by the command that it answers: the oldest without
// one. What the server pushes unasked answers none.
func (l *link) admitReply(reply []byte) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.awaited) == 0 || l.wire.unasked(reply) {
		return verdict{}
	}
	fault := l.awaited[0]
	l.awaited = l.awaited[1:]
	return verdict{fault: fault, cut: fault != nil && fault.kind == cutAfter}
}

// lost strikes for the cuts of commands whose replies can no longer come: they are
// as lost as the cut would have made them.
func (l *link) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fault := range l.awaited {
		if fault != nil && fault.kind == cutAfter {
			fault.strike()
		}
	}
}

// wait waits for a channel to be closed and reports whether it was before ctx
// ended.
func wait(ctx context.Context, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	case <-ctx.Done():
		return false
	}
}
