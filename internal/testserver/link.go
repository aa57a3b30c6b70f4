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

	mu         sync.Mutex
	subscribed bool
	// awaited has the faults of the commands whose replies are to come, in order,
	// nil where there is none. Once subscribed, only those with one.
	awaited []*Fault
}

// verdict says what becomes of a frame.
type verdict struct {
	fault *Fault // the fault that befalls it, nil for none
	cut   bool   // it goes nowhere and its connection ends
}

// pump carries frames from one connection to the other. admit judges each.
func (l *link) pump(ctx context.Context, from, to net.Conn, admit func(frame []byte) verdict) {
	var in []byte
	chunk := make([]byte, chunkSize)
	for {
		n, err := from.Read(chunk)
		in = append(in, chunk[:n]...)
		used, goOn := l.carry(ctx, in, to, admit)
		if !goOn || err != nil {
			return
		}
		in = append(in[:0], in[used:]...)
	}
}

// carry sends on the whole frames of in, those that no fault concerns together,
// and says how many bytes that were. It reports whether the connection goes on.
func (l *link) carry(ctx context.Context, in []byte, to net.Conn, admit func([]byte) verdict) (int, bool) {
	sent, seen := 0, 0
	for seen < len(in) {
		size, ok := frame(in[seen:])
		if !ok {
			size = len(in) - seen // not RESP: as it comes
		}
		if size == 0 {
			break
		}
		judged := admit(in[seen : seen+size])
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

// send writes what the weather lets through, and reports whether it could.
func (l *link) send(ctx context.Context, to net.Conn, b []byte) bool {
	if len(b) == 0 {
		return true
	}
	_, delay := l.proxy.weather()
	if delay > 0 {
		timer := time.NewTimer(delay)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
			return false
		}
	}
	gate, _ := l.proxy.weather()
	if !wait(ctx, gate) {
		return false
	}
	_, err := to.Write(b)
	return err == nil
}

// admitRequest judges a command and notes what its reply is in for.
func (l *link) admitRequest(request []byte) verdict {
	fault := l.proxy.faultOf(request)
	var now, later *Fault
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
	switch command(request) {
	case "SUBSCRIBE", "PSUBSCRIBE", "SSUBSCRIBE":
		l.subscribed = true
	}
	if later != nil || !l.subscribed {
		l.awaited = append(l.awaited, later)
	}
	return verdict{fault: now, cut: now != nil && now.kind == cutBefore}
}

// admitReply judges a reply by the command that it answers: the oldest without
// one. What the server pushes unasked answers none.
func (l *link) admitReply(reply []byte) verdict {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.awaited) == 0 || reply[0] == '>' && !l.subscribed {
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
