package testserver

import (
	"context"
	"net"
	"sync"
	"time"
)

// chunkSize is the number of bytes that a connection reads at once.
const chunkSize = 64 << 10

// link is one connection through the proxy. Two goroutines pump its two directions and
// end when either side closes. Proxy.forward starts them and waits for them.
type link struct {
	proxy  *Proxy
	client net.Conn
	server net.Conn

	mu   sync.Mutex
	wire wire
	// awaited has one entry, in order, for each command whose reply has not arrived: the
	// fault that will strike the reply, or nil.
	awaited []*Fault
}

// verdict is the decision about a frame.
type verdict struct {
	fault *Fault // the fault that strikes the frame, or nil
	cut   bool   // the frame is dropped and its connection ends
}

// way holds the functions of one direction of a link: frame measures its frames, admit
// judges them.
type way struct {
	frame func(b []byte) (size int, ok bool)
	admit func(frame []byte) verdict
}

// pump carries frames from one connection to the other until either ends or a fault
// cuts them.
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

// carry forwards the complete frames of in. Frames that no fault strikes are written
// together. It returns the number of bytes that it has used and whether the connection
// goes on.
func (l *link) carry(ctx context.Context, in []byte, to net.Conn, w way) (int, bool) {
	sent, seen := 0, 0
	for seen < len(in) {
		size, ok := w.frame(in[seen:])
		if !ok {
			size = len(in) - seen // another protocol: pass the bytes on as they come
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

// send writes b after the proxy's delay and through its gate. It reports whether it
// could write.
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

// admitRequest judges a command and records which fault, if any, will strike its reply.
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

// admitReply judges a reply by the command that it answers, which is the oldest command
// without a reply. A message that the server sends unasked answers no command.
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

// lost counts the cuts of commands whose replies can no longer arrive as struck: these
// replies are as lost as the cuts would have made them.
func (l *link) lost() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, fault := range l.awaited {
		if fault != nil && fault.kind == cutAfter {
			fault.strike()
		}
	}
}

// wait waits until a channel is closed or ctx ends, and reports whether the channel was
// closed.
func wait(ctx context.Context, closed <-chan struct{}) bool {
	select {
	case <-closed:
		return true
	case <-ctx.Done():
		return false
	}
}
