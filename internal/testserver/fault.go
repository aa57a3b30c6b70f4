package testserver

import (
	"bytes"
	"strings"
	"sync"
)

// Fault is something that a Proxy does to the commands that match.
type Fault struct {
	match func(request []byte) bool
	kind  faultKind

	mu   sync.Mutex
	left int // commands still to match, -1 all
	open int // commands to strike until struck is closed

	struck   chan struct{}
	released chan struct{}
}

type faultKind int

const (
	cutBefore faultKind = iota
	cutAfter
	holdRequest
	holdReply
)

// CutAfterRequest loses replies: of the next n commands that match, each is
// forwarded and executed, and when its reply arrives, both sides of the connection
// are closed before any byte of that reply is delivered. Replies to earlier
// commands of a pipeline are delivered. With a negative n it is every command that
// matches, until [Fault.Release].
//
// match is given whole commands as they are on the wire, and of PostgreSQL their SQL. It
// is called by the connections' goroutines, several at a time, and neither keeps nor
// changes the bytes. [Command] and [Containing] make such functions.
func (p *Proxy) CutAfterRequest(match func(request []byte) bool, n int) *Fault {
	return p.add(cutAfter, match, n)
}

// CutBeforeRequest loses requests: for each of the next n commands that match,
// both sides of its connection are closed and the server never sees the command.
// Earlier commands of a pipeline are forwarded; their replies may be lost too. A
// negative n is as for CutAfterRequest.
func (p *Proxy) CutBeforeRequest(match func(request []byte) bool, n int) *Fault {
	return p.add(cutBefore, match, n)
}

// Hold keeps every command that matches from the server until [Fault.Release], and
// with it what its connection sends afterwards.
func (p *Proxy) Hold(match func(request []byte) bool) *Fault {
	return p.add(holdRequest, match, -1)
}

// HoldReply lets every command that matches be executed and keeps its reply from
// the client until [Fault.Release], and with it what its connection receives
// afterwards.
func (p *Proxy) HoldReply(match func(request []byte) bool) *Fault {
	return p.add(holdReply, match, -1)
}

// Struck is closed when the fault has befallen all the n commands of a cut, or the
// first one of a hold.
func (f *Fault) Struck() <-chan struct{} { return f.struck }

// Release ends the fault: what it holds goes on and nothing more matches.
// Releasing again is harmless.
func (f *Fault) Release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.left = 0
	select {
	case <-f.released:
	default:
		close(f.released)
	}
}

// Command matches the commands of Redis with one of these names, in any case, such as
// Command("EVALSHA", "EVAL").
func Command(names ...string) func(request []byte) bool {
	return func(request []byte) bool {
		got := command(request)
		for _, name := range names {
			if strings.EqualFold(got, name) {
				return true
			}
		}
		return false
	}
}

// Containing matches the commands that contain a text anywhere, such as a key or the name
// of a function.
func Containing(text string) func(request []byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, []byte(text)) }
}

func (p *Proxy) add(kind faultKind, match func([]byte) bool, n int) *Fault {
	f := &Fault{
		match: match, kind: kind, left: n, open: max(n, 1),
		struck: make(chan struct{}), released: make(chan struct{}),
	}
	if n == 0 {
		close(f.struck)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.faults = append(p.faults, f)
	return f
}

// faultOf gives the fault that befalls a command, nil for none.
func (p *Proxy) faultOf(request []byte) *Fault {
	p.mu.Lock()
	faults := p.faults // append-only
	p.mu.Unlock()
	for _, f := range faults {
		if f.takes(request) {
			return f
		}
	}
	return nil
}

// takes reports whether the fault befalls the command, and counts it.
func (f *Fault) takes(request []byte) bool {
	if !f.match(request) {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.left == 0 {
		return false
	}
	if f.left > 0 {
		f.left--
	}
	return true
}

// strike notes that the fault has befallen one command.
func (f *Fault) strike() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.open--; f.open == 0 {
		close(f.struck)
	}
}
